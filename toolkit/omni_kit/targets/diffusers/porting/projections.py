"""Which linear layers of a class with attention make queries, keys and values, and which takes its answer."""

import ast
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from omni_kit.upstream.repositories.attending import Attending
from omni_kit.upstream.repositories.names import absolute

_THREE = 3
_BY_NAME = (("q", "query", "queries"), ("k", "key", "keys"), ("v", "value", "values"))
_PARTS = ("to_q", "to_k", "to_v")


@dataclass(frozen=True)
class Projections:
    """The layers of one class.

    Attributes:
        renamed: layer -> what diffusers calls it.
        fused: the layer that makes queries, keys and values at once, one after the other; empty without one.
        out: the layer that takes the answer; empty where it is not told.
        unsure: why some layers keep their names, one line each.
    """

    renamed: Mapping[str, str] = field(default_factory=dict)
    fused: str = ""
    out: str = ""
    unsure: Sequence[str] = ()


def projections_of(
    attending: Attending, forward: ast.FunctionDef, call: ast.Call, init: ast.FunctionDef
) -> Projections:
    """Follows the three arguments of attention back to layers, and its answer forward to one.

    Args:
        call: in forward, of attention or of the function that computes it; its first three arguments are q, k and v.
    """
    source = attending.definition.source
    linear = {name: made for name, made in layers(init).items() if absolute(source, made.func) == "torch.nn.Linear"}
    flow = _Flow(forward, call, linear)
    inputs = [flow.layers(argument) for argument in _queries_keys_values(call)]
    out = next((name for name in flow.takers() if name in linear and not any(name in one for one in inputs)), "")
    if len(inputs) < _THREE:
        return Projections(out=out, unsure=["its arguments are not given by place"])
    shared = inputs[0] & inputs[1] & inputs[2]
    if len(shared) == 1 and inputs[0] == inputs[1] == inputs[2]:
        name = next(iter(shared))
        if _thrice(linear[name]) is None:
            return Projections(out=out, unsure=[f"{name} is not three times as wide"])
        if why := _not_in_turn(forward, name):
            return Projections(out=out, unsure=[why])
        return Projections(fused=name, out=out)
    if all(len(one) == 1 for one in inputs) and len({*inputs[0], *inputs[1], *inputs[2]}) == _THREE:
        return Projections({next(iter(one)): part for one, part in zip(inputs, _PARTS, strict=True)}, out=out)
    return Projections(out=out, unsure=["queries, keys and values do not come from one layer each"])


def _queries_keys_values(call: ast.Call) -> list[ast.expr]:
    """The first three arguments, by place or by their usual names."""
    named = {one.arg: one.value for one in call.keywords if one.arg}
    by_name = [next((named[name] for name in names if name in named), None) for names in _BY_NAME]
    given = [*call.args[:_THREE], *by_name[len(call.args) :]]
    return [one for one in given[:_THREE] if one is not None]


def layers(init: ast.FunctionDef) -> dict[str, ast.Call]:
    """What a constructor assigns to `self` by calling something."""
    found = {}
    for node in ast.walk(init):
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            value = getattr(node, "value", None)
            if (name := _of_self(target)) and isinstance(value, ast.Call):
                found[name] = value
    return found


def _thrice(made: ast.Call) -> ast.expr | None:
    """The expression of a layer's width, where it is three times another."""
    wide = (
        made.args[1] if len(made.args) > 1 else next((k.value for k in made.keywords if k.arg == "out_features"), None)
    )
    factors = [one.value for one in ast.walk(wide) if isinstance(one, ast.Constant)] if wide is not None else []
    only_products = (
        all(isinstance(one.op, ast.Mult) for one in ast.walk(wide) if isinstance(one, ast.BinOp)) if wide else False
    )
    return wide if only_products and _THREE in factors else None


def _not_in_turn(forward: ast.FunctionDef, name: str) -> str:
    """Why the rows of a fused layer may be in another order than queries, keys, values; empty where they are not."""
    holders = {name_ for name_, value in _assigned(forward) if _called(value) == name}
    for node in ast.walk(forward):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        base = node.func.value
        plain = isinstance(base, ast.Name) and base.id in holders
        if not plain and _called(base) != name and not _first_is(node, name, holders):
            continue
        if node.func.attr in ("chunk", "split", "tensor_split"):
            return ""
        if node.func.attr in ("view", "reshape", "unflatten") and (parts := _sizes(node)):
            place = next(
                (at for at, one in enumerate(parts) if isinstance(one, ast.Constant) and one.value == _THREE), -1
            )
            if place < 0:
                continue
            in_turn = place == len(parts) - 3 if node.func.attr != "unflatten" else place == 0
            return "" if in_turn else f"the rows of {name} are in turn by head, and not queries, keys and values"
    for node in ast.walk(forward):
        if (
            isinstance(node, ast.Call)
            and _first_is(node, name, holders)
            and (why := _by_pattern(node, name)) is not None
        ):
            return why
    return f"in which order {name} holds queries, keys and values could not be read"


def _by_pattern(node: ast.Call, name: str) -> str | None:
    """As `_not_in_turn`, of a call with a pattern: None where it has none."""
    patterns = [one.value for one in node.args[1:] if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    three = [k.arg for k in node.keywords if isinstance(k.value, ast.Constant) and k.value.value == _THREE]
    if not patterns or "->" not in patterns[0]:
        last = getattr(node.func, "attr", "")
        return "" if last in ("chunk", "split", "tensor_split") else None
    group = patterns[0].partition("->")[0].rpartition("(")[2].rpartition(")")[0].split()
    right = patterns[0].partition("->")[2].split()
    letter = three[0] if three else (right[0] if right else "")
    return "" if group and group[0] == letter else f"the rows of {name} are not queries, keys and values in turn"


def _first_is(node: ast.Call, name: str, holders: set[str]) -> bool:
    first = node.args[0] if node.args else None
    return first is not None and (_called(first) == name or (isinstance(first, ast.Name) and first.id in holders))


def _sizes(node: ast.Call) -> list[ast.expr]:
    given = node.args[1:] if isinstance(node.func, ast.Attribute) and node.func.attr == "unflatten" else node.args
    if len(given) == 1 and isinstance(given[0], ast.Tuple | ast.List):
        return list(given[0].elts)
    return list(given)


def _assigned(forward: ast.FunctionDef) -> list[tuple[str, ast.expr]]:
    """Each variable and what is assigned to it, tuples taken apart as one."""
    found: list[tuple[str, ast.expr]] = []
    for node in ast.walk(forward):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                found += _pairs(target, node.value)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign) and node.value is not None:
            found += _pairs(node.target, node.value)
        elif isinstance(node, ast.For):
            found += _pairs(node.target, node.iter)
    return found


def _pairs(target: ast.expr, value: ast.expr) -> list[tuple[str, ast.expr]]:
    if isinstance(target, ast.Tuple | ast.List):
        parts = value.elts if isinstance(value, ast.Tuple | ast.List) and len(value.elts) == len(target.elts) else []
        inner = parts or [value] * len(target.elts)
        return [pair for one, part in zip(target.elts, inner, strict=True) for pair in _pairs(one, part)]
    return [(target.id, value)] if isinstance(target, ast.Name) else []


def _of_self(node: ast.AST) -> str:
    own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
    return node.attr if own and isinstance(node, ast.Attribute) else ""


def _called(node: ast.AST) -> str:
    """`x` of `self.x(...)`."""
    return _of_self(node.func) if isinstance(node, ast.Call) else ""


class _Flow:
    """What flows where in a forward, by the order of its lines."""

    def __init__(self, forward: ast.FunctionDef, call: ast.Call, linear: Collection[str]) -> None:
        self.forward = forward
        self.linear = linear
        self.call = call
        self.assigned = sorted(_assigned(forward), key=lambda pair: pair[1].lineno)

    def layers(self, node: ast.expr) -> set[str]:
        """The linear layers of `self` that an expression comes from: the last ones on the way to attention."""
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
        """The layers that are given something in which the answer of attention is, nearest first."""
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
