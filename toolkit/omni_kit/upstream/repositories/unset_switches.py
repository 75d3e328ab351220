"""Switches that forward reads and the constructor does not set: methods alone turn them on and off."""

import ast
import re
from collections.abc import Iterator

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import dotted
from omni_kit.upstream.repositories.constructed import constructs_base, with_texts
from omni_kit.upstream.repositories.helpers import reached

_INIT, _FORWARD = "__init__", "forward"
_OF_TORCH = "training"  # which the base's constructor sets
_IS_PLAIN = re.compile(r"(^|\.)(Module|\w*Mixin|object|ABC)$")  # bases that set no switches


def unset_switches(cls: ClassRef) -> list[str]:
    """Return the attributes of `self` that forward reads, and that other methods alone set, to True or False.

    A model whose constructor has run has none of them: its authors call one of these methods first.
    """
    forward, init = cls.method(_FORWARD), cls.method(_INIT)
    if (
        forward is None
        or init is None
        or not all(isinstance(one, ClassRef) or _IS_PLAIN.search(one) for one in cls.mro)
    ):
        return []
    homes = [one for one in cls.mro if isinstance(one, ClassRef)]
    methods = [one for home in homes for one in home.node.body if isinstance(one, ast.FunctionDef)]
    first = [home_init for home in homes if (home_init := home.defines(_INIT)) is not None]
    early = {id(one) for made in first for one in reached(cls, [made])}
    known = {name for one in methods if id(one) in early for name, _ in _set(one)}
    known |= {name for home in homes for one in home.node.body for name in _of_class(one)}
    late: dict[str, list[ast.expr]] = {}
    for one in (one for one in methods if id(one) not in early):
        for name, value in _set(one):
            late.setdefault(name, []).append(value)
    run = reached(cls, [forward[1]])
    known |= {name for one in run for name, _ in _set(one)}
    read = {name for one in run for name in _read(one)}
    switched = (name for name, values in late.items()
                if all(isinstance(one, ast.Constant) and isinstance(one.value, bool) for one in values))  # fmt: skip
    return [name for name in switched if name in read and name not in known and name != _OF_TORCH]


def with_switches_off(cls: ClassRef) -> ClassRef:
    """Return a class whose constructor turns such switches off; the lines of its file keep their numbers."""
    init = cls.defines(_INIT)
    names = unset_switches(cls) if init is not None else []
    calls = (one for one in init.body if isinstance(one, ast.Expr)) if init is not None and names else iter(())
    base = next((one for one in calls if isinstance(one.value, ast.Call) and constructs_base(one.value)), None)
    if base is None:
        return cls
    return with_texts(cls, [(base, "; ".join([ast.unparse(base), *(f"self.{name} = False" for name in names)]))])


def _set(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr]]:
    """Yield the attributes of `self` that a function sets, each with the value."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                pass
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                targets = [target]
            case _:
                continue
        parts = (part for one in targets for part in (one.elts if isinstance(one, ast.Tuple) else [one]))
        yield from ((name.removeprefix("self."), value) for one in parts
                    if (name := dotted(one) or "").startswith("self.") and name.count(".") == 1)  # fmt: skip


def _read(function: ast.FunctionDef) -> Iterator[str]:
    nodes = (one for one in ast.walk(function) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load))
    yield from (one.attr for one in nodes if dotted(one) == f"self.{one.attr}")


def _of_class(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement in the body of a class binds."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    yield from (one.id for one in targets if isinstance(one, ast.Name))
