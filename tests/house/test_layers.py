"""Layers of the checkers: rules stand on facts and runs, and not on each other; facts have one type."""

import inspect
import re
import typing
from collections.abc import Callable, Iterator
from types import UnionType
from typing import Any

import pytest

from omni_checkers import all_rules
from omni_checkers.engine.facts import facts_in

from .imports import imports

FACTS = {
    "diffusers": "omni_checkers.diffusers.facts",
    "sglang-diffusion": "omni_checkers.sglang_diffusion.facts",
    "skill": "omni_checkers.skills.facts",
    "veomni": "omni_checkers.veomni.facts",
}
_RULES = re.compile(r"^omni_checkers\.\w+\.rules\.")
# It finds the rules of all targets.
_COLLECTS = {"omni_checkers.engine.registry"}


def test_only_collectors_import_rules() -> None:
    """Neither facts and runs nor rules import rules: what two rules share is a fact, or an example."""
    wrong = {
        f"{module} -> {other}"
        for module, others in imports().items()
        for other in others
        if _RULES.match(f"{other}.") and module not in _COLLECTS and not other.endswith(".rules")
    }
    assert wrong == set()


def test_the_test_sees_rules() -> None:
    assert sum(bool(_RULES.match(module)) for module in imports()) > 50


def _askers(target: str) -> Iterator[Callable[..., Any]]:
    yield from (rule.check for rule in all_rules() if rule.target == target)
    yield from facts_in(FACTS[target]).values()


@pytest.mark.parametrize("target", FACTS)
def test_whoever_asks_for_a_fact_names_its_type(target: str) -> None:
    types = {name: typing.get_type_hints(function)["return"] for name, function in facts_in(FACTS[target]).items()}
    wrong = [
        f"{asker.__module__}.{asker.__qualname__}: {name} is {types.get(name, 'no fact')}, and not {wanted}"
        for asker in _askers(target)
        for name, wanted in _asked(asker)
        if types.get(name) != wanted
    ]
    assert wrong == []


def _asked(asker: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The facts that a function asks for, with their types; one that it can go without may be None."""
    hints = typing.get_type_hints(asker)
    for name, parameter in inspect.signature(asker).parameters.items():
        if name != "self":
            hint = hints[name]
            optional = isinstance(hint, UnionType) and parameter.default is None
            yield name, next(one for one in typing.get_args(hint) if one is not type(None)) if optional else hint
