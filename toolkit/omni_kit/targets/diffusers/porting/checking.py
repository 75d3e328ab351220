"""Repairs of what ruff reports in a written file where that is safe, else a to-do at its line."""

import ast
import json
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from omni_kit.formatting import run_ruff
from omni_kit.targets.diffusers.porting.syntax import MARK

_UNDEFINED = "F821"
# Names that are bound and never used are the authors' habit, and harm nobody.
_HARMLESS = frozenset({"F401", "F841"})
_STYLE = ("--isolated", "--quiet", "--stdin-filename=model.py", "-")


@dataclass(frozen=True)
class _Wrong:
    line: int
    column: int
    code: str
    message: str


def repaired(text: str) -> str:
    """Return a file in which annotations name later definitions in quotes, and no undefined ones; every other fault
    has a to-do.
    """
    text, wrong = _checked(text)
    if undefined := _undefined(wrong):
        text = _without_unmade(_quoted(text, undefined), undefined)  # quotes change lines with annotations alone
        text = _unannotated(text, _undefined(_checked(text)[1]))
        text, wrong = _checked(text)
    for one in sorted(wrong, key=lambda each: -each.line):
        if one.code not in _HARMLESS:
            text = with_todo(text, one.line, f"{one.message} ({one.code})")
    return text


def with_todo(text: str, line: int, what: str) -> str:
    """Return a file with a to-do above the statement at a line, unless it stands there."""
    lines = text.split("\n")
    own = lines[line - 1]
    mark = f"{own[: len(own) - len(own.lstrip())]}# {MARK}: {what}"
    if line < 2 or lines[line - 2] != mark:
        lines.insert(_statement(text, line) - 1, mark)
    return "\n".join(lines)


def _statement(text: str, line: int) -> int:
    """Return the first line of the innermost statement at a line: comments fit in front of that."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.stmt)]
    firsts = [min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))]) for node in nodes]
    starts = [first for first in firsts if first <= line]
    ends = {first: node.end_lineno or 0 for first, node in zip(firsts, nodes, strict=True)}
    return max((start for start in starts if ends[start] >= line), default=line)


def _checked(text: str) -> tuple[str, list[_Wrong]]:
    """Return a file whose f-strings all have a value, and what is wrong in it."""
    done = run_ruff("check", "--select=F", "--fix", "--fixable=F541", "--output-format=json", *_STYLE, text=text)
    found = json.loads(done.stderr)
    return done.stdout, [
        _Wrong(one["location"]["row"], one["location"]["column"], one["code"] or "", one["message"]) for one in found
    ]


def _undefined(wrong: Iterable[_Wrong]) -> set[tuple[int, int]]:
    """Return the places of undefined names: line, and column from 0."""
    return {(one.line, one.column - 1) for one in wrong if one.code == _UNDEFINED}


def _unannotated(text: str, places: Collection[tuple[int, int]]) -> str:
    """Return the file without annotations that name what is defined nowhere."""
    lines = text.split("\n")
    for node in sorted(_annotations(ast.parse(text)), key=lambda node: (-node.lineno, -node.col_offset)):
        line, start, end = lines[node.lineno - 1], node.col_offset, node.end_col_offset or 0
        inside = any(row == node.lineno and start <= column < end for row, column in places)
        sign = re.search(r"\s*(:|->)\s*$", line[:start])
        if inside and node.lineno == node.end_lineno and sign is not None and line.isascii():
            lines[node.lineno - 1] = line[: sign.start()] + line[end:]
    found = "\n".join(lines)
    return found if _parses(found) else text


def _parses(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:  # a variable that an annotation alone declared
        return False
    return True


def _quoted(text: str, places: Collection[tuple[int, int]]) -> str:
    """Return the file with those annotations in quotes that name what is defined further down."""
    tree = ast.parse(text)
    later = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    lines = text.split("\n")
    for annotation in sorted(_annotations(tree), key=lambda node: (-node.lineno, -node.col_offset)):
        names = [one for one in ast.walk(annotation) if isinstance(one, ast.Name)]
        meant = [one for one in names if (one.lineno, one.col_offset) in places and one.id in later]
        if meant and annotation.lineno == annotation.end_lineno:
            line, start, end = lines[annotation.lineno - 1], annotation.col_offset, annotation.end_col_offset
            lines[annotation.lineno - 1] = f'{line[:start]}"{line[start:end]}"{line[end:]}'
    return "\n".join(lines)


def _without_unmade(text: str, undefined: Collection[tuple[int, int]]) -> str:
    """Return the file without undefined classes in tuples of types: nothing here makes an object of such a class."""
    tree = ast.parse(text)
    tested = {one.args[1].id for one in ast.walk(tree) if isinstance(one, ast.Call) and len(one.args) == 2
              and ast.unparse(one.func) == "isinstance" and isinstance(one.args[1], ast.Name)}  # fmt: skip
    lines = text.split("\n")
    for node in reversed(tree.body):
        value = node.value if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in tested else None
        if not isinstance(node, ast.Assign) or not isinstance(value, ast.Tuple):
            continue
        names = [[inner for inner in ast.walk(one) if isinstance(inner, ast.Name)] for one in value.elts]
        kept = [one for one, inside in zip(value.elts, names, strict=True)
                if not any((inner.lineno, inner.col_offset) in undefined for inner in inside)]  # fmt: skip
        if len(kept) < len(value.elts):
            changed = ast.Assign(node.targets, ast.Tuple(kept, ast.Load()), lineno=node.lineno)
            lines[node.lineno - 1 : node.end_lineno] = [ast.unparse(changed)]
    return "\n".join(lines)


def _annotations(tree: ast.AST) -> list[ast.expr]:
    found: list[ast.expr | None] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found.append(node.returns)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
    return [one for one in found if one is not None]
