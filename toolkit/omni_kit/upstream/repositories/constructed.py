"""Modules of torch whose constructor or forward is made when the module is: dataclasses, and assigned methods."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import dotted

_POST = "__post_init__"
_FORWARD = "forward"


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
    return with_lines(cls, lines)


@dataclass(frozen=True)
class _Choice:
    """The methods that a constructor makes forward.

    Attributes:
        statement: the assignment, or the `if` with one in each branch.
        method: the method that it is where the condition is false, and without one.
        test: the condition; None without one.
        other: the method that it is where the condition holds.
    """

    statement: ast.stmt
    method: str
    test: ast.expr | None = None
    other: str = ""


def with_forward(cls: ClassRef) -> ClassRef:
    """Return a class whose constructor assigns a method to `self.forward` as one with that method as its forward.

    Where a condition over attributes of `self` chooses one of two with the same arguments, forward begins with that
    condition. A class that assigns it in another way, and any other class, stays as it is.
    """
    init = cls.defines("__init__")
    if init is None or cls.method(_FORWARD) is not None:
        return cls
    found = [*_choices(init)]
    chosen = cls.defines(found[0].method) if len(found) == 1 else None
    if chosen is None or chosen.decorator_list or not _shares_arguments(cls, found[0], chosen):
        return cls
    lines = list(cls.source.lines)
    begins = chosen.lineno - 1
    lines[begins] = lines[begins].replace(f"def {chosen.name}(", f"def {_FORWARD}(", 1)
    body = chosen.body[1:] if ast.get_docstring(chosen) is not None and len(chosen.body) > 1 else chosen.body
    statement = found[0].statement
    first, last = statement.lineno - 1, statement.end_lineno or statement.lineno
    lines[first] = f"{' ' * statement.col_offset}pass"
    lines[first + 1 : last] = [""] * (last - first - 1)
    if found[0].test is not None:
        says = f"if {ast.unparse(found[0].test)}: return self.{found[0].other}({_passed_on(chosen.args)})"
        lines.insert(body[0].lineno - 1, f"{' ' * body[0].col_offset}{says}")
        if not lines[begins - 1].strip():  # the lines below keep their numbers
            del lines[begins - 1]
    return with_lines(cls, lines)


def _choices(init: ast.FunctionDef) -> Iterator[_Choice]:
    """Yield what a constructor assigns to `self.forward`, each with its condition."""
    nested = {id(part) for one in ast.walk(init) if isinstance(one, ast.If) for part in (*one.body, *one.orelse)}
    for one in ast.walk(init):
        if isinstance(one, ast.If) and id(one) not in nested:
            branches = [_assigned(branch[0]) if len(branch) == 1 else "" for branch in (one.body, one.orelse)]
            names = {dotted(part) for part in ast.walk(one.test) if isinstance(part, ast.Name)}
            if all(branches) and names == {"self"}:
                yield _Choice(one, branches[1], one.test, branches[0])
        elif id(one) not in nested and (name := _assigned(one)) and isinstance(one, ast.Assign):
            yield _Choice(one, name)


def _assigned(node: ast.AST) -> str:
    """Return X of `self.forward = self.X`; empty for anything else."""
    plain = isinstance(node, ast.Assign) and [dotted(one) for one in node.targets] == [f"self.{_FORWARD}"]
    owner, _, name = (dotted(node.value) or "").rpartition(".") if plain and isinstance(node, ast.Assign) else ("",) * 3
    return name if owner == "self" else ""


def _shares_arguments(cls: ClassRef, choice: _Choice, chosen: ast.FunctionDef) -> bool:
    other = cls.defines(choice.other) if choice.test is not None else chosen
    return other is not None and ast.unparse(other.args) == ast.unparse(chosen.args)


def _passed_on(given: ast.arguments) -> str:
    """Return the arguments of a method as a call passes them on."""
    starred = [f"*{given.vararg.arg}"] if given.vararg is not None else []
    named = [f"{one.arg}={one.arg}" for one in given.kwonlyargs]
    spread = [f"**{given.kwarg.arg}"] if given.kwarg is not None else []
    return ", ".join([*(one.arg for one in (*given.posonlyargs, *given.args)[1:]), *starred, *named, *spread])


def with_lines(cls: ClassRef, lines: list[str]) -> ClassRef:
    """Return the class as it stands in other lines of its file."""
    text = "\n".join(lines)
    source = replace(cls.source, text=text, tree=ast.parse(text))
    return ClassRef(source, source.classes[cls.node.name])


def _name(node: ast.expr | None) -> str:
    """Return the dotted name of what is called, or of what stands there."""
    return (dotted(node.func if isinstance(node, ast.Call) else node) or "") if node is not None else ""
