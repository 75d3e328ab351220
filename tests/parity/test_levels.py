"""Levels declare what they need, and the help text says the same."""

from types import SimpleNamespace
from typing import Any

import pytest

from omni_kit.cli import main
from omni_kit.errors import BadInput
from omni_kit.isolation.worker import StepError
from omni_kit.parity.levels import BY_NAME, DEFAULT_LEVELS, LEVELS, PROCESS_LEVELS, judge, parse_levels
from omni_kit.targets.sides import OF_MODELS, Ability

CONTRACT = (
    "import",
    "hooks",
    "keys",
    "roundtrip",
    "forward",
    "backward",
    "modules",
    "scenarios",
    "dtype",
    "opslots",
    "steps",
    "lora",
    "sp",
    "fsdp",
    "ep",
    "stages",
    "train",
)


def test_the_order_is_that_of_the_contract() -> None:
    assert LEVELS == CONTRACT
    assert (CONTRACT[0], *CONTRACT[2:6]) == DEFAULT_LEVELS
    assert {"sp", "fsdp", "ep"} == PROCESS_LEVELS


@pytest.mark.parametrize(
    ("offers", "expected"),
    [
        (OF_MODELS, ["import", "keys", "roundtrip", "forward", "backward"]),
        (OF_MODELS - {Ability.gradient}, ["import", "keys", "roundtrip", "forward"]),
        (frozenset(), ["import", "keys", "roundtrip", "forward"]),
        (OF_MODELS | {Ability.scenarios}, ["import", "keys", "roundtrip", "forward", "backward", "scenarios"]),
        (OF_MODELS | {Ability.hooks}, ["import", "hooks", "keys", "roundtrip", "forward", "backward"]),
        (
            OF_MODELS | {Ability.hooks, Ability.adapters},
            ["import", "keys", "roundtrip", "forward", "backward"],
        ),
        (frozenset({Ability.stages}), ["import", "keys", "roundtrip", "forward", "stages"]),
    ],
)
def test_default_levels_are_those_that_both_sides_can_run(offers: frozenset[Ability], expected: list[str]) -> None:
    assert parse_levels(None, offers) == expected


def test_what_is_asked_for_by_name_is_run_or_said_not_to_apply() -> None:
    assert parse_levels(["sp", "keys"], frozenset()) == ["keys", "sp"]


def test_a_level_that_does_not_always_run_by_default_says_when_it_does() -> None:
    hooks, keys = BY_NAME["hooks"], BY_NAME["keys"]
    assert hooks.default
    assert hooks.described == f"{hooks.says}; by default only of sides without adapters"
    assert keys.described == keys.says


def test_the_help_text_names_every_level(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["parity", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"{name:10} {level.says.split()[0]}" in shown for name, level in BY_NAME.items())
    assert "LEVELS" not in shown
    assert "* hooks" in shown
    assert "- modules" in shown


def test_a_broken_reference_says_itself_what_to_do() -> None:
    class Case(SimpleNamespace):
        offers = OF_MODELS

        @property
        def pair(self) -> Any:
            raise StepError("Net cannot be made; state values", blames_reference=True)

    with pytest.raises(BadInput) as raised:
        judge("import", Case())  # type: ignore[arg-type]
    assert (raised.value.message, raised.value.hint) == ("Net cannot be made; state values", "")
