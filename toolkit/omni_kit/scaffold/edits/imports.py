"""`from module import name` where no statement imports from that module yet."""

import ast

from omni_kit.errors import BadInput
from omni_kit.scaffold.edits.lines import inserted, sorted_place
from omni_kit.targets.protocol import ImportEntry


def make_import(text: str, edit: ImportEntry) -> str:
    """Return the text with a statement of its own, in the block that has most statements of that sort.

    Raises:
        BadInput: there is none of that sort to insert after.
    """
    level = len(edit.module) - len(edit.module.lstrip("."))
    blocks = [_imports(block, level) for node in ast.walk(ast.parse(text)) for block in _blocks(node)]
    block = max(blocks, key=len, default=[])
    if not block:
        raise BadInput(f"{edit.path} has no 'from {'.' * level}... import ...' to insert after")
    place = sorted_place([node.module or "" for node in block], edit.module.lstrip("."))
    at = block[place].lineno - 1 if place < len(block) else (block[-1].end_lineno or 0)
    return inserted(text, at, [f"{' ' * block[0].col_offset}from {edit.module} import {edit.name}"])


def longest_import(text: str, module: str) -> int:
    """Return the statement with the most names among those that import from a module."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    same = sorted((n for n in nodes if "." * n.level + (n.module or "") == module), key=lambda node: node.lineno)
    named = [0 if node.names[0].name == "*" else len(node.names) for node in same]
    return named.index(max(named)) - sum(one == 0 for one in named[: named.index(max(named))]) if named else 0


def _blocks(node: ast.AST) -> list[list[ast.stmt]]:
    found = (getattr(node, name, None) for name in ("body", "orelse", "finalbody"))
    return [block for block in found if isinstance(block, list)]


def _imports(block: list[ast.stmt], level: int) -> list[ast.ImportFrom]:
    found = [node for node in block if isinstance(node, ast.ImportFrom) and node.level == level]
    return [node for node in found if node.names[0].name != "*"]
