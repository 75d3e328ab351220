"""Finding calls, arguments, assigned and returned values in syntax trees."""

import ast

import pytest

from omni_kit.pysource.nodes import argument, assigned, calls, constant, keyword, last_name, operand, returns, strings

FUNCTION = ast.parse("""
def f(x):
    a = 1
    for a in x:
        def g():
            return 2
    a: int = 3
    b.c(a, d=4)(5)
    return a if x else lambda: 6
""").body[0]


def shown(nodes: object) -> list[str]:
    return [ast.unparse(one) for one in nodes]  # type: ignore[attr-defined]


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def call(text: str) -> ast.Call:
    found = expression(text)
    assert isinstance(found, ast.Call)
    return found


def test_values_of_a_function() -> None:
    assert shown(assigned(FUNCTION, "a")) == ["1", "3"]
    assert shown(returns(FUNCTION)) == ["a if x else lambda: 6"]
    assert sorted(shown(calls(FUNCTION, "c"))) == ["b.c(a, d=4)", "b.c(a, d=4)(5)"]


@pytest.mark.parametrize(
    ("text", "found"), [("f(1, 2)", "2"), ("f(1, x=3)", "3"), ("f(1)", None), ("f(*a, 2)", None), ("f(*a, x=3)", "3")]
)
def test_an_argument_that_is_given_either_way(text: str, found: str | None) -> None:
    given = argument(call(text), 1, "x")
    assert (ast.unparse(given) if given is not None else None) == found


@pytest.mark.parametrize(
    ("text", "tensor", "first"), [("x.narrow(1)", "x", 0), ("torch.narrow(x, 1)", "x", 1), ("narrow(input=x)", "x", 1)]
)
def test_what_an_operation_works_on(text: str, tensor: str, first: int) -> None:
    found, number = operand(call(text))
    assert found is not None
    assert (ast.unparse(found), number) == (tensor, first)


def test_small_things() -> None:
    assert [last_name(expression(text)) for text in ("a.b", "a.b()", "a", "a[0]")] == ["b", "b", "a", ""]
    assert [constant(expression(text)) for text in ("-1", "'a'", "-a", "a")] == [-1, "a", None, None]
    assert strings(expression("['a', 'b']")) == ["a", "b"]
    assert strings(expression("['a', b]")) is None
    assert keyword(call("f(x=1)"), "y") is None
