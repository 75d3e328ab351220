"""Only `pysource/eval` dispatches over Python's operators: other rooms say by a `Domain` what their values are."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import omni_checkers
import omni_kit

ROOMS = [Path(str(package.__file__)).parent for package in (omni_kit, omni_checkers)]
ROOT = ROOMS[0].parents[1]
THE_ONE = ROOMS[0] / "pysource" / "eval"
OPERATORS = {
    kind.__name__ for base in (ast.operator, ast.unaryop, ast.cmpop, ast.boolop) for kind in base.__subclasses__()
}

_MENTIONED = re.compile(rf"\.(left|right|{'|'.join(OPERATORS)})\b")  # there is no evaluator without two of them


def evaluators(tree: ast.Module) -> Iterator[int]:
    """The lines of tables from operators to meanings, and of functions that evaluate both sides of an operation."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    calls = {one.name: {_called(node) for node in ast.walk(one) if isinstance(node, ast.Call)} for one in functions}
    for node in ast.walk(tree):
        respells = isinstance(node, ast.Dict) and all(map(_is_operator, node.values))
        if isinstance(node, ast.Dict) and sum(map(_is_operator, node.keys)) > 1 and not respells:
            yield node.lineno
    for function in functions:
        if any(function.name in _reached(name, calls) for name in _both_sides(function)):
            yield function.lineno


def _is_operator(node: ast.AST | None) -> bool:
    return isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "ast" and node.attr in OPERATORS


def _called(call: ast.Call) -> str:
    return ast.unparse(call.func).rpartition(".")[2]


def _reached(name: str, calls: dict[str, set[str]]) -> set[str]:
    """The functions that calling one of the module's may come to, itself included."""
    found, todo = {name}, [name]
    while todo:
        new = calls.get(todo.pop(), set()) - found
        found |= new
        todo += new
    return found


def _both_sides(function: ast.FunctionDef) -> Iterator[str]:
    """The functions that are called with `x.left` and with `x.right`, unless a syntax tree is made of the results."""
    nodes = list(ast.walk(function))
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    if any(_called(node) == "BinOp" for node in calls) or not any(_is_operator(n) or _is_op(n) for n in nodes):
        return
    sides: dict[str, set[str]] = {}
    for call in calls:
        found = {one.attr for one in call.args if isinstance(one, ast.Attribute)}
        sides.setdefault(_called(call), set()).update(found)
    for node in nodes:
        if isinstance(node, ast.comprehension) and isinstance(node.iter, ast.Tuple | ast.List):
            found = {one.attr for one in node.iter.elts if isinstance(one, ast.Attribute)}
            sides |= {_called(call): found for call in calls}
    yield from (name for name, found in sides.items() if {"left", "right"} <= found)


def _is_op(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr == "op"


def test_no_other_module_evaluates_operators() -> None:
    files = [file for room in ROOMS for file in sorted(room.rglob("*.py")) if THE_ONE not in file.parents]
    texts = {str(file.relative_to(ROOT)): file.read_text(encoding="utf-8") for file in files}
    likely = {name: text for name, text in texts.items() if len(_MENTIONED.findall(text)) > 1}
    found = {name: lines for name, text in likely.items() if (lines := list(evaluators(ast.parse(text))))}
    assert found == {}


@pytest.mark.parametrize(("text", "found"), [
    ("MEANS = {ast.Add: 1, ast.Sub: 2}", True),
    ("def of(node):\n    return joined(node.op, of(node.left), of(node.right))", True),
    ("def of(self, node):\n    sides = [self.of(one) for one in (node.left, node.right)]\n    return node.op", True),
    ("def of(n):\n    return with_op(n)\n\n\ndef with_op(n):\n    return n.op, of(n.left), of(n.right)", True),
    ("def guides(node):\n    return isinstance(node.op, ast.Add) and alike(node.left, node.right)", False),
    ("def halved(node):\n    return ast.BinOp(halved(node.left), node.op, halved(node.right))", False),
    ("TURNED = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}", False),
    ("NAMES = {ast.Name: 1, ast.Constant: 2}", False),
])  # fmt: skip
def test_an_evaluator_is_told_from_a_pattern(text: str, found: bool) -> None:
    assert bool(list(evaluators(ast.parse(text)))) is found
