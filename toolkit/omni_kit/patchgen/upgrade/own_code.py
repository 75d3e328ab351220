"""Patches whose body stays as it is, whatever upstream changes: they only raise, or only leave code out."""

import ast
from difflib import SequenceMatcher

from omni_kit.patchgen.upgrade.code import Code, dump, dumps, read, stored
from omni_kit.patchgen.upgrade.contracts import Upstream, simple
from omni_kit.pysource.nodes import without_docstring


def refuses(mine: str) -> bool:
    """Return whether the patch is a function that only raises."""
    node = Code(mine).node
    return not isinstance(node, ast.ClassDef) and [type(one) for one in without_docstring(node.body)] == [ast.Raise]


def leaves_out(base: str, mine: str, theirs: str) -> bool:
    """Return whether the patch only leaves out code, and upstream changed nothing else.

    Upstream may have as many statements in a place as the patch leaves out there, and more that need what those set.
    """
    nodes = [Code(one).node for one in (base, mine, theirs)]
    if any(isinstance(node, ast.ClassDef) for node in nodes):
        return False
    was, own, now = (_in_order(ast.Module(list(without_docstring(node.body)), [])) for node in nodes)
    kept = set(dumps(own))
    left = [one for one in was if dump(one) not in kept]
    lost = stored(ast.Module(left, [])) - stored(ast.Module(own, []))
    for _, start, end, here, there in SequenceMatcher(None, dumps(was), dumps(now), autojunk=False).get_opcodes():
        old, new = was[start:end], now[here:there]
        alone = [one for one in new if not read([one]) & lost]
        if dumps(old) != dumps(new) and (kept & set(dumps(old)) or len(alone) > len(old)):
            return False
    return kept <= set(dumps(was)) & set(dumps(now)) and len(own) < len(was)


def _in_order(body: ast.Module) -> list[ast.stmt]:
    return sorted(simple(body), key=lambda one: (one.lineno, one.col_offset))


def is_private(target: str, before: Upstream, after: Upstream, patched: set[str]) -> bool:
    """Return whether patches of the config alone read what the target returns, and upstream passes it nothing new."""
    was, now = before.readers(target), after.readers(target)
    known = {(one.target, dump(part)) for calls in was.values() for one in calls for part in _passed(one.node)}
    new = {(one.target, dump(part)) for calls in now.values() for one in calls for part in _passed(one.node)}
    return bool(was) and was.keys() | now.keys() <= patched and new <= known


def _passed(call: ast.Call) -> list[ast.expr | ast.keyword]:
    return [*call.args, *call.keywords]
