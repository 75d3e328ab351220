"""A method told without its object does what the object does: both are run."""

import ast
import textwrap
from typing import Any

import pytest

from omni_kit.pysource.eval import Unsupported
from omni_kit.upstream.repositories.sampler_step.objects import emptied, opened

HEAD = """
from dataclasses import dataclass


class Base:
    def register_buffer(self, name, value):
        setattr(self, name, value)
"""
PLAIN = """
class Walk(Base):
    rate = 0.5

    def __init__(self, start, step=2.0):
        super().__init__()
        self.start = start
        offset = 1.0
        self.step = step
        self.register_buffer("base", offset + step)
        self.past = None

    @property
    def twice(self):
        return 2 * self.step

    @staticmethod
    def mixed(one, other, by=0.25):
        return one * by + other * (1 - by)

    def outer(self, x):
        y = x + 1
        return self.inner(y, self.past) + y

    def inner(self, v, old):
        y = 3 * v
        self.past = y
        return v + y + (old or 0.0)

    def bounded(self, x, low=0.0):
        if x < low:
            return low
        elif x > 50:
            y = 50
            return y
        return x

    def pair(self, x):
        total = x + self.base
        return total, total * self.rate

    def moved(self, x, t):
        x = x + self.twice * t
        before = x if self.past is None else self.mixed(x, self.past)
        self.past = before
        return self.bounded(before, low=self.start)

    def walk(self, x, count):
        total = 0.0
        self.past = None
        for t in range(count):
            x = self.moved(x, t)
            y, half = self.pair(self.bounded(x))
            total += self.outer(t) + y - half + self.mixed(total, self.bounded(t))
        return total
"""
DATA = """
@dataclass
class Walk:
    start: float
    step: float = 2.0
    kept = 3

    def of(self, x):
        return self.start + self.step * x * self.kept

    def walk(self, x, count):
        for t in range(count):
            x = self.of(x) if t % 2 else x + 1
        return x
"""


def ran(text: str, name: str) -> Any:
    scope: dict[str, Any] = {}
    exec(text, scope)
    return scope[name]


def cls_of(text: str) -> ast.ClassDef:
    return next(node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == "Walk")


def method_of(cls: ast.ClassDef) -> ast.FunctionDef:
    return next(node for node in cls.body if isinstance(node, ast.FunctionDef) and node.name == "walk")


@pytest.mark.parametrize("text", [PLAIN, DATA])
def test_an_opened_method_answers_what_the_object_answers(text: str) -> None:
    cls = cls_of(text)
    function, owner = opened(cls, method_of(cls))
    assert (owner.name, {*owner.given}) == ("Walk", {"start", "step"})
    function.name = "walk"
    told = ast.unparse(function)
    assert "self" not in told
    for start, x, count in ((0.5, 1.0, 5), (-2.0, -30.0, 4), (1.0, 49.0, 7)):
        expected = ran(HEAD + text, "Walk")(start, step=1.5).walk(x, count)
        assert ran(told, "walk")(x, count, start, step=1.5) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("text", [PLAIN, DATA])
def test_a_function_that_keeps_an_object_answers_the_same_without_it(text: str) -> None:
    caller = textwrap.dedent("""
        def call(x, past):
            step = 4.0
            it = Walk(0.5, step=step / 2)
            total = 0
            for moved in (1, 2):
                total = total + it.walk(x, 3) + moved * past
            return total
    """)
    function = next(node for node in ast.parse(caller).body if isinstance(node, ast.FunctionDef))
    told = ast.unparse(emptied(function, "it", cls_of(text)))
    assert "Walk" not in told
    assert ran(told, "call")(1.0, 2.0) == pytest.approx(ran(HEAD + text + caller, "call")(1.0, 2.0), rel=1e-12)


@pytest.mark.parametrize(("old", "new", "said"), [
    ("        total = x + self.base\n", "        while x < 3:\n            total = x\n", "has a `while`"),
    ("def pair(self, x):", "def pair(self, x, *more):", "takes any arguments"),
    ("        total = x + self.base\n", "        total = self.pair(x)[0]\n", "from within itself"),
    ("self.bounded(t))", "max(self.moved(x, one) for one in (t, 2)))", "in one expression"),
    ("        if x < low:\n", "        for y in x:\n            return y\n        if x < 1:\n", "returns from"),
    ("+ y - half", "+ self.unknown * y - half", "which Walk does not set"),
])  # fmt: skip
def test_what_cannot_be_told_is_said(old: str, new: str, said: str) -> None:
    assert old in PLAIN
    cls = cls_of(PLAIN.replace(old, new))
    with pytest.raises(Unsupported, match=said):
        opened(cls, method_of(cls))
