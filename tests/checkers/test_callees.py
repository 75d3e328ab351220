"""Calls of functions whose parameters were renamed: the former name fits, in every spelling of the decorator."""

import ast

import pytest

from omni_checkers.veomni.facts.callees import Callee

SPELLINGS = [
    '@deprecate_kwarg("past", version="5.9", new_name="cache")',
    '@deprecate_kwarg("past", "5.40.0", new_name="cache")',
    '@deprecate_kwarg(old_name="past", version="5.40.0", new_name="cache")',
]


def misfit(decorator: str, call: str) -> str:
    (function,) = ast.parse(f"{decorator}\ndef forward(hidden, cache=None): ...").body
    node = ast.parse(call, mode="eval").body
    assert isinstance(function, ast.FunctionDef)
    assert isinstance(node, ast.Call)
    return Callee("forward", function, 0).misfit(node)


@pytest.mark.parametrize("decorator", SPELLINGS)
def test_the_former_name_of_a_parameter_fits(decorator: str) -> None:
    assert not misfit(decorator, "forward(x, past=y)")
    assert not misfit(decorator, "forward(x, cache=y)")
    assert "other" in misfit(decorator, "forward(x, other=y)")
