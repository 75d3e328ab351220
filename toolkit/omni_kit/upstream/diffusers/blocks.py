"""Parts of a transformer that training sees: its blocks, and the order in which attention joins streams."""

import ast
from collections.abc import Iterator, Mapping, Sequence

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.parts import built_classes

# What a class of the library says of its blocks, the most to the point first.
_SAID = ("_no_split_modules", "_repeated_blocks")
_TOKENS = 1  # the dimension of tokens in [batch, tokens, width]


def block_classes(cls: ClassRef) -> tuple[list[str], str]:
    """Return the names of the classes that must not be split when a model is cut up, and where that was read.

    What the class declares; without a declaration, what its constructor puts into lists of modules.
    """
    for name in _SAID:
        found = cls.assigned(name)
        if found is not None and isinstance(found[1], ast.List) and found[1].elts:
            names = [item.value for item in found[1].elts if isinstance(item, ast.Constant)]
            return list(dict.fromkeys(map(str, names))), f"{name}, {found[0].source.where(found[1])}"
    init = cls.method("__init__")
    listed = list(dict.fromkeys(_listed(*init))) if init is not None else []
    return listed, init[0].source.where(init[1]) if init is not None and listed else ""


def _listed(home: ClassRef, init: ast.FunctionDef) -> Iterator[str]:
    """Yield the classes of the library in `ModuleList([...])`."""
    for call in ast.walk(init):
        if isinstance(call, ast.Call) and (dotted(call.func) or "").endswith("ModuleList"):
            inner = (node.func for node in ast.walk(call) if isinstance(node, ast.Call) and node is not call)
            names = [func.id for func in inner if isinstance(func, ast.Name)]
            yield from (name for name in names if home.source.resolve_class(name) is not None)


def joined_streams(cls: ClassRef, streams: Sequence[str]) -> tuple[str, ...] | None:
    """Return the order in which the processors of a model's attention join streams of tokens into one.

    Args:
        streams: arguments of processors that hold tokens, as "hidden_states".

    Returns:
        Nothing if none of them joins any; None if that cannot be determined.
    """
    folder = cls.source.path
    own = [one for _, one in built_classes(cls) if "Processor" in one.node.name and one.source.path == folder]
    orders = {order for one in own if (call := one.defines("__call__")) for order in _joins(call, streams)}
    return orders.pop() if len(orders) == 1 else (() if not orders else None)


def _joins(function: ast.FunctionDef, streams: Sequence[str]) -> Iterator[tuple[str, ...] | None]:
    """For each `torch.cat` along tokens that streams go into, their order; None if one part holds several."""
    held: dict[str, frozenset[str]] = {name: frozenset([name]) for name in streams}
    for node in sorted(ast.walk(function), key=lambda one: getattr(one, "lineno", 0)):
        if isinstance(node, ast.Call) and (dotted(node.func) or "").endswith("cat") and _along_tokens(node):
            parts = [_held(part, held) for part in getattr(node.args[0], "elts", [])]
            if sum(bool(part) for part in parts) > 1:
                yield tuple(min(part) for part in parts) if all(len(part) == 1 for part in parts) else None
        if isinstance(node, ast.Assign):
            found = _held(node.value, held)
            for name in _names(node.targets):
                held[name] = found


def _along_tokens(call: ast.Call) -> bool:
    dims = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg == "dim")]
    return bool(call.args) and any(isinstance(dim, ast.Constant) and dim.value == _TOKENS for dim in dims)


def _held(node: ast.AST, held: Mapping[str, frozenset[str]]) -> frozenset[str]:
    names = (one.id for one in ast.walk(node) if isinstance(one, ast.Name))
    return frozenset(stream for name in names for stream in held.get(name, ()))


def _names(targets: Sequence[ast.expr]) -> Iterator[str]:
    for target in targets:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                yield node.id
