"""Commands whose help reads well at any width of the terminal."""

import inspect
from collections.abc import Callable
from copy import copy
from typing import Any

import typer
from typer.core import TyperCommand
from typer.models import CommandFunctionType

_AS_WRITTEN = "\b"


class Command(TyperCommand):
    """A command whose help is shown as it is written: paragraphs flow, and square brackets are no markup."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Show a copy of the command, so that its own text stays what others read."""
        from rich.markup import escape

        shown = copy(self)
        shown.help = escape(_flowing(self.help or ""))
        shown.params = [copy(parameter) for parameter in self.params]
        for parameter in shown.params:
            written = getattr(parameter, "help", None)
            if written:
                parameter.help = escape(written)  # type: ignore[attr-defined]
        super(Command, shown).format_help(ctx, formatter)


class Commands(typer.Typer):
    """A group of such commands."""

    def command(self, *args: Any, **settings: Any) -> Callable[[CommandFunctionType], CommandFunctionType]:
        """Register a function as a command; see Typer's own."""
        return super().command(*args, **{"cls": Command, **settings})


def _flowing(text: str) -> str:
    """Return text whose paragraphs are one line each, except those that begin with a backspace, as click has it."""
    paragraphs = inspect.cleandoc(text).split("\n\n")
    return "\n\n".join(one if one.startswith(_AS_WRITTEN) else " ".join(one.split()) for one in paragraphs)
