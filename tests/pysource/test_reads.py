"""What code reads at a glance."""

import ast

import pytest

from omni_kit.pysource.reads import items_read


def read(body: str) -> dict[str, bool]:
    function = ast.parse(f"def forward(self, x, cond):\n    {body}").body[0]
    assert isinstance(function, ast.FunctionDef)
    return items_read(function, "cond")


def test_items_of_a_mapping() -> None:
    assert read("return self.f(x, cond['text'], cond.get('mask'), cond['text'])") == {"text": True, "mask": False}


@pytest.mark.parametrize("body", [
    "return x + cond[0]", "return cond", "return f(cond, cond['text'])", "return cond.mean()",
    "return cond['two words']",
])  # fmt: skip
def test_what_is_no_mapping_has_no_items(body: str) -> None:
    assert read(body) == {}


@pytest.mark.parametrize(("code", "keys"), [
    ("x = cond['a'] if 'b' in cond else None", {"a": False, "b": False}),
    ("if 'a' not in cond.keys():\n    return None\nreturn cond['c']", {"a": False, "c": True}),
    ("if flag:\n    cond['a'] = pad(cond['a'])\nreturn cond['b']", {"a": False, "b": True}),
    ("if cond['a'] is None:\n    return cond['b']", {"a": True, "b": False}),
    ("for key in cond.keys():\n    x = cond['a']", {}),
    ("del cond['a']", {}),
    ("return 'a' in other and cond", {}),
])  # fmt: skip
def test_a_mapping_is_tested_set_and_read_in_branches(code: str, keys: dict[str, bool]) -> None:
    body = code.replace("\n", "\n    ")
    function = ast.parse(f"def forward(self, cond, flag, other):\n    {body}").body[0]
    assert isinstance(function, ast.FunctionDef)
    assert items_read(function, "cond") == keys
