"""Loops that collect values, as the comprehensions that say the same."""

import ast
from collections.abc import Iterator
from itertools import zip_longest

_Comprehension = ast.DictComp | ast.ListComp | ast.SetComp
_EMPTY: dict[str, type[_Comprehension]] = {"dict": ast.DictComp, "list": ast.ListComp, "set": ast.SetComp}
_FILLS: dict[str, type[ast.ListComp | ast.SetComp]] = {"append": ast.ListComp, "add": ast.SetComp}
_WAITS = (ast.Await, ast.Yield, ast.YieldFrom, ast.NamedExpr)


def collected(tree: ast.Module) -> ast.Module:
    """Return the tree, in whose functions a loop that fills an empty list, set or dict is now a comprehension.

    A value that gets a name and is returned in the next statement is returned itself. A loop stays where the rest of
    its function uses what it assigns, or where it reads what it fills.
    """
    for function in (one for one in ast.walk(tree) if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)):
        for one in ast.walk(function):
            for field in ("body", "orelse", "finalbody"):
                if isinstance(statements := getattr(one, field, None), list):
                    setattr(one, field, [*_returned([*_comprehended(statements, function)], function)])
    return ast.fix_missing_locations(tree)


def _comprehended(statements: list[ast.stmt], function: ast.AST) -> Iterator[ast.stmt]:
    waiting: ast.stmt | None = None
    for one in statements:
        made = _comprehension(waiting, one, function) if waiting is not None and isinstance(one, ast.For) else None
        if made is not None:
            waiting = made
            continue
        if waiting is not None:
            yield waiting
        waiting = one
    if waiting is not None:
        yield waiting


def _comprehension(empty: ast.stmt, loop: ast.For, function: ast.AST) -> ast.stmt | None:
    """Return the assignment of a comprehension, instead of an empty container and the loop that fills it."""
    match empty:
        case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, ast.expr() as value):
            kind = _kind(value)
        case _:
            return None
    generators: list[ast.comprehension] = []
    body: list[ast.stmt] = [loop]
    while len(body) == 1 and isinstance(one := body[0], (ast.For, ast.If)) and not one.orelse:
        if isinstance(one, ast.For):
            generators.append(ast.comprehension(one.target, one.iter, [], 0))
        else:
            generators[-1].ifs.append(one.test)
        body = one.body
    made = _filling(body[0], name) if len(body) == 1 else None
    if made is None or type(made) is not kind:
        return None
    made.generators = generators
    inside = [*ast.walk(made)]
    if any(isinstance(one, _WAITS) or (isinstance(one, ast.Name) and one.id == name) for one in inside):
        return None
    targets = [one for each in generators for one in ast.walk(each.target)]
    if any(isinstance(one, ast.Attribute | ast.Subscript) for one in targets):
        return None  # its last value stays behind
    held = {id(one) for one in ast.walk(loop)}
    others = {getattr(one, "id", getattr(one, "arg", "")) for one in ast.walk(function) if id(one) not in held}
    if any(isinstance(one, ast.Name) and one.id in others for one in targets):
        return None
    return ast.copy_location(ast.Assign([ast.Name(name, ast.Store())], ast.copy_location(made, loop)), loop)


def _kind(value: ast.expr) -> type[_Comprehension] | None:
    match value:
        case ast.Dict(keys=[]):
            return ast.DictComp
        case ast.List(elts=[]):
            return ast.ListComp
        case ast.Call(ast.Name(name), [], []):
            return _EMPTY.get(name)
    return None


def _filling(statement: ast.stmt, name: str) -> _Comprehension | None:
    """Return the comprehension, without its loops, of a statement that puts one value into the container."""
    match statement:
        case ast.Assign([ast.Subscript(ast.Name(filled), ast.expr() as key)], value) if filled == name:
            return ast.DictComp(key, value, [])
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(filled), method), [value], [])) if filled == name:
            kind = _FILLS.get(method)
            return kind(value, []) if kind and not isinstance(value, ast.Starred) else None
    return None


def _returned(statements: list[ast.stmt], function: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements, of which a value with a name that the next one returns is returned itself."""
    beyond = {name for one in ast.walk(function) if isinstance(one, ast.Global | ast.Nonlocal) for name in one.names}
    rest = iter(zip_longest(statements, statements[1:]))
    for one, following in rest:
        match one, following:
            case ast.Assign([ast.Name(name)], value), ast.Return(ast.Name(returned)) if name == returned not in beyond:
                yield ast.copy_location(ast.Return(value), one)
                next(rest)
            case _:
                yield one
