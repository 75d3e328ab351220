"""The merge of what a definition has above its body: parameters, bases, return annotation, docstring, decorators."""

import ast
import re
from collections.abc import Sequence
from typing import Any

from omni_kit.patchgen.spans import Edit, shift
from omni_kit.patchgen.upgrade.code import Code, FunctionNode, dump, dumps
from omni_kit.patchgen.upgrade.expressions import Expressions, arguments
from omni_kit.patchgen.upgrade.parts import Item
from omni_kit.pysource.nodes import docstring_of
from omni_kit.pysource.signatures import signature


class Heads(Expressions):
    """Merges heads of functions and classes."""

    def bases(self, b: ast.ClassDef, o: ast.ClassDef, t: ast.ClassDef) -> None:
        """The bases and keywords of a class."""
        was, mine, now = (arguments(code, one.bases, one.keywords) for code, one in self.each(b, o, t))
        self.items(was, mine, now, None, b, o, t)

    def decorators(self, b: Any, o: Any, t: Any) -> None:
        """The decorators of a definition inside a class or function."""
        had, has, gets = dumps(b.decorator_list), dumps(o.decorator_list), dumps(t.decorator_list)
        if had != gets and has == had:
            if o.decorator_list:
                first, last = o.decorator_list[0], o.decorator_list[-1]
                start = self.ours.line_start(first.lineno)
                end = self.ours.line_start((last.end_lineno or last.lineno) + 1)
            else:
                start = end = self.ours.line_start(o.lineno)
            lines = [f"{' ' * o.col_offset}@{self.theirs.of(one)}\n" for one in t.decorator_list]
            self.edits.append(Edit(start, end, "".join(lines)))
        elif had != gets and has != gets:
            self.clash(f"both changed the decorators of {b.name}", b, o, t)

    def docstrings(self, b: Any, o: Any, t: Any) -> None:
        """Upstream's docstring, unless the patch has one of its own."""
        was, mine, now = docstring_of(b.body), docstring_of(o.body), docstring_of(t.body)
        if was is not None and mine is not None and now is not None and _doc(mine) == _doc(was) != _doc(now):
            text = shift(self.theirs.of(now), now.col_offset, mine.col_offset)
            self.edits.append(Edit(self.ours.start_of(mine), self.ours.end_of(mine), text.lstrip()))

    def returns(self, b: Any, o: Any, t: Any) -> None:
        """The return annotation: upstream's, where the patch left it."""
        if dump(b.returns) == dump(t.returns) or dump(o.returns) != dump(b.returns):
            return
        if o.returns is not None:
            new = self.theirs.of(t.returns) if t.returns is not None else None
            start = self.ours.start_of(o.returns)
            if new is None:
                start = self.ours.text.rindex("->", 0, start)
                start -= len(self.ours.text[:start]) - len(self.ours.text[:start].rstrip())
            self.edits.append(Edit(start, self.ours.end_of(o.returns), new or ""))
        elif (end := self._header_end(o)) is not None:
            self.edits.append(Edit(end, end, f" -> {self.theirs.of(t.returns)}"))

    def _header_end(self, o: FunctionNode) -> int | None:
        """Return the offset of the colon that ends a header without a return annotation."""
        first = o.body[0]
        stop = self.ours.start_of(first)
        args = [one for one in ast.walk(o.args) if hasattr(one, "lineno")]
        start = max((self.ours.end_of(one) for one in args), default=self.ours.start_of(o))
        found = re.compile(r"\)\s*:").search(self.ours.text, start, stop)
        return found.start() + 1 if found else None

    def parameters(self, b: FunctionNode, o: FunctionNode, t: FunctionNode) -> None:
        """Parameters by name: what upstream added, dropped, or gave another default or annotation."""
        was, mine, now = (parameters_of(code, one) for code, one in ((self.base, b), (self.ours, o), (self.theirs, t)))
        same = [(one.key, one.dump) for one in was] == [(one.key, one.dump) for one in mine]
        if _kinds(b) == _kinds(o) != _kinds(t) and same and mine and now:
            start, end = self._with_marks(self.ours, mine)
            self.edits.append(Edit(start, end, self._marks(now, self.theirs.text[now[0].start : now[-1].end])))
            return
        at = self.ours.text.index("(", self.ours.start_of(o)) + 1
        self.listed(was, mine, now, at, self.parameter, b, o, t)

    def _with_marks(self, code: Code, items: Sequence[Item]) -> tuple[int, int]:
        start = items[0].start
        lead = re.search(r"\*\s*,\s*$", code.text[:start])
        return (lead.start() if lead else start), items[-1].end

    def _marks(self, items: Sequence[Item], text: str) -> str:
        lead = re.search(r"\*\s*,\s*$", self.theirs.text[: items[0].start])
        return lead.group() + text if lead else text

    def parameter(self, b: Item, o: Item, t: Item) -> None:
        """One parameter that all three have: its annotation, its default."""
        (was, was_default), (mine, my_default), (now, new_default) = b.node, o.node, t.node
        if dump(was.annotation) != dump(now.annotation) and dump(mine.annotation) == dump(was.annotation):
            if mine.annotation is not None and now.annotation is not None:
                self.replace(mine.annotation, now.annotation)
            elif now.annotation is not None:
                end = self.ours.start_of(mine) + len(mine.arg)
                self.edits.append(Edit(end, end, f": {self.theirs.of(now.annotation)}"))
            else:
                self.edits.append(Edit(self.ours.start_of(mine) + len(mine.arg), self.ours.end_of(mine), ""))
        if dump(was_default) != dump(new_default):
            if dump(my_default) not in (dump(was_default), dump(new_default)):
                self.clash(f"both changed the default of {mine.arg}", was_default or was, my_default or mine, now)
            elif dump(my_default) != dump(new_default):
                self._default(mine, my_default, new_default)

    def _default(self, mine: ast.arg, old: ast.expr | None, new: ast.expr | None) -> None:
        end = self.ours.end_of(mine)
        if old is not None and new is not None:
            self.replace(old, new)
        elif new is not None:
            self.edits.append(Edit(end, end, f" = {self.theirs.of(new)}"))
        elif old is not None:
            self.edits.append(Edit(end, self.ours.end_of(old), ""))


def _doc(node: ast.Expr) -> str:
    assert isinstance(node.value, ast.Constant)
    return str(node.value.value)


def parameters_of(code: Code, node: FunctionNode) -> list[Item]:
    """Return the parameters of a function, with their annotations and defaults."""
    args = node.args
    defaults: dict[str, ast.expr | None] = {
        name: None if one.default is one.empty else one.default for name, one in signature(node).parameters.items()
    }
    found = []
    for arg in [
        *args.posonlyargs,
        *args.args,
        *filter(None, [args.vararg]),
        *args.kwonlyargs,
        *filter(None, [args.kwarg]),
    ]:
        default = defaults.get(arg.arg)
        key = "**" if arg is args.kwarg else "*" if arg is args.vararg else arg.arg
        start = code.start_of(arg) - (len(key) if key in ("*", "**") else 0)
        end = code.end_of(default) if default is not None else code.end_of(arg)
        if default is not None:
            while code.text[start:end].count("(") > code.text[start:end].count(")"):
                end = code.text.index(")", end) + 1
        found.append(Item(key, f"{dump(arg)}={dump(default)}", start, end, (arg, default)))
    return found


def parameter_names(node: ast.AST) -> list[str]:
    """Return the names of a function's parameters; none for a class."""
    return [] if isinstance(node, ast.ClassDef) else list(signature(node).parameters)  # type: ignore[arg-type]


def _kinds(node: FunctionNode) -> list[tuple[str, Any]]:
    return [(name, one.kind) for name, one in signature(node).parameters.items()]
