"""Where the interpreter claims to know a value, it is Python's own; it never crashes and never exceeds its budget."""

import ast
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omni_kit.pysource.eval import Domain, Frame, Function, Native, Scope, Unreadable
from omni_kit.pysource.eval.values import Iterated, Partial

EXAMPLES = int(os.environ.get("INTERPRETER_EXAMPLES", "250"))
BEGIN: dict[str, Any] = {"a": 3, "b": [1, 2], "c": "xy", "d": {"k": 1}}
NAMES = tuple(BEGIN)
OPERATORS = (
    *("+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>"),
    *("==", "!=", "<", "<=", ">", ">=", "in", "not in", "is", "is not", "and", "or"),
)
CALLS = (
    *("len", "list", "sorted", "sum", "str", "tuple", "max", "min", "bool", "range", "abs", "set", "dict", "round"),
    *("enumerate", "zip", "reversed", "any", "all", "int", "float", "frozenset", "getattr", "hasattr", "isinstance"),
)
METHODS = (
    *("append", "pop", "extend", "insert", "index", "count", "remove", "sort", "reverse", "clear", "copy"),
    *("keys", "values", "items", "get", "update", "setdefault", "add", "union", "discard", "difference", "issubset"),
    *("upper", "split", "join", "replace", "strip", "startswith", "find", "format", "partition", "title", "isdigit"),
)
SPECS = (":>5", ":03d", ":.2f", "!r", "!s:4", ":x", "")


def evaluated(text: str, steps: int = 20_000) -> dict[str, Any]:
    scope = Scope({name: value.copy() if isinstance(value, list | dict) else value for name, value in BEGIN.items()})
    Frame(Domain(steps), Path("program.py"), "program", scope).run(ast.parse(text).body)
    return scope.names


def same(found: Any, truth: Any) -> bool:
    """Whether two values are alike; functions and iterators are compared by their kind."""
    if isinstance(found, Function | Native | Partial):
        return callable(truth)
    if isinstance(found, Iterated):
        return hasattr(truth, "__next__")
    if type(found) is not type(truth):
        return False
    if isinstance(found, list | tuple):
        return len(found) == len(truth) and all(map(same, found, truth))
    if isinstance(found, dict):
        return list(map(repr, found)) == list(map(repr, truth)) and all(map(same, found.values(), truth.values()))
    return repr(found) == repr(truth)


atoms = st.one_of(
    st.sampled_from((*NAMES, "i", "x")),
    st.integers(-9, 9).map(str),
    st.sampled_from(["'x'", "'a b'", "''", "None", "True", "2.5", "[]", "(1, 2)", "{'k': 1}", "{1, 2}", "b'z'", "..."]),
)
names = st.sampled_from(NAMES)


def indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair, three = st.tuples(inner, inner), st.tuples(inner, inner, inner)
    methods = st.sampled_from(METHODS)
    return st.one_of(
        st.builds("({1} {0} {2})".format, st.sampled_from(OPERATORS), inner, inner),
        st.builds("({1} {0} {2} {0} {3})".format, st.sampled_from(("<", "==", "in")), inner, inner, inner),
        st.builds("{}({})".format, st.sampled_from(CALLS), inner),
        st.builds("{}({}, {})".format, st.sampled_from(CALLS), inner, inner),
        st.builds("{}.{}({})".format, inner, methods, st.one_of(st.just(""), inner)),
        st.builds("{}.{}({}, {})".format, names, methods, inner, inner),
        st.builds("{}[{}]".format, inner, inner),
        three.map(lambda few: f"{few[0]}[{few[1]}:{few[2]}]"),
        st.builds("{}[::{}]".format, inner, inner),
        three.map(lambda few: f"[i for i in {few[0]} if {few[1]} for a in {few[2]}]"),
        three.map(lambda few: f"{{i: {few[0]} for i in {few[1]} if {few[2]}}}"),
        pair.map(lambda two: f"{{{two[0]} for i in {two[1]}}}"),
        pair.map(lambda two: f"({two[0]} for x in {two[1]})"),
        pair.map(lambda two: f"[(lambda: i)() for i in {two[0]}] + [f() for f in [lambda: i for i in {two[1]}]]"),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        pair.map(lambda two: f"(lambda z, *more, k=2: (z, more, k))({two[0]}, *{two[1]})"),
        pair.map(lambda two: f"(lambda z=1, **more: (z, more))(**{two[0]}, k={two[1]})"),
        inner.map(lambda one: f"(not {one})"),
        inner.map(lambda one: f"(-{one})"),
        pair.map(lambda two: f"{{**{two[0]}, 1: {two[1]}}}"),
        pair.map(lambda two: f"[*{two[0]}, *{two[1]}]"),
        st.builds("(a := {})".format, inner),
        st.builds("[(c := i) for i in {}]".format, inner),
        st.builds("f'{{({})}}{{a{}}}'".format, inner, st.sampled_from(SPECS)).filter(lambda one: one.count("'") == 2),
        st.builds("f'{{{}{}}}'".format, names, st.sampled_from(SPECS)),
    )


expressions = st.recursive(atoms, compound, max_leaves=6)
simple = st.one_of(
    st.builds("{} = {}".format, names, expressions),
    st.builds("{} {}= {}".format, names, st.sampled_from(("+", "-", "*", "|", "&", "//")), expressions),
    st.builds("a, *b = {}".format, expressions),
    st.builds("(a, c), b = {}".format, expressions),
    st.builds("b[{}] = {}".format, expressions, expressions),
    st.builds("d[{}] = {}".format, expressions, expressions),
    st.builds("b[{}:] = {}".format, expressions, expressions),
    st.builds("d = b = {}".format, expressions),
    st.builds("{}".format, expressions),
    st.builds("assert {}".format, expressions),
    st.builds("raise {}".format, expressions),
    st.builds("return {}".format, expressions),
    st.builds("yield {}".format, expressions),
    st.sampled_from(["break", "continue", "pass", "del a", "del c", "global a", "nonlocal c", "import math"]),
)


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    blocks = st.lists(inner, min_size=1, max_size=3).map("\n".join).map(indented)
    defaults = st.sampled_from(("", "=a", "=[]", "=1"))
    calls = st.sampled_from(("f({})", "f(x={})", "f(*{})", "f(**{})", "f({}, a=2)", "f({}, 1, 2)", "f(1, x={})"))
    return st.one_of(
        st.builds("for i in {}:\n{}\nelse:\n{}".format, expressions, blocks, blocks),
        st.builds("if {}:\n{}\nelse:\n{}".format, expressions, blocks, blocks),
        st.builds("while {}:\n{}\nelse:\n{}".format, expressions, blocks, blocks),
        st.builds("try:\n{}\nexcept ValueError as c:\n{}\nelse:\n{}".format, blocks, blocks, blocks),
        st.builds("try:\n{}\nfinally:\n{}".format, blocks, blocks),
        st.builds("with {} as a:\n{}".format, expressions, blocks),
        st.builds(
            "def f(x{}, *more, a=2):\n{}\n    return x, a, more\n{} = {}".format,
            defaults, blocks, names, st.builds(str.format, calls, expressions),
        ),
        st.builds(
            "def f(x, /, c=1, *, k={}, **more):\n{}\n    return c, k, more\n{} = {}".format,
            expressions, blocks, names, st.builds(str.format, calls, expressions),
        ),
        st.builds(
            "def f(x):\n    def g(y=x):\n{}\n        return y, x, c\n    c = 7\n    return g()\nb = f({})".format,
            blocks.map(indented), expressions,
        ),
        st.builds(
            "class K:\n{}\n    def m(self, y=a): return y, c\n    z = {}\na, c = K.z, K.m({})".format,
            blocks, expressions, expressions,
        ),
        st.builds("class K:\n    z = {}\nclass L(K):\n    w = K.z\nb = [L.z, L.w]".format, expressions),
        st.builds("def deco(f): return {}\n@deco\ndef g(): return {}\nc = g".format, expressions, expressions),
    )  # fmt: skip


programs = st.lists(st.recursive(simple, nested, max_leaves=4), min_size=1, max_size=4).map("\n".join)


def runs(text: str) -> bool:
    """Whether a text is a program of Python."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(text, "program", "exec")
    except SyntaxError:
        return False
    return True


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs.filter(runs))
def test_what_it_knows_is_what_python_says(program: str) -> None:
    try:
        found = evaluated(program, 2_000)
    except Unreadable:
        return
    truth = {name: value.copy() if isinstance(value, list | dict) else value for name, value in BEGIN.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(program, truth)  # made above, of harmless parts
    for name in NAMES:
        assert (name in found) == (name in truth)
        assert name not in truth or same(found[name], truth[name]), (name, found[name], truth[name])


@pytest.mark.parametrize(("text", "value"), [
    ("def f():\n    try:\n        return 1\n    finally:\n        b.append(5)\na = [f(), b]", [1, [1, 2, 5]]),
    ("a = [f() for f in [lambda: i for i in range(3)]]", [2, 2, 2]),
    ("a = [c := i for i in b][0] + c", 3),
    ("g = (i for i in b)\na = [list(g), list(g)]", [[1, 2], []]),
    ("k = d.keys()\nd['n'] = 2\na = list(k)", ["k", "n"]),
    ("a = f'{3:04d}|{2.5:.2f}|{c!r:>6}'", "0003|2.50|  'xy'"),
    ("a = [x for x in range(9) if x % 2][1:3]", [3, 5]),
    ("e = b\ne += (3,)\na = b", [1, 2, 3]),
])  # fmt: skip
def test_what_python_means(text: str, value: object) -> None:
    assert evaluated(text)["a"] == value


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
        "a = round(7, -10 ** 9)",
        "a = f'{1:>999999999}'",
        "def f():\n    x = a\n    a = 1\nf()",
        "def f():\n    return 1\n    yield\na = f()",
        "def f():\n    if False:\n        global a\n    a = 1\nf()",
        "def f(x, /): return x\nf(x=1)",
        "def f(x, y=2): return y\na = f(1, 2, y=3)",
        "a = (lambda **more: more)(k=1, **{'k': 2})",
        "a = zip(b)[0]",
        "a = (i for i in b) == []",
        "a = getattr([], '__len__', 5)",
        "class K:\n    @property\n    def p(self): return 1\na = K.p",
    ],
)
def test_what_would_run_long_or_out_is_refused(text: str) -> None:
    with pytest.raises(Unreadable):
        evaluated(text)
