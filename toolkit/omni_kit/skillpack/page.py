"""A page of Markdown, read once: its code, its links, and the line of each."""

import re
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

_HTML_LINK = re.compile(r"""<(?:a|img)\s[^>]*?\b(?:href|src)=["']([^"']+)""", re.IGNORECASE)
_FRONT_MATTER = re.compile(r"\A\ufeff?---[ \t]*\n(.*?\n)?---[ \t]*(?:\n|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of code.

    Attributes:
        language: what stands after the fence, in lower case; empty without, and for an indented block.
        line: of its first line of code, from 1.
        closed: the fence has an end.
    """

    language: str
    text: str
    line: int
    fenced: bool = True
    closed: bool = True


@dataclass(frozen=True)
class Span:
    """Something in the text: a piece of code, or a link's target.

    Attributes:
        around: the paragraph or cell that it stands in, as it is written.
        column: the heading of its column, where it stands in a table.
        section: the number of the heading that it stands under.
    """

    text: str
    line: int
    around: str = ""
    column: str = ""
    section: int = 0


@dataclass(frozen=True)
class Page:
    """A Markdown file."""

    path: Path
    text: str

    @classmethod
    def read(cls, path: Path) -> "Page":
        """Read a file; bytes that are not UTF-8 are replaced."""
        return cls(path, path.read_text(encoding="utf-8", errors="replace"))

    @cached_property
    def front_matter(self) -> str | None:
        """The text between the first two lines of hyphens; None if the page does not begin with one."""
        match = _FRONT_MATTER.match(self.text)
        return (match[1] or "") if match else None

    @cached_property
    def body(self) -> str:
        """The Markdown after the front matter."""
        return _FRONT_MATTER.sub("", self.text, count=1)

    @cached_property
    def blocks(self) -> list[Block]:
        """Its blocks of code, in order."""
        return [self._block(token) for token in self._tokens if token.type in ("fence", "code_block")]

    @cached_property
    def code(self) -> list[Span]:
        """Its pieces of code within the text, in order."""
        return [span for kind, span in self._inline if kind == "code_inline"]

    @cached_property
    def links(self) -> list[Span]:
        """The targets of its links and pictures, in order."""
        return [span for kind, span in self._inline if kind == "link"]

    def section_of(self, line: int) -> int:
        """Return the number of the heading that a line stands under; 0 before the first."""
        return bisect_left(self._headings, line)

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def _headings(self) -> list[int]:
        return [token.map[0] + 1 for token in self._tokens if token.type == "heading_open" and token.map]

    @cached_property
    def _tokens(self) -> list[Token]:
        match = _FRONT_MATTER.match(self.text)
        blank = "\n" * match[0].count("\n") if match else ""
        return MarkdownIt("commonmark").enable("table").parse(blank + self.body)

    def _block(self, token: Token) -> Block:
        start, end = token.map or [0, 0]
        fenced = token.type == "fence"
        last = self._lines[end - 1].strip(" >") if fenced and end else ""
        closed = not fenced or (end > start + 1 and last.startswith(token.markup) and not last.strip(token.markup[0]))
        words = token.info.split()
        language = words[0].strip("{}.").partition(",")[0].lower() if words else ""
        return Block(language, token.content, start + 1 + fenced, fenced, closed)

    @cached_property
    def _inline(self) -> list[tuple[str, Span]]:
        return list(self._read_inline())

    def _read_inline(self) -> Iterator[tuple[str, Span]]:
        line, columns, number, head = 1, list[str](), 0, False
        for token in self._tokens:
            line = token.map[0] + 1 if token.map else line
            if token.type == "thead_open":
                columns, head = [], True
            elif token.type in ("thead_close", "table_close"):
                columns, head = (columns if token.type == "thead_close" else []), False
            elif token.type == "tr_open":
                number = 0
            elif token.type in ("th_close", "td_close"):
                number += 1
            elif token.type == "html_block":
                for match in _HTML_LINK.finditer(re.sub(r"<!--.*?-->", "", token.content, flags=re.DOTALL)):
                    yield "link", Span(match[1], line, token.content, "", self.section_of(line))
            elif token.type == "inline":
                if head:
                    columns.append(token.content)
                column = columns[number] if not head and number < len(columns) else ""
                yield from self._children(token, line, column)

    def _children(self, token: Token, line: int, column: str) -> Iterator[tuple[str, Span]]:
        for child in token.children or ():
            if child.type in ("softbreak", "hardbreak"):
                line += 1
            found = {"code_inline": child.content}.get(child.type)
            target = child.attrGet("href") if child.type == "link_open" else child.attrGet("src")
            where = (line, token.content, column, self.section_of(line))
            if found is not None:
                yield "code_inline", Span(found, *where)
                line += found.count("\n")
            elif target is not None:
                yield "link", Span(str(target), *where)
            elif child.type == "html_inline":
                yield from (("link", Span(match[1], *where)) for match in _HTML_LINK.finditer(child.content))
