"""Which statements bind a name, and that only those are evaluated that somebody asks for."""

import ast

from omni_kit.pysource.scopes import LazyNames, bindings

TEXT = """
import a.b
from c import d as e
f, g.h = 1, 2
if f:
    def i(): pass
else:
    class i: pass
f += 1
j.append(f)
"""


def test_statements_by_the_names_that_they_bind_or_change() -> None:
    found = {name: [one.lineno for one in statements] for name, statements in bindings(ast.parse(TEXT).body).items()}
    assert found == {"a": [2], "e": [3], "f": [4, 9], "g": [4], "i": [5], "j": [10]}


def test_names_are_evaluated_once_and_when_they_are_asked_for() -> None:
    evaluated: list[str] = []

    def evaluate(statements: object) -> None:
        assert isinstance(statements, list)
        for statement in statements:
            evaluated.append(ast.unparse(statement))
            names[statement.targets[0].id] = len(evaluated)

    names = LazyNames(bindings(ast.parse("x = 1\ny = 2").body), evaluate)
    assert "z" not in names
    assert evaluated == []
    assert "y" in names
    assert names["y"] == 1
    assert (names.get("y"), names.get("x"), names.get("z", 0)) == (1, 2, 0)
    assert evaluated == ["y = 2", "x = 1"]
