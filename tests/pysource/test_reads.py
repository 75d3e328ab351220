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
    "return cond['two words']", "cond['text'] = x",
])  # fmt: skip
def test_what_is_no_mapping_has_no_items(body: str) -> None:
    assert read(body) == {}
