"""Recognises a function by what it does: its body against a pattern, whatever its local names are called.

In a pattern, parameters and local variables stand for any name, consistently; an attribute or global in capitals is a
hole that takes any attribute, and is reported.
"""

import ast
from collections.abc import Mapping

_SKIPPED = {"annotation", "returns", "type_comment", "ctx", "kind", "decorator_list"}


def match_function(node: ast.FunctionDef, pattern: str) -> Mapping[str, str] | None:
    """The holes of `pattern` as `node` fills them, or None if the bodies differ.

    Docstrings, comments, annotations and decorators do not count.
    """
    wanted = ast.parse(pattern).body[0]
    if not isinstance(wanted, ast.FunctionDef):
        raise ValueError("a pattern is one function definition")
    matcher = _Matcher(_locals(wanted), _locals(node))
    if not matcher.sequence(_arguments(wanted), _arguments(node)):
        return None
    return matcher.holes if matcher.sequence(body_without_docstring(wanted), body_without_docstring(node)) else None


def body_without_docstring(node: ast.FunctionDef | ast.ClassDef) -> list[ast.stmt]:
    """The statements of a definition after its docstring."""
    first = node.body[0]
    has_docstring = (
        isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    )
    return node.body[1:] if has_docstring else node.body


def _arguments(node: ast.FunctionDef) -> list[ast.AST]:
    return [ast.Name(arg.arg) for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def _locals(node: ast.FunctionDef) -> set[str]:
    stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return stored | {arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}


class _Matcher:
    def __init__(self, wanted_locals: set[str], found_locals: set[str]) -> None:
        self.wanted_locals = wanted_locals
        self.found_locals = found_locals
        self.names: dict[str, str] = {}
        self.holes: dict[str, str] = {}

    def sequence(self, wanted: list[ast.AST] | list[ast.stmt], found: list[ast.AST] | list[ast.stmt]) -> bool:
        return len(wanted) == len(found) and all(self.same(a, b) for a, b in zip(wanted, found, strict=True))

    def same(self, wanted: object, found: object) -> bool:
        if isinstance(wanted, list) and isinstance(found, list):
            return self.sequence(wanted, found)
        if type(wanted) is not type(found):
            return False
        if isinstance(wanted, ast.Name) and isinstance(found, ast.Name):
            return self.name(wanted.id, found.id)
        if isinstance(wanted, ast.Attribute) and isinstance(found, ast.Attribute) and wanted.attr.isupper():
            return self.hole(wanted.attr, found.attr) and self.same(wanted.value, found.value)
        if isinstance(wanted, ast.AST):
            fields = [f for f in wanted._fields if f not in _SKIPPED]
            return all(self.same(getattr(wanted, f, None), getattr(found, f, None)) for f in fields)
        return wanted == found

    def name(self, wanted: str, found: str) -> bool:
        if wanted not in self.wanted_locals:
            return wanted == found
        if found not in self.found_locals:
            return False
        if wanted not in self.names and found in self.names.values():
            return False
        return self.names.setdefault(wanted, found) == found

    def hole(self, wanted: str, found: str) -> bool:
        return self.holes.setdefault(wanted, found) == found
