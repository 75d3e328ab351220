"""A constructor that reads its settings from a mapping of a module, which a program fills: `hparams["width"]`."""

import ast
from dataclasses import dataclass

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.reads import field_read, literal
from omni_kit.pysource.source import dotted
from omni_kit.upstream.repositories.closure import bound_in, closure_of
from omni_kit.upstream.repositories.constructed import with_lines
from omni_kit.upstream.repositories.names import Defined, resolve

_INIT = "__init__"


@dataclass(frozen=True)
class Shared:
    """The mapping.

    Attributes:
        module: where it is defined.
        name: what it is called there.
    """

    module: str
    name: str


def with_settings_passed(cls: ClassRef) -> tuple[ClassRef, Shared | None]:
    """Return a class with its module's mapping as the first argument of its constructor, and that mapping.

    Any other class stays as it is: one with several such mappings, one that does more with it than read fields in the
    constructor, and one of whose parts another reads it, too.
    """
    init = cls.defines(_INIT)
    if init is None or not init.args.args:
        return cls, None
    found = {name: meant for name in _read_by_key(init) if (meant := resolve(cls.source, name)) is not None}
    empty = {name: one for name, one in found.items() if isinstance(one, Defined) and _is_empty(one.node)}
    if len(empty) != 1:
        return cls, None
    name, mapping = empty.popitem()
    lines = list(cls.source.lines)
    last = init.args.args[0]  # self
    row = lines[last.lineno - 1].encode()  # columns count bytes
    at = last.end_col_offset or 0
    lines[last.lineno - 1] = f"{row[:at].decode()}, {name}{row[at:].decode()}"
    changed = with_lines(cls, lines)
    closure = closure_of(Defined(changed.source, changed.node.name, changed.node))
    if mapping in closure.definitions:
        return cls, None
    return changed, Shared(mapping.source.module, mapping.name)


def _read_by_key(init: ast.FunctionDef) -> set[str]:
    """Return the names outside a constructor that it reads fields of."""
    names = {one.id for one in ast.walk(init) if isinstance(one, ast.Name)} - bound_in(init)
    reads = [one for one in ast.walk(init) if isinstance(one, ast.Subscript | ast.Call)]
    return {name for name in names if any(field_read(one, name) is not None for one in reads)}


def _is_empty(node: ast.AST) -> bool:
    """Return whether an assignment makes an empty mapping: `{}`, or a call without arguments, as of `AttrDict`."""
    if not isinstance(node, ast.Assign | ast.AnnAssign):
        return False
    made = node.value
    called = isinstance(made, ast.Call) and not made.args and not made.keywords and dotted(made.func) is not None
    return called or literal(made) == {}
