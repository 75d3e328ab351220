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
    """A model can be imported and built from its defaults, or its toy_config.json, and does what each one does.

    It takes `enable_gradient_checkpointing()`, where it says that it does, and `set_attn_processor` of what
    `attn_processors` gives. It is built on the meta device, without weights. A model whose defaults are None and do not
    go together is judged with a toy_config.json alone.

    Why: `from_pretrained` builds it in the same way before it looks for weights.

    Fine when: it stands for something that only another device can build.
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
    """What a model is built with is in its config, parameter by parameter.

    Each parameter that is a number or a switch is given another value than its default, where the model takes it.

    Why: what the config lacks, or says otherwise, is back at its default as soon as the model is saved and loaded.

    Fine when: a value is normalised on purpose, and means the same.
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
    """Classes, patterns and paths that a model declares fit modules that it is built of.

    Why: a name that fits nothing is passed over: blocks are cut in two, left uncompiled or cast to a low precision, and
    a plan for several devices fails when it is first used.

    Fine when: what is named is there with other settings than the defaults; then give a toy_config.json with them.
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
    """What a run found of one kind, at the class that it is about."""
    lacking = [one["lacks"] for one in constructed.values() if one["lacks"]]
    if lacking and len(lacking) == len(constructed):
        raise NotApplicable(f"the run needs {lacking[0]}")
    for cls in models:
        found = constructed.get(cls.node.name, {"lacks": "", "wrong": []})
        for what, message in found["wrong"] if not found["lacks"] else ():
            if what == kind:
                yield at(cls.source, cls.node, f"{cls.node.name}: {message}")
