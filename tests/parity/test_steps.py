"""Steps travel as one line of JSON, and every one of them arrives as what it was."""

import inspect
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from omni_kit.parity.processes import steps
from omni_kit.parity.processes.steps import Load, Open, Replay, Step, known_steps, step_of

STEPS = sorted(known_steps().values(), key=lambda kind: kind.__name__)
EXAMPLES: dict[Any, Any] = {Path: Path("/a b/c"), str: "text", int: 3, bool: True, float: 2.5}


def example(kind: type[Step[Any]]) -> Step[Any]:
    hints = get_type_hints(kind)
    known = {field.name: EXAMPLES[hints[field.name]] for field in fields(kind) if hints[field.name] in EXAMPLES}
    rest: dict[str, Any] = {
        "mesh": {"name": "m"}, "options": {}, "forbidden": ["x"], "pairs": [["a", 0, 1]], "run": {"name": "r"},
        "records": ["a"], "extent": "numbers", "published": {"a": [1, 2]}, "measured": ["a"], "hidden": ["x"],
        "salt": 2,
    }  # fmt: skip
    return kind(**known, **{field.name: rest[field.name] for field in fields(kind) if field.name not in known})


@pytest.mark.parametrize("kind", STEPS, ids=lambda kind: kind.__name__)
def test_a_step_arrives_as_it_was_sent(kind: type[Step[Any]]) -> None:
    line = example(kind).as_line()
    assert "\n" not in line
    assert step_of(line) == example(kind)


@pytest.mark.parametrize("kind", STEPS, ids=lambda kind: kind.__name__)
def test_every_step_can_be_taken_and_is_exported(kind: type[Step[Any]]) -> None:
    assert not inspect.isabstract(kind)
    assert kind.__name__ in steps.__all__
    assert kind.__doc__
    assert not kind.__doc__.startswith(f"{kind.__name__}(")


def test_no_two_steps_share_a_title() -> None:
    assert len({kind.title() for kind in STEPS}) == len(STEPS) >= 20
    assert Load.title() == "load"


@pytest.mark.parametrize("line", ['{"step": "dance", "args": {}}', '{"step": "open", "args": {"sideways": 1}}'])
def test_what_is_no_step_is_refused(line: str) -> None:
    with pytest.raises((KeyError, TypeError)):
        step_of(line)


def test_defaults_are_those_of_a_reference_without_secrets() -> None:
    opened = Open("a:B")
    assert (opened.batch_builder, opened.forbidden, opened.gradient) == ("", (), True)
    assert Replay(Path("a"), Path("b"), Path("c")).pairs == []
