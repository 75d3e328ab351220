"""Attention that authors wrote out, as one call of torch's kernel: softmax of scaled products, times values."""

import ast
import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

from omni_kit.targets.diffusers.porting.replaced_functions import rewritten
from omni_kit.upstream.repositories.closure import Closure
from omni_kit.upstream.repositories.names import Defined

_SDPA = "torch.nn.functional.scaled_dot_product_attention"
# How queries get heads in front of tokens: only then are the axes those that the kernel takes.
_HEADED = re.compile(
    r"transpose\(1, 2\)|permute\(2, 0, 3, 1, 4\)|permute\(0, 2, 1, 3\)|->\s*(\w+ )?b\w* (h|heads?|nh) \w+ \w+['\"]"
)
# How heads are put among the samples of a batch, where kernels take one axis less.
_TOGETHER = re.compile(r"(reshape|view)\(\(?\w+ \* \w+,|flatten\(0, 1\)|\(b\w* (h|heads?|nh)\)")
_LAST = ({-1, -2}, {2, 3})


def as_calls(closure: Closure) -> Closure:
    """Return the closure with every plain form of attention replaced by the call; anything more is left as it is."""
    changed: dict[Defined, Defined] = {}
    for one in closure.definitions:
        if isinstance(one.node, ast.ClassDef | ast.FunctionDef):
            node = copy.deepcopy(one.node)
            functions = [inner for inner in ast.walk(node) if isinstance(inner, ast.FunctionDef)]
            dropouts = _dropouts(node)
            if found := [function for function in functions if _attends(function, dropouts)]:
                changed[one] = rewritten(one, found)
    if not changed:
        return closure
    every = {one: changed.get(one, one) for one in closure.definitions}
    uses = {
        every[one]: {name: every.get(other, other) for name, other in names.items()}
        for one, names in closure.uses.items()
    }
    foreign = {every[one]: names | ({_SDPA: _SDPA} if one in changed else {}) for one, names in closure.foreign.items()}
    return Closure(list(every.values()), uses, foreign)


@dataclass
class _Scores:
    """Argument of softmax.

    Attributes:
        bias: what is added to the scaled products; None without one.
        dropout: the share of weights that is left out; None if none is.
    """

    query: ast.expr
    key: ast.expr
    scale: ast.expr
    bias: ast.expr | None = None
    dropout: ast.expr | None = None

    @property
    def more(self) -> list[ast.keyword]:
        """Arguments of the kernel other than queries, keys and values."""
        told = {"attn_mask": self.bias, "dropout_p": self.dropout, "scale": self.scale}
        return [ast.keyword(name, one) for name, one in told.items() if one is not None]


def _dropouts(node: ast.stmt) -> dict[str, ast.expr]:
    """Return a call of a dropout that a class has, as written -> the share that it leaves out."""
    made = [one for one in ast.walk(node) if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call)]
    names = [ast.unparse(one.targets[0]) for one in made if _is(one.value, "Dropout")]  # type: ignore[arg-type]
    share = "{0}.p if self.training else 0.0"
    return {name: ast.parse(share.format(name), mode="eval").body for name in names if name.startswith("self.")}


def _attends(function: ast.FunctionDef, dropouts: Mapping[str, ast.expr]) -> bool:
    """Rewrites the attention of a function, where its form is known; whether it did."""
    text = ast.unparse(function)
    if not (_HEADED.search(text) or "einsum" in text) or _TOGETHER.search(text):
        return False
    body = function.body
    for place, statement in enumerate(body):
        name = _target(statement)
        if not name or not isinstance(statement, ast.Assign):
            continue
        weights, between, end = statement.value, list[ast.stmt](), place + 1
        while (end < len(body) and _softmaxed(weights) is None) or (end < len(body) and _target(body[end]) == name):
            if _target(body[end]) == name:
                weights = _Put(name, weights).visit(copy.deepcopy(_value(body[end])))
            elif _named(name, body[end]) or _stored(body[end]) & {*_read(weights)}:
                break
            else:
                between.append(body[end])
            end += 1
        scores, rest = _scores(weights, dropouts), body[end:]
        if scores is None or [_named(name, one) for one in rest[:1]] != [1] or any(_named(name, o) for o in rest[1:]):
            continue
        put = _Attended(name, scores)
        used = put.visit(copy.deepcopy(rest[0]))
        if put.done and (_HEADED.search(text) or put.by_letters):
            function.body = [*body[:place], *between, used, *rest[1:]]
            ast.fix_missing_locations(function)
            return True
    return _attends_at_once(function, dropouts)


def _attends_at_once(function: ast.FunctionDef, dropouts: Mapping[str, ast.expr]) -> bool:
    """Return whether a function attends without a variable for the weights."""
    for node in ast.walk(function):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
            left = node.left
        elif isinstance(node, ast.Call) and _is(node, "matmul", "bmm", "einsum") and len(node.args) >= 2:
            left = node.args[-2]
        else:
            continue
        scores = _scores(left, dropouts)
        if scores is not None:
            put = _Attended("", scores, left)
            changed = put.visit(function)
            function.body = changed.body
            ast.fix_missing_locations(function)
            return put.done
    return False


def _target(node: ast.stmt) -> str:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if _adds(node) else []
    return targets[0].id if len(targets) == 1 and isinstance(targets[0], ast.Name) else ""


def _adds(node: ast.stmt) -> TypeGuard[ast.AugAssign]:
    return isinstance(node, ast.AugAssign)


def _value(node: ast.stmt) -> ast.expr:
    """Return the value that a statement assigns, in terms of the earlier ones."""
    if isinstance(node, ast.AugAssign):
        return ast.BinOp(ast.Name(ast.unparse(node.target), ast.Load()), node.op, node.value)
    assert isinstance(node, ast.Assign)
    return node.value


def _stored(node: ast.stmt) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _read(node: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _named(name: str, node: ast.AST) -> int:
    return sum(isinstance(one, ast.Name) and one.id == name for one in ast.walk(node))


class _Put(ast.NodeTransformer):
    """An expression instead of a name."""

    def __init__(self, name: str, value: ast.expr) -> None:
        self.name, self.value = name, value

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return the name."""
        return copy.deepcopy(self.value) if node.id == self.name else node


class _Attended(ast.NodeTransformer):
    """The call instead of weights times values."""

    done = by_letters = False

    def __init__(self, name: str, scores: _Scores, weights: ast.expr | None = None) -> None:
        self.name, self.scores, self.weights = name, scores, weights

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """`weights @ values`."""
        self.generic_visit(node)
        return self._call(node, node.left, node.right) if isinstance(node.op, ast.MatMult) else node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`torch.matmul(weights, values)`."""
        self.generic_visit(node)
        if (letters := _letters(node)) is not None:
            return self._summed(node, *letters)
        product = _is(node, "matmul", "bmm") and len(node.args) == 2
        return self._call(node, *node.args) if product else node

    def _summed(self, node: ast.Call, weights: str, values: str, out: str) -> ast.AST:
        """Return weights [batch, heads, queries, keys] times values, with heads in front of tokens or behind them."""
        last = "".join(set(values) - set(weights))
        forms = {f"{weights[:2]}{weights[3]}{last}": False, f"{weights[0]}{weights[3]}{weights[1]}{last}": True}
        answers = {f"{weights[:3]}{last}": False, f"{weights[0]}{weights[2]}{weights[1]}{last}": True}
        if len(last) != 1 or values not in forms or out not in answers:
            return node
        found = self._call(node, node.args[1], _heads_first(node.args[2], forms[values]))
        self.by_letters = self.done
        return _heads_first(found, answers[out]) if self.done and isinstance(found, ast.expr) else found

    def _call(self, node: ast.AST, left: ast.expr, right: ast.expr) -> ast.AST:
        if left is not self.weights and (not isinstance(left, ast.Name) or left.id != self.name):
            return node
        self.done = True
        given = [self.scores.query, self.scores.key, right]
        return ast.Call(ast.parse(_SDPA, mode="eval").body, given, self.scores.more)


def _heads_first(node: ast.expr, turned: bool) -> ast.expr:
    """Return a tensor with heads and tokens the other way round, where that is needed."""
    return ast.parse(f"({ast.unparse(node)}).transpose(1, 2)", mode="eval").body if turned else node


def _letters(node: ast.Call) -> tuple[str, str, str] | None:
    """Return the axes of both operands and of the result of a sum of products over four axes each."""
    if not _is(node, "einsum") or len(node.args) != 3 or not isinstance(node.args[0], ast.Constant):
        return None
    given, _, out = str(node.args[0].value).replace(" ", "").partition("->")
    one, _, other = given.partition(",")
    return (one, other, out) if [len(one), len(other), len(out)] == [4, 4, 4] else None


def _softmaxed(weights: ast.expr) -> ast.Call | None:
    """Return the softmax in an expression for weights, casts of what it gives left out."""
    while (
        isinstance(weights, ast.Call)
        and _is(weights, "to", "type_as", "type", "float")
        and isinstance(weights.func, ast.Attribute)
    ):
        weights = weights.func.value
    return weights if isinstance(weights, ast.Call) and _is(weights, "softmax") else None


def _scores(weights: ast.expr, dropouts: Mapping[str, ast.expr]) -> _Scores | None:
    """Return the scores; None for more than a softmax over keys of scaled products."""
    if isinstance(weights, ast.Call) and (share := dropouts.get(ast.unparse(weights.func))) is not None:
        found = _scores(weights.args[0], {}) if len(weights.args) == 1 else None
        return replace(found, dropout=share) if found is not None else None
    softmax = _softmaxed(weights)
    if softmax is None or not _over_keys(softmax):
        return None
    own = isinstance(softmax.func, ast.Attribute) and not _is_module(softmax.func.value)
    inner = softmax.func.value if own and isinstance(softmax.func, ast.Attribute) else softmax.args[0]
    if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add):
        found = _scaled(inner.left)
        return replace(found, bias=inner.right) if found is not None else None
    return _scaled(inner)


def _scaled(inner: ast.expr) -> _Scores | None:
    """Queries, keys and the scale of scaled products."""
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
    elif isinstance(node, ast.Call) and (letters := _letters(node)) is not None:
        return _products(node, *letters)
    else:
        return None
    key = _turned(right)
    return (left, key) if key is not None else None


def _products(node: ast.Call, one: str, other: str, out: str) -> tuple[ast.expr, ast.expr] | None:
    """Queries and keys of a sum over their last axis, with heads in front of tokens or behind them."""
    batch, heads, rows, columns = tuple(out)
    forms = []
    for letters, tokens, given in ((one, rows, node.args[1]), (other, columns, node.args[2])):
        first = letters[:3] == batch + heads + tokens
        if (not first and letters[:3] != batch + tokens + heads) or letters[3] in out or one[3] != other[3]:
            return None
        forms.append(_heads_first(given, not first))
    return forms[0], forms[1]


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
    known = all(word.arg in ("dim", "dtype") for word in call.keywords)  # kernels weigh in float32, too
    return bool(told) and ast.unparse(told[-1]) in ("-1", "3") and known


def _is(call: ast.Call, *names: str) -> bool:
    return getattr(call.func, "attr", getattr(call.func, "id", "")) in names


def _is_module(node: ast.expr) -> bool:
    return ast.unparse(node) in ("torch", "F", "nn.functional", "torch.nn.functional")
