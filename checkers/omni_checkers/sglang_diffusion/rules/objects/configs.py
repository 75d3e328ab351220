"""Rules on configs: SGL101, SGL102."""

import ast

from omni_checkers.engine.files import File
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.sglang_diffusion.facts.classes import CONFIG, DIT_CONFIG, Classes
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.python.source import dotted

_CONFIG = """from dataclasses import dataclass, field

from sglang.multimodal_gen.configs.models.dits.base import DiTArchConfig, DiTConfig


@dataclass
class ServedDiTArchConfig(DiTArchConfig):
    num_layers: int = 2


@dataclass
class ServedDiTConfig(DiTConfig):
    arch_config: ServedDiTArchConfig = field(default_factory=ServedDiTArchConfig)
"""


class ArchConfigIsADataclass(Rule):
    """The config of a denoiser holds its architecture in a dataclass that derives from DiTArchConfig.

    Why: SGLang's loader sets attributes on it. A dict has none: loading fails, is logged, and SGLang goes on with
    diffusers' own class in the denoiser's place.

    Fine when: never.
    """

    id = "SGL101"
    name = "arch-config-is-a-dataclass"
    target = "sglang-diffusion"
    kinds = frozenset({Kind.pipeline})
    obligations = ("SGL-20",)
    BAD = ({"dit_config.py": _CONFIG.replace("default_factory=ServedDiTArchConfig", "default_factory=dict")},)
    GOOD = ({"dit_config.py": _CONFIG},)

    def check(self, classes: Classes) -> Findings:
        """See `Rule.check`."""
        configs = list(classes.of(DIT_CONFIG))
        if not configs:
            raise NotApplicable("it has no DiTConfig of its own")
        for config in configs:
            value = config.assigned("arch_config")
            if value is None:
                continue
            made = _factory(value)
            if isinstance(made, (ast.Dict, ast.DictComp)) or dotted(made) == "dict":
                message = f"arch_config of {config.node.name} is a dict: SGLang sets attributes on it"
                yield Finding(message, config.file.path, value.lineno)
            elif (own := classes.by_name.get(dotted(made) or "")) is not None and not _is_dataclass(own.node):
                yield Finding(f"{own.node.name} is no dataclass", own.file.path, own.node.lineno)


class RegisterIsThere(Rule):
    """A module-level `register()` stands in the file of a pipeline's config, or in that of one of several.

    Why: SGLang imports each file of configs and calls its `register()`; without one the pipeline has no config, and
    SGLang serves it with diffusers, slowly, or not at all.

    Fine when: never.
    """

    id = "SGL102"
    name = "register-is-there"
    target = "sglang-diffusion"
    kinds = frozenset({Kind.pipeline})
    obligations = ("SGL-42",)
    BAD = ({"pipeline_config.py": "from sglang.multimodal_gen.configs.pipeline_configs.base import ImagePipelineConfig\n\n\nclass Served(ImagePipelineConfig):\n    pass\n"},)  # fmt: skip  # noqa: E501
    GOOD = ({"pipeline_config.py": "from sglang.multimodal_gen.configs.pipeline_configs.base import ImagePipelineConfig\n\n\nclass Served(ImagePipelineConfig):\n    pass\n\n\ndef register():\n    pass\n"},)  # fmt: skip  # noqa: E501

    def check(self, classes: Classes) -> Findings:
        """See `Rule.check`."""
        configs = list(classes.of(CONFIG))
        if not configs:
            raise NotApplicable("it has no PipelineConfig of its own")
        if not any(_registers(config.file) for config in configs):
            config = configs[0]
            message = f"{config.file.path.name} defines {config.node.name}, and no register() for SGLang to call"
            yield Finding(message, config.file.path, config.node.lineno)


def _registers(file: File) -> bool:
    """Whether a module has a function `register` at its top."""
    body = file.tree.body if file.tree is not None else []
    return any(isinstance(node, ast.FunctionDef) and node.name == "register" for node in body)


def _factory(value: ast.expr) -> ast.expr:
    """What `field(default_factory=...)` makes; another value as it is."""
    if isinstance(value, ast.Call) and (dotted(value.func) or "").endswith("field"):
        made = next((one.value for one in value.keywords if one.arg == "default_factory"), value)
        return made.body if isinstance(made, ast.Lambda) else made
    return value.func if isinstance(value, ast.Call) else value


def _is_dataclass(node: ast.ClassDef) -> bool:
    marks = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    return any((dotted(mark) or "").endswith("dataclass") for mark in marks)
