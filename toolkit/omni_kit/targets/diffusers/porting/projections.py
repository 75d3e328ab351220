"""Linear layers of an attention class that make queries, keys and values, and the one that projects its output."""

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from omni_kit.upstream.repositories.attention import Attending
from omni_kit.upstream.repositories.names import absolute
from omni_kit.upstream.repositories.sampler_step.members import of_self

_THREE = 3
_BY_NAME = (("q", "query", "queries"), ("k", "key", "keys"), ("v", "value", "values"))
_PARTS = ("to_q", "to_k", "to_v")


@dataclass(frozen=True)
class Order:
    """Order of rows in a fused layer: queries, keys and values in turn, or in turn within groups.

    Attributes:
        heads: how many groups there are; None if it is not said.
        size: how many rows of queries are in a group; None if it is not said.
    """

    heads: ast.expr | None = None
    size: ast.expr | None = None

    @property
    def in_turn(self) -> bool:
        """All queries come first, then all keys."""
        return self.heads is None and self.size is None

    @property
    def innermost(self) -> bool:
        """A row of the queries, one of the keys, one of the values, and so on."""
        return isinstance(self.size, ast.Constant)


IN_TURN, INNERMOST = Order(), Order(size=ast.Constant(1))


@dataclass(frozen=True)
class Projections:
    """The layers of one class.

    Attributes:
        renamed: layer -> diffusers' name for it.
        fused: the layer that makes queries, keys and values at once; empty without one.
        paired: the layer that makes keys, then values; empty without one.
        order: how they follow each other in its rows.
        groups: of the rows, in the words of the model's config: how many, and how many of each in one.
        out: the layer that takes the answer; empty if it is not told.
        unsure: why some layer names are kept, one line each.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    fused: str = ""
    paired: str = ""
    order: Order = IN_TURN
    groups: tuple[str, str] = ("1", "-1")
    out: str = ""
    unsure: Sequence[str] = ()

    @property
    def layers(self) -> dict[str, object]:
        """Layer of the authors -> what becomes of it."""
        joined = {self.fused: (_PARTS, self.order, self.groups), self.paired: _PARTS[1:], self.out: "to_out"}
        return {name: what for name, what in {**self.renamed, **joined}.items() if name}


def projections_of(
    attending: Attending, forward: ast.FunctionDef, call: ast.Call, init: ast.FunctionDef
) -> Projections:
    """Follow the three arguments of attention back to layers, and its answer forward to one.

    Args:
        call: in forward, of attention or of the function that computes it; its first three arguments are q, k and v.
    """
    source = attending.definition.source
    linear = {name: made for name, made in layers(init).items() if absolute(source, made.func) == "torch.nn.Linear"}
    flow = _Flow(forward, call, linear)
    inputs = [flow.layers(argument) for argument in _queries_keys_values(call)]
    out = next((name for name in flow.takers() if name in linear and not any(name in one for one in inputs)), "")
    if len(inputs) < _THREE:
        return Projections(out=out, unsure=["its arguments are not positional"])
    shared = inputs[0] & inputs[1] & inputs[2]
    if len(shared) == 1 and inputs[0] == inputs[1] == inputs[2]:
        name = next(iter(shared))
        if _wide(linear[name], _THREE) is None:
            return Projections(out=out, unsure=[f"{name} is not three times as wide"])
        order = _order(forward, name)
        if order is None or not _known_before(order, forward, name):
            return Projections(out=out, unsure=[f"the order of {name}'s rows could not be read"])
        return Projections(fused=name, order=order, out=out)
    if all(len(one) == 1 for one in inputs) and inputs[1] == inputs[2] != inputs[0]:
        name = next(iter(inputs[1]))
        if _wide(linear[name], 2) is not None and _order(forward, name, 2) == IN_TURN:
            return Projections({next(iter(inputs[0])): _PARTS[0]}, paired=name, out=out)
        return Projections(out=out, unsure=[f"in which order {name} holds keys and values could not be read"])
    if all(len(one) == 1 for one in inputs) and len({*inputs[0], *inputs[1], *inputs[2]}) == _THREE:
        return Projections({next(iter(one)): part for one, part in zip(inputs, _PARTS, strict=True)}, out=out)
    return Projections(out=out, unsure=["queries, keys and values do not each come from one linear layer"])


def _queries_keys_values(call: ast.Call) -> list[ast.expr]:
    """Return the first three arguments, by place or by their usual names."""
    named = {one.arg: one.value for one in call.keywords if one.arg}
    by_name = [next((named[name] for name in names if name in named), None) for names in _BY_NAME]
    given = [*call.args[:_THREE], *by_name[len(call.args) :]]
    return [one for one in given[:_THREE] if one is not None]


def layers(init: ast.FunctionDef) -> dict[str, ast.Call]:
    """Return the attributes of `self` that a constructor assigns by calling something."""
    found = {}
    for node in ast.walk(init):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            value = getattr(node, "value", None)
            if (name := of_self(target)) and isinstance(value, ast.Call):
                found[name] = value
    return found


def _wide(made: ast.Call, times: int) -> ast.expr | None:
    """Return the expression of a layer's width, where it is so many times another."""
    wide = (
        made.args[1] if len(made.args) > 1 else next((k.value for k in made.keywords if k.arg == "out_features"), None)
    )
    factors = [one.value for one in ast.walk(wide) if isinstance(one, ast.Constant)] if wide is not None else []
    only_products = (
        all(isinstance(one.op, ast.Mult) for one in ast.walk(wide) if isinstance(one, ast.BinOp)) if wide else False
    )
    return wide if only_products and times in factors else None


def _order(forward: ast.FunctionDef, name: str, count: int = _THREE) -> Order | None:
    """Return the order of queries, keys and values in the rows of a fused layer; None if it cannot be read.

    Args:
        count: how many of them it makes.
    """
    holders = {holder for holder, value in assigned(forward) if _called(value) == name}
    for node in ast.walk(forward):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        base = node.func.value
        plain = isinstance(base, ast.Name) and base.id in holders
        if not plain and _called(base) != name and not _first_is(node, name, holders):
            continue
        if node.func.attr in ("chunk", "split", "tensor_split"):
            return IN_TURN
        if node.func.attr in ("view", "reshape", "unflatten") and (parts := _sizes(node, forward)):
            found = _by_sizes(parts, node.func.attr == "unflatten", count)
            if found is not None:
                return found
    calls = (node for node in ast.walk(forward) if isinstance(node, ast.Call) and _first_is(node, name, holders))
    return next((found for node in calls if (found := _by_pattern(node, count)) is not None), None)


def _by_sizes(sizes: Sequence[ast.expr], unflattened: bool, count: int) -> Order | None:
    """Return the order that the sizes of a reshape tell of: those of the last axis stand last."""
    place = next((at for at, one in enumerate(sizes) if isinstance(one, ast.Constant) and one.value == count), -1)
    last = len(sizes) - 1
    if place >= 0 and place == (0 if unflattened else last - 2):
        return IN_TURN
    if place == last:
        return INNERMOST
    if place == last - 1 == 2 and count == 2:  # [batch, tokens, keys and values, width]
        return IN_TURN
    if place == last - 1:
        return _grouped(sizes[place - 1], sizes[last]) if place else IN_TURN
    wide = place < 0 and last > 0 and _multiple(sizes[last], count)
    return _grouped(sizes[last - 1], None) if wide else None


def _multiple(size: ast.expr, count: int) -> bool:
    """Return whether the last axis of a reshape is so many times as wide as a head."""
    factors = [size.left, size.right] if isinstance(size, ast.BinOp) and isinstance(size.op, ast.Mult) else []
    return any(isinstance(one, ast.Constant) and one.value == count for one in factors)


def _grouped(heads: ast.expr, size: ast.expr | None) -> Order | None:
    """By head: from the number of heads, or from their size, whichever is said."""
    if not isinstance(heads, ast.UnaryOp):
        return Order(heads=heads)
    return Order(size=size) if size is not None and not isinstance(size, ast.UnaryOp | ast.Constant) else None


def _by_pattern(node: ast.Call, count: int) -> Order | None:
    """Return the order that a pattern tells of: "b n (h three d) -> three b h n d"."""
    patterns = [one.value for one in node.args[1:] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if not patterns or "->" not in patterns[0]:
        last = getattr(node.func, "attr", "")
        return IN_TURN if last in ("chunk", "split", "tensor_split") else None
    given = {one.arg: one.value for one in node.keywords if one.arg}
    three = [name for name, one in given.items() if isinstance(one, ast.Constant) and one.value == count]
    group = patterns[0].partition("->")[0].rpartition("(")[2].rpartition(")")[0].split()
    right = patterns[0].partition("->")[2].split()
    letter = three[0] if three else (right[0] if right else "")
    place = group.index(letter) if letter in group else -1
    if place <= 0:
        return IN_TURN if place == 0 else None
    if place == len(group) - 1:
        return INNERMOST
    if len(group) != _THREE:
        return None
    missing = ast.UnaryOp(ast.USub(), ast.Constant(1))
    return _grouped(given.get(group[0], missing), given.get(group[2]))


def _known_before(order: Order, forward: ast.FunctionDef, name: str) -> bool:
    """Return whether what an order is told by is there when the layer is asked."""
    lines = [one.lineno for one in ast.walk(forward) if isinstance(one, ast.Call) and _called(one) == name]
    asked = min(lines, default=0)
    told = order.heads or order.size
    names = {one.id for one in ast.walk(told) if isinstance(one, ast.Name)} - {"self"} if told is not None else set()
    there = {known for known, value in assigned(forward) if value.lineno < asked}
    given = {one.arg for one in (*forward.args.posonlyargs, *forward.args.args, *forward.args.kwonlyargs)}
    return names <= there | given


def _first_is(node: ast.Call, name: str, holders: set[str]) -> bool:
    first = node.args[0] if node.args else None
    return first is not None and (_called(first) == name or (isinstance(first, ast.Name) and first.id in holders))


def _sizes(node: ast.Call, forward: ast.FunctionDef) -> list[ast.expr]:
    """Return the sizes that a reshape is given, one by one; none if they are a value that is not read."""
    given = node.args[1:] if isinstance(node.func, ast.Attribute) and node.func.attr == "unflatten" else node.args
    if len(given) != 1:
        return list(given)
    shape = given[0]
    if isinstance(shape, ast.Name):
        shape = dict(assigned(forward)).get(shape.id, shape)
    return list(shape.elts) if isinstance(shape, ast.Tuple | ast.List) else []


def assigned(forward: ast.FunctionDef) -> list[tuple[str, ast.expr]]:
    """Return each variable and what is assigned to it: tuples one by one, those of a function within it, too."""
    found: list[tuple[str, ast.expr]] = []
    answers = _answers(forward)
    for node in ast.walk(forward):
        if isinstance(node, ast.Assign):
            called = node.value.func if isinstance(node.value, ast.Call) else None
            value = answers.get(called.id, node.value) if isinstance(called, ast.Name) else node.value
            for target in node.targets:
                found += _pairs(target, value)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign) and node.value is not None:
            found += _pairs(node.target, node.value)
        elif isinstance(node, ast.For):
            found += _pairs(node.target, node.iter)
    return found


def _answers(forward: ast.FunctionDef) -> dict[str, ast.expr]:
    """Return what functions within another answer, of those that have one way to."""
    inner = [node for node in ast.walk(forward) if isinstance(node, ast.FunctionDef) and node is not forward]
    returned = {one.name: [node for node in ast.walk(one) if isinstance(node, ast.Return)] for one in inner}
    return {name: some[0].value for name, some in returned.items() if len(some) == 1 and some[0].value is not None}


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    if isinstance(target, ast.Tuple | ast.List):
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) else []
        inner = parts or [value] * len(target.elts)
        return [pair for one, part in zip(target.elts, inner, strict=True) for pair in _pairs(one, part)]
    return [(target.id, value)] if isinstance(target, ast.Name) else []


def _called(node: ast.AST) -> str:
    """`x` of `self.x(...)`."""
    return of_self(node.func) if isinstance(node, ast.Call) else ""


class _Flow:
    """Data flow in a forward, by the order of its lines."""

    def __init__(self, forward: ast.FunctionDef, call: ast.Call, linear: Collection[str]) -> None:
        self.forward = forward
        self.linear = linear
        self.call = call
        self.assigned = sorted(assigned(forward), key=lambda pair: pair[1].lineno)

    def layers(self, node: ast.expr) -> set[str]:
        """Return the linear layers of `self` that an expression comes from: the last ones on the way to attention."""
        return self._layers(node, self.call.lineno)

    def _layers(self, node: ast.expr, line: int) -> set[str]:
        found = {name for one in ast.walk(node) if (name := _called(one)) in self.linear}
        if found:
            return found
        for name in {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}:
            before = [value for known, value in self.assigned if known == name and value.lineno < line]
            found |= self._layers(before[-1], before[-1].lineno) if before else set()
        return found

    def takers(self) -> list[str]:
        """Return the layers that are given something in which the answer of attention is, nearest first."""
        tainted: set[str] = set()
        found: list[str] = []
        for name, value in self.assigned:
            if value.lineno < self.call.lineno:
                continue
            found += self._takers(value, tainted)
            if self._has(value, tainted):
                tainted.add(name)
        for node in ast.walk(self.forward):
            if isinstance(node, ast.Return) and node.value is not None:
                found += self._takers(node.value, tainted)
        return list(dict.fromkeys(found))

    def _takers(self, node: ast.expr, tainted: set[str]) -> list[str]:
        calls = [one for one in ast.walk(node) if isinstance(one, ast.Call) and _called(one)]
        return [_called(one) for one in reversed(calls) if any(self._has(argument, tainted) for argument in one.args)]

    def _has(self, node: ast.expr, tainted: set[str]) -> bool:
        return any(one is self.call or (isinstance(one, ast.Name) and one.id in tainted) for one in ast.walk(node))
