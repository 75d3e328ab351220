"""A loop that collects is the comprehension that computes the same, and no other loop is."""

import ast

import pytest

from omni_checkers.codediff.loops import collected

SAME = [
    (
        "found = {}\nfor k, v in given.items():\n    if v is not None:\n        found[k] = v\nreturn found",
        "return {k: v for k, v in given.items() if v is not None}",
    ),
    ("found = []\nfor k in given:\n    found.append(k * 2)\nreturn found", "return [k * 2 for k in given]"),
    (
        "found = set()\nfor k in given:\n    found.add(k)\nreturn len(found)",
        "found = {k for k in given}\nreturn len(found)",
    ),
    (
        "found: list = list()\nfor k in given:\n    for c in k:\n        found.append(c)\nreturn found",
        "return [c for k in given for c in k]",
    ),
    ("if given:\n    x = list(given)\n    return x\nreturn 0", "if given:\n    return list(given)\nreturn 0"),
]
_APPEND = "found = []\nfor k in given:\n    found.append(k)\n"
OTHER = [
    f"{_APPEND}return found, k",
    f"k = 0\n{_APPEND}return found",
    f"{_APPEND}    break\nreturn found",
    f"{_APPEND}else:\n    found.append('')\nreturn found",
    f"{_APPEND}return found".replace("= []", "= ['']"),
    f"{_APPEND}return found".replace("append", "extend"),
    f"{_APPEND}return found".replace("for k", "for given['k']"),
    f"{_APPEND}return found".replace("found = []", "found, more = [], []"),
    "found = []\nfor k in given:\n    if k not in found:\n        found.append(k)\nreturn found",
    "found = []\nfor k in given:\n    if k:\n        found.append(k)\n    else:\n        found.append('')\nreturn k",
    "global found\nfound = len(given)\nreturn found",
]


def function(body: str) -> ast.Module:
    indented = "\n".join(f"    {line}" for line in body.splitlines())
    return ast.parse(f"def made(given):\n{indented}\n")


@pytest.mark.parametrize(("loop", "short"), SAME)
def test_a_loop_that_collects_is_its_comprehension(loop: str, short: str) -> None:
    assert ast.unparse(collected(function(loop))) == ast.unparse(function(short))
    for given in ({"a": 1, "b": None}, {}):
        results = []
        for tree in (function(loop), collected(function(loop))):
            names: dict[str, object] = {}
            exec(compile(tree, "made", "exec"), names)
            results.append(names["made"](given))  # type: ignore[operator]
        assert results[0] == results[1]


@pytest.mark.parametrize("loop", OTHER)
def test_any_other_loop_stays(loop: str) -> None:
    assert ast.unparse(collected(function(loop))) == ast.unparse(function(loop))
