"""Text that others wrote, made fit to be shown: nothing in it may steer a terminal or end the printing."""

import re
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

# Control characters save newline and tab, marks that turn the direction of text, and halves of surrogate pairs.
_UNFIT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_HALVES = re.compile("[\ud800-\udfff]")


def shown(text: str) -> str:
    """`text` with every character that is unfit for a terminal as Python would write it: `\\x1b`."""
    return _UNFIT.sub(_written, text)


def encodable(text: str) -> str:
    """`text` with halves of surrogate pairs, which no file and no pipe takes, as JSON and Python write them."""
    return _HALVES.sub(_written, text)


def table(*columns: str, title: str | None = None, framed: bool = False) -> Table:
    """Return a table in which a cell that is too long continues in the next line: nothing is ever cut."""
    made = Table(title=title) if framed else Table(title=title, box=None, pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


class PlainConsole(Console):
    """A console that prints foreign text literally and never interprets its markup."""

    def render_str(self, text: str, *args: Any, **kwargs: Any) -> Text:
        """Render text as Rich does, after escaping what a terminal must not get."""
        return super().render_str(shown(text), *args, **kwargs)


def _written(match: re.Match[str]) -> str:
    number = ord(match.group())
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
