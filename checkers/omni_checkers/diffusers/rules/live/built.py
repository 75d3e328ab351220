"""Rules about what only a run can tell: DFU701 to DFU703."""

from collections.abc import Iterator, Mapping
from typing import Any

from omni_checkers.diffusers.examples import LUMEN, TRANSFORMER, changed
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_kit.pysource.classes import ClassRef

Constructed = Mapping[str, Any]
_REQUIRES = ("torch", "diffusers")
_SUPER = "num_layers: int = 2):\n        super().__init__()\n"


class ModelsCanBeBuilt(Rule):
    """A model imports, builds from its defaults or its toy_config.json, and supports the methods that it declares.

    The rule calls `enable_gradient_checkpointing()` if the model declares support for it, and `set_attn_processor` with
    the result of `attn_processors`. It builds the model on the meta device, without weights. A model whose defaults are
    None or contradict each other needs a toy_config.json.

    Why: `from_pretrained` builds the model in the same way before it reads any weights.

    Fine when: the model needs a device that this machine does not have.
    """

    id = "DFU701"
    name = "models-can-be-built"
    target = "diffusers"
    level = "import"
    requires = _REQUIRES
    obligations = ("DIF-15", "DIF-23")
    BAD = (
        changed(TRANSFORMER, ("nn.Linear(in_channels, dim)", "nn.Linear(in_channels, dims)")),
        changed(TRANSFORMER, ("import torch\n", "import torch\nfrom diffusers.models import NoSuchModel\n")),
    )
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER]},)

    def check(self, constructed: Constructed, models: list[ClassRef]) -> Findings:
        yield from _said(constructed, "built", models)


class ConfigsComeBack(Rule):
    """Store every constructor argument in the config unchanged.

    The rule changes each numeric and boolean parameter from its default, where the model accepts the new value.

    Why: an argument that the config lacks or changes returns to its default after saving and loading.

    Fine when: the model normalises the value on purpose and both values mean the same.
    """

    id = "DFU702"
    name = "configs-come-back"
    target = "diffusers"
    level = "import"
    requires = _REQUIRES
    obligations = ("DIF-39",)
    BAD = (
        changed(TRANSFORMER, (_SUPER, f"{_SUPER}        self.register_to_config(num_layers=2)\n")),
        changed(TRANSFORMER, ("    _repeated_blocks", '    ignore_for_config = ["heads"]\n    _repeated_blocks')),
    )
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER]},)

    def check(self, constructed: Constructed, models: list[ClassRef]) -> Findings:
        yield from _said(constructed, "config", models)


class DeclarationsFitModules(Rule):
    """Declare only classes, patterns and paths that match modules of the model.

    Why: diffusers ignores a name that matches nothing. Blocks are then split, not compiled or cast to a low precision,
    and a context-parallel plan fails on its first use.

    Fine when: the names match under other settings than the defaults; then add a toy_config.json with those settings.
    """

    id = "DFU703"
    name = "declarations-fit-modules"
    target = "diffusers"
    level = "import"
    requires = _REQUIRES
    obligations = ("DIF-38",)
    failure_modes = ("diffusers-capability-flags",)
    BAD = (
        changed(TRANSFORMER, ('_no_split_modules = ["LumenBlock"]', '_no_split_modules = ["LumenLayer"]')),
        changed(TRANSFORMER, ('_patterns = ["norm"]', '_patterns = ["norm$", "^norm_out"]')),
        changed(TRANSFORMER, ('"blocks.0": {', '"blocks.first": {')),
    )
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER]},)

    def check(self, constructed: Constructed, models: list[ClassRef]) -> Findings:
        yield from _said(constructed, "declared", models)


def _said(constructed: Constructed, kind: str, models: list[ClassRef]) -> Iterator[Finding]:
    """Yield a run's findings of one kind, at the class that each is about."""
    lacking = [one["lacks"] for one in constructed.values() if one["lacks"]]
    if lacking and len(lacking) == len(constructed):
        raise NotApplicable(f"the run needs {lacking[0]}")
    for cls in models:
        found = constructed.get(cls.node.name, {"lacks": "", "wrong": []})
        for what, message in found["wrong"] if not found["lacks"] else ():
            if what == kind:
                yield at(cls.source, cls.node, f"{cls.node.name}: {message}")
