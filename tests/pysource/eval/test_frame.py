"""Where the interpreter claims to know a value, it is Python's own; it never crashes and never exceeds its budget."""

import ast
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omni_kit.pysource.eval import Domain, Frame, Scope, Unreadable

NAMES = ("a", "b", "c")
OPERATORS = (
    *("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<"),
    *("==", "!=", "<", "<=", ">", ">=", "in", "is", "and", "or"),
)
CALLS = ("len", "list", "sorted", "sum", "str", "tuple", "max", "bool", "range", "abs", "set")


def evaluated(text: str, steps: int = 20_000) -> dict[str, Any]:
    scope = Scope({"a": 3, "b": [1, 2], "c": "xy"})
    Frame(Domain(steps), Path("program.py"), "program", scope).run(ast.parse(text).body)
    return scope.names


atoms = st.one_of(
    st.sampled_from(NAMES),
    st.integers(-9, 9).map(str),
    st.sampled_from(["'x'", "''", "None", "True", "2.5", "[]", "(1, 2)", "{'k': 1}"]),
)


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(inner, inner)
    operators = st.sampled_from(OPERATORS)
    calls = st.sampled_from(CALLS)
    return st.one_of(
        st.builds("({1} {0} {2})".format, operators, inner, inner),
        st.builds("{}({})".format, calls, inner),
        st.builds("{}[{}]".format, inner, inner),
        pair.map(lambda two: f"[i for i in {two[0]} if {two[1]}]"),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        pair.map(lambda two: f"(lambda z, *more: z)({two[0]}, {two[1]})"),
        inner.map(lambda one: f"(not {one})"),
        pair.map(lambda two: f"{{**{two[0]}, 1: {two[1]}}}"),
        inner.map(lambda one: f"f'{{({one})}}'" if "'" not in one else one),
        inner.map(lambda one: f"f'{{({one})!r:>4}}'" if "'" not in one else one),
        inner.map(lambda one: f"f'{{({one}):03d}}'" if "'" not in one else one),
    )


expressions = st.recursive(atoms, compound, max_leaves=6)
statements = st.one_of(
    st.builds("{} = {}".format, st.sampled_from(NAMES), expressions),
    st.builds("{} += {}".format, st.sampled_from(NAMES), expressions),
    st.builds("for i in {}:\n    a = i\n    if {}: break".format, expressions, expressions),
    st.builds("if {}:\n    b = {}\nelse:\n    c = {}".format, expressions, expressions, expressions),
    st.builds("def f(x, y={}):\n    return {}\nc = f({})".format, expressions, expressions, expressions),
    st.builds("while {}:\n    a = {}".format, expressions, expressions),
    st.builds("a, *b = {}".format, expressions),
    st.builds("b.append({})".format, expressions),
    st.builds(
        "match {}:\n    case 3 | 'x': a = {}\n    case None: b = 1\n    case z if {}: c = z".format, *[expressions] * 3
    ),
    st.builds("try:\n    a = {}\nfinally:\n    c = {}".format, expressions, expressions),
    st.builds("d = {{1: 2, 'x': 3}}\ndel d[{}]\nc = d".format, expressions),
)


@settings(max_examples=400, deadline=None)
@given(st.lists(statements, min_size=1, max_size=4).map("\n".join))
def test_what_it_knows_is_what_python_says(program: str) -> None:
    try:
        found = evaluated(program, 2_000)
    except Unreadable:
        return
    names: dict[str, Any] = {"a": 3, "b": [1, 2], "c": "xy"}
    exec(program, names)  # made above, of harmless parts
    for name in NAMES:
        assert repr(found[name]) == repr(names[name]) or isinstance(names[name], range | type)


@pytest.mark.parametrize(
    "text",
    [
        "while True: pass",
        "a = 10 ** 10 ** 10",
        "a = [0] * 10 ** 9",
        "a = 'x' * 10 ** 9",
        "a = 1 << 10 ** 9",
        "for i in range(10 ** 9): pass",
        "def f(): return f()\nf()",
        "a = [[0] * 10_000 for i in range(10_000)]",
        "b = [b, b]\n" * 40 + "a = b == b",
        "import os",
        "with a: pass",
        "open('planted', 'w')",
        "raise SystemExit",
        "global_that_nobody_knows",
        "().__class__",
    ],
)
def test_what_would_run_long_or_out_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        evaluated(text)
