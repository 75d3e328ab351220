"""Positions of an author's class in a model, as patterns of the names of its parameters."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omni_kit.targets.diffusers.porting.naming import Names
from omni_kit.targets.diffusers.porting.parts import Parts

_CONTAINERS = ("ModuleList", "Sequential", "ModuleDict")
_DEEPEST = 12
_NUMBER = r"\.(\d+)"
_NAME = r"\.(\w+)"
_Held = dict[tuple[str, str], list[str]]


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
    """Return the class, as it is called in the file -> the paths at which the model has it.

    Args:
        others: what classes of torch's are called in the file where another stands in their place.
        names: what modules are called here.
    """
    held = _held_by(parts, others)
    found: dict[str, list[Place]] = {parts.root.name: [Place()]}
    for place, name in _walked(parts.root.name, held, names, Place(), 0):
        found.setdefault(name, []).append(place)
    return found


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
    held = {part.name: _held(part.definition.node, known) for part in parts.parts if part.cls is not None}
    for part in parts.parts:  # what a base makes, a class has, too
        for base in getattr(part.definition.node, "bases", []):
            above = next(iter(known.get(getattr(base, "id", ""), [])), "")
            held[part.name] = held.get(above, {}) | held[part.name]
    return held


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


def _held(node: ast.stmt, names: Mapping[str, list[str]]) -> _Held:
    """Return the attributes of a class that hold modules of the file, with what stands between, and the classes."""
    found: _Held = {}
    local = _local(node, names)
    for one in ast.walk(node):
        if isinstance(one, ast.Assign | ast.AnnAssign) and one.value is not None:
            target = one.targets[0] if isinstance(one, ast.Assign) else one.target
            if (attribute := _own(target)) and (classes := _made(one.value, names, local)):
                found.setdefault((attribute, _inside(one.value)), []).extend(classes)
        elif isinstance(one, ast.Call) and (attribute := _appended(one)) and (classes := _made(one.args[-1], names)):
            found.setdefault((attribute, _NUMBER), []).extend(classes)
    return {name: list(dict.fromkeys(classes)) for name, classes in found.items()}


def _appended(call: ast.Call) -> str:
    """Return the attribute that a call appends something to; empty for other calls."""
    grows = isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "insert", "extend")
    return _own(call.func.value) if grows and call.args and isinstance(call.func, ast.Attribute) else ""


def _inside(value: ast.expr) -> str:
    """Return the part of a path between an attribute and a module in its container."""
    kinds = [_last(one.func) for one in ast.walk(value) if isinstance(one, ast.Call)]
    within = [kind for kind in kinds if kind in _CONTAINERS]
    return "".join(_NAME if kind == "ModuleDict" else _NUMBER for kind in within)


def _made(value: ast.expr, names: Mapping[str, list[str]], local: Mapping[str, list[str]] | None = None) -> list[str]:
    """Return the classes of which a value makes modules, or which a local variable in it holds."""
    called = [_last(one.func) for one in ast.walk(value) if isinstance(one, ast.Call)]
    found = [cls for name in called for cls in names.get(name, [])]
    read = [one.id for one in ast.walk(value) if isinstance(one, ast.Name)] if local else []
    return found + [cls for name in read for cls in (local or {}).get(name, [])]


def _local(node: ast.stmt, names: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Return the local variables that hold modules, which an attribute gets later."""
    init = next((one for one in ast.walk(node) if isinstance(one, ast.FunctionDef) and one.name == "__init__"), None)
    plain = [one for one in ast.walk(init) if isinstance(one, ast.Assign)] if init is not None else []
    made = {
        target.id: _made(one.value, names) for one in plain for target in one.targets if isinstance(target, ast.Name)
    }
    return {name: classes for name, classes in made.items() if classes}


def _own(node: ast.expr) -> str:
    own = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self"
    return node.attr if own and isinstance(node, ast.Attribute) else ""


def _last(node: ast.expr) -> str:
    """Return the last part of a name; of an entry of a table that of the table."""
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
