"""`einops.rearrange` and `einops.repeat` with a pattern that can be read, written with torch's own methods; also where
one pattern is for several tensors.
"""

import ast
import re
from dataclasses import dataclass, field

import libcst as cst

from omni_kit.pysource.eval import Unsupported
from omni_kit.targets.diffusers.porting.syntax import chain, code, expression

_TOKEN = re.compile(r"\(([^()]*)\)|(\S+)")
_ONE, _OTHERS = "1", "..."
_MANY = "_many"  # how einops_exts calls a function for several tensors


@dataclass
class _Steps:
    """A tensor's axes, and what is done to it.

    Attributes:
        axes: the name of each axis that it has by now.
        sizes: name -> expression.
        others: axes without names come "before" or "behind" these; those before are not counted.
        done: the calls, one after the other.
    """

    axes: list[str]
    sizes: dict[str, str]
    others: str = ""
    done: list[str] = field(default_factory=list)

    def at(self, index: int, count: int) -> int:
        """Return an axis's number among `count` axes with names."""
        return index - count if self.others == "before" else index

    def split(self, groups: list[list[str]]) -> None:
        """Every group of the left side becomes axes, the last group first."""
        total = len(groups)
        for index, group in reversed(list(enumerate(groups))):
            place = self.at(index, total)
            total += len([name for name in group if name != _ONE]) - 1
            if group == [_ONE] or not group:
                self.done.append(f".squeeze({place})")
            elif len(group) > 1:
                unknown = [name for name in group if name not in self.sizes]
                if len(unknown) > 1:
                    raise Unsupported("more than one axis of a group has no size")
                inner = ", ".join(self.sizes.get(name, "-1") for name in group)
                self.done.append(f".unflatten({place}, ({inner}))")
        self.axes = [name for group in groups for name in group if name != _ONE]

    def order(self, wanted: list[str]) -> None:
        """The axes that there are, in another order."""
        if sorted(wanted) != sorted(self.axes):
            raise Unsupported("an axis is on only one side")
        order = [self.axes.index(name) for name in wanted]
        moved = [self.at(at, len(order)) for at, index in enumerate(order) if at != index]
        if len(moved) == 2:
            self.done.append(f".transpose({moved[0]}, {moved[1]})")
        elif moved and self.others:
            raise Unsupported("axes without names")
        elif moved:
            self.done.append(f".permute({', '.join(map(str, order))})")
        self.axes = wanted

    def widen(self, wanted: list[str]) -> None:
        """Axes that there are not yet, as often as their sizes say."""
        new = [name for name in wanted if name not in self.axes]
        for name in new:
            at = wanted.index(name)
            place = self.at(at, at + 1 + len([one for one in wanted[at:] if one in self.axes]))
            self.done.append(f".unsqueeze({place})")
            if self.others:  # `expand` needs the sizes of all axes
                self.done.append(f".repeat_interleave({self.sizes[name]}, {place})")
        if new and not self.others:
            sizes = (self.sizes[name] if name in new else "-1" for name in wanted)
            self.done.append(f".expand({', '.join(sizes)})")
        self.axes = wanted

    def join(self, groups: list[list[str]]) -> None:
        """Every group of the right side becomes one axis, the last one first."""
        start = total = sum(len([name for name in group if name != _ONE]) for group in groups)
        ones = [index for index, group in enumerate(groups) if not group or group == [_ONE]]
        for group in reversed(groups):
            inner = [name for name in group if name != _ONE]
            start -= len(inner)
            if len(inner) > 1:
                first = self.at(start, total)
                self.done.append(f".flatten({first}, {first + len(inner) - 1})")
                total -= len(inner) - 1
        for index in ones:  # from the left: those to the right of one are not there yet
            right = len([later for later in range(index + 1, len(groups)) if later not in ones])
            self.done.append(f".unsqueeze({self.at(index, index + 1 + right)})")


def written_out(call: cst.Call, name: str) -> cst.BaseExpression:
    """Return a call of rearrange or repeat as a chain of torch's methods.

    Args:
        name: "rearrange" or "repeat", or one of them for several tensors: "rearrange_many".

    Raises:
        Unsupported: its pattern is not one that is written out here.
    """
    if name.endswith(_MANY):
        return _many(call, name.removesuffix(_MANY))
    plain = [one.value for one in call.args if one.keyword is None and not one.star]
    sizes = {one.keyword.value: code(one.value) for one in call.args if one.keyword is not None}
    if name not in ("rearrange", "repeat") or len(plain) != 2 or len(plain) + len(sizes) != len(call.args):
        raise Unsupported("another call")
    if not isinstance(plain[1], cst.SimpleString) or isinstance(plain[0], cst.List | cst.Tuple):
        raise Unsupported("not a constant pattern, or several tensors")
    sides = [side.strip() for side in str(ast.literal_eval(plain[1].value)).split("->")]
    flat = re.fullmatch(r"((?:\w+ )+)\.\.\.->\1\(\.\.\.\)", "->".join(sides))
    if flat is not None and name == "rearrange":
        return expression(f"{_whole(plain[0])}.flatten({len(flat[1].split())})")
    others = "before" if all(side.startswith(_OTHERS) for side in sides) else ""
    others = others or ("behind" if all(side.endswith(_OTHERS) for side in sides) else "")
    cut = {"before": str.removeprefix, "behind": str.removesuffix}
    sides = [cut[others](side, _OTHERS) for side in sides] if others else sides
    if len(sides) != 2 or any(_OTHERS in side for side in sides):
        raise Unsupported("axes without names")
    left, right = (_groups(side) for side in sides)
    steps = _Steps([], sizes, others)
    steps.split(left)
    names = [one for group in right for one in group if one != _ONE]
    if name == "repeat":
        if any(one not in steps.axes and one not in sizes for one in names):
            raise Unsupported("an axis without a size")
        steps.order([one for one in names if one in steps.axes])
        steps.widen(names)
    steps.order(names)
    steps.join(right)
    return expression(_whole(plain[0]) + "".join(steps.done))


def _whole(node: cst.BaseExpression) -> str:
    """Return an expression of which a method can be called."""
    plain = chain(node) or isinstance(node, cst.Call | cst.Subscript | cst.Attribute)
    return code(node) if plain else f"({code(node)})"


def _many(call: cst.Call, name: str) -> cst.BaseExpression:
    """Return a tuple of such chains for tensors that are listed; for others a list of what is done to each."""
    tensors = call.args[0].value
    several = tensors.elements if isinstance(tensors, cst.Tuple | cst.List) else []
    listed = several and not any(isinstance(one, cst.StarredElement) for one in several)
    given = [one.value for one in several] if listed else [cst.Name("one")]
    firsts = (call.args[0].with_changes(value=one) for one in given)
    done = [written_out(call.with_changes(args=[first, *call.args[1:]]), name) for first in firsts]
    if not listed:
        return expression(f"[{code(done[0])} for one in {code(tensors)}]")
    return expression(f"({', '.join(map(code, done))},)")


def _groups(side: str) -> list[list[str]]:
    return [(inner if single == "" else single).split() for inner, single in _TOKEN.findall(side)]


class WithoutEinops(cst.CSTTransformer):
    """Writes every such call out; those that it cannot are counted.

    Args:
        names: how the calls are written -> "rearrange", "repeat" or another of einops' functions.
    """

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names
        self.left: list[str] = []

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """Return the call, or what it does."""
        name = self.names.get(chain(updated_node.func))
        if name is None:
            return updated_node
        try:
            return written_out(updated_node, name)
        except Unsupported as why:
            self.left.append(f"write {code(updated_node.func)} out with torch's own methods ({why})")
            return updated_node
