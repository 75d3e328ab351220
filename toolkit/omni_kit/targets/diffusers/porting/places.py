"""Where in a model a class of the authors stands, as patterns of the names of its parameters."""

import ast
import re
from collections.abc import Iterator, Mapping

from omni_kit.targets.diffusers.porting.parts import Parts

_CONTAINERS = ("ModuleList", "Sequential", "ModuleDict")
_DEEPEST = 12
_NUMBER = r"\.\d+"
_NAME = r"\.\w+"


def places_of(parts: Parts, others: Mapping[str, str]) -> dict[str, list[str]]:
    """The class, as it is called in the file -> patterns of the paths at which the model has it.

    Args:
        others: what classes of torch's are called in the file where another stands in their place.
    """
    names = {part.definition.name: part.name for part in parts.parts if part.cls is not None} | dict(others)
    held = {part.name: dict(_held(part.definition.node, names)) for part in parts.parts if part.cls is not None}
    for part in parts.parts:  # what a base makes, a class has, too
        for base in getattr(part.definition.node, "bases", []):
            held[part.name] = held.get(names.get(getattr(base, "id", ""), ""), {}) | held[part.name]
    found: dict[str, list[str]] = {}
    for path, name in _walked(parts.root.name, held, "", 0):
        found.setdefault(name, []).append(path)
    return found


def _walked(name: str, held: Mapping[str, Mapping[str, list[str]]], path: str, depth: int) -> Iterator[tuple[str, str]]:
    for step, classes in held.get(name, {}).items() if depth < _DEEPEST else ():
        inner = f"{path}\\.{step}" if path else step
        for cls in classes:
            yield inner, cls
            yield from _walked(cls, held, inner, depth + 1)


def _held(node: ast.stmt, names: Mapping[str, str]) -> Iterator[tuple[str, list[str]]]:
    """The attributes of a class that hold modules of the file: a pattern of the name, and the classes."""
    found: dict[str, list[str]] = {}
    for one in ast.walk(node):
        if isinstance(one, ast.Assign | ast.AnnAssign) and one.value is not None:
            target = one.targets[0] if isinstance(one, ast.Assign) else one.target
            if (attribute := _own(target)) and (classes := _made(one.value, names)):
                found.setdefault(attribute + _inside(one.value), []).extend(classes)
        elif isinstance(one, ast.Call) and (attribute := _appended(one)) and (classes := _made(one.args[-1], names)):
            found.setdefault(attribute + _NUMBER, []).extend(classes)
    yield from ((name, list(dict.fromkeys(classes))) for name, classes in found.items())


def _appended(call: ast.Call) -> str:
    """The attribute that a call appends something to; empty for other calls."""
    grows = isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "insert", "extend")
    return _own(call.func.value) if grows and call.args and isinstance(call.func, ast.Attribute) else ""


def _inside(value: ast.expr) -> str:
    """What stands between an attribute and a module that it holds in a container."""
    kinds = [_last(one.func) for one in ast.walk(value) if isinstance(one, ast.Call)]
    within = [kind for kind in kinds if kind in _CONTAINERS]
    return "".join(_NAME if kind == "ModuleDict" else _NUMBER for kind in within)


def _made(value: ast.expr, names: Mapping[str, str]) -> list[str]:
    return [names[name] for one in ast.walk(value) if isinstance(one, ast.Call) and (name := _last(one.func)) in names]


def _own(node: ast.expr) -> str:
    own = isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self"
    return re.escape(node.attr) if own and isinstance(node, ast.Attribute) else ""


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
