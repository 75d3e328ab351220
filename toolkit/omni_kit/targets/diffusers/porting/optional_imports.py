"""Imports of packages that may not be installed: what needs one is defined only where it is there."""

import ast
import re
import textwrap
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from itertools import groupby

_FINDS = "from importlib.util import find_spec"
_KEPT = "  # noqa: F401"
_OWN = "self."
_FAILS = re.compile(r"\b(ImportError|ModuleNotFoundError)\b")


def guarded(text: str, foreign: Collection[str], root: str) -> str:
    """Return a file in which imports of packages that are not installed, and what cannot be defined without them, are
    guarded.

    Kernels of one kind of attention are the usual case: the model runs without them until it is told to use them.

    Args:
        foreign: the packages that the file imports and that it should not need.
        root: the model's class; where it cannot be made or called without a package, that import stays as it is.
    """
    body = ast.parse(text).body
    always = _made(body, root)
    needed: dict[int, str] = {}
    for package in (name for name in foreign if find_spec(name) is None):
        found = _depending(body, package)
        if not any(_bound(body[at]) & always for at in found):
            needed |= {at: needed.get(at, package) for at in found}
    if not needed:
        return text
    lines = text.split("\n")
    written, before = [], 0
    for package, places in groupby(sorted(needed), key=needed.__getitem__):
        for first, last in _runs(list(places)):
            start, end = _first_line(body[first]), body[last].end_lineno or 0
            written += lines[before : start - 1]
            written.append(f'if find_spec("{package}") is not None:')
            written.append(textwrap.indent("\n".join(lines[start - 1 : end]), "    "))
            before = end
    return "\n".join(_with_import([*written, *lines[before:]]))


def with_probes(text: str) -> str:
    """Return a file whose imports of names that nothing reads stay where a `try` finds out by them what is installed:
    ruff removes those without a handler of ImportError.
    """
    tree, lines = ast.parse(text), text.split("\n")
    for scope in (one for one in ast.walk(tree) if isinstance(one, ast.Module | ast.FunctionDef)):
        read = {one.id for one in ast.walk(scope) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
        for node in (one for one in ast.walk(scope) if isinstance(one, ast.Try) and not _expects_failure(one)):
            for one in node.body:
                unread = isinstance(one, ast.Import | ast.ImportFrom) and not _bound(one) & read
                if unread and "noqa" not in lines[one.lineno - 1]:
                    lines[one.lineno - 1] += _KEPT
    return "\n".join(lines)


def _expects_failure(node: ast.Try) -> bool:
    return any(one.type is not None and _FAILS.search(ast.unparse(one.type)) for one in node.handlers)


def needed_at(text: str, root: str) -> Iterator[tuple[int, str]]:
    """Yield the line of each `try` that binds what a package that is not installed has, or null, and the name that the
    model reads whatever its arguments.
    """
    tree = ast.parse(text)
    body = tree.body
    tests = (one.test for one in ast.walk(tree) if isinstance(one, ast.If | ast.IfExp | ast.Assert))
    always = _made(body, root) - {one.id for test in tests for one in ast.walk(test) if isinstance(one, ast.Name)}
    for node in (one for one in body if isinstance(one, ast.Try) and all(map(_gives_up, one.handlers))):
        imports = [one for one in node.body if isinstance(one, ast.Import | ast.ImportFrom)]
        missing = [one for one in imports if not getattr(one, "level", 0) and find_spec(_package(one)) is None]
        if needed := sorted(set().union(*map(_bound, missing)) & always):
            yield node.lineno, needed[0]


def _package(node: ast.Import | ast.ImportFrom) -> str:
    return ((node.module if isinstance(node, ast.ImportFrom) else node.names[0].name) or "").partition(".")[0]


def _gives_up(handler: ast.ExceptHandler) -> bool:
    """Return whether a handler has nothing instead of what was not imported: null, a flag or a message."""
    plain = (ast.Pass, ast.Expr)
    return all(isinstance(one, plain) or (isinstance(one, ast.Assign) and isinstance(one.value, ast.Constant))
               for one in handler.body)  # fmt: skip


def _made(body: list[ast.stmt], name: str) -> set[str]:
    """Return a class and the names that making or calling one reads whatever its arguments, with those of classes and
    functions among them.
    """
    defined = {node.name: node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    found, open_ = set[str](), [name]
    while open_:
        if (one := open_.pop()) in found:
            continue
        found.add(one)
        match defined.get(one):
            case ast.ClassDef() as cls:
                open_ += set().union(*map(_always_read, cls.bases), *_run(cls))
            case ast.FunctionDef() as function:
                open_ += _of_statements(function.body)
    return found


def _run(node: ast.ClassDef) -> Iterator[set[str]]:
    """Yield the names that each of the methods reads that run whenever an object is made and called."""
    methods = {one.name: one for one in node.body if isinstance(one, ast.FunctionDef)}
    found, open_ = set[str](), ["__init__", "forward"]
    while open_:
        if (one := open_.pop()) in methods and one not in found:
            found.add(one)
            yield (read := _of_statements(methods[one].body))
            open_ += [name.removeprefix(_OWN) for name in read if name.startswith(_OWN)]


def _of_statements(body: list[ast.stmt]) -> set[str]:
    """Return the names that statements read on every way through them, up to the first at which a way may end."""
    found = set[str]()
    for one in body:
        found |= _always_read(one)
        if any(isinstance(inner, ast.Return | ast.Raise) for inner in ast.walk(one)):
            break
    return found


def _always_read(node: ast.AST) -> set[str]:
    """Return the names that a statement reads on every way through it: none of a branch, or of a function within."""
    match node:
        case ast.Name(name, ast.Load()):
            return {name}
        case ast.Attribute(ast.Name("self"), name):
            return {f"{_OWN}{name}"}
        case ast.If() | ast.IfExp() | ast.While():
            return _always_read(node.test)
        case ast.BoolOp():
            return _always_read(node.values[0])
        case ast.Try() | ast.With() | ast.FunctionDef() | ast.Lambda() | ast.ClassDef():
            return set()
    return set().union(*map(_always_read, ast.iter_child_nodes(node)))


def _runs(places: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last of each run of numbers."""
    for _, run in groupby(enumerate(places), key=lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        yield numbers[0], numbers[-1]


def _depending(body: list[ast.stmt], package: str) -> list[int]:
    """Return the statements that import a package, and those that cannot be executed without what they need of it."""
    found = {at for at, node in enumerate(body) if _imports(node, package)}
    if not found:
        return []
    names = set().union(*(_bound(body[at]) for at in found))
    while more := {at for at, node in enumerate(body) if at not in found and _executed(node) & names}:
        found |= more
        names |= set().union(*(_bound(body[at]) for at in more))
    return sorted(found)


def _imports(node: ast.stmt, package: str) -> bool:
    if isinstance(node, ast.ImportFrom):
        return not node.level and (node.module or "").partition(".")[0] == package
    return isinstance(node, ast.Import) and any(one.name.partition(".")[0] == package for one in node.names)


def _bound(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {one.asname or one.name.partition(".")[0] for one in node.names}
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _executed(node: ast.AST) -> set[str]:
    """Return the names that a statement reads when it is executed: of a function its decorators, defaults and
    annotations.
    """
    if isinstance(node, ast.Name):
        return {node.id}
    inner = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        inner = [one for one in inner if one not in (node.body if isinstance(node.body, list) else [node.body])]
    return set().union(*map(_executed, inner))


def _first_line(node: ast.stmt) -> int:
    decorators = getattr(node, "decorator_list", [])
    return decorators[0].lineno if decorators else node.lineno


def _with_import(lines: list[str]) -> list[str]:
    head = re.compile(r"(import|from) (?!__future__)|if ")
    at = next(at for at, line in enumerate(lines) if head.match(line))
    return lines if _FINDS in lines else [*lines[:at], _FINDS, *lines[at:]]
