"""The text of a replacement, read from the file where it was written."""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import CodeType
from typing import Any

from omni_kit.patchgen.locate import Libraries, package_of
from omni_kit.patchgen.source import DefinitionNode, SourceModule, read_module
from omni_kit.patchgen.spans import Edit, Source, first_line, last_line, shift, splice
from omni_kit.patchgen.spec import Origin
from omni_kit.patchgen.standins import StandIn
from omni_kit.pysource.eval import Function
from omni_kit.pysource.nodes import blocks

_LAMBDA = "a lambda cannot be copied; write a def"


class NoSource(Exception):
    """A replacement whose text cannot be had; the message says why."""


@dataclass(frozen=True)
class Position:
    """Position of a definition, as found by the process that ran its config: the line is that of `first_line`."""

    name: str
    path: str
    line: int


@dataclass(frozen=True)
class UnmatchedHunk:
    """A replacement of a config that ran elsewhere, and has no text; `why` says so."""

    why: str


@dataclass(frozen=True)
class Fragment:
    """A definition cut out of its file, dedented.

    `comments` are the comment lines above it; `decorators` those that do not register it; `text` begins at def or
    class; `module` is where it stands, as the generated file names it.
    """

    name: str
    comments: str
    decorators: tuple[str, ...]
    text: str
    module: str
    path: Path
    line: int
    aliased: tuple[str, ...] = field(default=(), compare=False)

    @cached_property
    def node(self) -> DefinitionNode:
        """The definition in the syntax tree of the text, without its decorators."""
        node = ast.parse(self.text).body[0]
        assert isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        return node

    @property
    def is_class(self) -> bool:
        """Return whether it is a class and not a function."""
        return isinstance(self.node, ast.ClassDef)

    def renamed(self, name: str, *, inside: bool) -> "Fragment":
        """Return the fragment under another name; with `inside`, also in references to itself (`super(Me, self)`)."""
        if name == self.name:
            return self
        source = Source(self.text)
        keyword = re.compile(rf"(?:async\s+def|def|class)\s+({re.escape(self.name)})\b")
        found = keyword.match(self.text)
        assert found is not None
        edits = [Edit(found.start(1), found.end(1), name)]
        if inside:
            edits += [
                Edit(source.start_of(node), source.end_of(node), name)
                for node in ast.walk(self.node)
                if isinstance(node, ast.Name) and node.id == self.name
            ]
        return replace(self, name=name, text=splice(self.text, edits))

    def block(self, above: str = "") -> str:
        """Comments, `above` (upstream's decorators, dedented), its own decorators and the definition."""
        return self.comments + above + "".join(f"{d}\n" for d in self.decorators) + self.text.rstrip() + "\n"


def fragment_of(replacement: Any, registrations: set[Origin], libraries: Libraries) -> Fragment:
    """Return the definition of a function or class that was read, of one that is placed, or of a stand-in.

    Raises:
        NoSource: it is a lambda, no definition at all, or its file cannot be found.
    """
    match replacement:
        case StandIn():
            return _of_standin(replacement, registrations, libraries)
        case Function(node=node):
            if isinstance(node, ast.Lambda):
                raise NoSource(_LAMBDA)
            return cut(read_module(replacement.path.stem, replacement.path), node, registrations)
        case Position():
            return cut(*_at_line(Path(replacement.path), replacement.line, replacement.name), registrations)
        case UnmatchedHunk():
            raise NoSource(replacement.why)
    raise NoSource(_foreign(replacement))


def position_of(replacement: Any, origin: Origin | None, libraries: Libraries) -> Position:
    """Return the position of a live function or class in its source.

    Raises:
        NoSource: see `fragment_of`.
    """
    thing = _unwrapped(replacement)
    code = getattr(thing, "__code__", None)
    if isinstance(code, CodeType):
        if code.co_name == "<lambda>":
            raise NoSource(_LAMBDA)
        module, node = _at_line(Path(code.co_filename), code.co_firstlineno, code.co_name)
    elif isinstance(thing, type):
        module, node = _class(thing, origin, libraries)
    else:
        raise NoSource(_foreign(thing))
    return Position(node.name, str(module.path), first_line(node))


def _foreign(thing: object) -> str:
    return f"{type(thing).__name__} object is not a function or class"


def cut(module: SourceModule, node: DefinitionNode, registrations: Iterable[Origin]) -> Fragment:
    """Return the fragment of a definition in a parsed file."""
    lines = {origin.line for origin in registrations if origin.path == str(module.path)}
    kept, aliased = [], []
    for decorator in node.decorator_list:
        text = "@" + module.of(decorator)
        if not lines.intersection(range(decorator.lineno, (decorator.end_lineno or decorator.lineno) + 1)):
            kept.append(shift(text, node.col_offset, 0))
        elif not _is_plain_registration(decorator):
            aliased.append(text)
    first = first_line(node)
    return Fragment(
        name=node.name,
        comments=_comments_above(module, first, node.col_offset),
        decorators=tuple(kept),
        text=shift(module.rows(node.lineno, last_line(module, node)), node.col_offset, 0),
        module=package_of(module.path)[1],
        path=module.path,
        line=first,
        aliased=tuple(aliased),
    )


def _unwrapped(thing: Any) -> Any:
    while True:
        inner = getattr(thing, "__wrapped__", None) or getattr(thing, "__func__", None) or getattr(thing, "fget", None)
        if inner is None or isinstance(thing, type):
            return thing
        thing = inner


def _of_standin(thing: StandIn, registrations: set[Origin], libraries: Libraries) -> Fragment:
    module, _, name = thing.path.rpartition(".")
    path = libraries.file_of(module) if module and name.isidentifier() else None
    if path is None:
        raise NoSource(f"{thing.path} is not installed, so its text cannot be copied")
    source = read_module(module, path)
    definition = source.get(name)
    if definition is None:
        raise NoSource(f"{module} does not define {name} itself")
    return cut(source, definition.node, registrations)


def _at_line(path: Path, line: int, name: str) -> tuple[SourceModule, DefinitionNode]:
    if not path.is_file():
        raise NoSource(f"{name} has no source file")
    module = read_module(path.stem, path)
    node = module.definitions_by_line.get(line)
    if node is None or node.name != name:
        near = (n for n in _all_definitions(module.tree.body) if first_line(n) <= line <= n.lineno)
        node = next((n for n in near if n.name == name), None)
    if node is not None:
        return module, node
    raise NoSource(f"{path.name}:{line} does not define {name}")


def _class(thing: type, origin: Origin | None, libraries: Libraries) -> tuple[SourceModule, DefinitionNode]:
    path = _file_of_class(thing, origin, libraries)
    module = read_module(path.stem, path)
    found = [n for n in _all_definitions(module.tree.body) if isinstance(n, ast.ClassDef) and n.name == thing.__name__]
    if origin is not None and origin.path == str(path):
        exact = [n for n in found if first_line(n) <= origin.line <= n.lineno]
        found = exact or found
    if not found:
        raise NoSource(f"{path.name} does not define class {thing.__name__}")
    return module, found[-1]


def _file_of_class(thing: type, origin: Origin | None, libraries: Libraries) -> Path:
    functions = [f for f in map(_unwrapped, vars(thing).values()) if isinstance(getattr(f, "__code__", None), CodeType)]
    for function in functions:
        if function.__module__ == thing.__module__ and Path(function.__code__.co_filename).is_file():
            return Path(function.__code__.co_filename)
    if origin is not None and package_of(Path(origin.path))[1].removesuffix(".py") == thing.__module__:
        return Path(origin.path)
    roots = (package_of(Path(origin.path))[0],) if origin else ()
    path = Libraries(libraries.unpacked, (*roots, *libraries.roots)).file_of(thing.__module__)
    if path is None:
        raise NoSource(f"the file of {thing.__module__}.{thing.__name__} cannot be found")
    return path.resolve()


def _all_definitions(body: list[ast.stmt]) -> list[DefinitionNode]:
    found: list[DefinitionNode] = []
    for node in body:
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found.append(node)
        for block in blocks(node):
            found += _all_definitions(block)
    return found


def _comments_above(module: SourceModule, first: int, indent: int) -> str:
    """Return the comment lines above a definition, up to the next code; blank lines between them stay."""
    start = first
    while start > 1:
        line = module.lines[start - 2]
        if line.strip() and not (line[:indent].strip() == "" and line[indent:].startswith("#")):
            break
        start -= 1
    rows = [line[indent:] if line.strip() else "\n" for line in module.lines[start - 1 : first - 1]]
    text = "".join(rows).strip("\n")
    return f"{text}\n" if text else ""


def _is_plain_registration(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Attribute)
