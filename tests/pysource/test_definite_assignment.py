"""Reads of locals before an assignment: found on every kind of path, and not where each path has set them."""

import ast

import pytest

from omni_kit.pysource.definite_assignment import unset_reads


def found(body: str) -> list[tuple[str, bool]]:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    function = ast.parse(f"def f(self, a, *rest, b=None, **more):\n{lines}\n").body[0]
    assert isinstance(function, ast.FunctionDef)
    return [(one.name, one.never) for one in unset_reads(function)]


@pytest.mark.parametrize(
    ("body", "name", "never"),
    [
        ("y = x + 1\nx = a", "x", True),
        ("if a:\n    x = 1\nreturn x", "x", False),
        ("for i in a:\n    x = i\nreturn x", "x", False),
        ("for i in a:\n    y = x\n    x = i", "x", False),
        ("while a:\n    x = 1\nprint(x)", "x", False),
        ("while True:\n    if a:\n        break\n    x = 1\nprint(x)", "x", False),
        ("try:\n    x = a()\nexcept ValueError:\n    pass\nreturn x", "x", False),
        ("match a:\n    case 1:\n        x = 1\nreturn x", "x", False),
        ("x = 1\ndel x\nreturn x", "x", True),
        ("x += 1", "x", True),
        ("x: int\nreturn x", "x", True),
        ("if a:\n    return x\nx = 1", "x", True),
        ("y = [x for _ in a]\nx = 1", "x", True),
        ("with x:\n    pass\nx = 1", "x", True),
    ],
)
def test_a_read_too_early(body: str, name: str, never: bool) -> None:
    assert (name, never) in found(body)


@pytest.mark.parametrize(
    "body",
    [
        "x = a\nreturn x, rest, more, b, self, len(x)",
        "if a:\n    x = 1\nelse:\n    x = 2\nreturn x",
        "if a:\n    x = 1\nelse:\n    raise ValueError(a)\nreturn x",
        "while True:\n    x = 1\n    if a:\n        break\nreturn x",
        "for i in a:\n    if i:\n        x = i\n        break\nelse:\n    x = None\nreturn x",
        "try:\n    x = a()\nexcept ValueError as error:\n    x = error\nreturn x",
        "try:\n    a()\nfinally:\n    x = 1\nreturn x",
        "match a:\n    case 1:\n        x = 1\n    case [y, *x]:\n        a(y)\n    case {'k': _, **x}:\n        pass\n"
        "    case x:\n        pass\nreturn x",
        "with a() as (x, y):\n    return x + y",
        "return [x for x in a if x], {k: v for k, v in more.items()}, (lambda z: z)(a)",
        "if (x := a()) is not None:\n    return x",
        "def inner():\n    return x\nx = 1\nreturn inner",
        "global x\nreturn x",
        "import os.path as x\nreturn x",
        "from torch import nn\nreturn nn",
        "class Inner:\n    y = 1\nreturn Inner",
    ],
)
def test_every_path_sets_it(body: str) -> None:
    assert found(body) == []
