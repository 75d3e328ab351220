"""Mistakes inside a model, as `bench/mistakes` lists them: each is noticed by a level, and harmless edits by none."""

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from _pytest.mark import ParameterSet

from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.patchgen import run_configs
from omni_kit.scaffold import new_model

LIST = Path(__file__).parents[2] / "bench" / "mistakes" / "inside_the_model.yaml"
# The default levels first: what they notice need not be asked further.
ROUNDS: Sequence[Sequence[str] | None] = (None, ("keys", "dtype", "opslots"), ("scenarios",))
QUICK = ("norm-by-product",)
# What is judged wrongly today, and why.
KNOWN = {
    "softmax-in-half": "torch's softmax rounds once at its end: on the toy, no bit changes",
}
Planted = Callable[["Entry"], Path]


@dataclass(frozen=True)
class Entry:
    """One edit of a fresh scaffold; `wrong` ones must be noticed."""

    id: str
    what: str
    model: str
    edits: Mapping[str, Sequence[tuple[str, str]]]
    wrong: bool


def entries() -> list[Entry]:
    found = yaml.safe_load(LIST.read_text(encoding="utf-8"))
    return [Entry(**one, wrong=kind == "wrong") for kind in ("wrong", "harmless") for one in found[kind]]


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    """A scaffold with one edit; each model is scaffolded once."""
    fresh, edited = tmp_path_factory.mktemp("fresh"), tmp_path_factory.mktemp("edited")

    def plant(entry: Entry) -> Path:
        if not (fresh / entry.model).is_dir():
            new_model(entry.model, entry.model, target="veomni", into=fresh)
            run_configs(sorted((fresh / entry.model).glob("*_patch_gen_config.py")))
        shutil.rmtree(edited / entry.model, ignore_errors=True)
        made = shutil.copytree(fresh / entry.model, edited / entry.model)
        for name, pairs in entry.edits.items():
            text = (made / name).read_text(encoding="utf-8")
            for old, new in pairs:
                assert old in text, f"{name} has no {old!r}"
                text = text.replace(old, new)
            (made / name).write_text(text, encoding="utf-8")
        return made

    return plant


def cases() -> Iterator[ParameterSet]:
    """Each edit with the levels that are asked in turn: of four in `make test`, not every way of calling."""
    for one in entries():
        known = [pytest.mark.xfail(reason=KNOWN[one.id])] if one.id in KNOWN else []
        if one.id in QUICK:
            yield pytest.param(one, ROUNDS[: 2 if one.wrong else 1], id=one.id, marks=known)
        if one.id not in QUICK or not one.wrong:
            yield pytest.param(one, ROUNDS, id=f"{one.id}-all", marks=[pytest.mark.sweep, *known])


@pytest.mark.parametrize(("entry", "rounds"), cases())
def test_mistakes_are_noticed_and_harmless_edits_are_not(
    entry: Entry, rounds: Sequence[Sequence[str] | None], planted: Planted, sides: Sides
) -> None:
    path = planted(entry)
    for levels in rounds:
        report = run_parity(path, levels, sides=sides)
        if wrong := [f"{one.level}: {one.reason}" for one in report.levels if one.status in ("fail", "error")]:
            assert entry.wrong, wrong
            return
    assert not entry.wrong, f"no level notices: {entry.what}"
