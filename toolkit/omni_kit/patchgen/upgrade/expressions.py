"""The merge of expressions: part by part, and of lists of arguments, elements or parameters by their keys."""

import ast
from collections.abc import Callable, Sequence
from typing import Any

from omni_kit.patchgen.spans import Edit, Source
from omni_kit.patchgen.upgrade.code import Code, dump, dumps, likeness, size
from omni_kit.patchgen.upgrade.parts import Item, insertion, removal
from omni_kit.patchgen.upgrade.sides import Sides, changed

_LOOSE = (ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Lambda, ast.NamedExpr, ast.Await, ast.Tuple)
_BY_FIELD = (
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr, ast.keyword, ast.Starred, ast.withitem, ast.Raise,
    ast.Assert,
)  # fmt: skip
_BY_OPERAND = (ast.BinOp, ast.UnaryOp)  # conditions and indices change as wholes
_VERSION = 0.5  # how like an expression is to another version of it
_WRAPPED = 3  # nodes of an expression that is recognised inside another


class Expressions(Sides):
    """Merges expressions, and statements without blocks."""

    def node(self, b: Any, o: Any, t: Any) -> None:
        """One expression, or a statement without blocks."""
        if b is None or o is None or t is None:
            if dump(b) != dump(t) and dump(o) != dump(t):
                self.clash("both changed this", b or o or t, o or t, t or o)
            return
        if dump(b) == dump(t) or dump(o) == dump(t):
            return
        if dump(b) == dump(o):
            self.replace(o, t)
        elif self._wrapped(b, o, t) or _goes_on(b, o, t):
            return
        elif _goes_on(b, t, o):
            self.replace(o, t)
        elif not type(b) is type(o) is type(t):
            self.clash(changed(b, t), b, o, t)
        elif isinstance(o, ast.Call):
            self.call(b, o, t)
        elif isinstance(o, (ast.Tuple, ast.List, ast.Set)):
            self.elements(b, o, t)
        elif isinstance(o, ast.Dict):
            was, mine, now = (_entries(code, one) for code, one in self.each(b, o, t))
            self.items(was, mine, now, None, b, o, t)
        elif isinstance(o, ast.Attribute) and b.attr == o.attr == t.attr:
            self.node(b.value, o.value, t.value)
        elif isinstance(o, _BY_FIELD):
            self.fields(b, o, t)
        elif isinstance(o, _BY_OPERAND) and _shape(b) == _shape(o) == _shape(t):
            for was, mine, now in zip(*(_operands(one) for one in (b, o, t)), strict=True):
                if dump(was) == dump(mine) != dump(now):
                    self.replace(mine, now, loose=isinstance(now, _LOOSE))
                else:
                    self.node(was, mine, now)
        else:
            self.clash(changed(b, t), b, o, t)

    def fields(self, b: Any, o: Any, t: Any) -> None:
        """Each part of a simple statement."""
        for name in o._fields:
            was, mine, now = (getattr(one, name) for one in (b, o, t))
            if isinstance(mine, list) and len(was) == len(mine) == len(now):
                for one in zip(was, mine, now, strict=True):
                    self.node(*one)
            elif isinstance(mine, (ast.expr, type(None))) and isinstance(was, (ast.expr, type(None))):
                self.node(was, mine, now)
            elif _value(was) != _value(now) and _value(mine) != _value(now):
                self.clash(changed(b, t), b, o, t)
            elif _value(was) != _value(now):
                self.replace(o, t)
                return

    def call(self, b: ast.Call, o: ast.Call, t: ast.Call) -> None:
        """A call: what is called, and what is passed. One side may change one of both and not each the other."""
        args = [arguments(code, one.args, one.keywords) for code, one in self.each(b, o, t)]
        was, mine, now = ([item.dump for item in side] for side in args)
        ours_other, theirs_other = _callee(o) != _callee(b), _callee(t) != _callee(b)
        if ours_other and _same_fields(b, o, t):
            self.items(args[0], args[1], args[2], None, b, o, t)
            return
        if (ours_other and was != now and mine != now) or (theirs_other and was != mine and mine != now):
            self.clash(
                f"one calls another function, and the other passes it other arguments ({changed(b, t)})", b, o, t
            )
            return
        placed = [dumps(one.args) for one in (b, o, t)]
        if len({len(one) for one in placed}) > 1 and placed[0] != placed[1] and placed[0] != placed[2] != placed[1]:
            self.clash(f"both changed the positional arguments ({changed(b, t)})", b, o, t)
            return
        self.node(b.func, o.func, t.func)
        self.items(args[0], args[1], args[2], self.ours.end_of(o) - 1, b, o, t)

    def elements(self, b: Any, o: Any, t: Any) -> None:
        """The elements of a tuple, list or set."""
        names = not isinstance(b, ast.Tuple) and all(isinstance(e, ast.Constant) for one in (b, o, t) for e in one.elts)
        if len(b.elts) == len(o.elts) == len(t.elts) and not names:
            for one in zip(b.elts, o.elts, t.elts, strict=True):
                self.node(*one)
            return
        mark = "" if names else "#"
        sides = [[_item(code, f"{mark}{dump(e)}", e) for e in one.elts] for code, one in self.each(b, o, t)]
        self.items(sides[0], sides[1], sides[2], None, b, o, t)

    def items(
        self, bs: list[Item], os: list[Item], ts: list[Item], empty_at: int | None, b: Any, o: Any, t: Any
    ) -> None:
        """Arguments, elements or entries, by what they are known by."""
        if [one.dump for one in bs] != [one.dump for one in ts] and [one.dump for one in os] != [
            one.dump for one in ts
        ]:
            self.listed(bs, os, ts, empty_at, lambda *same: self.node(*(one.node for one in same)), b, o, t)

    def listed(
        self, bs: list[Item], os: list[Item], ts: list[Item], empty_at: int | None,
        merge: Callable[[Item, Item, Item], None], b: Any, o: Any, t: Any,
    ) -> None:  # fmt: skip
        """Merge any lists whose elements have keys: removals, insertions, and `merge` for the rest."""
        was, mine, now = ({one.key: one for one in side} for side in (bs, os, ts))
        if len(was) < len(bs) or len(mine) < len(os) or len(now) < len(ts):
            self.clash(changed(b, t), b, o, t)
            return
        gone: set[int] = set()
        for item in bs:
            if item.key not in now:
                if item.key in mine and _differs(item, mine[item.key]):
                    self.clash(f"upstream dropped `{_short(self.base, item)}`, and the patch changed it", b, o, t)
                elif item.key in mine:
                    gone.add(os.index(mine[item.key]))
            elif item.key in mine:
                merge(item, mine[item.key], now[item.key])
            elif _differs(item, now[item.key]):
                self.clash(f"the patch removed `{_short(self.base, item)}`, and upstream changed it", b, o, t)
        self.edits += removal(self.ours, os, gone)
        self._insert(bs, os, ts, empty_at, b, o, t)

    def _insert(
        self, bs: list[Item], os: list[Item], ts: list[Item], empty_at: int | None, b: Any, o: Any, t: Any
    ) -> None:
        was, mine = {one.key for one in bs}, {one.key: index for index, one in enumerate(os)}
        pending: dict[int, list[str]] = {}
        for index, item in enumerate(ts):
            if item.key in was:
                continue
            if item.key in mine:
                if os[mine[item.key]].dump != item.dump and not isinstance(item.node, tuple):
                    self.clash(f"both added `{item.key}`, not the same", b, o, t)
                continue
            before = next((mine[one.key] for one in reversed(ts[:index]) if one.key in mine), None)
            after = next((mine[one.key] for one in ts[index + 1 :] if one.key in mine), None)
            if before is None and after is None and os:
                self.clash(f"there is no place for upstream's new `{item.key}`", b, o, t)
                continue
            if item.key.startswith("**") and isinstance(item.node, ast.keyword) and (own := _own(bs, os)):
                spread, mine_too = self.theirs.of(item.node), ", ".join(_short(self.ours, one) for one in own)
                self.clash(
                    f"upstream passes {spread} on, and the patch passes {mine_too}: one may be passed twice", b, o, t
                )
                continue
            place = len(os) - 1 if item.key == "**" else before if before is not None else (after or 0) - 1
            if _by_position(item) and before is not None and before + 1 < len(os):
                behind = os[before + 1]
                if behind.key not in was and behind.key not in {one.key for one in ts} and _by_position(behind):
                    self.clash(f"both add an argument behind `{_short(self.ours, os[before])}`", b, o, t)
                    continue
            pending.setdefault(place, []).append(self.theirs.text[item.start : item.end])
        for place, texts in pending.items():
            if not os and empty_at is None:
                self.clash("no place was found for upstream's addition", b, o, t)
            else:
                self.edits.append(insertion(self.ours, os, place, texts, empty_at or 0))

    def _wrapped(self, b: ast.AST, o: ast.AST, t: ast.AST) -> bool:
        """Return one side put the old expression into another one: both hold."""
        if (
            not isinstance(b, ast.expr)
            or not isinstance(o, ast.expr)
            or not isinstance(t, ast.expr)
            or size(b) < _WRAPPED
        ):
            return False
        mine, now = _occurrences(b, o), _occurrences(b, t)
        if len(mine) == 1 and not now:
            if likeness(b, t) < _VERSION:
                return False
            self.replace(mine[0], t, loose=isinstance(t, _LOOSE))
            return True
        if len(now) == 1 and not mine and likeness(b, o) >= _VERSION:
            inner = self.ours.of(o)
            start, end = self.theirs.start_of(t), self.theirs.end_of(t)
            at, to = self.theirs.start_of(now[0]), self.theirs.end_of(now[0])
            text = f"({inner})" if isinstance(o, _LOOSE) else inner
            whole = self.theirs.text[start:at] + text + self.theirs.text[to:end]
            self.edits.append(Edit(self.ours.start_of(o), self.ours.end_of(o), whole))
            return True
        return False


def arguments(code: Source, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> list[Item]:
    """Return the arguments of a call, or the bases of a class, by position and by name."""
    placed = [_item(code, f"#{index}", one) for index, one in enumerate(args)]
    named = [_item(code, one.arg or f"**{dump(one.value)}", one) for one in keywords]
    return sorted([*placed, *named], key=lambda one: one.start)


def _entries(code: Code, node: ast.Dict) -> list[Item]:
    found = []
    for key, value in zip(node.keys, node.values, strict=True):
        start = code.start_of(key) if key is not None else code.start_of(value) - 2
        found.append(Item(dump(key) or f"**{dump(value)}", dump(value), start, code.end_of(value), value))
    return found


def _item(code: Source, key: str, node: Any) -> Item:
    return Item(key, dump(node), code.start_of(node), code.end_of(node), node)


def _differs(one: Item, other: Item) -> bool:
    """Return whether two list elements of one key mean different things.

    The annotation of a parameter means nothing.
    """
    if isinstance(one.node, tuple) and isinstance(other.node, tuple):
        return dump(one.node[1]) != dump(other.node[1])
    return one.dump != other.dump


def _own(bs: Sequence[Item], os: Sequence[Item]) -> list[Item]:
    """Keywords that only the patch passes."""
    return [one for one in os if isinstance(one.node, ast.keyword) and one.key not in {item.key for item in bs}]


def _by_position(item: Item) -> bool:
    return item.key.startswith("#")


def _callee(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else dump(node.func)


def _same_fields(b: ast.Call, o: ast.Call, t: ast.Call) -> bool:
    """Return whether three calls make results of named fields, and upstream's has no new field."""
    sides = [{one.arg for one in call.keywords} for call in (b, o, t)]
    makers = [call.func.id for call in (b, o, t) if isinstance(call.func, ast.Name) and not call.args]
    made = len(makers) == len(sides) and all(name[:1].isupper() for name in makers)
    return made and not any(None in side for side in sides) and sides[2] <= sides[0]


def _value(part: Any) -> Any:
    if isinstance(part, list):
        return [_value(one) for one in part]
    return dump(part) if isinstance(part, ast.AST) else part


def _operands(node: ast.expr) -> list[ast.expr]:
    return [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]


def _shape(node: ast.expr) -> list[Any]:
    """Return an expression's operators, and a place for each of its operands."""
    return [dump(one) or "" if not isinstance(one, ast.expr) else None for one in ast.iter_child_nodes(node)]


def _goes_on(b: Any, one: Any, other: Any) -> bool:
    """Return whether an expression is another one with methods, which the old one does not call, called on parts of
    it.
    """
    if not isinstance(one, ast.expr) or size(one) < _WRAPPED:
        return False
    more = added_methods(one, other)
    known = {one.attr for one in ast.walk(b) if isinstance(one, ast.Attribute)}
    return more is not None and not known & {call.func.attr for call in more if isinstance(call.func, ast.Attribute)}


def added_methods(one: Any, other: Any) -> list[ast.Call] | None:
    """Return the calls of methods that one of two expressions has in addition; None if they differ in more."""
    if dump(one) == dump(other):
        return []
    match one:
        case ast.Call(func=ast.Attribute(value=inner)) if isinstance(other, ast.expr):
            if (more := added_methods(inner, other)) is not None:
                return [*more, one]
    here, there = list(ast.iter_child_nodes(one)), list(ast.iter_child_nodes(other))
    plain = [name for name, value in ast.iter_fields(one) if not isinstance(value, (list, ast.AST))]
    if type(one) is not type(other) or len(here) != len(there) or not here:
        return None
    if any(getattr(one, name) != getattr(other, name) for name in plain):
        return None
    found = [added_methods(*pair) for pair in zip(here, there, strict=True)]
    return None if None in found else [call for more in found for call in more or ()]


def _occurrences(part: ast.expr, whole: ast.expr) -> list[ast.expr]:
    wanted = dump(part)
    return [one for one in ast.walk(whole) if one is not whole and isinstance(one, ast.expr) and dump(one) == wanted]


def _short(code: Code, item: Item) -> str:
    return " ".join(code.text[item.start : item.end].split())[:80]
