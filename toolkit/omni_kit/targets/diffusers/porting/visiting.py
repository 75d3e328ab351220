"""Walks and changes of concrete syntax. Nodes never change, so that what is found out about one is kept."""

from collections.abc import Iterator, Sequence
from dataclasses import MISSING, fields
from functools import cache, lru_cache
from typing import Any, TypeVar, cast

import libcst as cst

# What separates words, of which nothing asks.
_SPACE = (cst.SimpleWhitespace, cst.Newline)

Node = TypeVar("Node", bound=cst.CSTNode)


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """Yield a node and all below it but spaces."""
    left = [node]
    while left:
        yield (one := left.pop())
        left += _children(one)


def visited(node: Node, *changes: cst.CSTTransformer) -> Node:
    """Return a node after one change and the next; none of them removes it.

    What contains nothing that a change has a method for stays the same object; libcst's own `visit` makes all of it
    again.
    """
    for change in changes:
        own = type(change)
        everywhere = own.on_visit is not cst.CSTTransformer.on_visit or own.on_leave is not cst.CSTTransformer.on_leave
        node = cast(Node, node.visit(change) if everywhere else _Visit(change).changed(node))
    return node


class _Visit:
    """One change on its way through a tree."""

    def __init__(self, change: cst.CSTTransformer) -> None:
        self._change = change
        self._kinds, self._hooks_attributes = _hooks(type(change))
        self._mask = sum(map(_bit, self._kinds))

    def changed(self, node: cst.CSTNode) -> Any:
        """Return what a change makes of a node: another one, several, or that there is none."""
        if not _below(node) & self._mask:
            return node
        if type(node) not in self._kinds:
            return self._inside(node)
        return self._change.on_leave(node, self._inside(node) if self._change.on_visit(node) else node)

    def _inside(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return a node with what is directly below it changed."""
        found: dict[str, Any] = {}
        for name in _attributes(node):
            if self._hooks_attributes:
                self._change.on_visit_attribute(node, name)
            before = getattr(node, name)
            if isinstance(before, cst.CSTNode):
                after = self._one(node, name, before)
            elif isinstance(before, list | tuple):
                after = self._several(before, in_body=isinstance(node, cst.IndentedBlock | cst.Module))
            else:
                after = before
            if after is not before:
                found[name] = after
            if self._hooks_attributes:
                self._change.on_leave_attribute(node, name)
        return node.with_changes(**found) if found else node

    def _one(self, parent: cst.CSTNode, name: str, node: cst.CSTNode) -> object:
        after = self.changed(node)
        if isinstance(after, cst.CSTNode):
            return after
        default = next(one.default for one in fields(parent) if one.name == name)
        if not isinstance(after, cst.RemovalSentinel) or default is MISSING:
            raise TypeError(f"a {type(parent).__name__} has exactly one {name}, not {after!r}")
        return default

    def _several(self, nodes: Sequence[cst.CSTNode], *, in_body: bool) -> Sequence[cst.CSTNode]:
        after: list[cst.CSTNode] = []
        for node in nodes:
            made = self.changed(node)
            if made is node:
                after.append(node)
                continue
            several = made if isinstance(made, cst.FlattenSentinel) else [made]
            kept = [one for one in several if not isinstance(one, cst.RemovalSentinel)]
            after += [one for one in kept if not (in_body and _is_empty(one) and not _is_empty(node))]
        same = len(after) == len(nodes) and all(map(_is, after, nodes))
        return nodes if same else tuple(after)


def _is(one: object, other: object) -> bool:
    return one is other


def _is_empty(node: cst.CSTNode) -> bool:
    """Return whether nothing is left of a line of statements."""
    return isinstance(node, cst.SimpleStatementLine) and not node.body


@lru_cache(maxsize=2**17)
def _children(node: cst.CSTNode) -> Sequence[cst.CSTNode]:
    """Return what is directly below a node, the last first, without spaces."""
    found: list[cst.CSTNode] = []
    for name in _attributes(node):
        value = getattr(node, name)
        if isinstance(value, cst.CSTNode):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += value
    return [one for one in reversed(found) if not isinstance(one, _SPACE)]


@lru_cache(maxsize=2**17)
def _below(node: cst.CSTNode) -> int:
    """Return the kinds of a node and of all below it, a bit for each."""
    bits = _bit(type(node))
    for child in _children(node):
        bits |= _below(child)
    return bits


@cache
def _bit(kind: type[cst.CSTNode]) -> int:
    return 1 << _bit.cache_info().currsize


@cache
def _hooks(change: type[cst.CSTTransformer]) -> tuple[frozenset[type[cst.CSTNode]], bool]:
    """Return the kinds of nodes that a change has methods for, and whether it has some for attributes of nodes."""
    own = [one.split("_", 2)[1:] for one in dir(change) if one.startswith(("visit_", "leave_"))
           and getattr(change, one) is not getattr(cst.CSTTransformer, one, None)]  # fmt: skip
    return frozenset(getattr(cst, kind) for kind, *_ in own), any(attribute for _, *attribute in own)


# Of every other kind, any node tells all of them; this one has a last one of its own now and then.
_IN_ORDER: dict[type[cst.CSTNode], Sequence[str]] = {
    cst.FormattedStringExpression: (
        "whitespace_before_expression", "expression", "equal", "whitespace_after_expression", "format_spec",
    ),
}  # fmt: skip


def _attributes(node: cst.CSTNode) -> Sequence[str]:
    """Return the attributes that hold what is below a node, as they stand in its text: those of its kind."""
    if (kind := type(node)) not in _IN_ORDER:
        node.visit(order := _Order(node))
        _IN_ORDER[kind] = order.names
    return _IN_ORDER[kind]


class _Order(cst.CSTVisitor):
    def __init__(self, node: cst.CSTNode) -> None:
        self._node = node
        self.names: list[str] = []

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node is self._node

    def on_visit_attribute(self, node: cst.CSTNode, attribute: str) -> None:
        self.names.append(attribute)
