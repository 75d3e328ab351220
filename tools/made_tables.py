"""Generated Markdown between marks: `python -m tools.made_tables` writes it everywhere.

    <!-- made: commands check verify; omni-kit 0.1.0 -->
    ...
    <!-- /made -->

The first word says which table it is, the others what of; the version is stamped when it is written.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from typer.main import get_command

import omni_kit.cli  # noqa: F401 - its commands register themselves
from omni_checkers import all_rules
from omni_kit import __version__
from omni_kit.cli.app import app
from omni_kit.cli.tree import command_tree
from omni_kit.parity.levels import BY_NAME
from omni_kit.skillpack.commands import Command

ROOT = Path(__file__).parents[1]
PAGES = [
    file
    for pattern in ("README.md", "docs/reference/*.md", "skills/*/SKILL.md", "skills/*/references/*.md")
    for file in sorted(ROOT.glob(pattern))
]
_PLACE = re.compile(r"<!-- made: (?P<kind>\w+)(?P<words>[\w :-]*); omni-kit [\w.]+ -->\n.*?<!-- /made -->", re.DOTALL)
_QUIET = {"--help", "--format", "--full"}  # every command has them


def written(text: str) -> str:
    """Return a page with every table as it is made today."""
    return _PLACE.sub(_made, text)


def _made(match: re.Match[str]) -> str:
    words = match["words"].split()
    rows = _TABLES[match["kind"]](words)
    head = f"<!-- made: {' '.join([match['kind'], *words])}; omni-kit {__version__} -->"
    return "\n".join([head, *rows, "<!-- /made -->"])


def _commands(names: list[str]) -> list[str]:
    """Return one row a command, spelt with a colon below a group: what it does, and its flags."""
    rows = ["| command | what it does | flags |", "|---|---|---|"]
    for name in names:
        command = command_tree()
        for part in name.split(":"):
            command = (command.commands or {})[part]
        rows.append(f"| `omni-kit {name.replace(':', ' ')}` | {command.about} | {_flags(command)} |")
    return rows


def _flags(command: Command) -> str:
    long = sorted(flag for flag in command.options if flag.startswith("--") and flag not in _QUIET)
    return " ".join(f"`{flag}`" for flag in long if not flag.startswith("--no-")) or "–"


def _rules(targets: list[str]) -> list[str]:
    """Return one row a topic of rules: the first and the last id, and how many there are."""
    topics: dict[str, list[str]] = {}
    for rule in all_rules():
        if rule.target in targets:
            topics.setdefault(rule.__module__.partition(".rules.")[2].partition(".")[0], []).append(rule.id)
    rows = ["| rules | topic | number |", "|---|---|---|"]
    ordered = sorted(topics.items(), key=lambda item: item[1][0])
    return rows + [f"| {ids[0]} to {ids[-1]} | {topic} | {len(ids)} |" for topic, ids in ordered]


def _proven(_: list[str]) -> list[str]:
    """Return the rows with the counts of the pages on whole libraries: verified, refused, and so on."""
    rows = ["| models | target | verified | refused, with the reason | other |", "|---|---|---|---|---|"]
    for page in ("docs/models.md", "docs/dit-models.md"):
        text = (ROOT / page).read_text(encoding="utf-8")
        counts = {what: int(number) for number, what in re.findall(r"^- \*\*(\d+) ([\w ]+)\*\*:", text, re.MULTILINE)}
        what, target = re.findall(r"^# (.+), brought into (\w+)$", text, re.MULTILINE)[0]
        other = sum(counts.values()) - counts["proven"] - counts["refused"]
        rows.append(f"| [{what}]({page}) | {target} | {counts['proven']} | {counts['refused']} | {other} |")
    return rows


def _levels(_: list[str]) -> list[str]:
    """Return one row per level: its name, starred if it runs by default, what a pass means, what both sides need."""
    rows = ["| level | a candidate that passes | needs |", "|---|---|---|"]
    for name, level in BY_NAME.items():
        star = r" \*" if level.default else ""
        rows.append(f"| `{name}`{star} | {level.described} | {', '.join(sorted(level.needs)) or '–'} |")
    return rows


def _reference(_: list[str]) -> list[str]:
    """Return every command with its help, arguments and options, from the command tree."""
    return list(_command_pages("omni-kit", get_command(app)))[1:]


def _command_pages(name: str, command: Any) -> Iterator[str]:
    yield from ("", f"## {name}", "")
    # click marks a paragraph that keeps its lines with a backspace.
    for paragraph in (command.help or "").split("\n\n"):
        kept = paragraph.lstrip().startswith("\b")
        yield from (
            ("```text", paragraph.replace("\b", "").strip("\n"), "```") if kept else (" ".join(paragraph.split()),)
        )
        yield ""
    inner = getattr(command, "commands", {})
    if not inner:
        yield from ("| argument or option | effect |", "|---|---|")
        yield from (_parameter(one) for one in command.params if not _is_help(one))
    for key, found in sorted(inner.items()):
        yield from _command_pages(f"{name} {key}", found)


def _is_help(parameter: Any) -> bool:
    return "--help" in parameter.opts


def _parameter(parameter: Any) -> str:
    names = [f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts)]
    if parameter.param_type_name == "argument":
        names = [f"`{parameter.metavar or parameter.name.upper()}`"]
    return f"| {' '.join(names)} | {' '.join((parameter.help or '').split()).replace('|', chr(92) + '|')} |"


_TABLES: Mapping[str, Callable[[list[str]], list[str]]] = {
    "commands": _commands,
    "rules": _rules,
    "proven": _proven,
    "levels": _levels,
    "reference": _reference,
}


if __name__ == "__main__":
    for place in PAGES:
        place.write_text(written(place.read_text(encoding="utf-8")), encoding="utf-8")
