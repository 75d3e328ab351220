"""`# Copied from` comments: their objects, and the code at their sources."""

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from omni_kit.pysource.library import Library
from omni_kit.pysource.source import SourceFile, read_text

_MARK = re.compile(r"^(?P<indent>\s*)# Copied from diffusers\.(?P<place>\S+)(?P<rest>.*)$")
_CHANGE = re.compile(r"([^\s,]+)->([^\s,]+)")


@dataclass(frozen=True)
class Copy:
    """Code with a comment that names its source.

    Attributes:
        line: where that is said, from 1.
        place: dotted, below diffusers.
        changes: what is named differently, in order.
        code: its lines.
    """

    line: int
    place: str
    changes: tuple[tuple[str, str], ...]
    code: str


def copies_in(source: SourceFile) -> Iterator[Copy]:
    """Yield the copies that a file names."""
    if "# Copied from diffusers." not in source.text:
        return
    for number, line in enumerate(source.lines):
        match = _MARK.match(line)
        if match is not None:
            code = _block(source.lines, number + 1)
            changes = list(_CHANGE.findall(match["rest"]))
            if "all-casing" in match["rest"]:
                changes = [pair for one in changes for pair in _casings(*one)]
            yield Copy(number + 1, match["place"], tuple(changes), code)


def _casings(before: str, after: str) -> list[tuple[str, str]]:
    return [(before, after), (before.lower(), after.lower()), (before.upper(), after.upper())]


def original_of(library: Library, place: str) -> str | None:
    """Return the code that a dotted place names; None if there is none."""
    parts = place.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        file = library.module_file(".".join(["diffusers", *parts[:cut]]))
        if file is not None and file.name != "__init__.py":
            return _found(file, tuple(parts[cut:]))
    return None


@lru_cache(maxsize=64)
def _text(file: Path) -> tuple[str, ...]:
    return tuple(read_text(file).split("\n"))


@lru_cache(maxsize=64)
def _places(file: Path) -> dict[tuple[str, ...], int]:
    """Return names of functions, classes and methods -> the line where they begin, from 0."""
    found: dict[tuple[str, ...], int] = {}
    inside = ""
    for number, line in enumerate(_text(file)):
        match = _DEFINED.match(line)
        if match is None:
            continue
        if not match["indent"]:
            inside = match["name"]
            found.setdefault((inside,), number)
        elif match["indent"] == "    ":
            found.setdefault((inside, match["name"]), number)
    return found


_DEFINED = re.compile(r"^(?P<indent>\s*)(?:async def|def|class) (?P<name>\w+)")


def _found(file: Path, names: tuple[str, ...]) -> str | None:
    start = _places(file).get(names)
    return _block(_text(file), start) if start is not None else None


def _block(lines: list[str] | tuple[str, ...], start: int) -> str:
    """Return the definition that begins at a line, or the one after its decorators and comments, without decorators."""
    first = start
    while first < len(lines) and _DEFINED.match(lines[first]) is None:
        first += 1
    if first == len(lines):
        return ""
    indent = len(lines[first]) - len(lines[first].lstrip())
    last = first + 1
    while last < len(lines) and (_deeper(lines[last], indent) or lines[last].strip()[:1] in (")", "]")):
        last += 1
    return "\n".join(lines[first:last]).rstrip()


def _deeper(line: str, indent: int) -> bool:
    return not line.strip() or len(line) - len(line.lstrip()) > indent


def same_copy(copy: Copy, original: str) -> bool:
    """Return whether a copy runs as its source does, with its changes, under whatever name.

    Formatting, docstrings and annotations do not count.
    """
    for before, after in copy.changes:
        original = original.replace(before, after)
    if _flat(copy.code) == _flat(original):
        return True
    mine, theirs = (_tree(text) for text in (copy.code, original))
    return mine is None or theirs is None or ast.dump(mine) == ast.dump(theirs)


def _flat(text: str) -> str:
    return "".join(text.split())


def _tree(text: str) -> ast.Module | None:
    try:
        tree = ast.parse(textwrap.dedent(text))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(node, ast.arg):
            node.annotation = None
        if isinstance(node, ast.FunctionDef):
            node.returns, node.decorator_list = None, []
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and isinstance(body, list):
            said = body[0].value if body and isinstance(body[0], ast.Expr) else None
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                body[:1] = [] if len(body) > 1 else [ast.Pass()]
    for item in tree.body:
        if isinstance(item, (ast.FunctionDef, ast.ClassDef)):
            item.name = ""
    return tree
