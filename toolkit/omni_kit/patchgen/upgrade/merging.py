"""The three-way merge of one definition: upstream's old version, its new one, and the patch.

The text of the patch stays, and upstream's changes come in as edits of it. A place that both changed is a clash; the
merge never chooses.
"""

import ast
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from omni_kit.patchgen.spans import Edit, first_line, shift, splice
from omni_kit.patchgen.upgrade.alignment import align, assignment
from omni_kit.patchgen.upgrade.cases import match_cases
from omni_kit.patchgen.upgrade.code import Code, dump, dumps, read, stored, written
from omni_kit.patchgen.upgrade.declarations import Heads, parameter_names, parameters_of
from omni_kit.patchgen.upgrade.order import (
    LEAVING,
    disjoint,
    effects,
    homes,
    in_order,
    independent,
    leaves,
    orderly,
    passed_already,
    run_in,
    sets_locals,
    subsequence,
    unordered,
)
from omni_kit.patchgen.upgrade.outcome import Clash
from omni_kit.patchgen.upgrade.parts import Item
from omni_kit.patchgen.upgrade.sides import both
from omni_kit.pysource.nodes import without_docstring

_Definition = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_KEPT = 0.4  # of the old statements that upstream still has, in a function that was not rewritten
_SHORT = 4  # statements of a function that is too short to be rewritten
Moved = Callable[[ast.stmt], list[ast.stmt] | None]


@dataclass
class Merged:
    """The merged text, which is the patch's where something clashes."""

    text: str
    clashes: list[Clash] = field(default_factory=list)


def merge_definition(base: str, ours: str, theirs: str, moved: Moved | None = None, *, heads: bool = False) -> Merged:
    """Merge two descendants of `base`, each a definition from `def` or `class` on, dedented.

    Args:
        moved: what a statement that calls a new helper of upstream's amounts to, written out; None for others.
        heads: whether only parameters, annotations and docstrings merge, and the body stays the patch's.
    """
    merger = _Merger(Code(base), Code(ours), Code(theirs), moved=moved, heads=heads)
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
    """Return the patch with upstream's newer annotations of parameters where the old ones use names that are gone.

    Args:
        bound: whether the newer upstream has a name.
    """
    merger = _Merger(Code(base), Code(ours), Code(theirs))
    nodes = merger.base.node, merger.ours.node, merger.theirs.node
    if any(isinstance(one, ast.ClassDef) for one in nodes):
        return ours
    codes = merger.base, merger.ours, merger.theirs
    was, mine, now = ({one.key: one for one in parameters_of(c, n)} for c, n in zip(codes, nodes, strict=True))  # type: ignore[arg-type]
    for key in was.keys() & mine.keys() & now.keys():
        old = was[key].node[0].annotation
        if old is not None and not all(bound(one.id) for one in ast.walk(old) if isinstance(one, ast.Name)):
            merger.parameter(*(Item("", "", 0, 0, (side[key].node[0], None)) for side in (was, mine, now)))
    return splice(merger.ours.text, merger.edits)


@dataclass
class _Merger(Heads):
    moved: Moved | None = None
    heads: bool = False

    def definition(self, b: Any, o: Any, t: Any) -> None:
        """A function or class; its name is not compared, which a patch is free to choose."""
        if isinstance(b, ast.ClassDef) and isinstance(o, ast.ClassDef) and isinstance(t, ast.ClassDef):
            self.bases(b, o, t)
        elif all(isinstance(one, (ast.FunctionDef, ast.AsyncFunctionDef)) for one in (b, o, t)):
            self.parameters(b, o, t)
            self.returns(b, o, t)
        else:
            self.clash("a class and a function replace each other", b, o, t)
            return
        self.docstrings(b, o, t)
        bodies = without_docstring(b.body), without_docstring(o.body), without_docstring(t.body)
        if self.heads:
            return
        if isinstance(b, ast.ClassDef) or not self._rewritten(*bodies):
            self.block(*bodies, o)
        else:
            self.clash("upstream rewrote it, and the patch changes the old code", *bodies)

    def _rewritten(self, bs: Sequence[ast.stmt], os: Sequence[ast.stmt], ts: Sequence[ast.stmt]) -> bool:
        """Return whether upstream kept little of a function that the patch changes: lines that merge would mean
        nothing.
        """
        if dumps(bs) == dumps(os) or dumps(os) == dumps(ts):
            return False
        ts = self._inlined(bs, os, ts)
        there = {dump(one) for top in ts for one in ast.walk(top) if isinstance(one, ast.stmt)}
        was = [one for top in bs for one in ast.walk(top) if isinstance(one, ast.stmt)]
        kept = sum(dump(one) in there for one in was) + sum(bs[a] is not ts[z] for a, z in align(bs, ts).items()) / 2
        return len(was) > _SHORT and kept < _KEPT * len(was)

    def decorated(self, b: Any, o: Any, t: Any) -> None:
        """A definition inside a class or function, with its decorators."""
        self.decorators(b, o, t)
        self.definition(b, o, t)

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
                if not self._fallback(bs[index], os[there[1]], ts[there[2]], os[there[1] + 1 :]):
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
        elif bs and effects(self.base, bs) == effects(self.theirs, ts) is not None:
            return  # upstream only spells it in another way
        elif not bs:
            self._both_inserted(os, ts, block, at, parent)
        elif not (
            self._inside(bs, os, ts, block, at, parent)
            or self._finer(bs, os, ts, block, at, parent)
            or passed_already(bs, os, ts)
            or self._passed_in(bs, os, ts)
            or self._adopted(bs, os, ts, block, at, parent)
            or self._beside(bs, os, ts, block, at, parent)
        ):
            self.clash(both(bs, ts), *map(list, (bs, os, ts)))

    def _fallback(self, b: ast.stmt, o: ast.stmt, t: ast.stmt, behind: Sequence[ast.stmt]) -> bool:
        """Return the patch sets a local in its own way, and in a block behind as upstream did: upstream's change goes
        there.

        The patch must not set what upstream's newer statement reads.
        """
        targets = {pair and dump(pair[0]) for pair in map(assignment, (b, o, t))}
        found = [home for top in behind for home in homes(top, [dump(b)])]
        if len(targets) > 1 or None in targets or dump(b) in (dump(o), dump(t)) or len(found) != 1:
            return False
        if read([t]) & written([o]):
            return False
        inner, first = found[0]
        self.put([inner[first]], [t], inner, first, None)
        return True

    def _inlined(self, bs: Sequence[ast.stmt], os: Sequence[ast.stmt], ts: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return upstream's statements; where it only moved some to a new helper and the patch changes them, the old
        ones.
        """
        found: list[ast.stmt] = []
        for one in ts:
            body = self.moved(one) if self.moved is not None else None
            run = run_in(bs, body) if body else None
            kept = run is not None and subsequence(dumps(bs[run : run + len(body or ())]), dumps(os)) is not None
            found += [one] if run is None or kept else bs[run : run + len(body or ())]
        return found

    def _both_inserted(
        self, os: Sequence[ast.stmt], ts: Sequence[ast.stmt], block: Sequence[ast.stmt], at: int, parent: Any
    ) -> None:
        new = [one for one in ts if dump(one) not in dumps(os)]
        if independent(os, new):
            self.put([], new, block, at, parent)
        elif leaves(os) and all(map(sets_locals, new)) and disjoint(os, new):
            self.put([], new, block, at + len(os), parent)
        else:
            self.clash("both add code here, and one depends on the other", [], list(os), list(ts))

    def _finer(
        self, bs: Sequence[ast.stmt], os: Sequence[ast.stmt], ts: Sequence[ast.stmt],
        block: Sequence[ast.stmt], at: int, parent: Any,
    ) -> bool:  # fmt: skip
        """Return one side only adds statements, next to what the other replaces."""
        mine, now = dumps(os), dumps(ts)
        in_ours = subsequence(dumps(bs), mine)
        if in_ours is not None:  # the patch only adds; upstream replaces
            kept = [os[index] for index in in_ours]
            added = [one for index, one in enumerate(os) if index not in in_ours]
            theirs = subsequence(dumps(bs), now)
            new = ts if theirs is None else [one for index, one in enumerate(ts) if index not in theirs]
            first, last = in_ours[0], in_ours[-1]
            apart = independent(added, new) and independent(added, bs if theirs is None else [])
            if last - first >= len(in_ours) or not (apart or orderly(os[:first], os[last + 1 :], bs, ts)):
                return False
            self.put(kept, ts, block, at + in_ours[0], parent)
            return True
        in_theirs = subsequence(dumps(bs), now)
        if in_theirs is not None:  # upstream only adds, at one end of what the patch replaces
            if in_theirs == list(range(len(bs))):
                self.put([], ts[len(bs) :], block, at + len(os), parent)
                return not any(isinstance(one, LEAVING) for one in os)
            if in_theirs == list(range(len(ts) - len(bs), len(ts))):
                self.put([], ts[: len(ts) - len(bs)], block, at, parent)
                return True
        return False

    def _inside(
        self, bs: Sequence[ast.stmt], os: Sequence[ast.stmt], ts: Sequence[ast.stmt],
        block: Sequence[ast.stmt], at: int, parent: Any,
    ) -> bool:  # fmt: skip
        """The patch has the old statements inside a block of its own: upstream's changes of them go there.

        A `with` holds what the patch put there: what upstream adds before and after it stays outside.
        """
        found = [home for top in os for home in homes(top, dumps(bs))]
        if len(found) != 1:
            return False
        inner, first = found[0]
        if len(os) == 1 and isinstance(os[0], (ast.With, ast.AsyncWith)) and (kept := align(bs, ts).values()):
            self.put([], ts[: min(kept)], block, at, parent)
            self.put([], ts[max(kept) + 1 :], block, at + 1, parent)
            ts = ts[min(kept) : max(kept) + 1]
        if dumps(bs) != dumps(ts):
            self.put(inner[first : first + len(bs)], ts, inner, first, None)
        return True

    def _passed_in(self, bs: Sequence[ast.stmt], os: Sequence[ast.stmt], ts: Sequence[ast.stmt]) -> bool:
        """The patch takes as parameters what upstream computes here, so the computation may change."""
        params = [set(parameter_names(code.node)) for code in (self.ours, self.base)]
        sets = written([*bs, *ts])
        return not os and bool(sets) and all(map(assignment, [*bs, *ts])) and sets <= params[0] - params[1]

    def _adopted(
        self, bs: Sequence[ast.stmt], os: Sequence[ast.stmt], ts: Sequence[ast.stmt],
        block: Sequence[ast.stmt], at: int, parent: Any,
    ) -> bool:  # fmt: skip
        """The patch has all of upstream's new statements already, and otherwise old ones, which upstream dropped."""
        was, mine, now = ([unordered(one) for one in side] for side in (bs, os, ts))
        if not now or not set(now) <= set(mine) <= {*was, *now} or [one for one in mine if one in now] != now:
            return False
        for index, one in enumerate(mine):
            if one not in now:
                self.put([os[index]], [], block, at + index, parent)
        return True

    def _beside(
        self, bs: Sequence[ast.stmt], os: Sequence[ast.stmt], ts: Sequence[ast.stmt],
        block: Sequence[ast.stmt], at: int, parent: Any,
    ) -> bool:  # fmt: skip
        """Upstream adds assignments of new locals, and computes otherwise only what the patch has no use for.

        An assignment comes behind the last statement of the block that sets what it reads. The patch has to use those
        locals as upstream does: in a statement behind it that it left alone.
        """
        here = {one.id for one in ast.walk(self.ours.node) if isinstance(one, ast.Name)} | set(
            parameter_names(self.ours.node)
        )
        places: dict[int, list[ast.stmt]] = {}
        pairs = align(bs, ts)
        changed = [(bs[a], ts[z]) for a, z in pairs.items() if dump(bs[a]) != dump(ts[z])]
        if len(pairs) < len(bs) or any(written([*one]) & here for one in changed):
            return False
        known = dumps([one for one in ast.walk(self.base.node) if isinstance(one, ast.stmt)])
        for new in (one for index, one in enumerate(ts) if index not in pairs.values()):
            needs = read([new]) & stored(self.theirs.node) - set(parameter_names(self.theirs.node))
            last = max((i for i, one in enumerate(block) if written([one]) & needs), default=-1)
            behind = [one for top in block[last + 1 :] for one in ast.walk(top) if isinstance(one, ast.stmt)]
            alike = any(needs <= read([one]) and dump(one) in known for one in behind)
            if not (assignment(new) and needs and last >= at and alike) or written([new]) & here:
                return False
            places.setdefault(last + 1, []).append(new)
        for place, more in places.items():
            self.put([], more, block, place, parent)
        return bool(places)

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
            notes = [getattr(one, "annotation", None) for one in (b, o, t)]
            if all(notes) and dump(notes[0]) == dump(notes[1]):
                self.replace(notes[1], notes[2])
        elif type(b) is type(o) is type(t):
            if isinstance(o, _Definition):
                self.decorated(b, o, t)
            elif _is_block(o):
                self.headed(b, o, t)
            else:
                self.node(b, o, t)
        else:
            self.clash(both([b], [t]), b, o, t)

    def _comments(self, b: ast.stmt, o: ast.stmt, t: ast.stmt) -> None:
        """Upstream's comment above a statement, where the patch has upstream's old one."""
        was, mine, now = self.base.comments_of(b), self.ours.comments_of(o), self.theirs.comments_of(t)
        if was == mine != now and (mine or self.ours.first_line_of(o) == first_line(o)):
            start = self.ours.line_start(self.ours.first_line_of(o))
            self.edits.append(Edit(start, self.ours.line_start(first_line(o)), shift(now, 0, o.col_offset)))

    def headed(self, b: Any, o: Any, t: Any) -> None:
        """A statement with blocks: its head by expressions, its blocks by statements."""
        if isinstance(o, ast.If) and self._cases(b, o, t):
            return
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
                    self.clash(both([b], [t]), b, o, t)
            elif isinstance(mine, ast.AST) and was is not None and now is not None:
                self.node(was, mine, now)

    def _cases(self, b: ast.If, o: ast.If, t: ast.If) -> bool:
        """Merge `if` and `elif` case by case, if their tests explain what changed."""
        found = match_cases(b, o, t)
        for was, mine, now in found.shared if found else ():
            self.inner(was.body, mine.body, now.body, was, mine, now)
        for case in found.gone if found else ():
            start, end = (self.ours.line_start(line) for line in (case.lineno, (case.body[-1].end_lineno or 0) + 1))
            self.edits.append(Edit(start, end, ""))
        if found:
            was, mine, now = found.last
            self.inner(was.orelse, mine.orelse, now.orelse, was, mine, now)
        return found is not None

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


def _assigned(b: ast.stmt, o: ast.stmt, t: ast.stmt) -> tuple[ast.expr, ast.expr, ast.expr] | None:
    """Return the values of three assignments to the same, which are not all annotated."""
    if not (isinstance(b, ast.AnnAssign) or isinstance(o, ast.AnnAssign) or isinstance(t, ast.AnnAssign)):
        return None
    was, mine, now = assignment(b), assignment(o), assignment(t)
    if was is None or mine is None or now is None or not dump(was[0]) == dump(mine[0]) == dump(now[0]):
        return None
    return was[1], mine[1], now[1]


def _is_block(node: ast.stmt) -> bool:
    return isinstance(node, (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.AsyncFor, ast.AsyncWith))


def _share_lines(block: Sequence[ast.stmt]) -> bool:
    return any(one.end_lineno == after.lineno for one, after in itertools.pairwise(block))
