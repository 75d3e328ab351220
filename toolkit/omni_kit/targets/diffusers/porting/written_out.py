"""Attention that authors wrote out, as one call of torch's kernel: softmax of scaled products, times values."""

import ast
import copy
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace

from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.repositories.closure import Closure
from omni_kit.upstream.repositories.names import Defined, definitions

_SDPA = "torch.nn.functional.scaled_dot_product_attention"
# How queries get heads in front of tokens: only then are the axes those that the kernel takes.
_HEADED = re.compile(
    r"transpose\(1, 2\)|permute\(2, 0, 3, 1, 4\)|permute\(0, 2, 1, 3\)|->\s*(\w+ )?b\w* (h|heads?|nh) \w+ \w+['\"]"
)
# How heads are put among the samples of a batch, where kernels take one axis less.
_TOGETHER = re.compile(r"(reshape|view)\(\(?\w+ \* \w+,|flatten\(0, 1\)|\(b\w* (h|heads?|nh)\)")
_LAST = ({-1, -2}, {2, 3})


def as_calls(closure: Closure) -> Closure:
    """The closure with every plain form of attention replaced by the call; anything more is left as it is."""
    changed: dict[Defined, Defined] = {}
    for one in closure.definitions:
        if isinstance(one.node, ast.ClassDef | ast.FunctionDef):
            functions = [node for node in ast.walk(copy.deepcopy(one.node)) if isinstance(node, ast.FunctionDef)]
            if found := [function for function in functions if _attends(function)]:
                changed[one] = _rewritten(one, found)
    if not changed:
        return closure
    every = {one: changed.get(one, one) for one in closure.definitions}
    uses = {
        every[one]: {name: every.get(other, other) for name, other in names.items()}
        for one, names in closure.uses.items()
    }
    foreign = {every[one]: names | ({_SDPA: _SDPA} if one in changed else {}) for one, names in closure.foreign.items()}
    return Closure(list(every.values()), uses, foreign)


def _rewritten(one: Defined, functions: Sequence[ast.FunctionDef]) -> Defined:
    """The definition as if its file had the new text of these functions."""
    lines = list(one.source.lines)
    for node in sorted(functions, key=lambda function: -function.lineno):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
        lines[first : node.end_lineno] = textwrap.indent(ast.unparse(node), " " * node.col_offset).split("\n")
    text = "\n".join(lines)
    source: SourceFile = replace(one.source, text=text, tree=ast.parse(text))
    return Defined(source, one.name, definitions(source)[one.name])


@dataclass
class _Scores:
    """What softmax is taken of."""

    query: ast.expr
    key: ast.expr
    scale: ast.expr


def _attends(function: ast.FunctionDef) -> bool:
    """Rewrites the attention of a function, where its form is known; whether it did."""
    text = ast.unparse(function)
    if not _HEADED.search(text) or _TOGETHER.search(text):
        return False
    body = function.body
    for place, statement in enumerate(body):
        name = _target(statement)
        if not name or not isinstance(statement, ast.Assign):
            continue
        weights, end = statement.value, place + 1
        while end < len(body) and _target(body[end]) == name and isinstance(body[end], ast.Assign):
            weights = _Put(name, weights).visit(copy.deepcopy(body[end].value))  # type: ignore[attr-defined]
            end += 1
        scores, rest = _scores(weights), body[end:]
        if scores is None or [_named(name, one) for one in rest[:1]] != [1] or any(_named(name, o) for o in rest[1:]):
            continue
        put = _Attended(name, scores)
        used = put.visit(rest[0])
        if put.done:
            function.body = [*body[:place], used, *rest[1:]]
            ast.fix_missing_locations(function)
            return True
    return False


def _target(node: ast.stmt) -> str:
    targets = node.targets if isinstance(node, ast.Assign) else []
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""


def _named(name: str, node: ast.AST) -> int:
    return sum(isinstance(one, ast.Name) and one.id == name for one in ast.walk(node))


class _Put(ast.NodeTransformer):
    """An expression in the place of a name."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """The name."""
        return copy.deepcopy(self.value) if node.id == self.name else node


class _Attended(ast.NodeTransformer):
    """The call in the place of weights times values."""

    done = False

    def __init__(self, name: str, scores: _Scores) -> None:
        self.name, self.scores = name, scores

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """`weights @ values`."""
        self.generic_visit(node)
        return self._call(node, node.left, node.right) if isinstance(node.op, ast.MatMult) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`torch.matmul(weights, values)`."""
        self.generic_visit(node)
        product = _is(node, "matmul", "bmm") and len(node.args) == 2
        return self._call(node, *node.args) if product else node

    def _call(self, node: ast.AST, left: ast.expr, right: ast.expr) -> ast.AST:
        if not isinstance(left, ast.Name) or left.id != self.name:
            return node
        self.done = True
        given = [self.scores.query, self.scores.key, right]
        return ast.Call(ast.parse(_SDPA, mode="eval").body, given, [ast.keyword("scale", self.scores.scale)])


def _scores(weights: ast.expr) -> _Scores | None:
    """What is attended with: None where there is more than a softmax over keys of scaled products."""
    if not isinstance(weights, ast.Call) or not _is(weights, "softmax") or not _over_keys(weights):
        return None
    own = isinstance(weights.func, ast.Attribute) and not _is_module(weights.func.value)
    inner = weights.func.value if own and isinstance(weights.func, ast.Attribute) else weights.args[0]
    scale: ast.expr = ast.Constant(1.0)
    if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult | ast.Div):
        product, factor = inner.left, inner.right
        if isinstance(inner.op, ast.Mult) and _product(product) is None:
            product, factor = factor, product
        scale = factor if isinstance(inner.op, ast.Mult) else ast.BinOp(ast.Constant(1.0), ast.Div(), factor)
        inner = product
    found = _product(inner)
    return _Scores(*found, scale) if found is not None else None


def _product(node: ast.expr) -> tuple[ast.expr, ast.expr] | None:
    """Queries and keys of `q @ k.transpose(-2, -1)`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        left, right = node.left, node.right
    elif isinstance(node, ast.Call) and _is(node, "matmul") and len(node.args) == 2:
        left, right = node.args
    else:
        return None
    key = _turned(right)
    return (left, key) if key is not None else None


def _turned(node: ast.expr) -> ast.expr | None:
    """`k` of `k.transpose(-2, -1)`, `k.mT` and the like."""
    if isinstance(node, ast.Attribute) and node.attr == "mT":
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is(node, "transpose", "swapaxes"):
        try:
            axes = {ast.literal_eval(one) for one in node.args}
        except ValueError:
            return None
        return node.func.value if axes in _LAST else None
    return None


def _over_keys(call: ast.Call) -> bool:
    told = [*call.args, *(word.value for word in call.keywords if word.arg == "dim")]
    return bool(told) and ast.unparse(told[-1]) in ("-1", "3") and all(word.arg == "dim" for word in call.keywords)


def _is(call: ast.Call, *names: str) -> bool:
    return getattr(call.func, "attr", getattr(call.func, "id", "")) in names


def _is_module(node: ast.expr) -> bool:
    return ast.unparse(node) in ("torch", "F", "nn.functional", "torch.nn.functional")
