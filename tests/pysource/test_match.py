"""Recognising functions by what they do."""

import ast

import pytest

from omni_kit.pysource.match import match_function

PATTERN = """
def forward(self, x):
    y = self.down(self.act(self.gate(x)) * self.up(x))
    return y / self.SCALE
"""


def parsed(text: str) -> ast.FunctionDef:
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def test_names_docstrings_annotations_and_comments_do_not_count() -> None:
    same = '''
def call(self, hidden_states: "Tensor") -> "Tensor":
    """What it does."""
    # a comment
    result = self.down(self.act(self.gate(hidden_states)) * self.up(hidden_states))
    return result / self.factor
'''
    assert match_function(parsed(same), PATTERN) == {"SCALE": "factor"}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.act(self.gate(x))", "self.gate(self.act(x))"),
        ("* self.up(x)", "+ self.up(x)"),
        ("self.up(x)", "self.up(self.x)"),
        ("return y", "return x"),
        ("def forward(self, x):", "def forward(self, x, z):"),
    ],
)
def test_any_other_computation_is_not_recognised(old: str, new: str) -> None:
    assert match_function(parsed(PATTERN.replace(old, new)), PATTERN) is None


def test_two_names_of_the_pattern_are_two_names() -> None:
    pattern = "def f(a, b):\n    return a - b\n"
    assert match_function(parsed("def g(x, y):\n    return x - y\n"), pattern) is not None
    assert match_function(parsed("def g(x, y):\n    return y - x\n"), pattern) is None
    assert match_function(parsed("def g(x, y):\n    return x - x\n"), pattern) is None
