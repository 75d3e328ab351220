"""Trees of files: what a walk reaches, and when two are the same code."""

import ast
import inspect
import statistics

import pytest

from omni_checkers.engine.files import walked
from omni_kit.pysource.equality import same_code, same_statement

SYNTAX = """
import os.path as path
from . import sibling as other

def outer(first, /, *rest, key: int = 1, **named) -> dict[str, int]:
    global counter
    count = 0

    async def inner():
        nonlocal count
        async for item in rest:
            yield {**named, key: f"{item!r:>{key}}"}

    match first:
        case None | True:
            return {}
        case [1, *others] if others:
            return {k: v for k, v in others}
        case {"a": x, **more}:
            return more
        case path.Thing(x, kind=y) as whole:
            return (lambda z=whole: z[1:2])()
    try:
        assert (counter := key), "no"
    except* ValueError as error:
        del counter
    x: int
    x += -1
"""


@pytest.mark.parametrize("text", [SYNTAX, inspect.getsource(statistics), inspect.getsource(ast)])
def test_a_walk_reaches_what_ast_reaches_but_contexts(text: str) -> None:
    tree = ast.parse(text)
    wanted = [node for node in ast.walk(tree) if not isinstance(node, ast.expr_context)]

    assert walked(tree) == wanted
    assert walked(tree) == wanted
    function = next(node for node in wanted if isinstance(node, ast.FunctionDef))
    assert walked(function) == [node for node in ast.walk(function) if not isinstance(node, ast.expr_context)]


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ("x = f(a,\n      b)", "x = f(a, b)  # a remark", True),
        ("x = f(a, b)", "x = f(b, a)", False),
        ("x = 'a  b'", "x = 'a b'", False),
        ('def f():\n    """Says.\n\n    More."""\n    return 1', 'def f():\n    """Says. More."""\n    return 1', True),
        ('def f():\n    """Says."""\n    return 1', 'def f():\n    """Said."""\n    return 1', False),
        ("class C:\n    def f(self):\n        return 1", "class C:\n    # f\n    def f(self): return 1", True),
        ("class C:\n    def f(self):\n        return 1", "class C:\n    def f(self):\n        return 2", False),
        ("class C:\n    a = 1\n    b = 2", "class C:\n    a = 1", False),
        ("@first\ndef f(): ...", "@second\ndef f(): ...", False),
        ("if a:\n    b()\nelse:\n    c()", "if a:\n    b()\nelse:\n    d()", False),
    ],
)
def test_the_same_code(one: str, two: str, same: bool) -> None:
    mine, theirs = ast.parse(one), ast.parse(two)

    assert same_code(mine, theirs) is same
    assert same_statement(mine.body[0], one.split("\n"), theirs.body[0], two.split("\n")) is same
