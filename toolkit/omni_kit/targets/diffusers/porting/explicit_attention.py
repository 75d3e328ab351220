"""Attention that authors wrote out, as one call of torch's kernel: softmax of scaled products, times values."""

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeGuard

from omni_kit.pysource.nodes import substituted
from omni_kit.targets.diffusers.porting.axis_of_heads import HEADED, TOGETHER, then, with_axis_of_heads
from omni_kit.targets.diffusers.porting.replaced_functions import rewritten
from omni_kit.targets.diffusers.porting.score_precision import in_any_precision
from omni_kit.upstream.repositories.attention import WRITTEN
from omni_kit.upstream.repositories.closure import Closure
from omni_kit.upstream.repositories.names import Defined

_LAST = {4: ({-1, -2}, {2, 3}), 3: ({-1, -2}, {1, 2})}
_KEYS = {4: ("-1", "3"), 3: ("-1", "2")}
_TOKENS = 3
_MASK = "__mask__"  # a call of it is the bias of a mask that may be None


def as_calls(closure: Closure) -> Closure:
    """Return the closure with every plain form of attention replaced by the call; anything more is left as it is."""
    changed: dict[Defined, Defined] = {}
    for one in closure.definitions:
        if isinstance(one.node, ast.ClassDef | ast.FunctionDef):
            node = copy.deepcopy(one.node)
            functions = [inner for inner in ast.walk(node) if isinstance(inner, ast.FunctionDef)]
            dropouts = _dropouts(node)
            if found := [one for one in functions if _attends(one, dropouts) or with_axis_of_heads(one)]:
                changed[one] = rewritten(one, found)
    if not changed:
        return closure
    every = {one: changed.get(one, one) for one in closure.definitions}
    uses = {
        every[one]: {name: every.get(other, other) for name, other in names.items()}
        for one, names in closure.uses.items()
    }
    more = {WRITTEN: WRITTEN}
    foreign = {every[one]: names | (more if one in changed else {}) for one, names in closure.foreign.items()}
    return Closure(list(every.values()), uses, foreign)


@dataclass
class _Scores:
    """Argument of softmax.

    Attributes:
        bias: what is added to the scaled products; None without one.
        dropout: the share of weights that is left out; None if none is.
        axes: of the products: four with heads, three without.
        turned: the weights have keys before queries.
    """

    query: ast.expr
    key: ast.expr
    scale: ast.expr
    bias: ast.expr | None = None
    dropout: ast.expr | None = None
    axes: int = 4
    turned: bool = False

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
    """Rewrites the attention of a function, or of a branch in it, where its form is known; whether it did."""
    text = ast.unparse(function)
    headed, together = bool(HEADED.search(text)), bool(TOGETHER.search(text))
    for owner, block in _blocks(function):
        body = getattr(owner, block)
        after = _attended(body, dropouts, headed, together)
        if after is None or (owner is not function and _lost(body, after) & _elsewhere(function, body)):
            continue
        setattr(owner, block, after)
        ast.fix_missing_locations(function)
        return True
    return not together and bool(headed or "einsum" in text) and _attends_at_once(function, dropouts)


def _blocks(function: ast.FunctionDef) -> list[tuple[ast.AST, str]]:
    """Return where the statements of a function stand, and those of its branches."""
    inside = [one for one in ast.walk(function) if isinstance(one, ast.If | ast.With)]
    return [
        (function, "body"),
        *((one, block) for one in inside for block in ("body", "orelse") if hasattr(one, block)),
    ]


def _lost(before: list[ast.stmt], after: list[ast.stmt]) -> set[str]:
    """Return the variables that statements no longer make."""
    made, kept = ({name for one in body for name in _stored(one)} for body in (before, after))
    return made - kept


def _elsewhere(function: ast.FunctionDef, body: list[ast.stmt]) -> set[str]:
    """Return the names that a function reads outside of one of its blocks."""
    inside = {id(node) for one in body for node in ast.walk(one)}
    return {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and id(one) not in inside}


def _attended(
    statements: list[ast.stmt], dropouts: Mapping[str, ast.expr], headed: bool, together: bool
) -> list[ast.stmt] | None:
    """Return statements with one call for the attention that is written out in them, or None."""
    body = _with_masks(in_any_precision(statements))
    for place, statement in enumerate(body):
        name = _target(statement)
        if not name or not isinstance(statement, ast.Assign):
            continue
        weights, between, end = statement.value, list[ast.stmt](), place + 1
        while end < len(body):
            if _target(body[end]) == name:
                weights = substituted(_value(body[end]), {name: weights})
            elif isinstance(body[end], ast.Assert):
                pass  # of what it computes, which is not there any more
            elif _named(name, body[end]) or _stored(body[end]) & {*_read(weights)}:
                break
            else:
                between.append(body[end])
            end += 1
        scores, gone, rest = *_scores_in(weights, body, place, dropouts), body[end:]
        if scores is None or [_named(name, one) for one in rest[:1]] != [1] or any(_named(name, o) for o in rest[1:]):
            continue
        put = _Attended(name, scores)
        used = put.visit(copy.deepcopy(rest[0]))
        if put.done and (scores.axes == _TOKENS or (not together and (headed or put.by_letters))):
            return [*(one for one in body[:place] if one not in gone), *between, used, *rest[1:]]
    return None


def _with_masks(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return `x = products; if mask is not None: x.masked_fill_(~mask, -inf)` as `x = products + mask`, with a marker
    around the mask.
    """
    found: list[ast.stmt] = []
    for one in body:
        before, (mask, name) = found[-1] if found else None, _filled(one)
        if mask and isinstance(one, ast.If) and isinstance(before, ast.Assign) and _target(before) == name:
            made = [other for other in one.body[:-1] if not _makes_value(other, one.body)]
            kept = [ast.If(one.test, made, [])] if made else []
            if not any(_named(name, other) or _stored(other) & _read(before.value) for other in kept):
                marked = ast.Call(ast.Name(_MASK, ast.Load()), [ast.Name(mask, ast.Load())], [])
                summed = ast.Assign(before.targets, ast.BinOp(before.value, ast.Add(), marked))
                found[-1:] = [*kept, summed]
                continue
        found.append(one)
    return found


def _makes_value(node: ast.stmt, body: list[ast.stmt]) -> bool:
    """Return whether a statement makes what the last one fills in, and nothing else."""
    name = _target(node)
    value = next((one.args[1] for one in ast.walk(body[-1]) if isinstance(one, ast.Call) and len(one.args) > 1), None)
    return value is not None and ast.unparse(value) == name and sum(_named(name, one) for one in body) == 2


def _filled(node: ast.stmt) -> tuple[str, str]:
    """Return the mask that a statement fills products with where it is given, and their name; empty for others."""
    if not isinstance(node, ast.If) or node.orelse:
        return "", ""
    last = node.body[-1]
    call = last.value if isinstance(last, ast.Expr | ast.Assign) else None
    if not isinstance(call, ast.Call) or not _is(call, "masked_fill", "masked_fill_") or not call.args:
        return "", ""
    products = ast.unparse(call.func.value) if isinstance(call.func, ast.Attribute) else ""
    where = call.args[0]
    mask = ast.unparse(where.operand) if isinstance(where, ast.UnaryOp) and isinstance(where.op, ast.Invert) else ""
    given = ast.unparse(node.test) in (f"{mask} is not None", f"exists({mask})")
    stored = (
        isinstance(last, ast.Expr) == call.func.attr.endswith("_") if isinstance(call.func, ast.Attribute) else False
    )
    own = isinstance(last, ast.Expr) or _target(last) == products
    return (mask, products) if mask.isidentifier() and given and stored and own else ("", "")


def _scores_in(
    weights: ast.expr, body: list[ast.stmt], end: int, dropouts: Mapping[str, ast.expr]
) -> tuple[_Scores | None, list[ast.stmt]]:
    """Return the scores of weights, in terms of what their variables are made of where that is needed, and the
    statements whose variables nothing else reads.
    """
    scores, gone = _scores(weights, dropouts), list[ast.stmt]()
    for place in reversed(range(end if _softmaxed(weights) is not None else 0)):
        one, name = body[place], _target(body[place])
        here = name and isinstance(one, ast.Assign) and name in _read(weights)
        if scores is not None or not here or sum(_named(name, other) for other in body) - 1 != _named(name, weights):
            continue
        value = _value(one)
        kept = (other for other in body[place + 1 : end] if other not in gone)
        if not any(_stored(other) & _read(value) for other in kept):
            weights, gone = substituted(weights, {name: value}), [*gone, one]
            scores = _scores(weights, dropouts)
    return scores, gone


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
            return self._summed(node, *letters) if len(letters[0]) == self.scores.axes else node
        if not _is(node, "matmul", "bmm") or len(node.args) != 2:
            return node
        one, other = node.args
        if self.scores.axes == _TOKENS and _is(node, "bmm"):
            return self._of_tokens(node, one, other)
        return self._call(node, one, other) if not self.scores.turned else node

    def _of_tokens(self, node: ast.Call, one: ast.expr, other: ast.expr) -> ast.AST:
        """Return `torch.bmm(weights, values)`, or `torch.bmm(values, weights)` with keys before queries in these."""
        inner = _turned(other, _TOKENS)
        weights = other if inner is None else inner
        if self.scores.turned == (inner is None) and self._are_weights(weights):
            return _turn(_without_head(self._call(node, weights, _turn(one))))
        if not self.scores.turned and self._are_weights(one):
            return _without_head(self._call(node, one, other))
        return node

    def _summed(self, node: ast.Call, weights: str, values: str, out: str) -> ast.AST:
        """Return weights [..., queries, keys] times values, wherever heads and tokens stand."""
        width, rows, columns = "".join(set(values) - set(weights)), weights[-2], weights[-1]
        kept, given = f"{weights[:-2]}{columns}{width}", f"{weights[:-2]}{rows}{width}"
        if self.scores.turned or len(width) != 1 or sorted(kept) != sorted(values) or sorted(given) != sorted(out):
            return node
        found = self._call(node, node.args[1], _arranged(node.args[2], values, kept))
        self.by_letters = self.done
        if not self.done or not isinstance(found, ast.expr):
            return node
        return _arranged(_without_head(found) if self.scores.axes == _TOKENS else found, given, out)

    def _are_weights(self, node: ast.expr) -> bool:
        return node is self.weights or (isinstance(node, ast.Name) and node.id == self.name)

    def _call(self, node: ast.expr, left: ast.expr, right: ast.expr) -> ast.expr:
        if not self._are_weights(left):
            return node
        self.done = True
        given = [self.scores.query, self.scores.key, right]
        if self.scores.axes == _TOKENS:
            given = [then(one, "unsqueeze(1)") for one in given]  # heads are none, or stand among the samples
        return ast.Call(ast.parse(WRITTEN, mode="eval").body, given, self.scores.more)


def _arranged(node: ast.expr, given: str, wanted: str) -> ast.expr:
    """Return a tensor whose axes have these letters with its axes in another order."""
    order = [given.index(one) for one in wanted]
    moved = [at for at, one in enumerate(order) if at != one]
    if not moved:
        return node
    return then(node, f"transpose({moved[0]}, {moved[1]})" if len(moved) == 2 else f"permute{tuple(order)}")


def _turn(node: ast.expr) -> ast.expr:
    return then(node, "transpose(1, 2)")


def _without_head(node: ast.expr) -> ast.expr:
    return then(node, "squeeze(1)")


def _letters(node: ast.Call) -> tuple[str, str, str] | None:
    """Return the axes of both operands and of the result of a sum of products over four axes each, or three."""
    if not _is(node, "einsum") or len(node.args) != 3 or not isinstance(node.args[0], ast.Constant):
        return None
    given, _, out = str(node.args[0].value).replace(" ", "").partition("->")
    one, _, other = given.partition(",")
    return (one, other, out) if [len(one), len(other), len(out)] in ([4, 4, 4], [3, 3, 3]) else None


def _uncast(node: ast.expr) -> ast.expr:
    casts = ("to", "type_as", "type", "float")
    while isinstance(node, ast.Call) and _is(node, *casts) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    return node


def _softmaxed(weights: ast.expr) -> ast.Call | None:
    """Return the softmax in an expression for weights, casts of what it gives left out."""
    weights = _uncast(weights)
    return weights if isinstance(weights, ast.Call) and _is(weights, "softmax") else None


def _scores(weights: ast.expr, dropouts: Mapping[str, ast.expr]) -> _Scores | None:
    """Return the scores; None for more than a softmax over keys of scaled products."""
    if isinstance(weights, ast.Call) and (share := dropouts.get(ast.unparse(weights.func))) is not None:
        found = _scores(weights.args[0], {}) if len(weights.args) == 1 else None
        return replace(found, dropout=share) if found is not None else None
    if (before := _turned(weights, _TOKENS)) is not None and _softmaxed(before) is not None:
        found = _scores(before, dropouts)
        return replace(found, turned=True) if found is not None and found.axes == _TOKENS else None
    softmax = _softmaxed(weights)
    if softmax is None:
        return None
    own = isinstance(softmax.func, ast.Attribute) and not any(_read(one) for one in softmax.args[:1])
    inner = softmax.func.value if own and isinstance(softmax.func, ast.Attribute) else softmax.args[0]
    bias = inner.right if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add) else None
    found = _scaled(inner.left if bias is not None and isinstance(inner, ast.BinOp) else inner)
    if found is None or not _over_keys(softmax, found.axes):
        return None
    if isinstance(bias, ast.Call) and _is(bias, _MASK):
        text = "{0}" if found.axes != _TOKENS else "None if {0} is None else {0}.unsqueeze(1)"
        bias = ast.parse(text.format(ast.unparse(bias.args[0])), mode="eval").body
    elif bias is not None and found.axes == _TOKENS:
        return None
    return replace(found, bias=bias)


def _scaled(inner: ast.expr) -> _Scores | None:
    """Queries, keys and the scale of scaled products."""
    inner = _uncast(inner)
    scale: ast.expr = ast.Constant(1.0)
    if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult | ast.Div):
        product, factor = inner.left, inner.right
        if isinstance(inner.op, ast.Mult) and _product(product) is None:
            product, factor = factor, product
        scale = factor if isinstance(inner.op, ast.Mult) else ast.BinOp(ast.Constant(1.0), ast.Div(), factor)
        inner = product
    found = _product(inner)
    return _Scores(found[0], found[1], scale, axes=found[2]) if found is not None else None


def _product(node: ast.expr) -> tuple[ast.expr, ast.expr, int] | None:
    """Queries and keys of `q @ k.transpose(-2, -1)`, and the number of axes."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        left, right = node.left, node.right
    elif isinstance(node, ast.Call) and _is(node, "matmul") and len(node.args) == 2:
        left, right = node.args
    elif isinstance(node, ast.Call) and _is(node, "bmm") and len(node.args) == 2:
        one, other = node.args
        key = _turned(other, _TOKENS)
        return one, key if key is not None else _turn(other), _TOKENS
    elif isinstance(node, ast.Call) and (letters := _letters(node)) is not None:
        found = _products(node, *letters)
        return (*found, len(letters[0])) if found is not None else None
    else:
        return None
    key = _turned(right, 4)
    return (left, key, 4) if key is not None else None


def _products(node: ast.Call, one: str, other: str, out: str) -> tuple[ast.expr, ast.expr] | None:
    """Queries and keys of a sum over their width, wherever heads and tokens stand."""
    first, rows, columns = out[:-2], out[-2], out[-1]
    width = set(one) - set(out)
    forms = []
    for letters, tokens, given in ((one, rows, node.args[1]), (other, columns, node.args[2])):
        wanted = f"{first}{tokens}{''.join(width)}"
        if len(width) != 1 or sorted(letters) != sorted(wanted) or letters[0] != out[0]:
            return None
        forms.append(_arranged(given, letters, wanted))
    return forms[0], forms[1]


def _turned(node: ast.expr, axes: int) -> ast.expr | None:
    """`k` of `k.transpose(-2, -1)`, `k.mT` and the like, for tensors with so many axes."""
    if isinstance(node, ast.Attribute) and node.attr == "mT":
        return node.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        try:
            told = [ast.literal_eval(one) for one in node.args]
        except ValueError:
            return None
        swapped = _is(node, "transpose", "swapaxes") and {*told} in _LAST[axes]
        return node.func.value if swapped or (_is(node, "permute") and told == [0, 2, 1] and axes == _TOKENS) else None
    return None


def _over_keys(call: ast.Call, axes: int) -> bool:
    told = [*call.args, *(word.value for word in call.keywords if word.arg == "dim")]
    known = all(word.arg in ("dim", "dtype") for word in call.keywords)  # kernels weigh in float32, too
    return bool(told) and ast.unparse(told[-1]) in _KEYS[axes] and known


def _is(call: ast.Call, *names: str) -> bool:
    return getattr(call.func, "attr", getattr(call.func, "id", "")) in names
