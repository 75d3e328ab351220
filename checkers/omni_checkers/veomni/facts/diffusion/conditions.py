"""What the condition model hands on: the keys of the dicts that its methods return, where these can be read."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from omni_checkers.engine.files import walked
from omni_checkers.veomni.facts.diffusion.code import assignments
from omni_checkers.veomni.facts.diffusion.sides import Method


@dataclass(frozen=True)
class Keys:
    """The keys of a returned dict.

    Attributes:
        certain: those that it has on every path; `possible` adds those of some paths.
        whole: nothing else can be in it.
    """

    certain: dict[str, int]
    possible: dict[str, int]
    whole: bool


def returned_keys(method: Method) -> Keys:
    """The keys of what a method returns."""
    returns = [node for node in _own(method.node) if isinstance(node, ast.Return) and node.value is not None]
    found = [_keys(method.node, node.value) for node in returns if node.value is not None]
    if not found:
        return Keys({}, {}, False)
    certain = {name: line for name, line in found[0].certain.items() if all(name in one.certain for one in found)}
    possible = {name: line for one in found for name, line in one.possible.items()}
    return Keys(certain, possible, all(one.whole for one in found))


def _own(node: ast.FunctionDef) -> list[ast.AST]:
    """The nodes of a function without those of the functions inside it."""
    inner = {id(below) for item in walked(node)[1:] if isinstance(item, _FUNCTIONS) for below in walked(item)}
    return [item for item in walked(node) if id(item) not in inner]


_FUNCTIONS = (ast.FunctionDef, ast.Lambda, ast.AsyncFunctionDef)


def _keys(function: ast.FunctionDef, value: ast.expr) -> Keys:
    """The keys of one returned expression."""
    if isinstance(value, ast.Dict):
        return _literal(value)
    if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "dict":
        named = {word.arg: value.lineno for word in value.keywords if word.arg}
        return Keys(named, named, not value.args and len(named) == len(value.keywords))
    if isinstance(value, ast.Name):
        return _variable(function, value.id)
    return Keys({}, {}, False)


def _literal(value: ast.Dict) -> Keys:
    named = {key.value: key.lineno for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)}
    return Keys(named, named, len(named) == len(value.keys))


def _variable(function: ast.FunctionDef, name: str) -> Keys:
    """The keys of a dict that is begun somewhere and added to."""
    begun = assignments(function, name)
    if len(begun) != 1:
        return Keys({}, {}, False)
    if isinstance(begun[0], ast.Name):
        return Keys({}, {}, False)
    first = _keys(function, begun[0])
    possible, whole = dict(first.possible), first.whole
    for node in _own(function):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == name:
            if isinstance(node.ctx, ast.Store):
                if isinstance(node.slice, ast.Constant):
                    possible.setdefault(str(node.slice.value), node.lineno)
                else:
                    whole = False
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            whole &= not (isinstance(owner, ast.Name) and owner.id == name and node.func.attr in _CHANGING)
    gone = set(_removed(function, name))
    kept = {key: line for key, line in possible.items() if key not in gone}
    return Keys({k: n for k, n in _certain(function, name, first).items() if k in kept}, kept, whole)


_CHANGING = {"update", "setdefault", "clear", "popitem"}


def _removed(function: ast.FunctionDef, name: str) -> Iterator[str]:
    """The keys that are deleted from a dict, anywhere."""
    for node in _own(function):
        for target in node.targets if isinstance(node, ast.Delete) else ():
            if isinstance(target, ast.Subscript) and getattr(target.value, "id", "") == name:
                yield str(getattr(target.slice, "value", ""))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{name}.pop" and node.args:
            yield str(getattr(node.args[0], "value", ""))


def _certain(function: ast.FunctionDef, name: str, first: Keys) -> dict[str, int]:
    """The keys that it begins with, and those that statements outside of branches and loops add."""
    found = dict(first.certain)
    for node in function.body:
        for target in node.targets if isinstance(node, ast.Assign) else ():
            if isinstance(target, ast.Subscript) and getattr(target.value, "id", "") == name:
                if isinstance(target.slice, ast.Constant):
                    found.setdefault(str(target.slice.value), node.lineno)
    return found
