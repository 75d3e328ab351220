"""Human and JSON output, with the exit codes and the error form of the command-line contract."""

import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import StrEnum
from typing import Any, NoReturn, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import track

from omni_kit import __version__
from omni_kit.errors import OmniKitError
from omni_kit.output.text import PlainConsole, encodable, shown
from omni_kit.termination import go_on

LIST_LIMIT = 200
_PLAIN_WIDTH = 120  # without a terminal there is no width to fit; 80 would break tables
_NARROWEST, _WIDEST = 40, 10_000
_T = TypeVar("_T")


class Format(StrEnum):
    """The output format: for a person or for a program."""

    human = "human"
    json = "json"


def bounded(value: Any, limit: int = LIST_LIMIT) -> Any:
    """Return a JSON-ready copy of `value` in which lists longer than `limit` are cut.

    Next to a cut list `name` stands `name_total`, its real length. Non-finite floats become None: JSON has no NaN.
    """
    if isinstance(value, Mapping):
        result: dict[str, Any] = {}
        for key, item in value.items():
            result[str(key)] = bounded(item, limit)
            if limit and isinstance(item, (list, tuple)) and len(item) > limit:
                result[f"{key}_total"] = len(item)
        return result
    if isinstance(value, (list, tuple)):
        return [bounded(item, limit) for item in (value[:limit] if limit else value)]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


class Output:
    """Renders the result of one command and ends it with the right exit code.

    Args:
        command: the command's name, which makes the schema "omni-kit/<command>/1".
        fmt: human or json.
        full: do not cut long lists.
    """

    def __init__(self, command: str, fmt: Format = Format.human, full: bool = False) -> None:
        self.command = command
        self.fmt = fmt
        self.full = full
        width = None if sys.stdout.isatty() else _plain_width()
        self.console: Console = PlainConsole(width=width, highlight=False, emoji=False)
        self.diagnostics: Console = PlainConsole(stderr=True, width=width, highlight=False, emoji=False)
        for stream in (sys.stdout, sys.stderr):
            with suppress(AttributeError, ValueError):
                stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]

    @property
    def is_json(self) -> bool:
        """Return whether stdout gets one JSON document and nothing else."""
        return self.fmt is Format.json

    def finish(
        self,
        data: Mapping[str, Any],
        *,
        ok: bool,
        human: Callable[[Console], None],
        notes: Sequence[str] = (),
        exit_code: int | None = None,
    ) -> NoReturn:
        """Print the result and raise `typer.Exit`.

        Args:
            data: the command's own fields of the contract.
            ok: nothing is wrong with what was looked at.
            human: prints the same for a person.
            notes: one-line remarks, shown in both forms.
            exit_code: only to say something other than 0 for ok and 1 for not ok.
        """
        go_on()
        code = exit_code if exit_code is not None else (0 if ok else 1)
        if self.is_json:
            head = {"schema": f"omni-kit/{self.command}/1", "ok": code == 0, "omni_kit": __version__}
            self._print_json({**head, **data, "notes": list(notes)})
        else:
            human(self.console)
            self.note(notes)
        raise typer.Exit(code)

    def note(self, notes: Sequence[str]) -> None:
        """Print one-line remarks for a person."""
        for note in notes:
            self.console.print(f"[dim]note:[/dim] {escape(note)}", soft_wrap=True)

    def fail(self, error: OmniKitError) -> int:
        """Print an error in the contract's form; return the exit code."""
        if self.is_json:
            body = {"schema": "omni-kit/error/1", "ok": False, "error": error.message, "hint": error.hint}
            self._print_json(body)
        else:
            self.diagnostics.print(f"[red]error:[/red] {escape(error.message)}", soft_wrap=True)
            if error.hint:
                self.diagnostics.print(f"[dim]hint:[/dim]  {escape(error.hint)}", soft_wrap=True)
        return error.exit_code

    def say(self, message: str) -> None:
        """One diagnostic line on stderr, for a person who waits."""
        if not self.is_json:
            self.diagnostics.print(escape(message), soft_wrap=True)

    def progress(self, items: Sequence[_T], what: str) -> Iterable[_T]:
        """`items`, with a progress bar on a terminal and nothing elsewhere."""
        if self.is_json or not sys.stderr.isatty():
            return items
        return track(items, description=what, console=self.diagnostics, transient=True)

    @contextmanager
    def status(self, what: str) -> Iterator[None]:
        """Say that `what` is going on: a spinner on a terminal, a line elsewhere."""
        if self.is_json:
            yield
        elif sys.stderr.isatty():
            with self.diagnostics.status(escape(shown(what))):
                yield
        else:
            self.say(f"{what} ...")
            yield

    def _print_json(self, body: Mapping[str, Any]) -> None:
        limit = 0 if self.full else LIST_LIMIT
        plain = (sys.stdout.encoding or "").lower().replace("-", "") != "utf8"
        text = json.dumps(bounded(body, limit), indent=2, ensure_ascii=plain, allow_nan=False)
        sys.stdout.write(encodable(text) + "\n")


def _plain_width() -> int:
    """Return the output width without a terminal: `COLUMNS` if it is set, else wide enough for tables."""
    given = os.environ.get("COLUMNS", "")
    return min(max(int(given), _NARROWEST), _WIDEST) if re.fullmatch(r"[0-9]{1,6}", given) else _PLAIN_WIDTH
