"""Names as a function sees them, in the order in which they are read and assigned."""

import ast

import pytest

from omni_kit.pysource.names import marked, of_tree


@pytest.mark.parametrize(
    ("text", "marks"),
    [
        ("x = x + 1", [("x", False), ("x", True)]),
        ("x += y", [("x", False), ("y", False), ("x", True)]),
        ("for i in values: print(i)", [("values", False), ("i", True), ("print", False), ("i", False)]),
    ],
)
def test_values_come_before_targets(text: str, marks: list[tuple[str, bool]]) -> None:
    assert list(marked(ast.parse(text))) == marks


def test_what_a_comprehension_binds_is_its_own() -> None:
    found = of_tree(ast.parse("made = [one + more for one in given]"))
    assert found.stored == {"made"}
    assert found.read == {"more", "given"}
