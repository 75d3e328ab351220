"""Rules about a model's class attributes: DFU121 to DFU123."""

import ast
import re
from collections.abc import Iterator

from omni_checkers.diffusers.examples import LUMEN, TRANSFORMER, changed
from omni_checkers.diffusers.facts.building import Built, built, held
from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import keyword, last_name, strings
from omni_kit.pysource.reads import attributes_set
from omni_kit.pysource.signatures import parameters

_CLASSES = ("_no_split_modules", "_repeated_blocks")
_PATTERNS = {"_skip_layerwise_casting_patterns": False, "_keep_in_fp32_modules": True}
_CHECKPOINTED = "_gradient_checkpointing_func"
_PLAN = '        "blocks.0": {"hidden_states": '


class DeclarationsNameWhatExists(Rule):
    """Declare only parts that the model has.

    `_no_split_modules` and `_repeated_blocks` name classes of its modules. `_skip_layerwise_casting_patterns` and
    `_keep_in_fp32_modules` match module names.

    Why: diffusers ignores a name that matches nothing. A device map then splits the block, compilation skips it, or
    layerwise casting lowers the precision of norms.

    Fine when: a subclass adds the part.
    """

    id = "DFU121"
    name = "declarations-name-what-exists"
    target = "diffusers"
    obligations = ("DIF-38",)
    failure_modes = ("diffusers-capability-flags",)
    BAD = (
        changed(TRANSFORMER, ('_no_split_modules = ["LumenBlock"]', '_no_split_modules = ["LumenTransformerBlock"]')),
        changed(TRANSFORMER, ('_patterns = ["norm"]', '_patterns = ["norm", "pos_embed"]')),
    )
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER]},)

    def check(self, models: list[ClassRef]) -> Findings:
        for cls in models:
            declared = [item for item in cls.node.body if isinstance(item, ast.Assign)]
            if any(_declares(item) for item in declared):
                parts = built(cls)
                for item in declared:
                    yield from _unknown(cls, item, parts)


def _declares(item: ast.Assign) -> str:
    name = getattr(item.targets[0], "id", "")
    return name if name in _CLASSES or name in _PATTERNS else ""


def _unknown(cls: ClassRef, item: ast.Assign, parts: Built) -> Iterator[Finding]:
    name = _declares(item)
    for text in strings(item.value) or () if name else ():
        if name in _CLASSES and text not in parts.class_names and parts.complete:
            yield at(cls.source, item, f"{name} names {text}, but {cls.node.name} has no such module")
        if name in _PATTERNS and parts.complete and not _fits(text, parts, whole=_PATTERNS[name]):
            yield at(cls.source, item, f"{name} names '{text}', but {cls.node.name} has no module with that name")


def _fits(pattern: str, parts: Built, whole: bool) -> bool:
    """Return whether each word of a pattern is, or is in, the name of an attribute."""
    words = [word for word in re.split(r"[^A-Za-z_0-9]+", pattern) if word and not word.isdigit()]
    names = parts.attributes
    return all(word in names if whole else any(word in name for name in names) for word in words)


class CheckpointingIsDone(Rule):
    """Set `_supports_gradient_checkpointing` if and only if the model calls `_gradient_checkpointing_func`.

    Why: `enable_gradient_checkpointing()` has no effect on a model that never calls the function, and raises on a model
    that does not declare support.

    Fine when: a part from another library checkpoints itself in its own way.
    """

    id = "DFU122"
    name = "checkpointing-is-done"
    target = "diffusers"
    obligations = ("DIF-38",)
    failure_modes = ("diffusers-capability-flags",)
    BAD = (
        changed(TRANSFORMER, ("self._gradient_checkpointing_func(block, hidden_states, rotary)",
                              "block(hidden_states, rotary)")),
        changed(TRANSFORMER, ("    _supports_gradient_checkpointing = True\n", "")),
    )  # fmt: skip
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER]},)

    def check(self, models: list[ClassRef]) -> Findings:
        for cls in models:
            said = cls.assigned("_supports_gradient_checkpointing")
            supports = said is not None and getattr(said[1], "value", True) is not False
            if not supports and _CHECKPOINTED not in cls.source.text:
                continue
            if supports and said is not None and said[0].node is cls.node:
                parts = built(cls)
                if parts.complete and not any(_calls(part) for part in parts.classes):
                    yield at(cls.source, said[1], f"{cls.node.name} declares checkpointing, but nothing calls it")
            elif not supports and _calls(cls):
                yield at(cls.source, cls.node, f"{cls.node.name} checkpoints, but does not declare support for it")


def _calls(cls: ClassRef) -> bool:
    """Return whether the code of a class, or of one above it, has to do with the function that checkpoints."""
    return any(
        isinstance(node, ast.Attribute) and node.attr == _CHECKPOINTED
        for entry in cls.mro
        if isinstance(entry, ClassRef) and entry.node.name != "ModelMixin" and _CHECKPOINTED in entry.source.text
        for node in walked(entry.node)
    )


class ParallelPlanFits(Rule):
    """Name existing modules, and arguments of their `forward`, in a context-parallel plan.

    A key is a module path that starts with an attribute of the model. Inside it, a name is a parameter of that module's
    `forward`; a number is an output index and needs `split_output=True`.

    Why: diffusers reads the plan only on several devices. There a wrong key raises. A wrong argument name leaves the
    tensor whole: shapes do not fit, or tokens receive the positions of other tokens.

    Fine when: the modules are added after construction.
    """

    id = "DFU123"
    name = "parallel-plan-fits"
    target = "diffusers"
    obligations = ("DIF-38",)
    failure_modes = ("diffusers-capability-flags",)
    BAD = (
        changed(TRANSFORMER, ('        "blocks.0": {', '        "transformer_blocks.0": {')),
        changed(TRANSFORMER, (_PLAN, '        "blocks.0": {"x": ')),
    )
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER]},)

    def check(self, models: list[ClassRef]) -> Findings:
        for cls in models:
            plan = cls.assigned("_cp_plan")
            if plan is not None and plan[0].node is cls.node and isinstance(plan[1], ast.Dict):
                for key, value in zip(plan[1].keys, plan[1].values, strict=True):
                    if isinstance(key, ast.Constant) and isinstance(key.value, str):
                        yield from _entry(cls, key, key.value, value)


def _entry(cls: ClassRef, key: ast.expr, path: str, value: ast.expr) -> Iterator[Finding]:
    first = path.partition(".")[0]
    init = cls.method("__init__")
    if first and init is not None and first not in attributes_set(init[1]) and not init[0].derives("Sequential"):
        yield at(cls.source, key, f"the plan names '{path}', and {cls.node.name} has no '{first}'")
        return
    module = cls if not path else held(cls, first) if path.count(".") <= 1 else None
    forward = module.method("forward") if module is not None else None
    if not isinstance(value, ast.Dict) or forward is None:
        return
    for name, split in zip(value.keys, value.values, strict=True):
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            if name.value not in parameters(forward[1]):
                yield at(cls.source, name, f"the plan names '{name.value}', which '{path}' does not accept")
            elif _splits_output(split) is True:
                yield at(cls.source, name, f"'{name.value}' is an argument, but split_output=True is for outputs")
        elif isinstance(name, ast.Constant) and _splits_output(split) is False:
            yield at(cls.source, name, f"{name.value!r} is an output index, which needs split_output=True")


def _splits_output(node: ast.expr) -> bool | None:
    """Return the `split_output` of an entry; None if it cannot be read."""
    if not isinstance(node, ast.Call) or last_name(node.func) != "ContextParallelInput":
        return None
    given = keyword(node, "split_output")
    if given is None:
        return len(node.args) > 2 and None
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, bool) else None
