"""Modules of torch that their authors write as dataclasses."""

import ast
from dataclasses import replace

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import dotted

_POST = "__post_init__"


def with_constructor(cls: ClassRef) -> ClassRef:
    """Return a dataclass as a class with the constructor that Python makes for it; any other class as it is.

    The lines of the file keep their numbers: the constructor stands in that of the first field. A dataclass whose
    fields have more than a plain default stays as it is.
    """
    node = cls.node
    written = [one for one in node.decorator_list if _name(one) in ("dataclass", "dataclasses.dataclass")]
    fields = [one for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
    odd = any(_name(one.value) in ("field", "dataclasses.field") or "ClassVar" in ast.unparse(one.annotation)
              for one in fields)  # fmt: skip
    if not written or not fields or odd or cls.defines("__init__"):
        return cls
    taken = ", ".join(ast.unparse(one) for one in fields)
    names = [ast.unparse(one.target) for one in fields]
    body = [*(f"self.{name} = {name}" for name in names), *([f"self.{_POST}()"] if cls.defines(_POST) else [])]
    lines = list(cls.source.lines)
    parts: list[ast.expr | ast.stmt] = [*written, *fields]
    spans = [(one.lineno - 1, one.end_lineno or one.lineno) for one in parts]
    for first, last in spans:
        lines[first:last] = [""] * (last - first)
    lines[fields[0].lineno - 1] = f"{' ' * fields[0].col_offset}def __init__(self, {taken}): {'; '.join(body)}"
    text = "\n".join(lines)
    source = replace(cls.source, text=text, tree=ast.parse(text))
    return ClassRef(source, source.classes[node.name])


def _name(node: ast.expr | None) -> str:
    """Return the dotted name of what is called, or of what stands there."""
    return (dotted(node.func if isinstance(node, ast.Call) else node) or "") if node is not None else ""
