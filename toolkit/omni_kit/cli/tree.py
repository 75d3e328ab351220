"""The command line as data: every command with its flags."""

from typing import Any

from typer.main import get_command

from omni_kit.cli.app import app
from omni_kit.skillpack.commands import Command


def command_tree() -> Command:
    """Return the commands and flags of `omni-kit`, read from the live app."""
    return _read("omni-kit", get_command(app))


def _read(name: str, command: Any) -> Command:
    options = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    inner = {key: _read(key, found) for key, found in getattr(command, "commands", {}).items()}
    about = " ".join((command.help or "").partition("\n\n")[0].split())
    return Command(name, frozenset(flag for flag in options if flag.startswith("-")), inner, about)
