"""A value that upstream computes in another way: followed to where the patch computes it.

Upstream may replace `indices = ...; logits = head(hidden[:, indices, :])` by a helper that slices. A patch that calls
`head` in a branch has no statement left to merge with. What changed is one value in one use, so the patch's own
expression of that value, in the same use, becomes upstream's new one.
"""

import ast
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from typing import TypeGuard

from omni_kit.patchgen.spans import Edit, first_line, splice
from omni_kit.patchgen.upgrade.alignment import assignment
from omni_kit.patchgen.upgrade.code import Code, dump, dumps, read, size, stored, written_out
from omni_kit.pysource.nodes import without_docstring

_TELLING = 4  # nodes of a value that is recognised in the patch
_HOLE = "hole'"
Values = dict[str, ast.expr]


def follow_values(base: str, ours: str, theirs: str) -> tuple[str, str, str] | None:
    """Return three versions of a function in which values that only upstream changed are the same; None if none is
    found.

    `base` and `theirs` get one spelling of the changed statements, and `ours` upstream's new value wherever it has the
    old one. A stretch counts when it assigns locals alone, and each local that is read behind it differs in one value.
    """
    b, o, t = Code(base), Code(ours), Code(theirs)
    if any(isinstance(one.node, ast.ClassDef) for one in (b, o, t)):
        return None
    edits: tuple[list[Edit], list[Edit], list[Edit]] = ([], [], [])
    bs, ts = (without_docstring(one.node.body) for one in (b, t))
    blocks = SequenceMatcher(None, dumps(bs), dumps(ts), autojunk=False).get_opcodes()
    for _, start, end, here, there in (one for one in blocks if one[0] == "replace"):
        was, now = results(bs[start:end], read(bs[end:])), results(ts[here:there], read(ts[there:]))
        changed = _changed(was, now) if was and now and was.keys() == now.keys() else None
        mine = _followed(o, *changed, b, bs[start:end]) if changed else None
        if mine is not None and now is not None:
            text = "".join(f"    {name} = {ast.unparse(value)}\n" for name, value in now.items())
            edits[0].append(_whole(b, bs[start:end], text))
            edits[1].extend(mine)
            edits[2].append(_whole(t, ts[here:there], text))
    if not edits[0]:
        return None
    base, ours, theirs = (splice(code.text, one) for code, one in zip((b, o, t), edits, strict=True))
    return base, ours, theirs


def _whole(code: Code, run: Sequence[ast.stmt], text: str) -> Edit:
    return Edit(code.line_start(run[0].lineno), code.line_start((run[-1].end_lineno or 0) + 1), text)


def results(run: Sequence[ast.stmt], wanted: set[str]) -> Values | None:
    """Return what assignments leave, written out: wanted locals, and an attribute that the last one sets.

    None for other code.
    """
    values: Values = {}
    kept: Values = {}
    for index, one in enumerate(run):
        pair = assignment(one)
        if pair is None or not (isinstance(pair[0], ast.Name) or index == len(run) - 1):
            return None
        value = written_out(pair[1], values)
        if isinstance(pair[0], ast.Name):
            values[pair[0].id] = value
        else:
            kept[ast.unparse(written_out(pair[0], values))] = value
    return {**{name: value for name, value in values.items() if name in wanted}, **kept}


def _changed(was: Values, now: Values) -> tuple[ast.expr, ast.expr, str] | None:
    """(old value, new value, its use with a hole) where exactly one differs."""
    found = [pair for name in was for pair in _pairs(was[name], now[name], "")]
    return found[0] if len(found) == 1 and size(found[0][0]) >= _TELLING else None


def _pairs(one: ast.AST, other: ast.AST, use: str) -> Iterator[tuple[ast.expr, ast.expr, str]]:
    """Yield the smallest expressions in which two trees differ, of those that are large enough to be recognised."""
    if dump(one) == dump(other):
        return
    parts = _parts(one, other)
    if parts is not None and all(isinstance(was, ast.expr) and size(was) >= _TELLING for was, _ in parts):
        for was, now in parts:
            yield from _pairs(was, now, _use(one, was))
    elif isinstance(one, ast.expr) and isinstance(other, ast.expr):
        yield one, other, use


def _parts(one: ast.AST, other: ast.AST) -> list[tuple[ast.AST, ast.AST]] | None:
    """Return the children in which two nodes of one form differ; None if they differ in more than children."""
    if type(one) is not type(other):
        return None
    here, there = list(ast.iter_child_nodes(one)), list(ast.iter_child_nodes(other))
    if len(here) != len(there):
        return None
    plain = [name for name, value in ast.iter_fields(one) if not isinstance(value, (list, ast.AST))]
    differ = [(a, z) for a, z in zip(here, there, strict=True) if dump(a) != dump(z)]
    if not differ or any(getattr(one, name) != getattr(other, name) for name in plain):
        return None
    found: list[tuple[ast.AST, ast.AST]] = []
    for a, z in differ:
        if not (isinstance(a, ast.keyword) and isinstance(z, ast.keyword)):
            found.append((a, z))
        elif a.arg == z.arg:
            found.append((a.value, z.value))
        else:
            return None
    return found


def _use(parent: ast.AST, value: ast.AST) -> str:
    """Return an expression with a hole instead of one part."""
    return dump_with(parent, {id(value)})


def dump_with(node: ast.AST, holes: set[int]) -> str:
    """Return the tree of a node as text, with holes."""

    class Holes(ast.NodeTransformer):
        def visit(self, one: ast.AST) -> ast.AST:
            return ast.Name(_HOLE, ast.Load()) if id(one) in holes else self._copied(one)

        def _copied(self, one: ast.AST) -> ast.AST:
            fields = {
                name: [self.visit(item) if isinstance(item, ast.AST) else item for item in value]
                if isinstance(value, list)
                else self.visit(value)
                if isinstance(value, ast.AST)
                else value
                for name, value in ast.iter_fields(one)
            }
            return type(one)(**fields)

    return ast.dump(Holes().visit(node))


def _followed(o: Code, was: ast.expr, now: ast.expr, use: str, b: Code, run: Sequence[ast.stmt]) -> list[Edit] | None:
    """Edits that give the patch the new value; None if it uses the old one in another way, or may mean another."""
    assert not isinstance(o.node, ast.ClassDef)
    mine = without_docstring(o.node.body)
    every = [one for top in mine for one in ast.walk(top) if isinstance(one, ast.stmt)]
    helping = [one for one in every if _helper(one, run)]
    helpers = {pair[0].id: pair[1] for one in helping if (pair := _helper(one, run))}
    if len(helpers) < len(helping):
        return None
    values: Values = {}
    for name, value in helpers.items():
        values[name] = written_out(value, values)
    places = [(node, parent) for node, parent in _within(mine) if _is(node, was, values)]
    if not places and any(
        _is(node, now, {}) and _used_alike(node, around, use, mine) for node, around in _within(mine)
    ):
        return []  # an earlier upgrade brought it
    if not places or not all(_used_alike(node, parent, use, mine) for node, parent in places):
        return None
    carried = [parent for node, parent in places if assignment(parent) is not None]  # type: ignore[arg-type]
    if carried and len(places) > 1:
        return None
    first = min([node.lineno for node, _ in places] + [one.lineno for one in helping])
    inputs = read([was, now]) - helpers.keys()
    if not _same_before(inputs, [one for one in mine if one not in carried], first, b, run):
        return None
    edits = [Edit(o.start_of(node), o.end_of(node), ast.unparse(now)) for node, _ in places]
    inside = {id(one) for node, _ in places for one in ast.walk(node)}
    inside |= {id(one) for top in helping for one in ast.walk(top)}
    named = [one for top in mine for one in ast.walk(top) if isinstance(one, ast.Name)]
    left = {one.id for one in named if id(one) not in inside}
    gone = [one for one in helping if (pair := _helper(one, run)) and pair[0].id not in left | read([now])]
    return edits + [_without(o, one, b, run) for one in gone]


def _without(o: Code, one: ast.stmt, b: Code, run: Sequence[ast.stmt]) -> Edit:
    """Take a statement out, with the comment above it if that is upstream's."""
    old = next(was for was in run if dump(was) == dump(one))
    first = o.first_line_of(one) if o.comments_of(one) == b.comments_of(old) else first_line(one)
    return Edit(o.line_start(first), o.line_start((one.end_lineno or 0) + 1), "")


def _used_alike(node: ast.expr, parent: ast.AST, use: str, mine: Sequence[ast.stmt]) -> bool:
    """Return whether the patch uses a value as upstream does: right there, or through the local that it assigns it
    to.
    """
    if dump_with(parent, {id(node)}) == use:
        return True
    if not isinstance(parent, ast.Assign) or parent not in mine or not isinstance(parent.targets[0], ast.Name):
        return False
    name, behind = parent.targets[0].id, mine[mine.index(parent) + 1 :]
    reads = [(one, around) for one, around in _within(behind) if isinstance(one, ast.Name) and one.id == name]
    return any(dump_with(around, {id(one)}) == use for one, around in reads)


def _helper(one: ast.stmt, run: Sequence[ast.stmt]) -> tuple[ast.Name, ast.expr] | None:
    """(name, value) of a statement of the patch that upstream's old stretch has, too."""
    pair = assignment(one)
    if pair is None or not isinstance(pair[0], ast.Name) or dump(one) not in dumps(run):
        return None
    return pair[0], pair[1]


def _within(block: Sequence[ast.stmt]) -> Iterator[tuple[ast.expr, ast.AST]]:
    """Yield every expression below statements, with the node around it; keywords count as part of their calls."""

    def below(parent: ast.AST, around: ast.AST) -> Iterator[tuple[ast.expr, ast.AST]]:
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, ast.expr):
                yield child, around
            yield from below(child, around if isinstance(child, ast.keyword) else child)

    for top in block:
        yield from below(top, top)


def _is(node: ast.expr, wanted: ast.expr, values: Values) -> bool:
    return type(node) is type(wanted) and ast.dump(written_out(node, values)) == ast.dump(wanted)


def _same_before(inputs: set[str], mine: Sequence[ast.stmt], first: int, b: Code, run: Sequence[ast.stmt]) -> bool:
    """Return whether the patch has set what the values read just as upstream's old code had, and does not set it
    again.
    """
    for name in inputs:
        ours = [one for top in mine for one in ast.walk(top) if _sets(one, name)]
        was = [one for one in ast.walk(b.node) if _sets(one, name) and one.lineno < run[0].lineno]
        if any(one.lineno >= first for one in ours) or [*map(_indexed, ours)] != [*map(_indexed, was)]:
            return False
    return True


def _indexed(one: ast.stmt) -> str:
    """Return the tree of a statement as text, with the first field of a model's result read by its index."""

    class Writer(ast.NodeTransformer):
        def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
            first = node.attr == "last_hidden_state" and isinstance(node.value, ast.Name)
            return ast.Subscript(node.value, ast.Constant(0), node.ctx) if first else self.generic_visit(node)

    return ast.dump(Writer().visit(ast.parse(ast.unparse(one))))


def _sets(node: ast.AST, name: str) -> TypeGuard[ast.stmt]:
    return isinstance(node, ast.stmt) and not hasattr(node, "body") and name in stored(ast.Module([node], []))
