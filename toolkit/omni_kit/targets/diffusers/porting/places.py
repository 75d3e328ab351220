"""Positions of an author's class in a model, as patterns of the names of its parameters."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from omni_kit.targets.diffusers.porting.naming import Names
from omni_kit.targets.diffusers.porting.parts import Parts

_CONTAINERS = ("ModuleList", "Sequential", "ModuleDict")
_INITS = ("__init__", "__post_init__")  # the latter of a dataclass
_DEEPEST = 12
_NUMBER = r"\.(\d+)"
_NAME = r"\.(\w+)"
_Held = dict[tuple[str, str], list[str]]
_Module = tuple[str, str]  # a class, and the part of a path that containers around it give


@dataclass(frozen=True)
class Place:
    """Position of a class.

    Attributes:
        pattern: of the authors' path, with a group for every number or name in it.
        path: the path here, in terms of these groups.
    """

    pattern: str = ""
    path: str = ""

    @property
    def groups(self) -> int:
        """Number of groups in the pattern."""
        return re.compile(self.pattern).groups

    def below(self, attribute: str, name: str, inside: str = "") -> "Place":
        """Return a module that the class has.

        Args:
            attribute, name: what the authors call it, and what it is called here.
            inside: the pattern of what stands between the attribute and the module.
        """
        more = "".join(f".\\{self.groups + number}" for number in range(1, re.compile(inside).groups + 1))
        return Place(_joined(self.pattern, re.escape(attribute), r"\.") + inside, _joined(self.path, name, ".") + more)


def _joined(path: str, name: str, between: str) -> str:
    return f"{path}{between}{name}" if path else name


def places_of(parts: Parts, others: Mapping[str, str], names: Names) -> dict[str, list[Place]]:
    """Return the class, as it is called in the file -> the paths at which the model has it: none for one that others
    only inherit from.

    Args:
        others: what classes of torch's are called in the file where another stands in their place.
        names: what modules are called here.
    """
    held = _held_by(parts, others)
    found: dict[str, list[Place]] = {parts.root.name: [Place()]}
    for place, name in _walked(parts.root.name, held, names, Place(), 0):
        found.setdefault(name, []).append(place)
    used = {name for part in parts.parts for name in _used(part.definition.node)}
    heirs = {_last(base) for part in parts.parts for base in getattr(part.definition.node, "bases", [])}
    bases = {part.name: part.definition.name for part in parts.parts if part.definition.name in heirs - used}
    return {**{name: [] for name in bases}, **found}


def alternatives(parts: Parts) -> dict[str, set[str]]:
    """Return the class, as it is called in the file -> those that the authors make at an attribute in its place."""
    found: dict[str, set[str]] = {}
    for held in _held_by(parts, {}).values():
        for classes in held.values():
            for name in classes:
                found.setdefault(name, set()).update({*classes} - {name})
    return found


def _held_by(parts: Parts, others: Mapping[str, str]) -> dict[str, _Held]:
    known = {part.definition.name: [part.name] for part in parts.parts if part.cls is not None}
    known |= {name: [cls] for name, cls in others.items()}
    for part in parts.parts:  # each after what it needs
        known |= {part.definition.name: made} if (made := _makes(part.definition.node, known)) else {}
    lists = _containers(parts)
    held = {part.name: _held(part.definition.node, known, lists) for part in parts.parts if part.cls is not None}
    for part in parts.parts:  # what a base makes, a class has, too
        for base in getattr(part.definition.node, "bases", []):
            above = next(iter(known.get(getattr(base, "id", ""), [])), "")
            held[part.name] = held.get(above, {}) | held[part.name]
    return held


def _containers(parts: Parts) -> set[str]:
    """Return the authors' names of classes of the file that number their modules as a container of torch's does."""
    found: set[str] = set()
    for part in parts.parts:  # each after its bases
        bases = {_last(base) for base in getattr(part.definition.node, "bases", [])}
        if bases & {*_CONTAINERS, *found} - {"ModuleDict"}:
            found.add(part.definition.name)
    return found


def _walked(
    name: str, held: Mapping[str, _Held], names: Names, place: Place, depth: int
) -> Iterator[tuple[Place, str]]:
    for (attribute, inside), classes in held.get(name, {}).items() if depth < _DEEPEST else ():
        inner = place.below(attribute, names.get(name, {}).get(attribute, attribute), inside)
        for cls in classes:
            yield inner, cls
            yield from _walked(cls, held, names, inner, depth + 1)


def _makes(node: ast.stmt, known: Mapping[str, list[str]]) -> list[str]:
    """Return the classes of which a function returns modules, or a table of classes and such functions leads to."""
    if isinstance(node, ast.FunctionDef):
        returned = [one.value for one in ast.walk(node) if isinstance(one, ast.Return) and one.value is not None]
        return list(dict.fromkeys(cls for value in returned for cls in _made(value, known)))
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
        return list(dict.fromkeys(cls for value in node.value.values for cls in known.get(_last(value), [])))
    return []


def _held(node: ast.stmt, names: Mapping[str, list[str]], lists: Collection[str]) -> _Held:
    """Return the attributes of a class that hold modules of the file, with what stands between, and the classes."""
    found: _Held = {}
    names = {**names, **_kinds(node, names)}
    local = _local(node, names, lists)
    for one in ast.walk(node):
        attribute, value, before = "", None, ""
        if isinstance(one, ast.Assign | ast.AnnAssign):
            attribute, value = _own(one.targets[0] if isinstance(one, ast.Assign) else one.target), one.value
        elif isinstance(one, ast.Call) and (attribute := _own(grown) if (grown := _grown(one)) is not None else ""):
            value, before = one.args[-1], _NUMBER
        if attribute and value is not None:
            for cls, inside in _modules(value, names, lists, local):
                found.setdefault((attribute, before + inside), []).append(cls)
    return {name: list(dict.fromkeys(classes)) for name, classes in found.items()}


def _kinds(node: ast.stmt, names: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the variables and attributes that hold a class of the file, by their last name: all that they may hold."""
    found: dict[str, list[str]] = {}
    for one in (each for each in ast.walk(node) if isinstance(each, ast.Assign)):
        values = [one.value.body, one.value.orelse] if isinstance(one.value, ast.IfExp) else [one.value]
        classes = [cls for value in values if isinstance(value, ast.Name) for cls in names.get(value.id, [])]
        for target in one.targets if classes else ():
            found.setdefault(_last(target), []).extend(classes)
    return found


def _used(node: ast.AST) -> Iterator[str]:
    """Yield the names that code reads, other than those of base classes and of arguments of `super`."""
    if isinstance(node, ast.Name):
        yield node.id
    skipped = node.bases if isinstance(node, ast.ClassDef) else []
    skipped = node.args if isinstance(node, ast.Call) and _last(node.func) == "super" else skipped
    for one in ast.iter_child_nodes(node):
        if one not in skipped:
            yield from _used(one)


def _grown(call: ast.Call) -> ast.expr | None:
    """Return the list that a call appends something to; None for other calls."""
    grows = isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "insert", "extend")
    return call.func.value if grows and call.args and isinstance(call.func, ast.Attribute) else None


def _modules(
    value: ast.AST, names: Mapping[str, list[str]], lists: Collection[str], local: Mapping[str, list[_Module]],
    inside: str = "",
) -> Iterator[_Module]:  # fmt: skip
    """Yield the classes of which a value makes modules, each with the part of its path that containers in it give."""
    if isinstance(value, ast.Call):
        kind = _last(value.func)
        yield from ((cls, inside) for cls in names.get(kind, []))
        inside += _NAME if kind == "ModuleDict" else _NUMBER if kind in _CONTAINERS or kind in lists else ""
        given = [one.value for one in value.args if isinstance(one, ast.Starred)]
        given += value.args if kind == "ModuleList" else []
        spread = {one.id for one in given if isinstance(one, ast.Name)}  # lists that give their modules to this one
        for name in spread:
            yield from ((cls, inside + more.removeprefix(_NUMBER)) for cls, more in local.get(name, []))
        local = {name: modules for name, modules in local.items() if name not in spread}
    elif isinstance(value, ast.Name):
        yield from ((cls, inside + more) for cls, more in local.get(value.id, []))
    for one in ast.iter_child_nodes(value):
        yield from _modules(one, names, lists, local, inside)


def _made(value: ast.expr, names: Mapping[str, list[str]]) -> list[str]:
    """Return the classes of which a value makes modules."""
    called = [_last(one.func) for one in ast.walk(value) if isinstance(one, ast.Call)]
    return [cls for name in called for cls in names.get(name, [])]


def _local(node: ast.stmt, names: Mapping[str, list[str]], lists: Collection[str]) -> dict[str, list[_Module]]:
    """Return the local variables that hold modules, which an attribute gets later."""
    inits = [one for one in ast.walk(node) if isinstance(one, ast.FunctionDef) and one.name in _INITS]
    found: dict[str, list[_Module]] = {}
    for one in (inner for init in inits for inner in ast.walk(init)):
        if isinstance(one, ast.Assign):
            variables, value = [target.id for target in one.targets if isinstance(target, ast.Name)], one.value
        elif isinstance(one, ast.Call) and isinstance(grown := _grown(one), ast.Name):
            variables, value = [grown.id], one.args[-1]
        else:
            continue
        for name in variables:
            found.setdefault(name, []).extend(_modules(value, names, lists, {}))
    return {name: modules for name, modules in found.items() if modules}


def _own(node: ast.expr) -> str:
    own = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self"
    return node.attr if own and isinstance(node, ast.Attribute) else ""


def _last(node: ast.expr) -> str:
    """Return the last part of a name; of an entry of a table that of the table."""
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
