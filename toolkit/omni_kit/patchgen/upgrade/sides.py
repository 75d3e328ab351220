"""The three versions of one definition that a merge compares, and what it finds: edits of the patch, and clashes."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from omni_kit.patchgen.spans import Edit
from omni_kit.patchgen.upgrade.code import Code, written
from omni_kit.patchgen.upgrade.outcome import Clash


@dataclass
class Sides:
    """Upstream's old version, the patch, and upstream's new version."""

    base: Code
    ours: Code
    theirs: Code
    edits: list[Edit] = field(default_factory=list)
    clashes: list[Clash] = field(default_factory=list)

    def each(self, b: Any, o: Any, t: Any) -> list[tuple[Code, Any]]:
        """Return each version with a node of it."""
        return [(self.base, b), (self.ours, o), (self.theirs, t)]

    def replace(self, o: Any, t: Any, *, loose: bool = False) -> None:
        """Upstream's expression instead of the patch's."""
        text = self.theirs.of(t)
        text = f"({text})" if loose else text
        self.edits.append(Edit(self.ours.start_of(o), self.ours.end_of(o), text))

    def clash(self, reason: str, b: Any, o: Any, t: Any, *, textual: bool = False) -> None:
        """Record a place that is left to a person."""
        texts = [_text(code, one) for code, one in self.each(b, o, t)]
        self.clashes.append(Clash(reason, texts[0], texts[2], texts[1], textual))


def _text(code: Code, part: Any) -> str:
    if isinstance(part, list):
        return "".join(code.statement(one, 0) for one in part).rstrip()
    if isinstance(part, tuple):
        part = part[0]
    if isinstance(part, ast.stmt):
        return code.statement(part, 0).rstrip()
    return code.of(part) if isinstance(part, ast.AST) and hasattr(part, "lineno") else ""


def both(bs: Sequence[ast.AST], ts: Sequence[ast.AST]) -> str:
    """Return the reason of a clash of statements."""
    names = sorted(written([*bs, *ts]) - {"self"})
    return f"both changed how {', '.join(names[:3])} is computed" if names else "both changed the same statements"


def changed(b: ast.AST, t: ast.AST) -> str:
    """Return the reason of a clash of expressions."""
    was, now = (" ".join(ast.unparse(one).split())[:60] for one in (b, t))
    return f"both changed `{was}`; upstream's is `{now}`"
