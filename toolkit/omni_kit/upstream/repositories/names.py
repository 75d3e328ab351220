"""Meaning of a name in a file: a definition of the authors, or an import."""

import ast
import copy
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.pysource.eval import UNKNOWN, Domain, Unsupported, evaluate
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import Imported, SourceFile, absolute_module, dotted, read_source
from omni_kit.standins import ROOT, STAND_INS, stand_ins
from omni_kit.upstream.diffusers.requirements import importable
from omni_kit.upstream.repositories.gpu_facts import needs_gpu, without_gpu

STAR = "*"
_TORCH = "torch"
_SCRIPT = "torch.jit.script"
_COMPILES = re.compile(r"(torch\.)?(compile|jit\.script|(compiler|_dynamo)\.\w+)")
_FAILS = re.compile(r"\b(ImportError|ModuleNotFoundError|Exception)\b")
_AVAILABLE = re.compile(r"(?:\w+\.)*is_(\w+)_available\(\)")


@dataclass(frozen=True)
class Defined:
    """A class, a function or an assignment at the top level of one of the authors' files.

    Attributes:
        replaced: a definition further down in the file has the same name.
    """

    source: SourceFile
    name: str
    node: ast.stmt
    replaced: bool = False

    def __hash__(self) -> int:
        """By place: syntax trees are told apart by identity."""
        return hash(self._place)

    def __eq__(self, other: object) -> bool:
        """Return whether both are the same name in the same file."""
        return isinstance(other, Defined) and self._place == other._place

    @property
    def _place(self) -> tuple[object, ...]:
        return self.source.path, self.name, self.replaced


def resolve_within(one: Defined, name: str) -> Defined | str | None:
    """Resolve a dotted name in a definition; see `resolve`.

    What `torch.jit.script` decorates is compiled where it stands: a function that it calls is the one defined last
    before it, even where the file defines another one of that name further down.
    """
    found = resolve(one.source, name)
    later = isinstance(found, Defined) and found.source.path == one.source.path and found.node.lineno > one.node.lineno
    if not later or not isinstance(one.node, ast.FunctionDef) or not isinstance(found, Defined):
        return found
    if _SCRIPT not in (resolve(one.source, dotted(each) or "") for each in one.node.decorator_list):
        return found
    earlier = [each for each in one.source.tree.body if isinstance(each, ast.FunctionDef)
               and each.name == found.name and each.lineno < one.node.lineno]  # fmt: skip
    return Defined(one.source, found.name, earlier[-1], replaced=True) if earlier else found


def resolve(source: SourceFile, name: str, seen: frozenset[tuple[str, str]] = frozenset()) -> Defined | str | None:
    """Resolve a dotted name in a file.

    Returns:
        A definition of the authors; else the absolute name of what is imported ("torch.nn.Linear"); None of a
        name that the file neither defines nor imports.
    """
    head, _, rest = name.partition(".")
    if (source.module, name) in seen:
        return None
    seen |= {(source.module, name)}
    if (block := guarded(source).get(head)) is not None:
        return block
    if head in (own := definitions(source)):
        aliased = _aliased(source, own[head], rest, seen)
        return aliased or (None if rest else Defined(source, (unpacked(own[head]) or [head])[0], own[head]))
    if (imported := _without_packages(source).get(head) or source.imports.get(head)) is not None:
        return _imported(source, imported, head, rest, seen)
    return _inside(source, head, rest, seen) or _starred(source, name, seen)


def meanings(source: SourceFile, name: str) -> list[Defined]:
    """Return every definition of the authors that a name may mean in a file: where functions import it, too."""
    imports = sorted(source.every_import.get(name, ()), key=str)
    found = [resolve(source, name), *(_imported(source, one, name, "", frozenset()) for one in imports)]
    return [one for one in found if isinstance(one, Defined)]


def _aliased(source: SourceFile, node: ast.stmt, rest: str, seen: frozenset[tuple[str, str]]) -> Defined | str | None:
    """Resolve an assignment that renames a definition: `attend = F.scaled_dot_product_attention`."""
    name = _compiled(node) or (dotted(node.value) if isinstance(node, ast.Assign) and len(node.targets) == 1 else None)
    if (own := (source.module, f"{name} of {node.lineno}")) in seen:  # `model = model.module`
        return None
    seen |= {own}
    found = resolve(source, f"{name}.{rest}" if rest else name, seen) if name else None
    plain = isinstance(found, Defined) and isinstance(found.node, ast.ClassDef | ast.FunctionDef)
    return found if plain or isinstance(found, str) else None


def _compiled(node: ast.stmt) -> str:
    """Return the name of what an assignment compiles: `f` of `fast = torch.compile(f)`, and of
    `fast = torch.compile(mode="default")(f)`; empty for any other statement.
    """
    match node:
        case ast.Assign(targets=[_], value=ast.Call(func=function, args=[compiled])):
            called = function.func if isinstance(function, ast.Call) else function
            return dotted(compiled) or "" if _COMPILES.fullmatch(dotted(called) or "") else ""
    return ""


def _compiles_in_place(node: ast.stmt) -> bool:
    """Return whether a statement does nothing but compile what has its name already: `f = torch.compile(f)`."""
    if isinstance(node, ast.If):
        return not node.orelse and all(map(_compiles_in_place, node.body))
    return isinstance(node, ast.Assign) and bool(name := _compiled(node)) and dotted(node.targets[0]) == name


_searching: ContextVar[bool] = ContextVar("searching", default=False)


@contextmanager
def searching() -> Iterator[None]:
    """Take names of files that cannot be read, such as those for another Python, for names of nothing.

    What a class needs must be read; what only may tell more about it need not be.
    """
    token = _searching.set(True)
    try:
        yield
    finally:
        _searching.reset(token)


def _read(source: SourceFile, file: Path) -> SourceFile | None:
    """Return a file of the authors; None for one that cannot be read while that does not matter.

    Raises:
        BadInput: it cannot be read, and does matter.
    """
    try:
        return read_source(source.library, file)
    except BadInput:
        if _searching.get():
            return None
        raise


def _imported(
    source: SourceFile, imported: Imported, head: str, rest: str, seen: frozenset[tuple[str, str]]
) -> Defined | str | None:
    if imported.name is not None:
        if (file := source.library.module_file(imported.module)) is not None and file != source.path:
            inner = f"{imported.name}.{rest}" if rest else imported.name
            read = _read(source, file)
            if read is not None and (found := resolve(read, inner, seen)) is not None:
                return found
        return _in_module(source, f"{imported.module}.{imported.name}", rest, seen)
    if not rest:
        return imported.module
    aliased = imported.module.partition(".")[0] != head
    return _in_module(source, imported.module if aliased else head, rest, seen)


def _inside(source: SourceFile, head: str, rest: str, seen: frozenset[tuple[str, str]]) -> Defined | None:
    """Resolve an import inside a function to the authors' files or a stand-in; other imports stay."""
    imported = source.inner_imports.get(head)
    found = _imported(source, imported, head, rest, seen) if imported is not None else None
    return in_stand_ins(found) if isinstance(found, str) else found


def _in_module(source: SourceFile, module: str, rest: str, seen: frozenset[tuple[str, str]]) -> Defined | str | None:
    """Return a name behind a module: the longest part of it that is a file of the authors is where it is looked for."""
    parts = rest.split(".") if rest else []
    for cut in range(len(parts) - 1, -1, -1):
        file = source.library.module_file(".".join([module, *parts[:cut]]))
        if file is not None and (read := _read(source, file)) is not None:
            return resolve(read, ".".join(parts[cut:]), seen)
    return f"{module}.{rest}" if rest else module


def _starred(source: SourceFile, name: str, seen: frozenset[tuple[str, str]]) -> Defined | str | None:
    """Return a name that `from ... import *` may have brought."""
    for node in source.tree.body:
        if isinstance(node, ast.ImportFrom) and node.names[0].name == STAR:
            module = absolute_module(source.package, node)
            file = source.library.module_file(module)
            read = _read(source, file) if file is not None else None
            if read is not None and (found := resolve(read, name, seen)) is not None:
                return found
            if file is None and name in getattr(sys.modules.get(module), "__all__", ()):
                return f"{module}.{name}"
    return None


def in_stand_ins(name: str) -> Defined | None:
    """Return a stand-in's definition of an absolute name ("timm.layers.Mlp"); None without one."""
    parts = name.split(".")
    if parts[0] not in stand_ins():
        return None
    library = Library(STAND_INS, ROOT)
    for cut in range(len(parts) - 1, 0, -1):
        if (file := library.module_file(".".join([STAND_INS, *parts[:cut]]))) is not None:
            found = resolve(read_source(library, file), ".".join(parts[cut:]))
            return found if isinstance(found, Defined) else None
    return None


@cache
def definitions(source: SourceFile) -> Mapping[str, ast.stmt]:
    """Return everything that a file itself binds at the top level, imports left out; of two bindings the later one."""
    found: dict[str, ast.stmt] = {}
    for node in _run(source):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {one.id: node for one in targets if isinstance(one, ast.Name)}
            found |= dict.fromkeys(unpacked(node), node)
        elif lacks_alternative(node, source.tree) and isinstance(node, ast.Try):
            flags = [part for part in (*node.body, *node.orelse) if isinstance(part, ast.Assign)]
            found |= {one.id: part for part in flags for one in part.targets if isinstance(one, ast.Name)}
    return found | {name: node for name, node in source.classes.items() if name not in found}


def unpacked(node: ast.stmt) -> list[str]:
    """Return the names that an assignment to several at once binds: `found, version = probe()`."""
    targets = node.targets if isinstance(node, ast.Assign) else []
    several = [one for one in targets if isinstance(one, ast.Tuple | ast.List)]
    return [one.id for target in several for one in ast.walk(target)
            if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]  # fmt: skip


def keeps_names(node: ast.stmt) -> bool:
    """Return whether a statement may bind several names, which stay as they are in every file."""
    return isinstance(node, ast.Try | ast.If) or bool(unpacked(node))


@cache
def guarded(source: SourceFile) -> Mapping[str, Defined]:
    """Return names that a `try` or an `if` at the top level binds, as flags and packages that may not be there are:
    each means the whole statement. Those that import what the authors wrote are left to imports.
    """
    found: dict[str, Defined] = {}
    for node in _run(source):
        if not isinstance(node, ast.Try | ast.If) or _is_program(node) or _is_switched_off(node):
            continue
        if lacks_alternative(node, source.tree):
            continue
        inner = list(_outside_functions(node))
        imported = [one for one in inner if isinstance(one, ast.Import | ast.ImportFrom)]
        own = any(source.library.module_file(name) is not None for one in imported for name in _modules(source, one))
        stored = [one.id for one in inner if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
        functions = [one.name for one in inner if isinstance(one, ast.FunctionDef)]
        classes = any(isinstance(one, ast.ClassDef) for one in inner) or (functions and isinstance(node, ast.Try))
        stored += functions
        if own or classes or not (stored or isinstance(node, ast.Try) or _asks_for_package(node.test)):
            continue
        optional = [one for one in imported if {name.partition(".")[0] for name in plain_modules(one)} != {_TORCH}]
        aliases = [alias for one in optional for alias in one.names]  # torch is always there: its names are imports
        names = [*stored, *(alias.asname or alias.name.partition(".")[0] for alias in aliases)]
        found |= dict.fromkeys(names, Defined(source, names[0], node)) if names else {}
    return found


@cache
def _run(source: SourceFile) -> tuple[ast.stmt, ...]:
    """Return the statements of a file; of a `try` that defines functions with a package that diffusers does not need,
    those that run without it; of an `if` that cannot be passed without a GPU, those that run without one.
    """
    found: list[ast.stmt] = []
    for node in (inner for one in source.tree.body for inner in _without_gpu(one)):
        inner = list(_outside_functions(node)) if isinstance(node, ast.Try) else []
        defines = any(isinstance(one, ast.FunctionDef) for one in inner)
        defines = defines and not any(isinstance(one, ast.ClassDef) for one in inner)
        modules = [name for one in inner for name in plain_modules(one) if source.library.module_file(name) is None]
        missing = defines and any(name.partition(".")[0] not in importable() for name in modules)
        if isinstance(node, ast.Try) and missing and not lacks_alternative(node, source.tree):
            handlers = [one for one in node.handlers if one.type is None or _FAILS.search(ast.unparse(one.type))]
            found += handlers[0].body if handlers else [node]
        else:
            found.append(node)
    return tuple(one for one in found if not _compiles_in_place(one))


def _without_gpu(node: ast.stmt) -> list[ast.stmt]:
    """Return the branch that runs without a GPU, where the test asks one for facts; else the statement itself."""
    if not isinstance(node, ast.If) or not needs_gpu(node.test) or (said := without_gpu(node.test)) is UNKNOWN:
        return [node]
    return [inner for one in (node.body if said else node.orelse) for inner in _without_gpu(one)]


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what stands in a statement; of functions within, nothing of theirs."""
    yield node
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        for child in ast.iter_child_nodes(node):
            yield from _outside_functions(child)


@cache
def _without_packages(source: SourceFile) -> Mapping[str, Imported]:
    """Return names that a file imports from torch, or the authors, where a package is not there that diffusers does not
    need: those of the second branch of `if is_triton_available(): ... else: ...`.
    """
    found: dict[str, Imported] = {}
    for node in (one for one in source.tree.body if isinstance(one, ast.If)):
        asked = _AVAILABLE.fullmatch(ast.unparse(node.test))
        if asked is not None and asked[1] not in importable():
            first, second = _imports_in(source, node.body), _imports_in(source, node.orelse)
            found |= {name: one for name, one in second.items() if name in first and _is_plain(source, one.module)}
    return found


def _is_plain(source: SourceFile, module: str) -> bool:
    return module.partition(".")[0] == _TORCH or source.library.module_file(module) is not None


def _imports_in(source: SourceFile, body: list[ast.stmt]) -> dict[str, Imported]:
    nodes = (one for one in body if isinstance(one, ast.ImportFrom))
    return {alias.asname or alias.name: Imported(absolute_module(source.package, node), alias.name)
            for node in nodes for alias in node.names}  # fmt: skip


def _asks_for_package(test: ast.expr) -> bool:
    """Return whether a condition asks for a package that may not be there: `is_torch_npu_available()`."""
    calls = (ast.unparse(one.func) for one in ast.walk(test) if isinstance(one, ast.Call))
    return any(name.endswith(("_available", "find_spec")) for name in calls)


def lacks_alternative(node: ast.stmt, tree: ast.Module) -> bool:
    """Return whether a guarded import of packages that have a stand-in leaves the file nothing to use in their place.

    Its handlers bind nothing, or None to names that no condition of the file tests, or a flag that some function
    asserts.
    """
    if not isinstance(node, ast.Try):
        return False
    body = [one for part in node.body for one in ast.walk(part)]
    packages = [name.partition(".")[0] for one in body for name in plain_modules(one)]
    if not packages or not set(packages) <= stand_ins():
        return False
    rest = [one for part in (*node.handlers, *node.orelse) for one in ast.walk(part)]
    targets = [(target, one.value) for one in rest if isinstance(one, ast.Assign) for target in one.targets]
    values = {target.id: value for target, value in targets if isinstance(target, ast.Name)}
    if len(values) < len({ast.unparse(target) for target, _ in targets}):  # an object keeps what is used instead
        return False
    empty = all(isinstance(value, ast.Constant) and not value.value for value in values.values())
    none = all(isinstance(value, ast.Constant) and value.value is None for value in values.values())
    binds = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Raise)
    if any(isinstance(one, binds) for one in rest):
        return False
    asserted = {ast.unparse(one.test) for one in ast.walk(tree) if isinstance(one, ast.Assert)}
    return (none and not values.keys() & _tested(tree)) or (empty and bool(values.keys() & asserted))


def plain_modules(node: ast.AST) -> list[str]:
    """Return the modules of an absolute import; empty for anything else."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []


def _tested(tree: ast.Module) -> set[str]:
    """Return names that decide something themselves, not by an attribute: in the test of an `if` or an `assert`."""
    tests = [one.test for one in ast.walk(tree) if isinstance(one, ast.If | ast.IfExp | ast.Assert | ast.While)]
    nodes = [one for test in tests for one in ast.walk(test)]
    owners = {id(one.value) for one in nodes if isinstance(one, ast.Attribute)}
    return {one.id for one in nodes if isinstance(one, ast.Name) and id(one) not in owners}


def _is_program(node: ast.stmt) -> bool:
    """Return whether a statement is what a file does when it is run: an importer sees nothing of it."""
    return isinstance(node, ast.If) and any(getattr(one, "id", "") == "__name__" for one in ast.walk(node.test))


def _is_switched_off(node: ast.stmt) -> bool:
    """Return whether a statement is what a variable of the environment switches on, which is not set."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    unset = _Unset()
    test = unset.visit(copy.deepcopy(node.test))
    with suppress(Unsupported):
        return unset.found and not evaluate(test, Domain())
    return False


class _Unset(ast.NodeTransformer):
    """Reads of variables of the environment as their defaults."""

    def __init__(self) -> None:
        self.found = False

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`os.environ.get(NAME, DEFAULT)`, `os.getenv(NAME, DEFAULT)`."""
        self.generic_visit(node)
        if not (dotted(node.func) or "").endswith(("environ.get", "getenv")):
            return node
        self.found = True
        return node.args[1] if len(node.args) > 1 else ast.copy_location(ast.Constant(None), node)


def _modules(source: SourceFile, node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [absolute_module(source.package, node)]
    return [alias.name for alias in node.names]


def absolute(source: SourceFile, node: ast.AST) -> str:
    """Return the absolute name of an imported thing that an expression names; empty for anything else."""
    name = dotted(node)
    found = resolve(source, name) if name else None
    return found if isinstance(found, str) else ""
