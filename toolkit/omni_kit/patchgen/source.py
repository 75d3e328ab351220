"""The upstream module: its text, and where each class, method, property and function stands in it."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal

from omni_kit.errors import BadInput
from omni_kit.patchgen.locate import Libraries
from omni_kit.patchgen.spans import Source, first_line
from omni_kit.pysource.nodes import FIELDS, blocks
from omni_kit.pysource.source import parse_file

DefinitionNode = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
Role = Literal["plain", "overload", "getter", "setter", "deleter"]
_INDEXED = (ast.Call, ast.Assign, ast.For, ast.ImportFrom)
_DEFINING = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
_LEAVES = frozenset({ast.Name, ast.Constant, ast.Load, ast.Store, ast.Import, ast.alias, ast.arg})
_ACCESSORS = {"setter": "setter", "deleter": "deleter"}


@dataclass(frozen=True)
class Definition:
    """One class or function statement of the module.

    `path` is how a config addresses it ("C", "C.m", "C.x.setter", "Outer.Inner.m"); `owner` is the class around it;
    a `guarded` definition stands under an if, try or with.
    """

    path: str
    node: DefinitionNode
    owner: "Definition | None"
    guarded: bool
    role: Role

    @property
    def is_class(self) -> bool:
        """Return whether it is a class and not a function."""
        return isinstance(self.node, ast.ClassDef)

    @property
    def first_line(self) -> int:
        """The first line, from 1, that of its first decorator if it has one."""
        return first_line(self.node)

    @property
    def last_line(self) -> int:
        """The last line, from 1."""
        return self.node.end_lineno or self.node.lineno


class SourceModule(Source):
    """An upstream module that was read and parsed, not imported.

    Args:
        name: its dotted name.
        path: its file.
        text: what the file says.
        tree: its parsed form, where it is known.

    Raises:
        BadInput: it is not Python that this interpreter can parse.
    """

    def __init__(self, name: str, path: Path, text: str, tree: ast.Module | None = None) -> None:
        super().__init__(text)
        self.name, self.path = name, path
        try:
            self.tree = tree or ast.parse(text)
        except SyntaxError as error:
            raise BadInput(f"{path}:{error.lineno} is not Python: {error.msg}", "look at the file") from error
        self.definitions: dict[str, list[Definition]] = {}
        for definition in _walk(self.tree.body, None, guarded=False):
            self.definitions.setdefault(definition.path, []).append(definition)

    @cached_property
    def nodes(self) -> dict[type[ast.AST], list[tuple[str, Any]]]:
        """Every call, assignment, loop and from-import of the module, with the path of the definition around it."""
        found: dict[type[ast.AST], list[tuple[str, Any]]] = {kind: [] for kind in _INDEXED}
        pending: list[tuple[str, Any]] = [("", self.tree)]
        while pending:
            place, node = pending.pop()
            for child in _children(node):
                kind = type(child)
                if kind in found:
                    found[kind].append((place, child))
                inner = place
                if kind in _DEFINING and not (place and self._is_function(place)):
                    inner = f"{place}.{child.name}" if place else child.name
                pending.append((inner, child))
        return found

    def _is_function(self, place: str) -> bool:
        return not self.definitions[place][-1].is_class if place in self.definitions else True

    @cached_property
    def definitions_by_line(self) -> dict[int, DefinitionNode]:
        """Every definition, inner functions of functions aside, by its first line."""
        return {d.first_line: d.node for found in self.definitions.values() for d in found}

    def candidates(self, path: str) -> list[Definition]:
        """Return definitions that answer to `path`: not the stubs of an overload, and of plain redefinitions
        the last.
        """
        found = [d for d in self.definitions.get(path, ()) if d.role != "overload"]
        certain = [d for d in found if not d.guarded]
        return certain[-1:] if certain else found

    def get(self, path: str) -> Definition | None:
        """Return the one definition that answers to `path`; None when there is none or no single one."""
        found = self.candidates(path)
        return found[0] if len(found) == 1 else None

    def code_of(self, definition: Definition) -> str:
        """Return the lines of a definition, decorators included."""
        return self.rows(definition.first_line, definition.last_line)

    def decorators_of(self, definition: Definition) -> str:
        """Return the decorator lines, as they are written."""
        return self.rows(definition.first_line, definition.node.lineno - 1) if definition.node.decorator_list else ""

    def methods_of(self, path: str) -> list[str]:
        """Return the names of the methods that a class itself defines."""
        keys = (key.split(".") for key in self.definitions if key.startswith(f"{path}."))
        depth = path.count(".") + 2
        return [key[-1] for key in keys if len(key) == depth]


def read_source(name: str, libraries: Libraries) -> SourceModule:
    """Return the upstream module of a dotted name.

    Raises:
        BadInput: no file of that name is found.
    """
    path = libraries.file_of(name)
    if path is None:
        top = name.partition(".")[0]
        why = "has no such module" if libraries.has(top) else "is not installed"
        raise BadInput(f"source module {name} does not exist: {top} {why}", f"install {top}, or correct source_module")
    return read_module(name, path)


def read_module(name: str, path: Path) -> SourceModule:
    """Read and parses a file; what was read before and has not changed since is not parsed again."""
    return _read(name, path, path.stat().st_mtime_ns)


@lru_cache(maxsize=64)
def _read(name: str, path: Path, mtime_ns: int) -> SourceModule:
    try:
        return SourceModule(name, path, *parse_file(path))
    except (UnicodeDecodeError, SyntaxError) as error:
        raise BadInput(f"{path} cannot be read as Python: {error}", "look at the file's encoding") from error


def _walk(body: list[ast.stmt], owner: Definition | None, guarded: bool) -> Iterator[Definition]:
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            definition = _definition(node, owner, guarded)
            yield definition
            if isinstance(node, ast.ClassDef):
                yield from _walk(node.body, definition, guarded)
        else:
            for block in blocks(node):
                yield from _walk(block, owner, guarded=True)


def _children(node: Any) -> list[Any]:
    """The parts of a node that can hold calls, loops or assignments; `ast.walk` looks at three times as many."""
    found = []
    parts = node.__dict__
    for name in FIELDS[type(node)]:
        part = parts.get(name)
        if isinstance(part, list):
            found += [item for item in part if item is not None and type(item) not in _LEAVES]
        elif part is not None and type(part) not in _LEAVES:
            found.append(part)
    return found


def _definition(node: DefinitionNode, owner: Definition | None, guarded: bool) -> Definition:
    prefix = f"{owner.path}." if owner else ""
    role = "plain" if isinstance(node, ast.ClassDef) else _role(node)
    suffix = f".{role}" if role in _ACCESSORS else ""
    return Definition(f"{prefix}{node.name}{suffix}", node, owner, guarded or bool(owner and owner.guarded), role)


def _role(node: ast.FunctionDef | ast.AsyncFunctionDef) -> Role:
    for decorator in node.decorator_list:
        match decorator:
            case ast.Attribute(value=ast.Name(id=name), attr="setter") if name == node.name:
                return "setter"
            case ast.Attribute(value=ast.Name(id=name), attr="deleter") if name == node.name:
                return "deleter"
            case ast.Name(id="overload") | ast.Attribute(attr="overload"):
                return "overload"
            case ast.Name(id=name) if name.endswith("property"):
                return "getter"
            case ast.Attribute(attr=name) if name.endswith("property"):
                return "getter"
    return "plain"
