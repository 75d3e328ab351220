"""Outputs of the condition model: the readable keys of the dicts that its methods return."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from omni_checkers.engine.files import walked
from omni_checkers.veomni.facts.diffusion.sides import Method
from omni_kit.pysource.nodes import assigned, last_name


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
    """Return the keys of the dict that a method returns."""
    returns = [node for node in _own(method.node) if isinstance(node, ast.Return) and node.value is not None]
    found = [_keys(method.node, node.value) for node in returns if node.value is not None]
    if not found:
        return Keys({}, {}, False)
    certain = {name: line for name, line in found[0].certain.items() if all(name in one.certain for one in found)}
    possible = {name: line for one in found for name, line in one.possible.items()}
    return Keys(certain, possible, all(one.whole for one in found))


def _own(node: ast.FunctionDef) -> list[ast.AST]:
    """Return the nodes of a function without those of the functions inside it."""
    inner = {id(below) for item in walked(node)[1:] if isinstance(item, _FUNCTIONS) for below in walked(item)}
    return [item for item in walked(node) if id(item) not in inner]


_FUNCTIONS = (ast.FunctionDef, ast.Lambda, ast.AsyncFunctionDef)


def _keys(function: ast.FunctionDef, value: ast.expr) -> Keys:
    """Return the keys of one returned expression."""
    if isinstance(value, ast.Dict):
        return _literal(value)
    if isinstance(value, ast.Call) and getattr(value.func, "id", "") == "dict":
        named = {word.arg: value.lineno for word in value.keywords if word.arg}
        return Keys(named, named, not value.args and len(named) == len(value.keywords))
    if isinstance(value, ast.Name):
        return _variable(function, value.id)
    return Keys({}, {}, False)


def _literal(value: ast.Dict) -> Keys:
    named = {
        key.value: key.lineno for key in value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }
    return Keys(named, named, len(named) == len(value.keys))


def _variable(function: ast.FunctionDef, name: str) -> Keys:
    """Return the keys of a dict that is begun somewhere and added to."""
    begun = assigned(function, name)
    if len(begun) != 1 or isinstance(begun[0], ast.Name):
        return Keys({}, {}, False)
    first = _keys(function, begun[0])
    certain, possible, whole = dict(first.certain), dict(first.possible), first.whole
    for node in _own(function):
        added = _added(function, node, name)
        if added is None:
            whole &= not _changes(node, name)
            continue
        possible |= {key: line for key, line in added.possible.items() if key not in possible}
        whole &= added.whole
        if node in function.body:
            certain |= {key: line for key, line in added.certain.items() if key not in certain}
    gone = set(_removed(function, name))
    kept = {key: line for key, line in possible.items() if key not in gone}
    return Keys({key: line for key, line in certain.items() if key in kept}, kept, whole)


def _added(function: ast.FunctionDef, node: ast.AST, name: str) -> Keys | None:
    """Return the keys that a statement adds to a dict; None for one that adds none."""
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
        return _keys(function, node.value)
    for target in node.targets if isinstance(node, ast.Assign) else ():
        if isinstance(target, ast.Subscript) and getattr(target.value, "id", "") == name:
            if isinstance(target.slice, ast.Constant):
                added = {str(target.slice.value): target.lineno}
                return Keys(added, added, True)
            return Keys({}, {}, False)
    return None


_CHANGING = {"update", "setdefault", "clear", "popitem"}
_READING = {"len", "list", "dict", "print", "sorted", "set", "tuple", "iter", "all", "any", "isinstance", "type", "zip"}


def _changes(node: ast.AST, name: str) -> bool:
    """Return whether a call may change a dict: one of its own methods, or a function that it receives to."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name) and node.func.value.id == name:
        return node.func.attr in _CHANGING
    handed = any(
        isinstance(arg, ast.Name) and arg.id == name for arg in (*node.args, *(w.value for w in node.keywords))
    )
    return handed and last_name(node) not in _READING


def _removed(function: ast.FunctionDef, name: str) -> Iterator[str]:
    """Yield the keys that are deleted from a dict, anywhere."""
    for node in _own(function):
        for target in node.targets if isinstance(node, ast.Delete) else ():
            if isinstance(target, ast.Subscript) and getattr(target.value, "id", "") == name:
                yield str(getattr(target.slice, "value", ""))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{name}.pop" and node.args:
            yield str(getattr(node.args[0], "value", ""))
