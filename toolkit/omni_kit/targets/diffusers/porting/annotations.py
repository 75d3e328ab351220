"""Annotations by types of packages that diffusers does not need: code runs without them."""

import ast
from collections.abc import Iterator

from omni_kit.targets.diffusers.porting.alternatives import reached
from omni_kit.targets.diffusers.porting.replaced_functions import with_text
from omni_kit.upstream.diffusers.requirements import importable
from omni_kit.upstream.repositories.closure import Closure, names_in
from omni_kit.upstream.repositories.names import Defined


def without_foreign_annotations(closure: Closure) -> Closure:
    """Return the closure without these annotations, and without what is needed for them alone:
    `Float = TorchTyping(jaxtyping.Float)`.
    """
    changed: dict[Defined, Defined] = {}
    for one in closure.definitions:
        text, starts = one.source.text.encode(), _line_starts(one.source.text)
        spans = [*_spans(one, closure, text, starts)] if isinstance(one.node, ast.ClassDef | ast.FunctionDef) else []
        for first, last in sorted(spans, reverse=True):
            text = text[:first] + text[last:]
        if spans:
            changed[one] = with_text(one, text.decode())
    return reached(closure, changed) if changed else closure


def _line_starts(text: str) -> list[int]:
    """Return where each line begins, in bytes."""
    starts = [0]
    for line in text.encode().split(b"\n"):
        starts.append(starts[-1] + len(line) + 1)
    return starts


def _spans(one: Defined, closure: Closure, text: bytes, starts: list[int]) -> Iterator[tuple[int, int]]:
    """Yield where annotations to be left out begin and end in the text of the file, with the sign before them."""

    def end(node: ast.expr) -> int:
        return starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def closed(first: int, node: ast.expr) -> int:
        """Return the end of an annotation, with the parentheses around it."""
        last = end(node)
        for _ in range(text.count(b"(", first, starts[node.lineno - 1] + node.col_offset)):
            last = text.index(b")", last) + 1
        return last

    for node in ast.walk(one.node):
        if isinstance(node, ast.arg) and node.annotation is not None and _is_foreign(node.annotation, one, closure):
            first = starts[node.lineno - 1] + node.col_offset + len(node.arg.encode())
            yield first, closed(first, node.annotation)
        elif isinstance(node, ast.FunctionDef) and node.returns is not None and _is_foreign(node.returns, one, closure):
            first = text.rindex(b"->", 0, starts[node.returns.lineno - 1] + node.returns.col_offset)
            yield first, closed(first, node.returns)
        elif isinstance(node, ast.AnnAssign) and node.value is not None and _is_foreign(node.annotation, one, closure):
            yield end(node.target), closed(end(node.target), node.annotation)


def _is_foreign(annotation: ast.expr, one: Defined, closure: Closure) -> bool:
    """Return whether an annotation names what a package has that is not needed otherwise, or a constant made of it."""
    for name in names_in(annotation):
        parts = name.split(".")
        for part in (".".join(parts[:count]) for count in range(len(parts), 0, -1)):
            meant = closure.uses[one].get(part)
            known = closure.foreign[one].get(part)
            packages = [known] if known is not None else []
            if meant is not None and isinstance(meant.node, ast.Assign | ast.AnnAssign):
                packages = [*closure.foreign[meant].values()]
            if any(package.partition(".")[0] not in importable() for package in packages):
                return True
    return False
