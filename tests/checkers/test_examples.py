"""Every rule's own examples: BAD fires; GOOD, put where the rule says, passes the whole gate.

In `make test` the first of the former, and every eighth of the latter.
"""

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from omni_checkers import Report, Rule, all_rules, check
from omni_checkers.engine.rule import Example
from omni_checkers.veomni import EXAMPLE
from omni_kit.diagnostics.definition import family_of
from omni_kit.patchgen import run_config
from omni_kit.patchgen.importing import CONFIG_SUFFIX
from tests.conftest import sampled

from .conftest import Subject, found, home_of, status_in

Place = Callable[[str, Example], Path]

RULES = [rule for rule in all_rules() if rule.target in {"veomni", "any"}]
READING = [rule for rule in RULES if rule.level == "static"]
"""The others run models: see test_levels.py."""
STALENESS = [rule.id for rule in RULES if rule.staleness]
"""What an example that shows a part of a generated file, and not the config that makes it, cannot pass by definition.
Nothing else is left out."""
OTHER_PATCHES = ["VEO518"]
"""What asks for a patch of its own, which an example of another patch does not have."""
BAD = [(rule, index) for rule in READING for index in range(len(rule.BAD))]
FIRST = [(rule, index) for rule, index in BAD if not index]
GOOD = [(rule, index) for rule in RULES for index in range(len(rule.GOOD))]


@pytest.fixture
def place(subject: Subject) -> Place:
    """Puts an example into its model, as a person does: what its patch configs generate is generated again."""

    def placed(name: str, example: Example) -> Path:
        path = subject(name, example)
        for file in example:
            if file.endswith(f"{CONFIG_SUFFIX}.py"):
                run_config(path / file)
        return path

    return placed


@pytest.fixture(scope="module")
def original(olmoe: Path, veomni_models: Path) -> Callable[[str], Path]:
    """The directory that examples are laid over, as it is."""
    return lambda name: olmoe if name == EXAMPLE else home_of(veomni_models, name)


@cache
def told(model: Path) -> frozenset[tuple[str, str]]:
    """What the gate says of a model as it is, as (rule, message): VeOmni's own models do not pass everything."""
    return frozenset((finding.rule, finding.message) for finding in check([model]).findings)


@pytest.fixture(scope="module")
def judged() -> dict[tuple[str, frozenset[tuple[str, str]]], Report]:
    """What the gate said of examples so far; rules share some."""
    return {}


@pytest.mark.parametrize(("rule", "index"), sampled(BAD, *FIRST), ids=lambda value: getattr(value, "id", value))
def test_a_bad_example_is_found(rule: type[Rule], index: int, place: Place) -> None:
    path = place(rule.example_of or EXAMPLE, rule.BAD[index])
    assert {family_of(finding.rule) for finding in found(path, rule.id)} == {rule.id}


@pytest.mark.parametrize(("rule", "index"), sampled(GOOD, *GOOD[::8]), ids=lambda value: getattr(value, "id", value))
def test_a_good_example_passes_the_whole_gate(
    rule: type[Rule],
    index: int,
    place: Place,
    original: Callable[[str], Path],
    judged: dict[tuple[str, frozenset[tuple[str, str]]], Report],
) -> None:
    """Of a generated file an example shows a part, which is put into the file."""
    name, example = rule.example_of or EXAMPLE, rule.GOOD[index]
    key = name, frozenset(example.items())
    if key not in judged:
        whole = {file: _put(text, original(name) / file) for file, text in example.items()}
        ignored = [] if whole == example else STALENESS
        judged[key] = check([place(name, whole)], ignore=[*ignored, *({*OTHER_PATCHES} - {rule.id})])
    findings = [(one.rule, one.message, one.path.name, one.line) for one in judged[key].findings]
    before = {(known, message) for known, message in told(original(name)) if family_of(known) != rule.id}
    assert [finding for finding in findings if finding[:2] not in before] == []
    if rule in READING and rule.target != "any":
        assert status_in(judged[key], rule.id) in {"pass", "not-applicable: a converter is attached"}


def test_every_rule_has_both_examples_and_says_what_why_and_when_not() -> None:
    assert [rule.id for rule in all_rules() if not (rule.BAD and rule.GOOD) and rule.id != "OMK003"] == []
    said = {rule.id: rule.documentation() for rule in all_rules()}
    assert [rule for rule, one in said.items() if not (one.summary.endswith(".") and one.why and one.fine_when)] == []


def _put(part: str, file: Path) -> str:
    """A generated file with what a part shows in place of its own; any other text as it is."""
    if not (file.is_file() and file.parent.name == "generated"):
        return part
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.parse(part).body:
        _replace(node, tree.body)
    return f"{part.splitlines()[0]}\n{ast.unparse(tree)}\n"


def _replace(node: ast.stmt, body: list[ast.stmt]) -> None:
    """Puts a definition in place of the one of its name, and of a class what it shows; anything new comes along."""
    place = next((place for place, other in enumerate(body) if _name(node) and _name(other) == _name(node)), None)
    old = body[place] if place is not None else None
    if isinstance(node, ast.ClassDef) and isinstance(old, ast.ClassDef):
        for inner in node.body:
            _replace(inner, old.body)
    elif place is not None:
        body[place] = node
    else:
        body.insert(0, node)


def _name(node: ast.stmt) -> str:
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", node)
    return str(getattr(target, "name", getattr(target, "id", "")))
