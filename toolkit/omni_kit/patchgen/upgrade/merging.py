"""The three-way merge of one definition: upstream's old version, its new one, and the patch.

The text of the patch stays, and upstream's changes come in as edits of it. A place that both changed is a clash; the
merge never chooses.
"""

import ast
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from omni_kit.patchgen.spans import Edit, first_line, shift, splice
from omni_kit.patchgen.upgrade.alignment import align, assignment
from omni_kit.patchgen.upgrade.code import Code, FunctionNode, dump, dumps, likeness, read, size, written
from omni_kit.patchgen.upgrade.outcome import Clash
from omni_kit.patchgen.upgrade.parts import Item, insertion, removal
from omni_kit.patchgen.upgrade.renames import same_but_for_locals
from omni_kit.patchgen.upgrade.values import results
from omni_kit.pysource.nodes import docstring_of, without_docstring
from omni_kit.pysource.signatures import signature

_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_LOOSE = (ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Lambda, ast.NamedExpr, ast.Await, ast.Tuple)
_BY_FIELD = (
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.Expr, ast.keyword, ast.Starred, ast.withitem, ast.Raise,
    ast.Assert,
)  # fmt: skip
_BY_OPERAND = (ast.BinOp, ast.BoolOp, ast.UnaryOp, ast.Compare, ast.IfExp, ast.Subscript)
_LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)
_VERSION = 0.5  # how like an expression is to another version of it
_KEPT = 0.4  # of the old statements that upstream still has, in a function that was not rewritten
_SHORT = 4  # statements of a function that is too short to be rewritten
_WRAPPED = 3  # nodes of an expression that is recognised inside another
Moved = Callable[[ast.stmt], list[ast.stmt] | None]


@dataclass
class Merged:
    """The merged text, which is the patch's where something clashes."""

    text: str
    clashes: list[Clash] = field(default_factory=list)


def merge_definition(base: str, ours: str, theirs: str, moved: Moved | None = None) -> Merged:
    """Merge two descendants of `base`, each a definition from `def` or `class` on, dedented.

    Args:
        moved: what a statement that calls a new helper of upstream's amounts to, written out; None for others.
    """
    merger = _Merger(Code(base), Code(ours), Code(theirs), moved)
    b, o, t = merger.base.node, merger.ours.node, merger.theirs.node
    merger.definition(b, o, t)
    if merger.clashes:
        return Merged(ours, merger.clashes)
    try:
        text = splice(merger.ours.text, merger.edits)
        ast.parse(text)
    except (ValueError, SyntaxError) as why:
        return Merged(ours, [Clash(f"the merged code is not Python: {why}", textual=True)])
    return Merged(text)


def merge_annotations(base: str, ours: str, theirs: str, bound: Callable[[str], bool]) -> str:
    """The patch with upstream's newer annotations of parameters where the old ones use names that are gone.

    Args:
        bound: whether the newer upstream has a name.
    """
    merger = _Merger(Code(base), Code(ours), Code(theirs))
    nodes = merger.base.node, merger.ours.node, merger.theirs.node
    if any(isinstance(one, ast.ClassDef) for one in nodes):
        return ours
    codes = merger.base, merger.ours, merger.theirs
    was, mine, now = ({one.key: one for one in _parameters(c, n)} for c, n in zip(codes, nodes, strict=True))  # type: ignore[arg-type]
    for key in was.keys() & mine.keys() & now.keys():
        old = was[key].node[0].annotation
        if old is not None and not all(bound(one.id) for one in ast.walk(old) if isinstance(one, ast.Name)):
            merger.parameter(*(Item("", "", 0, 0, (side[key].node[0], None)) for side in (was, mine, now)))
    return splice(merger.ours.text, merger.edits)


@dataclass
class _Merger:
    base: Code
    ours: Code
    theirs: Code
    moved: Moved | None = None
    edits: list[Edit] = field(default_factory=list)
    clashes: list[Clash] = field(default_factory=list)

    # Definitions

    def definition(self, b: Any, o: Any, t: Any) -> None:
        """A function or class; its name is not compared, which a patch is free to choose."""
        if isinstance(b, ast.ClassDef) and isinstance(o, ast.ClassDef) and isinstance(t, ast.ClassDef):
            self.items(self._bases(self.base, b), self._bases(self.ours, o), self._bases(self.theirs, t), None, b, o, t)
        elif all(isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) for one in (b, o, t)):
            self.parameters(b, o, t)
            self.returns(b, o, t)
        else:
            self.clash("a class and a function replace each other", b, o, t)
            return
        self.docstrings(b, o, t)
        bodies = without_docstring(b.body), without_docstring(o.body), without_docstring(t.body)
        if isinstance(b, ast.ClassDef) or not self._rewritten(*bodies):
            self.block(*bodies, o)
        else:
            self.clash("upstream rewrote it, and the patch changes the old code", *bodies)

    def _rewritten(self, bs: Sequence[ast.stmt], os: Sequence[ast.stmt], ts: Sequence[ast.stmt]) -> bool:
        """Whether upstream kept little of a function that the patch changes: lines that merge would mean nothing."""
        if dumps(bs) == dumps(os) or dumps(os) == dumps(ts):
            return False
        ts = self._inlined(bs, os, ts)
        there = {dump(one) for top in ts for one in ast.walk(top) if isinstance(one, ast.stmt)}
        was = [one for top in bs for one in ast.walk(top) if isinstance(one, ast.stmt)]
        kept = sum(dump(one) in there for one in was) + sum(bs[a] is not ts[z] for a, z in align(bs, ts).items()) / 2
        return len(was) > _SHORT and kept < _KEPT * len(was)

    def decorated(self, b: Any, o: Any, t: Any) -> None:
        """The decorators of a definition inside a class or function, then the definition."""
        had, has, gets = dumps(b.decorator_list), dumps(o.decorator_list), dumps(t.decorator_list)
        if had != gets and has == had:
            if o.decorator_list:
                first, last = o.decorator_list[0], o.decorator_list[-1]
                start = self.ours.line_start(first.lineno)
                end = self.ours.line_start((last.end_lineno or last.lineno) + 1)
            else:
                start = end = self.ours.line_start(o.lineno)
            lines = [f"{' ' * o.col_offset}@{self.theirs.of(one)}\n" for one in t.decorator_list]
            self.edits.append(Edit(start, end, "".join(lines)))
        elif had != gets and has != gets:
            self.clash(f"both changed the decorators of {b.name}", b, o, t)
        self.definition(b, o, t)

    def docstrings(self, b: Any, o: Any, t: Any) -> None:
        """Upstream's docstring, unless the patch has one of its own."""
        was, mine, now = docstring_of(b.body), docstring_of(o.body), docstring_of(t.body)
        if was is not None and mine is not None and now is not None and _doc(mine) == _doc(was) != _doc(now):
            text = shift(self.theirs.of(now), now.col_offset, mine.col_offset)
            self.edits.append(Edit(self.ours.start_of(mine), self.ours.end_of(mine), text.lstrip()))

    def returns(self, b: Any, o: Any, t: Any) -> None:
        """The return annotation: upstream's, where the patch left it."""
        if dump(b.returns) == dump(t.returns) or dump(o.returns) != dump(b.returns):
            return
        if o.returns is not None:
            new = self.theirs.of(t.returns) if t.returns is not None else None
            start = self.ours.start_of(o.returns)
            if new is None:
                start = self.ours.text.rindex("->", 0, start)
                start -= len(self.ours.text[:start]) - len(self.ours.text[:start].rstrip())
            self.edits.append(Edit(start, self.ours.end_of(o.returns), new or ""))
        elif (end := self._header_end(o)) is not None:
            self.edits.append(Edit(end, end, f" -> {self.theirs.of(t.returns)}"))

    def _header_end(self, o: FunctionNode) -> int | None:
        """The offset of the colon that ends a header without a return annotation."""
        first = o.body[0]
        stop = self.ours.start_of(first)
        args = [one for one in ast.walk(o.args) if hasattr(one, "lineno")]
        start = max((self.ours.end_of(one) for one in args), default=self.ours.start_of(o))
        found = re.compile(r"\)\s*:").search(self.ours.text, start, stop)
        return found.start() + 1 if found else None

    def parameters(self, b: FunctionNode, o: FunctionNode, t: FunctionNode) -> None:
        """Parameters by name: what upstream added, dropped, or gave another default or annotation."""
        was, mine, now = (_parameters(code, one) for code, one in ((self.base, b), (self.ours, o), (self.theirs, t)))
        same = [(one.key, one.dump) for one in was] == [(one.key, one.dump) for one in mine]
        if _kinds(b) == _kinds(o) != _kinds(t) and same and mine and now:
            start, end = self._with_marks(self.ours, mine)
            self.edits.append(Edit(start, end, self._marks(now, self.theirs.text[now[0].start : now[-1].end])))
            return
        at = self.ours.text.index("(", self.ours.start_of(o)) + 1
        self.listed(was, mine, now, at, self.parameter, b, o, t)

    def _with_marks(self, code: Code, items: Sequence[Item]) -> tuple[int, int]:
        start = items[0].start
        lead = re.search(r"\*\s*,\s*$", code.text[:start])
        return (lead.start() if lead else start), items[-1].end

    def _marks(self, items: Sequence[Item], text: str) -> str:
        lead = re.search(r"\*\s*,\s*$", self.theirs.text[: items[0].start])
        return lead.group() + text if lead else text

    def parameter(self, b: Item, o: Item, t: Item) -> None:
        """One parameter that all three have: its annotation, its default."""
        (was, was_default), (mine, my_default), (now, new_default) = b.node, o.node, t.node
        if dump(was.annotation) != dump(now.annotation) and dump(mine.annotation) == dump(was.annotation):
            if mine.annotation is not None and now.annotation is not None:
                self.replace(mine.annotation, now.annotation)
            elif now.annotation is not None:
                end = self.ours.start_of(mine) + len(mine.arg)
                self.edits.append(Edit(end, end, f": {self.theirs.of(now.annotation)}"))
            else:
                self.edits.append(Edit(self.ours.start_of(mine) + len(mine.arg), self.ours.end_of(mine), ""))
        if dump(was_default) != dump(new_default):
            if dump(my_default) not in (dump(was_default), dump(new_default)):
                self.clash(f"both changed the default of {mine.arg}", was_default or was, my_default or mine, now)
            elif dump(my_default) != dump(new_default):
                self._default(mine, my_default, new_default)

    def _default(self, mine: ast.arg, old: ast.expr | None, new: ast.expr | None) -> None:
        end = self.ours.end_of(mine)
        if old is not None and new is not None:
            self.replace(old, new)
        elif new is not None:
            self.edits.append(Edit(end, end, f" = {self.theirs.of(new)}"))
        elif old is not None:
            self.edits.append(Edit(end, self.ours.end_of(old), ""))

    def _bases(self, code: Code, node: ast.ClassDef) -> list[Item]:
        return _arguments(code, [*node.bases], node.keywords)

    # Statements

    def block(self, bs: Sequence[ast.stmt], os: Sequence[ast.stmt], ts: Sequence[ast.stmt], parent: Any) -> None:
        """A list of statements, cut into stretches between statements that all three have."""
        ts = in_order(bs, self._inlined(bs, os, ts))
        if dumps(bs) == dumps(ts) or dumps(os) == dumps(ts):
            return
        in_ours, in_theirs = align(bs, os), align(bs, ts)
        start = (0, 0, 0)
        for index in range(len(bs)):
            if index in in_ours and index in in_theirs:
                there = index, in_ours[index], in_theirs[index]
                was, mine, now = (side[a:z] for side, a, z in zip((bs, os, ts), start, there, strict=True))
                self.stretch(was, mine, now, os, start[1], parent)
                self.stmt(bs[index], os[there[1]], ts[there[2]])
                start = there[0] + 1, there[1] + 1, there[2] + 1
        self.stretch(bs[start[0] :], os[start[1] :], ts[start[2] :], os, start[1], parent)

    def stretch(
        self, bs: Sequence[ast.stmt], os: Sequence[ast.stmt], ts: Sequence[ast.stmt],
        block: Sequence[ast.stmt], at: int, parent: Any,
    ) -> None:  # fmt: skip
        """Statements between two that all three have; `at` is where the patch's begin in its block."""
        was, mine, now = dumps(bs), dumps(os), dumps(ts)
        if was == now or mine == now:
            return
        if was == mine:
            self.put(os, ts, block, at, parent)
        elif bs and _effects(self.base, bs) == _effects(self.theirs, ts) is not None:
            return  # upstream only spells it in another way
        elif not bs:
            self._both_inserted(os, ts, block, at, parent)
        elif not self._inside(bs, os, ts) and not self._finer(bs, os, ts, block, at, parent):
            self.clash(_both(bs, ts), *map(list, (bs, os, ts)))

    def _inlined(self, bs: Sequence[ast.stmt], os: Sequence[ast.stmt], ts: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Upstream's statements; where it only moved some to a new helper and the patch changes them, the old ones."""
        found: list[ast.stmt] = []
        for one in ts:
            body = self.moved(one) if self.moved is not None else None
            run = _run(bs, body) if body else None
            kept = run is not None and _subsequence(dumps(bs[run : run + len(body or ())]), dumps(os)) is not None
            found += [one] if run is None or kept else bs[run : run + len(body or ())]
        return found

    def _both_inserted(
        self, os: Sequence[ast.stmt], ts: Sequence[ast.stmt], block: Sequence[ast.stmt], at: int, parent: Any
    ) -> None:
        new = [one for one in ts if dump(one) not in dumps(os)]
        if _independent(os, new):
            self.put([], new, block, at, parent)
        elif _leaves(os) and all(map(_sets_locals, new)) and _disjoint(os, new):
            self.put([], new, block, at + len(os), parent)
        else:
            self.clash("both add code here, and one depends on the other", [], list(os), list(ts))

    def _finer(
        self, bs: Sequence[ast.stmt], os: Sequence[ast.stmt], ts: Sequence[ast.stmt],
        block: Sequence[ast.stmt], at: int, parent: Any,
    ) -> bool:  # fmt: skip
        """One side only adds statements, next to what the other replaces."""
        mine, now = dumps(os), dumps(ts)
        in_ours = _subsequence(dumps(bs), mine)
        if in_ours is not None:  # the patch only adds; upstream replaces
            kept = [os[index] for index in in_ours]
            added = [one for index, one in enumerate(os) if index not in in_ours]
            theirs = _subsequence(dumps(bs), now)
            new = ts if theirs is None else [one for index, one in enumerate(ts) if index not in theirs]
            first, last = in_ours[0], in_ours[-1]
            apart = _independent(added, new) and _independent(added, bs if theirs is None else [])
            if last - first >= len(in_ours) or not (apart or _orderly(os[:first], os[last + 1 :], bs, ts)):
                return False
            self.put(kept, ts, block, at + in_ours[0], parent)
            return True
        in_theirs = _subsequence(dumps(bs), now)
        if in_theirs is not None:  # upstream only adds, at one end of what the patch replaces
            if in_theirs == list(range(len(bs))):
                self.put([], ts[len(bs) :], block, at + len(os), parent)
                return not any(isinstance(one, _LEAVING) for one in os)
            if in_theirs == list(range(len(ts) - len(bs), len(ts))):
                self.put([], ts[: len(ts) - len(bs)], block, at, parent)
                return True
        return False

    def _inside(self, bs: Sequence[ast.stmt], os: Sequence[ast.stmt], ts: Sequence[ast.stmt]) -> bool:
        """The patch has the old statements inside a block of its own: upstream's changes go there."""
        homes = [found for top in os for found in _homes(top, dumps(bs))]
        if len(homes) != 1:
            return False
        inner, first = homes[0]
        self.put(inner[first : first + len(bs)], ts, inner, first, None)
        return True

    def put(
        self, old: Sequence[ast.stmt], new: Sequence[ast.stmt], block: Sequence[ast.stmt], at: int, parent: Any
    ) -> None:
        """Replace `old`, which begins at index `at` of the patch's `block`, by upstream's statements."""
        if not old and not new:
            return
        if len(old) == len(block) and not new:
            self.clash("upstream left a block empty that the patch has", [], list(old), [])
            return
        if any(one.lineno == getattr(parent, "lineno", 0) for one in block) or _share_lines(block):
            self.clash("several statements share a line", list(old), list(old), list(new), textual=True)
            return
        column = block[0].col_offset if block else getattr(parent, "col_offset", 0) + 4
        text = "".join(self.theirs.statement(one, column) for one in new)
        if old:
            start = self.ours.line_start(self.ours.first_line_of(old[0]))
            end = self.ours.line_start((old[-1].end_lineno or 0) + 1)
            if new and not self.theirs.comments_of(new[0]):
                start = self.ours.line_start(first_line(old[0]))
            while not new and self.ours.text[:start].endswith("\n\n") and self.ours.text[end : end + 1] == "\n":
                end += 1
        elif at < len(block):
            start = end = self.ours.line_start(self.ours.first_line_of(block[at]))
        elif block:
            start = end = self.ours.line_start((block[-1].end_lineno or 0) + 1)
        else:
            self.clash("upstream fills a block that the patch left empty", [], [], list(new), textual=True)
            return
        self.edits.append(Edit(start, end, text))

    def stmt(self, b: ast.stmt, o: ast.stmt, t: ast.stmt) -> None:
        """One statement that all three have, changed or not."""
        if dump(b) == dump(t) or dump(o) == dump(t):
            return
        if dump(b) == dump(o):
            self._comments(b, o, t)
            if type(o) is type(t) and not isinstance(o, _Definition) and _is_block(o):
                self.headed(b, o, t)
            elif isinstance(o, _Definition):
                self.decorated(b, o, t)
            else:
                text = shift(self.theirs.rows(t.lineno, t.end_lineno or t.lineno), t.col_offset, o.col_offset)
                start, end = self.ours.line_start(o.lineno), self.ours.line_start((o.end_lineno or o.lineno) + 1)
                alone = not self.ours.text[start : self.ours.start_of(o)].strip()
                self.edits.append(Edit(start, end, text)) if alone else self.replace(o, t)
        elif (same := _assigned(b, o, t)) is not None:
            self.node(*same)
        elif type(b) is type(o) is type(t):
            if isinstance(o, _Definition):
                self.decorated(b, o, t)
            elif _is_block(o):
                self.headed(b, o, t)
            else:
                self.node(b, o, t)
        else:
            self.clash(_both([b], [t]), b, o, t)

    def _comments(self, b: ast.stmt, o: ast.stmt, t: ast.stmt) -> None:
        """Upstream's comment above a statement, where the patch has upstream's old one."""
        was, mine, now = self.base.comments_of(b), self.ours.comments_of(o), self.theirs.comments_of(t)
        if was == mine != now and (mine or self.ours.first_line_of(o) == first_line(o)):
            start = self.ours.line_start(self.ours.first_line_of(o))
            self.edits.append(Edit(start, self.ours.line_start(first_line(o)), shift(now, 0, o.col_offset)))

    def headed(self, b: Any, o: Any, t: Any) -> None:
        """A statement with blocks: its head by expressions, its blocks by statements."""
        for name in o._fields:
            parts: list[Any] = [getattr(one, name, None) for one in (b, o, t)]
            was, mine, now = parts
            if name in ("body", "orelse", "finalbody"):
                self.inner(was or [], mine or [], now or [], b, o, t)
            elif name == "handlers":
                if dumps(was) != dumps(now) and dumps(mine) != dumps(now):
                    self.clash("both changed what happens on an error", b, o, t)
            elif isinstance(mine, list):
                if len(was) == len(mine) == len(now):
                    for one in zip(was, mine, now, strict=True):
                        self.node(*one)
                elif dumps(was) != dumps(now):
                    self.clash(_both([b], [t]), b, o, t)
            elif isinstance(mine, ast.AST) and was is not None and now is not None:
                self.node(was, mine, now)

    def inner(self, bs: list[ast.stmt], os: list[ast.stmt], ts: list[ast.stmt], b: Any, o: Any, t: Any) -> None:
        """One block of a statement; an `else` comes or goes as a whole."""
        if dumps(bs) == dumps(ts) or dumps(os) == dumps(ts):
            return
        if bs and os and ts:
            self.block(bs, os, ts, o)
        elif not bs and not os:
            first = (t.body[-1].end_lineno or 0) + 1
            text = shift(self.theirs.rows(first, t.end_lineno), t.col_offset, o.col_offset)
            at = self.ours.line_start((o.end_lineno or 0) + 1)
            self.edits.append(Edit(at, at, text))
        elif not ts and dumps(bs) == dumps(os):
            start = self.ours.line_start((o.body[-1].end_lineno or 0) + 1)
            self.edits.append(Edit(start, self.ours.line_start((o.end_lineno or 0) + 1), ""))
        else:
            self.clash("both changed an else block", b, o, t)

    # Expressions

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
        elif self._wrapped(b, o, t):
            return
        elif not type(b) is type(o) is type(t):
            self.clash(_changed(b, t), b, o, t)
        elif isinstance(o, ast.Call):
            self.call(b, o, t)
        elif isinstance(o, (ast.Tuple, ast.List, ast.Set)):
            self.elements(b, o, t)
        elif isinstance(o, ast.Dict):
            was, mine, now = (_entries(code, one) for code, one in self._sides(b, o, t))
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
            self.clash(_changed(b, t), b, o, t)

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
                self.clash(_changed(b, t), b, o, t)
            elif _value(was) != _value(now):
                self.replace(o, t)
                return

    def call(self, b: ast.Call, o: ast.Call, t: ast.Call) -> None:
        """A call: what is called, and what is passed. One side may change one of both and not each the other."""
        args = [_arguments(code, one.args, one.keywords) for code, one in self._sides(b, o, t)]
        was, mine, now = ([item.dump for item in side] for side in args)
        ours_other, theirs_other = _callee(o) != _callee(b), _callee(t) != _callee(b)
        if (ours_other and was != now and mine != now) or (theirs_other and was != mine and mine != now):
            self.clash(
                f"one calls another function, and the other passes it other arguments ({_changed(b, t)})", b, o, t
            )
            return
        placed = [dumps(one.args) for one in (b, o, t)]
        if len({len(one) for one in placed}) > 1 and placed[0] != placed[1] and placed[0] != placed[2] != placed[1]:
            self.clash(f"both changed the positional arguments ({_changed(b, t)})", b, o, t)
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
        sides = [[_item(code, f"{mark}{dump(e)}", e) for e in one.elts] for code, one in self._sides(b, o, t)]
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
            self.clash(_changed(b, t), b, o, t)
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
            elif now[item.key].dump != item.dump:
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
        """One side put the old expression into another one: both hold."""
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

    def replace(self, o: Any, t: Any, *, loose: bool = False) -> None:
        """Upstream's expression instead of the patch's."""
        text = self.theirs.of(t)
        text = f"({text})" if loose else text
        self.edits.append(Edit(self.ours.start_of(o), self.ours.end_of(o), text))

    def _sides(self, b: Any, o: Any, t: Any) -> list[tuple[Code, Any]]:
        return [(self.base, b), (self.ours, o), (self.theirs, t)]

    def clash(self, reason: str, b: Any, o: Any, t: Any, *, textual: bool = False) -> None:
        """Record a place that is left to a person."""
        texts = [_text(code, one) for code, one in self._sides(b, o, t)]
        self.clashes.append(Clash(reason, texts[0], texts[2], texts[1], textual))


def _effects(code: Code, run: Sequence[ast.stmt]) -> dict[str, str] | None:
    """What a run of assignments leaves for the rest of its definition; None for other code."""
    inside = {id(one) for top in run for one in ast.walk(top)}
    outside = [one for one in ast.walk(code.node) if isinstance(one, ast.Name) and id(one) not in inside]
    found = results(run, {one.id for one in outside if isinstance(one.ctx, ast.Load)})
    return {name: ast.unparse(value) for name, value in found.items()} if found else None


def _assigned(b: ast.stmt, o: ast.stmt, t: ast.stmt) -> tuple[ast.expr, ast.expr, ast.expr] | None:
    """The values of three assignments to the same, which are not all annotated."""
    if not (isinstance(b, ast.AnnAssign) or isinstance(o, ast.AnnAssign) or isinstance(t, ast.AnnAssign)):
        return None
    was, mine, now = assignment(b), assignment(o), assignment(t)
    if was is None or mine is None or now is None or not dump(was[0]) == dump(mine[0]) == dump(now[0]):
        return None
    return was[1], mine[1], now[1]


def _doc(node: ast.Expr) -> str:
    assert isinstance(node.value, ast.Constant)
    return str(node.value.value)


def _parameters(code: Code, node: FunctionNode) -> list[Item]:
    args = node.args
    defaults: dict[str, ast.expr | None] = {
        name: None if one.default is one.empty else one.default for name, one in signature(node).parameters.items()
    }
    found = []
    for arg in [
        *args.posonlyargs,
        *args.args,
        *filter(None, [args.vararg]),
        *args.kwonlyargs,
        *filter(None, [args.kwarg]),
    ]:
        default = defaults.get(arg.arg)
        key = "**" if arg is args.kwarg else "*" if arg is args.vararg else arg.arg
        start = code.start_of(arg) - (len(key) if key in ("*", "**") else 0)
        end = code.end_of(default) if default is not None else code.end_of(arg)
        if default is not None:
            while code.text[start:end].count("(") > code.text[start:end].count(")"):
                end = code.text.index(")", end) + 1
        found.append(Item(key, f"{dump(arg)}={dump(default)}", start, end, (arg, default)))
    return found


def _kinds(node: FunctionNode) -> list[tuple[str, Any]]:
    return [(name, one.kind) for name, one in signature(node).parameters.items()]


def _differs(one: Item, other: Item) -> bool:
    """Whether two list elements of one key mean different things; the annotation of a parameter means nothing."""
    if isinstance(one.node, tuple) and isinstance(other.node, tuple):
        return dump(one.node[1]) != dump(other.node[1])
    return one.dump != other.dump


def _item(code: Code, key: str, node: Any) -> Item:
    return Item(key, dump(node), code.start_of(node), code.end_of(node), node)


def _arguments(code: Code, args: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> list[Item]:
    placed = [_item(code, f"#{index}", one) for index, one in enumerate(args)]
    named = [_item(code, one.arg or f"**{dump(one.value)}", one) for one in keywords]
    return sorted([*placed, *named], key=lambda one: one.start)


def _entries(code: Code, node: ast.Dict) -> list[Item]:
    found = []
    for key, value in zip(node.keys, node.values, strict=True):
        start = code.start_of(key) if key is not None else code.start_of(value) - 2
        found.append(Item(dump(key) or f"**{dump(value)}", dump(value), start, code.end_of(value), value))
    return found


def _own(bs: Sequence[Item], os: Sequence[Item]) -> list[Item]:
    """Keywords that only the patch passes."""
    return [one for one in os if isinstance(one.node, ast.keyword) and one.key not in {item.key for item in bs}]


def _by_position(item: Item) -> bool:
    return item.key.startswith("#")


def _callee(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else dump(node.func)


def _value(part: Any) -> Any:
    if isinstance(part, list):
        return [_value(one) for one in part]
    return dump(part) if isinstance(part, ast.AST) else part


def _operands(node: ast.expr) -> list[ast.expr]:
    return [one for one in ast.iter_child_nodes(node) if isinstance(one, ast.expr)]


def _shape(node: ast.expr) -> list[Any]:
    """What makes an expression of its operands, and how many they are."""
    return [dump(one) or "" if not isinstance(one, ast.expr) else None for one in ast.iter_child_nodes(node)]


def _is_block(node: ast.stmt) -> bool:
    return isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.AsyncFor, ast.AsyncWith))


def _share_lines(block: Sequence[ast.stmt]) -> bool:
    return any(one.end_lineno == after.lineno for one, after in itertools.pairwise(block))


def _run(block: Sequence[ast.stmt], wanted: Sequence[ast.stmt]) -> int | None:
    """Return the index of a run of statements in a block, whatever the names of its locals."""
    for start in range(len(block) - len(wanted) + 1):
        part = list(block[start : start + len(wanted)])
        if dumps(part) == dumps(wanted) or same_but_for_locals(part, list(wanted)):
            return start
    return None


def in_order(bs: Sequence[ast.stmt], ts: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Upstream's new statements with those back in their old order that it only put in another, to no effect."""
    was, found = dumps(bs), list(ts)
    for index in range(1, len(bs)):
        now = dumps(found)
        if now.count(was[index]) != 1 or now.count(was[index - 1]) != 1:
            continue
        here, there = now.index(was[index]), now.index(was[index - 1])
        if here < there and _independent(found[here : here + 1], found[here + 1 : there + 1]):
            found.insert(there, found.pop(here))
    return found


def _independent(some: Sequence[ast.stmt], others: Sequence[ast.stmt]) -> bool:
    """Whether two runs of statements may stand in either order."""
    return not _leaves([*some, *others]) and _disjoint(some, others)


def _leaves(run: Sequence[ast.stmt]) -> bool:
    return any(isinstance(inner, _LEAVING) for one in run for inner in ast.walk(one))


def _disjoint(some: Sequence[ast.stmt], others: Sequence[ast.stmt]) -> bool:
    """Whether neither of two runs of statements sets what the other reads or sets."""
    w, v = written(some), written(others)
    return not (w & (read(others) | v)) and not (v & read(some))


def _sets_locals(one: ast.stmt) -> bool:
    """Whether a statement does nothing but bind locals, to values that no call makes."""
    targets = one.targets if isinstance(one, ast.Assign) else []
    names = [name for top in targets for name in (top.elts if isinstance(top, ast.Tuple) else [top])]
    calls = any(isinstance(inner, (ast.Call, ast.Await)) for inner in ast.walk(one))
    return bool(names) and all(isinstance(name, ast.Name) for name in names) and not calls


def _orderly(
    before: Sequence[ast.stmt], after: Sequence[ast.stmt], bs: Sequence[ast.stmt], ts: Sequence[ast.stmt]
) -> bool:
    """Whether what the patch adds before and after old code can only stand before and after upstream's new code.

    It can where upstream sets each name that the addition reads or sets no oftener than it did, and once if the
    addition comes behind, and reads nothing more of what the addition sets.
    """
    for added, most in ((before, len(bs)), (after, 1)):
        sets = written(added)
        for name in read(added) | sets:
            was, now = (sum(name in written([one]) for one in run) for run in (bs, ts))
            if now > min(was, most):
                return False
        last = {name: index for index, one in enumerate(ts) for name in written([one])}
        for index, one in enumerate(ts):
            new = sets & read([one])
            if new - read(bs) or (added is after and any(index > last.get(name, index) for name in new)):
                return False
    return True


def _subsequence(part: Sequence[str], whole: Sequence[str]) -> list[int] | None:
    """The indices of `part` in `whole`, in order; None when it is not there."""
    found, start = [], 0
    for one in part:
        try:
            start = whole.index(one, start) + 1
        except ValueError:
            return None
        found.append(start - 1)
    return found


def _homes(top: ast.stmt, wanted: Sequence[str]) -> list[tuple[list[ast.stmt], int]]:
    """Blocks inside a statement that contain the wanted ones in a row, with the index of the first."""
    found = []
    for node in ast.walk(top):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                held = dumps(block)
                starts = range(len(held) - len(wanted) + 1)
                found += [(block, start) for start in starts if held[start : start + len(wanted)] == list(wanted)]
    return found


def _occurrences(part: ast.expr, whole: ast.expr) -> list[ast.expr]:
    wanted = dump(part)
    return [one for one in ast.walk(whole) if one is not whole and isinstance(one, ast.expr) and dump(one) == wanted]


def _text(code: Code, part: Any) -> str:
    if isinstance(part, list):
        return "".join(code.statement(one, 0) for one in part).rstrip()
    if isinstance(part, tuple):
        part = part[0]
    if isinstance(part, ast.stmt):
        return code.statement(part, 0).rstrip()
    return code.of(part) if isinstance(part, ast.AST) and hasattr(part, "lineno") else ""


def _short(code: Code, item: Item) -> str:
    return " ".join(code.text[item.start : item.end].split())[:80]


def _both(bs: Sequence[ast.AST], ts: Sequence[ast.AST]) -> str:
    names = sorted(written([*bs, *ts]) - {"self"})
    return f"both changed how {', '.join(names[:3])} is computed" if names else "both changed the same statements"


def _changed(b: ast.AST, t: ast.AST) -> str:
    was, now = (" ".join(ast.unparse(one).split())[:60] for one in (b, t))
    return f"both changed `{was}`; upstream's is `{now}`"
