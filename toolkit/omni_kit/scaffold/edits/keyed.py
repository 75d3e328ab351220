"""Edits of a dict of lists: a package's exports, by module."""

import ast

from omni_kit.errors import BadInput
from omni_kit.scaffold.edits.lines import indent_of, inserted, sorted_place
from omni_kit.targets.protocol import KeyedEntry


def add_keyed(text: str, edit: KeyedEntry) -> str:
    """Return the text with the element in its list.

    Raises:
        BadInput: nothing in the file is assigned to that dict.
    """
    tree = ast.parse(text)
    lists = [made for one in ast.walk(tree) if (made := _list(one, edit)) is not None]
    if any(_text(item) == edit.element for made in lists for item in made.elts):
        return text
    if lists:
        return _into(text, max(lists, key=lambda made: len(made.elts)), edit.element)
    return _made(text, tree, edit)


def _list(node: ast.AST, edit: KeyedEntry) -> ast.List | None:
    """Return the list that a node gives the dict for the key."""
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.List) and _is_item(node.targets[0], edit):
        return node.value
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict) and _name(node.targets[0]) == edit.name:
        pairs = zip(node.value.keys, node.value.values, strict=True)
        return next((v for k, v in pairs if _text(k) == edit.key and isinstance(v, ast.List)), None)
    extends = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "extend"
    if (
        extends
        and isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and _is_item(node.func.value, edit)
    ):
        return node.args[0] if node.args and isinstance(node.args[0], ast.List) else None
    return None


def _is_item(node: ast.expr, edit: KeyedEntry) -> bool:
    return isinstance(node, ast.Subscript) and _name(node.value) == edit.name and _text(node.slice) == edit.key


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.expr | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _into(text: str, made: ast.List, element: str) -> str:
    """Return the list with one more element; on its own line where the others are."""
    lines = text.split("\n")
    if made.lineno == made.end_lineno:
        line = lines[made.lineno - 1].encode()
        assert made.end_col_offset is not None
        names = [_text(item) for item in made.elts]
        names.insert(sorted_place(names, element), element)
        shown = "[" + ", ".join(f'"{name}"' for name in names) + "]"
        whole = line[: made.col_offset] + shown.encode() + line[made.end_col_offset :]
        return "\n".join([*lines[: made.lineno - 1], whole.decode(), *lines[made.lineno :]])
    place = sorted_place([_text(item) for item in made.elts], element)
    last = made.elts[-1]
    at = made.elts[place].lineno - 1 if place < len(made.elts) else (last.end_lineno or last.lineno)
    return inserted(text, at, [f'{indent_of(lines[last.lineno - 1])}"{element}",'])


def _made(text: str, tree: ast.Module, edit: KeyedEntry) -> str:
    """Return the text with a list of its own, among those of the other keys."""
    siblings = [
        (node, _text(node.targets[0].slice))
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Subscript)
        and _name(node.targets[0].value) == edit.name
    ]
    line = f'{edit.name}["{edit.key}"] = ["{edit.element}"]'
    if not siblings:
        raise BadInput(f"{edit.path} has no {edit.name} to add to")
    blocks: dict[int, list[tuple[ast.Assign, str]]] = {}
    above = _owners(tree)
    for node, key in siblings:
        blocks.setdefault(above.get(id(node), 0), []).append((node, key))
    block = max(blocks.values(), key=len)
    place = sorted_place([key for _, key in block], edit.key)
    indent = " " * block[0][0].col_offset
    at = block[place][0].lineno - 1 if place < len(block) else (block[-1][0].end_lineno or 0)
    return inserted(text, at, [indent + line])


def _owners(tree: ast.Module) -> dict[int, int]:
    """Return the number of the block that a statement stands in."""
    found: dict[int, int] = {}
    for node in ast.walk(tree):
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            for one in block if isinstance(block, list) else ():
                found[id(one)] = id(block)
    return found
