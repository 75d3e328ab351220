"""Mistakes that people make, planted in a real model of VeOmni and in a scaffolded plugin: the gate must see each.

They stand in tests/fixtures/checkers/mistakes/<model>.diff: the rule, the file, the text that is replaced and its
replacement. In `make test` every third is planted.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from omni_kit.diagnostics.definition import family_of
from tests.conftest import sampled

from .conftest import Edits, Subject, found
from .variants import FIXTURES

_HEAD = re.compile(r"# --- (?P<rule>\w+): (?P<name>[^|]+?)(?: \| (?P<says>.+))?")


@dataclass(frozen=True)
class Mistake:
    """A mistake in one model, and the rule that must see it."""

    model: str
    rule: str
    name: str
    says: str
    edits: Edits

    def __str__(self) -> str:
        return f"{self.model}-{self.rule}-{self.name.replace(' ', '-')}"


def read_mistakes(model: str) -> Iterator[Mistake]:
    """The mistakes of one model."""
    text = (FIXTURES / "mistakes" / f"{model}.diff").read_text(encoding="utf-8")
    for section in re.split(r"^(?=# --- )", text, flags=re.MULTILINE)[1:]:
        head, file, *lines = section.splitlines()
        found = _HEAD.fullmatch(head)
        assert found is not None, head
        old = "\n".join(line[1:] for line in lines if line.startswith("-"))
        new = "\n".join(line[1:] for line in lines if line.startswith("+"))
        path = file.removeprefix("# file: ")
        yield Mistake(model, found["rule"], found["name"], found["says"] or "", {path: (old, new)})


VEOMNIS_OWN = {
    "qwen3_moe": {"VEO104", "VEO105", "VEO518", "VEO703"},
    "olmoe": set[str](),
    "qwen3_vl": {"VEO105", "VEO411", "VEO413", "VEO505"},
    "deepseek_v3": {"VEO105", "VEO405", "VEO518"},
    "qwen2_5_omni": {"VEO105", "VEO405", "VEO411", "VEO415", "VEO504", "VEO607"},
}
"""What VeOmni's models do wrong themselves; see test_veomni.py."""
MISTAKES = [mistake for model in VEOMNIS_OWN for mistake in read_mistakes(model)]


@pytest.mark.parametrize("mistake", sampled(MISTAKES, *MISTAKES[::6]), ids=str)
def test_a_mistake_is_found(mistake: Mistake, subject: Subject) -> None:
    findings = found(subject(mistake.model, mistake.edits), mistake.rule)
    assert findings, "nothing was found"
    assert any(mistake.says in finding.message for finding in findings), findings


@pytest.mark.parametrize(("model", "known"), VEOMNIS_OWN.items())
def test_without_a_mistake_there_is_no_finding(model: str, known: set[str], subject: Subject) -> None:
    assert {family_of(finding.rule) for finding in found(subject(model))} == known


def test_one_mistake_gives_no_finding_of_another_rule(subject: Subject) -> None:
    """A key with the wrong name is a key too much and a key too few, and nothing else."""
    edits = {"parallel_plan.py": ("experts.down_proj", "experts.down")}
    rules = {finding.rule for finding in found(subject("qwen3_moe", edits))}
    assert rules - VEOMNIS_OWN["qwen3_moe"] == {"VEO301", "VEO302"}


def test_the_mistakes_are_of_every_kind() -> None:
    assert len(MISTAKES) >= 60
    assert len({mistake.rule for mistake in MISTAKES}) >= 30
