"""Statements that upstream changed in one way wherever it had them: followed to where a patch moved them."""

import ast
from collections import Counter
from collections.abc import Iterator
from difflib import SequenceMatcher

from omni_kit.patchgen.spans import Edit, splice
from omni_kit.patchgen.upgrade.alignment import assignment
from omni_kit.patchgen.upgrade.code import Code, dump, dumps, read, stored
from omni_kit.patchgen.upgrade.contracts import simple
from omni_kit.pysource.nodes import without_docstring


def follow_everywhere(base: str, ours: str, theirs: str) -> tuple[str, str, str] | None:
    """Return three versions of a function, the first two with upstream's newer statements; None if there are none.

    A statement counts if the patch has it as often as upstream's old version, and the newer one assigns the same and
    reads no other local.
    """
    b, o, t = Code(base), Code(ours), Code(theirs)
    if any(isinstance(one.node, ast.ClassDef) for one in (b, o, t)):
        return None
    local = stored(o.node) - {"self"}
    counts = [Counter(dumps(_in_order(one))) for one in (b, o, t)]
    newer: dict[str, ast.stmt] = {}
    for was, now in _changed(b, t):
        targets = [pair and dump(pair[0]) for pair in (assignment(was), assignment(now))]
        again = dump(newer.setdefault(dump(was), now)) == dump(now)
        fresh = not counts[2][dump(was)] and not counts[0][dump(now)] and counts[0][dump(was)] == counts[1][dump(was)]
        if not (targets[0] and targets[0] == targets[1] and again and fresh) or (read([now]) - read([was])) & local:
            newer[dump(was)] = was
    newer = {was: now for was, now in newer.items() if dump(now) != was}
    if not newer:
        return None
    texts = {was: t.of(now) for was, now in newer.items()}
    base, ours = (
        splice(code.text, [Edit(code.start_of(one), code.end_of(one), texts[dump(one)]) for one in statements])
        for code, statements in ((code, [one for one in _in_order(code) if dump(one) in texts]) for code in (b, o))
    )
    return base, ours, theirs


def _changed(b: Code, t: Code) -> Iterator[tuple[ast.stmt, ast.stmt]]:
    bs, ts = _in_order(b), _in_order(t)
    for kind, start, end, here, there in SequenceMatcher(None, dumps(bs), dumps(ts), autojunk=False).get_opcodes():
        if kind == "replace" and end - start == there - here:
            yield from zip(bs[start:end], ts[here:there], strict=True)


def _in_order(code: Code) -> list[ast.stmt]:
    """Return the statements without blocks of a definition, as they stand."""
    found = [one for one in simple(ast.Module(list(without_docstring(code.node.body)), [])) if one.lineno]
    return sorted((one for one in found if not isinstance(one, ast.Expr)), key=lambda one: (one.lineno, one.col_offset))
