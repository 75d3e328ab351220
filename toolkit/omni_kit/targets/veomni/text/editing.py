"""Edits upstream's text at the positions that its ast gives."""

import ast
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from omni_kit.pysource.source import SourceFile


@dataclass(frozen=True)
class Edit:
    """The bytes `start` to `end` of a file become `text`."""

    start: int
    end: int
    text: str

    @classmethod
    def at(cls, source: SourceFile, node: ast.expr, text: str) -> "Edit":
        """An expression becomes another."""
        return cls(*span(source, node), text)

    @classmethod
    def before(cls, source: SourceFile, node: ast.stmt, block: str) -> "Edit":
        """Return lines stand before a statement, indented as it is."""
        start = span(source, node)[0]
        pad = " " * node.col_offset
        return cls(start, start, textwrap.indent(f"{block.strip()}\n", pad).lstrip(" ") + pad)

    @classmethod
    def after(cls, source: SourceFile, node: ast.stmt, block: str) -> "Edit":
        """Insert lines after a statement and the comment on its line, indented as it is."""
        data = source.text.encode()
        end = data.find(b"\n", span(source, node)[1])
        end = end if end >= 0 else len(data)
        return cls(end, end, "\n" + textwrap.indent(block.strip(), " " * node.col_offset))

    @classmethod
    def lines(cls, source: SourceFile, first: ast.stmt, last: ast.stmt, block: str) -> "Edit":
        """Return lines replace statements, indented as these are."""
        text = textwrap.indent(block.strip(), " " * first.col_offset).lstrip(" ")
        return cls(span(source, first)[0], span(source, last)[1], text)


def span(source: SourceFile, node: ast.stmt | ast.expr) -> tuple[int, int]:
    """Return the bytes of a file that a node takes, its decorators not among them."""
    starts = _starts(source)
    return starts[node.lineno] + node.col_offset, starts[node.end_lineno or 0] + (node.end_col_offset or 0)


@cache
def _starts(source: SourceFile) -> list[int]:
    """Return the start of each line, by its number."""
    return [0, *accumulate((len(line.encode()) + 1 for line in source.lines), initial=0)]


def edited(source: SourceFile, node: ast.FunctionDef | ast.ClassDef, edits: Sequence[Edit]) -> str:
    """Return the text of a definition without its decorators, edited and dedented."""
    data = source.text.encode()
    start, end = span(source, node)
    end = data.find(b"\n", end) if b"\n" in data[end:] else len(data)
    for edit in sorted(edits, key=lambda one: -one.start):
        data = data[: edit.start] + edit.text.encode() + data[edit.end :]
        end += len(edit.text.encode()) - (edit.end - edit.start)
    margin = " " * node.col_offset
    text = margin + data[start:end].decode()
    # Lines of a text within it may begin before the margin: these stay as they are.
    return re.sub(rf"^{margin}", "", text, flags=re.MULTILINE) + "\n"


def renamed(text: str, old: str, new: str) -> str:
    """Return a definition of a function under another name."""
    return re.sub(rf"^def {old}\b", f"def {new}", text)


def snake(name: str) -> str:
    """LlavaModel -> llava_model."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
