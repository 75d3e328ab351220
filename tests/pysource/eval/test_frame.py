"""Where the interpreter claims to know a value, it is Python's own; it never crashes and never exceeds its budget."""

import ast
import os
import random
import re
import warnings
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from omni_kit.pysource.eval import Domain, Frame, Function, Native, Scope, Unsupported
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


ATOMS = (*NAMES, "i", "x", "'x'", "'a b'", "''", "None", "True", "2.5", "[]", "(1, 2)", "{'k': 1}", "{1, 2}", "b'z'")
# `E` is an expression, `N` a name, `O` an operator, `C` a built-in, `M` a method, `S` how a value is formatted.
EXPRESSIONS = (
    "(E O E)", "(E < E < E)", "(E in E)", "C(E)", "C(E, E)", "E.M()", "E.M(E)", "N.M(E, E)", "E[E]", "E[E:E]", "E[::E]",
    "[i for i in E if E for a in E]", "{i: E for i in E if E}", "{E for i in E}", "(E for x in E)",
    "[(lambda: i)() for i in E]", "[f() for f in [lambda: i for i in E]]", "(E if E else E)",
    "(lambda z, *more, k=2: (z, more, k))(E, *E)", "(lambda z=1, **more: (z, more))(**E, k=E)", "(not E)", "(-E)",
    "{**E, 1: E}", "[*E, *E]", "(a := E)", "[(c := i) for i in E]", "f'{N S}{(E)}'",
)  # fmt: skip
SIMPLE = (
    "N = E", "N += E", "N -= E", "N *= E", "N |= E", "N &= E", "a, *b = E", "(a, c), b = E", "b[E] = E", "d[E] = E",
    "b[E:] = E", "d = b = E", "E", "assert E", "raise E", "return E", "yield E", "break", "continue", "pass", "del a",
    "del c", "global a", "nonlocal c", "import math",
)  # fmt: skip
# `B` is a block one step further in, `BB` two.
COMPOUND = (
    "for i in E:\nB\nelse:\nB", "if E:\nB\nelse:\nB", "while E:\nB\nelse:\nB", "try:\nB\nfinally:\nB",
    "try:\nB\nexcept ValueError as c:\nB\nelse:\nB", "with E as a:\nB",
    "def f(x=E, *more, a=2):\nB\n    return x, a, more\nN = f(E)", "def f(x, a=[]):\nB\n    return x, a\nN = f(x=E)",
    "def f(*more, a):\nB\n    return a, more\nN = f(*E, a=E)", "def f(x):\nB\n    return x, a\nN = f(1, x=E)",
    "def f(x, /, c=1, *, k=E, **more):\nB\n    return c, k, more\nN = f(E, **E)",
    "def f(x):\n    def g(y=x):\nBB\n        return y, x, c\n    c = 7\n    return g()\nb = f(E)",
    "class K:\nB\n    def m(self, y=a): return y, c\n    z = E\na, c = K.z, K.m(E)",
    "class K:\n    z = E\nclass L(K):\n    w = K.z\nb = [L.z, L.w]",
    "def deco(f): return E\n@deco\ndef g(): return E\nc = g",
)  # fmt: skip


class Grammar:
    """Writes programs, each for a number."""

    def __init__(self, seed: int) -> None:
        self.choose = random.Random(seed)

    def expression(self, depth: int) -> str:
        if depth <= 0 or self.choose.random() < 0.3:
            return self.choose.choice((*ATOMS, str(self.choose.randint(-9, 9))))
        return self.filled(self.choose.choice(EXPRESSIONS), depth - 1)

    def filled(self, form: str, depth: int) -> str:
        words = {"O": OPERATORS, "C": CALLS, "M": METHODS, "N": NAMES}

        def word(found: re.Match[str]) -> str:
            return self.expression(depth) if found[0] == "E" else self.choose.choice(words[found[0]])

        form = re.sub(" S(?=})", self.choose.choice(SPECS), form)
        return re.sub(r"\b[EOCMN]\b", word, form)

    def block(self, depth: int) -> str:
        return "\n".join(self.statement(depth) for _ in range(self.choose.randint(1, 3)))

    def statement(self, depth: int) -> str:
        if depth <= 0 or self.choose.random() < 0.6:
            return self.filled(self.choose.choice(SIMPLE), 2)
        form = self.filled(self.choose.choice(COMPOUND), 2)
        return re.sub(r"^BB?$", lambda mark: indent(self.block(depth - 1), "    " * len(mark[0])), form, flags=re.M)


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
@given(st.integers(0, 2**48).map(lambda seed: Grammar(seed).block(2)).filter(runs))
def test_what_it_knows_is_what_python_says(program: str) -> None:
    try:
        found = evaluated(program, 2_000)
    except Unsupported:
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
        "a = [i for i in b if a for a in b]",
        "def f(x=nobody): return x\na = f(1)",
        "class K:\n    @property\n    def p(self): return 1\na = K.p",
    ],
)
def test_what_would_run_long_or_out_is_refused(text: str) -> None:
    with pytest.raises(Unsupported):
        evaluated(text)
