"""Patches whose body stays as it is: they only raise, only leave code out, or make upstream's change already."""

import ast
import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher

from omni_kit.patchgen.upgrade.code import Code, dump, dumps, read, stored, written_out
from omni_kit.patchgen.upgrade.contracts import Upstream, simple
from omni_kit.patchgen.upgrade.expressions import added_methods
from omni_kit.pysource.nodes import without_docstring

_SELF = re.compile(r"\bself\.(\w+)")


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


def makes_already(base: str, mine: str, theirs: str, newer: ast.AST | None) -> bool:
    """Return whether the patch calls every method that upstream adds, on results of the same parts of `self`.

    Upstream's newer result is its old one with more calls of methods, and the patch uses those parts nowhere else.

    Args:
        newer: upstream's newer class, whose `__init__` may keep fields of its config as attributes.
    """
    nodes = [Code(one).node for one in (base, mine, theirs)]
    if any(isinstance(node, ast.ClassDef) for node in nodes):
        return False
    was, now = (_result(node.body) for node in (nodes[0], nodes[2]))
    more = added_methods(now, was) if was is not None and now is not None else None
    fields = _fields(newer) if newer is not None else {}
    own = [one for one in ast.walk(nodes[1]) if isinstance(one, ast.Call)]
    for call in more or ():
        made = [one for one in own if _method(one, fields) == _method(call, fields)]
        inside = {id(one) for top in made for one in ast.walk(top)}
        parts = set(_method(call, fields)[1])
        if not parts or any(_part(one) in parts and id(one) not in inside for one in ast.walk(nodes[1])):
            return False
        if not made:
            return False
    return bool(more)


def _result(body: Sequence[ast.stmt]) -> ast.expr | None:
    """Return what assignments and a return compute, written out; None for other code."""
    values: dict[str, ast.expr] = {}
    for one in without_docstring(body):
        match one:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                values[name] = written_out(value, values)
            case ast.Return(value=ast.expr() as value):
                return written_out(value, values)
            case _:
                return None
    return None


def _method(call: ast.Call, fields: Mapping[str, str]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """(the method, the parts of `self` that its receiver uses, its arguments) of a call."""
    if not isinstance(call.func, ast.Attribute):
        return "", (), ()
    parts = sorted({part for one in ast.walk(call.func.value) if (part := _part(one))})
    given = [ast.unparse(one) for one in (*call.args, *call.keywords)]
    return call.func.attr, tuple(parts), tuple(_SELF.sub(lambda one: fields.get(one[1], one[0]), arg) for arg in given)


def _part(node: ast.AST) -> str:
    match node:
        case ast.Attribute(value=ast.Name(id="self"), attr=name):
            return name
    return ""


def _fields(newer: ast.AST) -> dict[str, str]:
    """Attribute -> the field of the config that a class keeps in it."""
    found: dict[str, str] = {}
    for one in ast.walk(newer):
        match one:
            case ast.Assign(targets=[ast.Attribute(value=ast.Name(id="self"), attr=name)], value=ast.Attribute(
                value=ast.Name(id="config"), attr=field
            )):  # fmt: skip
                found[name] = f"self.config.{field}"
    return found


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
