"""Lines that other releases could have: decided alike where they compute the same, and otherwise where they do not."""

import ast
from collections.abc import Mapping

import pytest

from omni_kit.upstream.transformers.models import UpstreamModel
from tests.conftest import Models
from tests.targets.veomni.text.mutation.spellings import CHANGING, KEEPING
from tests.targets.veomni.text.mutation.subjects import PATCHED, READ, Subject, subjects
from tests.targets.veomni.text.mutation.truth import DTYPES, EXACT, definitions, same

Spellings = Mapping[str, list[tuple[str, str]]]
ROUNDED = {"rotary"}
"""Where the place of rounding counts."""


def test_there_are_enough() -> None:
    assert sum(map(len, KEEPING.values())) >= 60
    assert sum(map(len, CHANGING.values())) >= 40


def judged(model: UpstreamModel, spellings: Spellings, keeps: bool) -> list[str]:
    """What is decided wrongly about the spellings of a model's functions."""
    found = {f"{one.owner}.{one.node.name}".lstrip("."): one for one in subjects(model, PATCHED | READ)}
    lines = [(name, *line) for name, listed in spellings.items() for line in listed]
    return [wrong for name, old, new in lines if (wrong := _wrong(model, found[name], old, new, keeps))]


def _wrong(model: UpstreamModel, subject: Subject, old: str, new: str, keeps: bool) -> str:
    text = ast.unparse(subject.node)
    assert old in text, old
    (node,) = ast.parse(text.replace(old, new, 1)).body
    assert isinstance(node, ast.FunctionDef)
    mutated = subject.with_node(node)
    pair = [definitions(model.source.module, subject.definitions(one)) for one in (model, mutated)]
    truth = same(pair[0], pair[1], subject.call, DTYPES if subject.site in ROUNDED else EXACT)
    alike = subject.decision(mutated) == subject.decision(model)
    shown = f"{subject.node.name}: {new.strip()}: torch says {truth}, decided alike: {alike}"
    return "" if truth == keeps == alike else shown


@pytest.mark.sweep
@pytest.mark.parametrize(("spellings", "keeps"), [(KEEPING, True), (CHANGING, False)])
def test_every_spelling(model: Models, spellings: Spellings, keeps: bool) -> None:
    assert not judged(model("mixtral"), spellings, keeps)
