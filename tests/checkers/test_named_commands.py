"""What rules and the generator tell people to do names only what exists in the command tree."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from typer.main import get_command

import omni_checkers
import omni_kit.patchgen
from omni_kit.cli.app import app

_COMMAND = re.compile(r"omni-kit ((?:[a-z][a-z-]*)(?: (?:run|check|list|drift|explain))?)(?=[\s`.,;)\"']|$)")
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]+)")
_FOREIGN = {"--no-deps", "--check"}  # of pip, and of modules that make pages
SOURCES = [
    file
    for package in (omni_checkers, omni_kit.patchgen)
    for file in sorted(Path(str(package.__file__)).parent.rglob("*.py"))
]


@cache
def _tree() -> tuple[set[str], set[str]]:
    """Every command with those above it, and every option of any of them."""
    import omni_kit.cli  # noqa: F401 - its commands register themselves

    commands, options = set[str](), set[str]()
    pending = [("", get_command(app))]
    while pending:
        name, command = pending.pop()
        commands.add(name)
        options |= {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        for inner, found in getattr(command, "commands", {}).items():
            pending.append((f"{name} {inner}".strip(), found))
    return commands, options | {"--help"}


def _texts(file: Path) -> Iterator[str]:
    """The texts of a file: messages, hints and documentation."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_every_command_and_option_that_is_named_exists(file: Path) -> None:
    commands, options = _tree()
    for text in _texts(file):
        if "omni-kit" in text:
            assert set(_COMMAND.findall(text)) <= commands, text
        if file.name != "write.py":  # which calls ruff
            assert set(_OPTION.findall(text)) <= options | _FOREIGN, text


def test_what_does_not_exist_is_seen() -> None:
    commands, options = _tree()
    assert "patchgen run" in commands
    assert "patchgen fly" not in commands
    assert _COMMAND.findall("see `omni-kit patchgen run x` or omni-kit fly.") == ["patchgen run", "fly"]
    assert not {"--flies"} & options
    assert {"--select", "--write-baseline", "--config", "--force", "--root"} <= options
