"""Whatever tells people what to do names only what exists in the command tree: messages, skills, README, docs."""

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from typer.main import get_command

from omni_kit.cli.app import app

ROOT = Path(__file__).parents[2]
_GROUPS = "patchgen|rules|skills|reference"
_COMMAND = re.compile(rf"omni-kit ((?:{_GROUPS}) [a-z]+|[a-z][a-z-]*)(?=[\s`.,;)\"']|$)")
_OF_OURS = re.compile(r"omni-kit [a-z][^`\n|]*")
_OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]+)")
# Of pip, of git, of ruff, of torchrun, of modules that make pages, of things that are compared with, of a type checker.
_FOREIGN = {
    "--no-deps", "--check", "--diff3", "--force-reinstall", "--python", "--output-format", "--exit-zero", "--ignore",
    "--error", "--config-file", "--no-progress", "--extra-search-path", "--color", "--project",
}  # fmt: skip
# "omni-kit failed", "omni-kit does": sentences about it.
_SENTENCES = {
    "and", "asks", "brings", "decides", "did", "failed", "is", "makes", "or", "reads", "runs", "uses", "wrote",
}  # fmt: skip
# Its rules and their pages show what does not exist, and name flags of others.
_ABOUT_SKILLS = ROOT / "checkers" / "omni_checkers" / "skills"
SOURCES = sorted(
    file
    for folder in ("toolkit", "checkers")
    for file in (ROOT / folder).rglob("*.py")
    if not file.is_relative_to(_ABOUT_SKILLS)
)
PAGES = sorted(
    file
    for pattern in (
        "README.md",
        "AGENTS.md",
        "CONTRIBUTING.md",
        "docs/**/*.md",
        "skills/**/*.md",
        "templates/**/*.jinja",
    )
    for file in ROOT.glob(pattern)
    if not file.name.startswith("SKL")
)


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


@cache
def _texts(file: Path) -> list[str]:
    """The texts of a file: messages, hints and documentation."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return [one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)]


def test_every_command_and_option_of_a_message_exists() -> None:
    found = {file: [name for text in _texts(file) for name in _unknown(text)] for file in SOURCES}
    for file in SOURCES:
        if file.is_relative_to(ROOT / "checkers"):  # nothing in there calls another program
            found[file] += [flag for text in _texts(file) for flag in _foreign(text)]
    assert {file: names for file, names in found.items() if names} == {}


def test_every_command_and_option_of_a_page_exists() -> None:
    found = {file: _unknown(file.read_text(encoding="utf-8")) for file in PAGES}
    assert {file: names for file, names in found.items() if names} == {}


def _unknown(text: str) -> list[str]:
    """Commands that a text names and that do not exist, and options of its commands."""
    commands = [name for name in _COMMAND.findall(text) if name not in _SENTENCES]
    unknown = [name for name in commands if name not in _tree()[0]]
    return unknown + [flag for line in _OF_OURS.findall(text) for flag in _foreign(line)]


def _foreign(text: str) -> list[str]:
    return [flag for flag in _OPTION.findall(text) if flag not in _tree()[1] | _FOREIGN]


def _typed(page: str) -> Iterator[list[str]]:
    """Yield the arguments of each omni-kit command in the shell blocks of a page."""
    for block in re.findall(r"^```(?:bash|sh)\n(.*?)^```", page, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            found = re.search(r"(?:^|[\s/])omni[-_]kit ([a-z].*)$", re.sub(r"\{\{.*?\}\}|<[^>]*>", "x", line))
            if found and not line.startswith("#") and "{%" not in line:
                yield shlex.split(re.split(r"\s(?:&&|\|\|?|;|>|#)(?:\s|$)", found[1])[0])


def _unfit(words: list[str]) -> str:
    """Return why the command line does not take the words; empty if it does. Nothing runs."""
    command = get_command(app)
    while (inner := getattr(command, "commands", {}).get(words[0] if words else "")) is not None:
        command, words = inner, words[1:]
    options = {flag: one for one in command.params for flag in (*one.opts, *one.secondary_opts)}
    unknown = [word for word in words if word.startswith("--") and word.partition("=")[0] not in {*options, "--help"}]
    wrong = f"no option {unknown[0]}" if unknown else ""
    return wrong or (f"{words[0]} is not a command" if getattr(command, "commands", {}) and words else "")


def test_every_command_of_a_shell_block_has_its_options() -> None:
    typed = [(file, words) for file in PAGES for words in _typed(file.read_text(encoding="utf-8"))]
    assert [(file, words, why) for file, words in typed if (why := _unfit(words))] == []


def test_an_option_of_another_command_is_seen() -> None:
    page = "```bash\nomni-kit inspect a --strict    # x\nomni-kit check a --strict && ls\nomni-kit patchgen fly\n```\n"
    assert [_unfit(words) for words in _typed(page)] == ["no option --strict", "", "fly is not a command"]


def test_what_does_not_exist_is_seen() -> None:
    commands, options = _tree()
    assert "patchgen run" in commands
    assert "patchgen fly" not in commands
    assert _unknown("run `omni-kit patchgen fly` or omni-kit check a --flies") == ["patchgen fly", "--flies"]
    assert _COMMAND.findall("see `omni-kit patchgen run x` or omni-kit fly.") == ["patchgen run", "fly"]
    assert not {"--flies"} & options
    assert {"--select", "--write-baseline", "--config", "--force", "--root"} <= options
