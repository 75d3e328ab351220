"""Modules of constants that several others hold: each gets a copy, because safetensors stores no tensor twice."""

from collections.abc import Collection, Iterator, Mapping, Sequence

import libcst as cst

from omni_kit.targets.diffusers.porting.parts import Part, Parts
from omni_kit.targets.diffusers.porting.syntax import chain, code, method, own_attribute, parameters
from omni_kit.targets.diffusers.porting.visiting import visited, walk

_UNTRAINED = frozenset({"nn.Dropout", "nn.Identity", "nn.Module"})


def with_own_copies(parts: Parts) -> None:
    """Let a constructor copy what it is passed and keeps, where that is a module whose values nothing trains."""
    classes = {one.name: one for one in parts.parts if one.cls is not None}
    calls = [one for part in parts.parts for one in walk(part.node) if isinstance(one, cst.Call)]
    constant = {name for name, one in classes.items() if one.cls is not None and _is_constant(one.cls, [
        call for call in calls if chain(call.func) == name])}  # fmt: skip
    passed: dict[str, set[str]] = {name: set() for name in classes}
    while constant and (found := [*_passed_on(classes, constant, passed)]):
        for name, argument in found:
            passed[name].add(argument)
    for name, arguments in passed.items():
        cls = classes[name].cls
        assert cls is not None
        changed = visited(cls, _Copied(arguments)) if arguments else cls
        if not changed.deep_equals(cls):
            classes[name].node = changed
            parts.imports += [] if "import copy" in parts.imports else ["import copy"]


def _is_constant(node: cst.ClassDef, made_by: Sequence[cst.Call]) -> bool:
    """Return whether a class of modules has buffers that are stored, and nothing that is trained where it is made."""
    calls = [one for one in walk(node) if isinstance(one, cst.Call)]
    made = {chain(one.func) for one in calls}
    init = method(node, "__init__")
    off = {one.name.value for one in (parameters(init) if init is not None else ())
           if one.default is not None and code(one.default) == "False"
           and not any(_word(call, one.name.value) for call in made_by)}  # fmt: skip
    fixed = [one for one in calls if chain(one.func) == "nn.Parameter" and _word(one, "requires_grad") in off]
    stored = [one for one in calls if chain(one.func) == "self.register_buffer" and _word(one, "persistent") != "False"]
    trained = {name for name in made if name.startswith("nn.")} - _UNTRAINED - ({"nn.Parameter"} if fixed else set())
    bases = {chain(one.value) for one in node.bases}
    return bool(fixed or stored) and not trained and bases <= {"nn.Module"}


def _word(call: cst.Call, name: str) -> str:
    return next((code(one.value) for one in call.args if one.keyword is not None and one.keyword.value == name), "")


def _passed_on(
    classes: Mapping[str, Part], constant: Collection[str], passed: Mapping[str, set[str]]
) -> Iterator[tuple[str, str]]:
    """Yield the classes that are made with such a module, each with the argument that takes it, that are not known
    yet.
    """
    for name, part in classes.items():
        init = method(part.cls, "__init__") if part.cls is not None else None
        if init is None:
            continue
        made = {code(target.target) for one in walk(init) if isinstance(one, cst.Assign) and _makes(one.value, constant)
                for target in one.targets}  # fmt: skip
        there = made | passed[name]
        for call in (one for one in walk(init) if isinstance(one, cst.Call) and chain(one.func) in classes):
            called = classes[chain(call.func)]
            theirs = method(called.cls, "__init__") if called.cls is not None else None
            given = [one.name.value for one in parameters(theirs)] if theirs is not None else []
            plain = [one for one in call.args if one.keyword is None]
            taken = [*zip(given, (one.value for one in plain), strict=False)]
            taken += [(one.keyword.value, one.value) for one in call.args if one.keyword is not None]
            for argument, value in taken:
                if code(value) in there and argument not in passed[called.name]:
                    yield called.name, argument


def _makes(value: cst.BaseExpression, constant: Collection[str]) -> bool:
    """Return whether a value is such a module: `Table(8)`, or `Table(8) if rotary else None`."""
    either = (value.body, value.orelse) if isinstance(value, cst.IfExp) else (value,)
    return any(isinstance(one, cst.Call) and chain(one.func) in constant for one in either)


class _Copied(cst.CSTTransformer):
    """`self.x = x` of these arguments."""

    def __init__(self, arguments: Collection[str]) -> None:
        self.arguments = arguments

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:  # noqa: N802
        """Copy the value."""
        value = updated_node.value
        kept = isinstance(value, cst.Name) and value.value in self.arguments
        if not kept or not own_attribute(updated_node.targets[0].target):
            return updated_node
        return updated_node.with_changes(value=cst.parse_expression(f"copy.deepcopy({code(value)})"))
