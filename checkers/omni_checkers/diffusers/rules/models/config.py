"""Rules about a model's config and its loading methods: DFU101, DFU102."""

import ast
from collections.abc import Iterator

from omni_checkers.diffusers.examples import LUMEN, PIPELINE, TRANSFORMER, changed
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import strings
from omni_kit.pysource.signatures import decorators, parameters

_REGISTER, _CONFIG, _IGNORED = "register_to_config", "ConfigMixin", "ignore_for_config"
_INIT = "in_channels: int = 4, dim: int = 32"
_LOADING = ("from_pretrained", "from_config", "save_pretrained", "load_state_dict", "state_dict")


class ConfigHoldsEveryParameter(Rule):
    """Register every `__init__` parameter in the config.

    The class is a ConfigMixin with its own `__init__` under `@register_to_config`. No parameter escapes registration
    through `*args`, `**kwargs`, a leading underscore or `ignore_for_config`.

    Why: a parameter that the config lacks silently returns to its default when a saved model is loaded. Weights then
    have other shapes, or the output differs.

    Fine when: the constructor accepts the parameter only to raise or warn.
    """

    id = "DFU101"
    name = "config-holds-every-parameter"
    target = "diffusers"
    obligations = ("DIF-31", "DIF-39")
    BAD = (
        changed(TRANSFORMER, ("    @register_to_config\n", "")),
        changed(TRANSFORMER, (_INIT, f"{_INIT}, _theta: float = 1e4")),
    )
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER]},)

    def check(self, models: list[ClassRef]) -> Findings:
        for cls in models:
            init = cls.defines("__init__")
            if init is None or not (parameters(init) or init.args.vararg or init.args.kwarg):
                continue
            if not cls.derives(_CONFIG):
                yield at(cls.source, cls.node, f"{cls.node.name} is not a {_CONFIG}: its parameters are not saved")
            elif _REGISTER not in decorators(init):
                yield at(cls.source, init, f"__init__ of {cls.node.name} lacks @{_REGISTER}: no parameter is saved")
            else:
                yield from _past_it(cls, init)


def _past_it(cls: ClassRef, init: ast.FunctionDef) -> Iterator[Finding]:
    """Parameters that `register_to_config` does not see, or does not keep."""
    for one in (init.args.vararg, init.args.kwarg):
        if one is not None:
            yield at(cls.source, one, f"'{one.arg}' of {cls.node.name} accepts arguments that the config does not save")
    found = cls.assigned(_IGNORED)
    ignored = set(strings(found[1]) or ()) if found is not None else set()
    for node in [*init.args.posonlyargs, *init.args.args, *init.args.kwonlyargs]:
        if node.arg.startswith("_"):
            yield at(cls.source, node, f"'{node.arg}' is not saved: names with an underscore are dropped")
        elif node.arg in ignored:
            yield at(cls.source, node, f"'{node.arg}' is not saved: {_IGNORED} names it")


class LoadingIsInherited(Rule):
    """Do not override diffusers' loading and saving methods.

    Why: quantization, sharded checkpoints, device maps, offloading and `variant=` are implemented in those methods. A
    class with its own methods lacks all of them and misses diffusers' later fixes.

    Fine when: the class wraps several models and has no weights of its own.
    """

    id = "DFU102"
    name = "loading-is-inherited"
    target = "diffusers"
    obligations = ("DIF-15",)
    BAD = (
        changed(
            TRANSFORMER,
            ("    def forward(self, hidden_states, timestep",
             "    @classmethod\n    def from_pretrained(cls, path):\n        model = cls()\n"
             "        model.load_state_dict(torch.load(path))\n        return model\n\n"
             "    def forward(self, hidden_states, timestep"),
        ),
    )  # fmt: skip
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER], PIPELINE: LUMEN[PIPELINE]},)

    def check(self, classes: list[ClassRef]) -> Findings:
        for cls in classes:
            if cls.derives("ModelMixin", "DiffusionPipeline"):
                for name in _LOADING:
                    if (method := cls.defines(name)) is not None:
                        yield at(cls.source, method, f"{cls.node.name} overrides {name} of diffusers")
