"""Runs of statements: where one occurs in another, and whether two may stand in either order."""

import ast
import itertools
from collections.abc import Sequence

from omni_kit.patchgen.spans import Edit, splice
from omni_kit.patchgen.upgrade.code import Code, dump, dumps, read, written
from omni_kit.patchgen.upgrade.renames import same_but_for_locals
from omni_kit.patchgen.upgrade.values import results
from omni_kit.pysource.source import dotted

LEAVING = (ast.Return, ast.Raise, ast.Continue, ast.Break)


def in_order(bs: Sequence[ast.stmt], ts: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return upstream's new statements with those back in their old order that it only put in another, to no effect."""
    was, found = dumps(bs), list(ts)
    for index in range(1, len(bs)):
        now = dumps(found)
        if now.count(was[index]) != 1 or now.count(was[index - 1]) != 1:
            continue
        here, there = now.index(was[index]), now.index(was[index - 1])
        if here < there and independent(found[here : here + 1], found[here + 1 : there + 1]):
            found.insert(there, found.pop(here))
    return found


def independent(some: Sequence[ast.stmt], others: Sequence[ast.stmt]) -> bool:
    """Return whether two runs of statements may stand in either order."""
    return not leaves([*some, *others]) and disjoint(some, others)


def disjoint(some: Sequence[ast.stmt], others: Sequence[ast.stmt]) -> bool:
    """Return whether neither of two runs of statements sets what the other reads or sets."""
    w, v = written(some), written(others)
    return (not (w & (read(others) | v)) and not (v & read(some))) or _other_attributes(some, others)


def _other_attributes(some: Sequence[ast.stmt], others: Sequence[ast.stmt]) -> bool:
    """Return whether two runs only set attributes, none of which the other sets or reads, and one of them calls
    nothing.
    """
    runs = [[one for top in run for one in ast.walk(top)] for run in (some, others)]
    only = all(isinstance(one, ast.Assign) and all(map(_attribute, one.targets)) for one in [*some, *others])
    if not only or all(any(isinstance(one, ast.Call) for one in run) for run in runs):
        return False
    inner = {id(one.value) for run in runs for one in run if isinstance(one, ast.Attribute)}
    used = [[one for one in run if id(one) not in inner and _path(one)] for run in runs]
    sets = [{_path(one) for one in run if isinstance(one.ctx, ast.Store)} for run in used]  # type: ignore[attr-defined]
    pairs = itertools.chain(*(itertools.product(sets[k], map(_path, used[1 - k])) for k in (0, 1)))
    return not any(a.startswith(z) or z.startswith(a) for a, z in pairs)


def _attribute(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and bool(dotted(target))


def _path(node: ast.AST) -> str:
    """Return a name or dotted attribute, with a dot behind it; empty for anything else."""
    name = dotted(node) if isinstance(node, (ast.Name, ast.Attribute)) else None
    return f"{name}." if name else ""


def orderly(
    before: Sequence[ast.stmt], after: Sequence[ast.stmt], bs: Sequence[ast.stmt], ts: Sequence[ast.stmt]
) -> bool:
    """Return whether what the patch adds before and after old code can only stand before and after upstream's new code.

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


def leaves(run: Sequence[ast.stmt]) -> bool:
    """Return whether a statement may end the block or the function."""
    return any(isinstance(inner, LEAVING) for one in run for inner in ast.walk(one))


def sets_locals(one: ast.stmt) -> bool:
    """Return whether a statement does nothing but bind locals, to values that no call makes."""
    targets = one.targets if isinstance(one, ast.Assign) else []
    names = [name for top in targets for name in (top.elts if isinstance(top, ast.Tuple) else [top])]
    calls = any(isinstance(inner, (ast.Call, ast.Await)) for inner in ast.walk(one))
    return bool(names) and all(isinstance(name, ast.Name) for name in names) and not calls


def effects(code: Code, run: Sequence[ast.stmt]) -> dict[str, str] | None:
    """Return the values that assignments leave for the rest of their definition; None for other code."""
    inside = {id(one) for top in run for one in ast.walk(top)}
    outside = [one for one in ast.walk(code.node) if isinstance(one, ast.Name) and id(one) not in inside]
    found = results(run, {one.id for one in outside if isinstance(one.ctx, ast.Load)})
    return {name: ast.unparse(value) for name, value in found.items()} if found else None


def without_unread(text: str, dropped: set[str]) -> str:
    """Return a definition without plain assignments of locals that upstream dropped and nothing reads any more."""
    code = Code(text)
    unread = dropped - read([code.node])
    edits = []
    for block in (getattr(one, name, None) for one in ast.walk(code.node) for name in ("body", "orelse")):
        for one in block if isinstance(block, list) and len(block) > 1 else ():
            match one:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Name() | ast.Constant()) if name in unread:
                    start, end = code.line_start(one.lineno), code.line_start((one.end_lineno or 0) + 1)
                    edits.append(Edit(start, end, ""))
    return splice(code.text, edits) if edits else text


def run_in(block: Sequence[ast.stmt], wanted: Sequence[ast.stmt]) -> int | None:
    """Return the index of a run of statements in a block, whatever the names of its locals."""
    for start in range(len(block) - len(wanted) + 1):
        part = list(block[start : start + len(wanted)])
        if dumps(part) == dumps(wanted) or same_but_for_locals(part, list(wanted)):
            return start
    return None


def unordered(one: ast.stmt) -> str:
    """Return the syntax tree of a statement as text, whatever the order of plain conditions that `and` or `or`
    joins.
    """

    class Sorter(ast.NodeTransformer):
        def visit_BoolOp(self, node: ast.BoolOp) -> ast.BoolOp:
            self.generic_visit(node)
            plain = (
                ast.Compare,
                ast.Name,
                ast.Constant,
                ast.UnaryOp,
                ast.operator,
                ast.unaryop,
                ast.cmpop,
                ast.expr_context,
            )
            if all(isinstance(inner, plain) for value in node.values for inner in ast.walk(value)):
                node.values.sort(key=ast.dump)
            return node

    return ast.dump(Sorter().visit(ast.parse(ast.unparse(one)).body[0]))


def subsequence(part: Sequence[str], whole: Sequence[str]) -> list[int] | None:
    """Return the indices of `part` in `whole`, in order; None when it is not there."""
    found, start = [], 0
    for one in part:
        try:
            start = whole.index(one, start) + 1
        except ValueError:
            return None
        found.append(start - 1)
    return found


def homes(top: ast.stmt, wanted: Sequence[str]) -> list[tuple[list[ast.stmt], int]]:
    """Return blocks inside a statement that contain the wanted ones in a row, with the index of the first."""
    found = []
    for node in ast.walk(top):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                held = dumps(block)
                starts = range(len(held) - len(wanted) + 1)
                found += [(block, start) for start in starts if held[start : start + len(wanted)] == list(wanted)]
    return found


def passed_already(bs: Sequence[ast.stmt], os: Sequence[ast.stmt], ts: Sequence[ast.stmt]) -> bool:
    """Return whether upstream only passes more keywords to functions, and the patch passes them wherever it calls
    those.
    """
    copy = ast.parse("\n".join(map(ast.unparse, ts)))
    was, mine, now = (_calls(one) for one in (ast.Module(list(bs), []), ast.Module(list(os), []), copy))
    for before, after in zip(was, now, strict=False):
        new = {ast.dump(one) for one in after.keywords} - set(dumps(before.keywords))
        passed = [set(dumps(one.keywords)) for one in mine if dump(one.func) == ast.dump(after.func)]
        if new and not (passed and all(map(new.issubset, passed))):
            return False
        after.keywords = [one for one in after.keywords if ast.dump(one) not in new]
    return [ast.dump(one) for one in copy.body] == dumps(bs)


def _calls(top: ast.AST) -> list[ast.Call]:
    return [one for one in ast.walk(top) if isinstance(one, ast.Call)]
