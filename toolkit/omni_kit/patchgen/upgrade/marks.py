"""Marks in a config: what an upgrade left to a person, with both versions and what each means."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from omni_kit.patchgen.upgrade.outcome import PatchOutcome
from omni_kit.plurals import counted

BEGIN = "# <<<<<<< omni-kit patchgen upgrade:"
END = "# >>>>>>> omni-kit patchgen upgrade"
_MARK = re.compile(
    rf"^[ \t]*{re.escape(BEGIN)}[^\n]*\n(?:[ \t]*#[^\n]*\n)*?[ \t]*{re.escape(END)}[ \t]*\n\n?", re.MULTILINE
)
_SHOWN = 12  # lines of one version in a mark


def mark_of(outcome: PatchOutcome, versions: tuple[str, str]) -> str:
    """Return the comment about a conflict: both versions, and the effect of each."""
    lines = [f"{BEGIN} {outcome.target}, {versions[0]} -> {versions[1]}"]
    for clash in outcome.clashes:
        lines.append(f"# {clash.reason}")
        for title, code in (("upstream was:", clash.was), ("upstream is:", clash.now), ("the patch has:", clash.patch)):
            if code:
                lines += [f"# {title}", *_quoted(code)]
    lines += [f"# {effect}" for effect in outcome.effects]
    return "\n".join([*lines, END])


def _quoted(code: str) -> Iterable[str]:
    rows = code.rstrip().splitlines()
    yield from (f"#     {row}".rstrip() for row in rows[:_SHOWN])
    if len(rows) > _SHOWN:
        yield f"#     ... {counted(len(rows) - _SHOWN, 'more line')}"


@dataclass(frozen=True)
class Mark:
    """A mark in a config: where it is, which target it is about, and between which versions."""

    start: int
    end: int
    line: int
    target: str
    versions: str


def marks_in(text: str) -> list[Mark]:
    """Return the conflicts that upgrades left in a config, in the order of the file."""
    found = []
    for one in _MARK.finditer(text):
        target, _, versions = one.group().splitlines()[0].partition(BEGIN)[2].strip().partition(", ")
        found.append(Mark(one.start(), one.end(), text.count("\n", 0, one.start()) + 1, target, versions))
    return found
