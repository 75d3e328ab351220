"""A definition of the authors with other functions in it."""

import ast
import copy
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.repositories.attention import functions_in
from omni_kit.upstream.repositories.names import Defined, definitions


def with_text(one: Defined, text: str) -> Defined:
    """Return the definition as if its file had another text, with as many definitions of its name."""
    source: SourceFile = replace(one.source, text=text, tree=ast.parse(text))
    if not one.replaced:
        return Defined(source, one.name, definitions(source)[one.name])
    before, after = ([node for node in tree.body if getattr(node, "name", "") == one.name]
                     for tree in (one.source.tree, source.tree))  # fmt: skip
    return replace(one, source=source, node=after[before.index(one.node)])


def changed_functions(
    definitions: Iterable[Defined], change: Callable[[Defined, ast.FunctionDef], ast.FunctionDef | None]
) -> dict[Defined, Defined]:
    """Return definitions with the functions that `change` makes of copies of theirs, by what they were.

    Args:
        change: receives a definition and one of its functions, and may edit it; null for one that stays.
    """
    changed: dict[Defined, Defined] = {}
    for one in definitions:
        own = functions_in(Defined(one.source, one.name, copy.deepcopy(one.node)))
        functions = [made for function in own if (made := change(one, function)) is not None]
        if functions:
            changed[one] = rewritten(one, [*map(ast.fix_missing_locations, functions)])
    return changed


def rewritten(one: Defined, functions: Sequence[ast.FunctionDef]) -> Defined:
    """Return the definition as if its file had the new text of these functions."""
    lines = list(one.source.lines)
    for node in sorted(functions, key=lambda function: -function.lineno):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]) - 1
        lines[first : node.end_lineno] = textwrap.indent(ast.unparse(node), " " * node.col_offset).split("\n")
    return with_text(one, "\n".join(lines))


def rewritten_class(one: Defined, node: ast.ClassDef) -> Defined:
    """Return a class as if its file had this text of it."""
    lines = list(one.source.lines)
    first = min([one.node.lineno, *(decorator.lineno for decorator in getattr(one.node, "decorator_list", []))]) - 1
    lines[first : one.node.end_lineno] = ast.unparse(node).split("\n")
    return with_text(one, "\n".join(lines))
