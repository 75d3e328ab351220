"""Variants of a model that keep or break one rule, each written differently, read from tests/fixtures/checkers/<ID>.py.

A fixture names the file that its variants replace, and what they begin with; then each section is one variant:

    # file: parallel_plan.py
    <the beginning that all share>
    # --- broken: its name @model x2 | a part of the message
    <the rest>
    # --- fine: its name @model skipped
    # as it is

A line `# file: ...` inside a section, or in the beginning, goes on with another file.

`@model` is the model that is changed, `x2` how many findings there are, `skipped` that the rule finds nothing to judge.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures" / "checkers"
_HEAD = re.compile(
    r"# --- (?P<kind>broken|fine): (?P<name>[^@|]+?)(?: @(?P<model>\w+))?(?: x(?P<count>\d+))?(?P<skipped> skipped)?"
    r"(?: \| (?P<says>.+))?"
)
_FILE = "# file: "
_AS_IT_IS = "# as it is"


@dataclass(frozen=True)
class Variant:
    """One way to write a model.

    Attributes:
        says: a part of the message of each finding.
        findings: how many there are; 0 for a variant that is fine.
        skipped: the rule finds nothing to judge.
    """

    rule: str
    name: str
    edits: dict[str, str]
    model: str
    findings: int
    says: str
    skipped: bool

    def __str__(self) -> str:
        return f"{self.rule}-{self.name.replace(' ', '-')}"


def read_variants() -> list[Variant]:
    """The variants of all rules."""
    return [variant for file in sorted(FIXTURES.glob("*.py")) for variant in _read(file)]


def _read(file: Path) -> Iterator[Variant]:
    lines = file.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith(_FILE), f"{file.name} does not begin with '{_FILE}'"
    heads = [number for number, line in enumerate(lines) if line.startswith("# --- ")]
    for start, end in zip(heads, [*heads[1:], len(lines)], strict=True):
        found = _HEAD.fullmatch(lines[start])
        assert found is not None, f"{file.name}: {lines[start]}"
        body = lines[start + 1 : end]
        broken = found["kind"] == "broken"
        yield Variant(
            rule=file.stem,
            name=found["name"],
            edits={} if body == [_AS_IT_IS] else _files([*lines[: heads[0]], *body]),
            model=found["model"] or "olmoe",
            findings=int(found["count"] or 1) if broken else 0,
            says=found["says"] or "",
            skipped=bool(found["skipped"]),
        )


def _files(lines: list[str]) -> dict[str, str]:
    """Path -> text, of lines in which `# file: ...` begins another file."""
    starts = [number for number, line in enumerate(lines) if line.startswith(_FILE)]
    return {
        lines[start].removeprefix(_FILE): "\n".join(lines[start + 1 : end]) + "\n"
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
    }
