"""Classes and functions that are added to a module, and items of its dicts."""

import ast
from itertools import pairwise

from omni_kit.errors import BadInput
from omni_kit.scaffold.edits.lines import indent_of, inserted, sorted_place
from omni_kit.targets.protocol import DefinitionEntry, ItemEntry


def add_definition(text: str, edit: DefinitionEntry) -> str:
    """Return the text with the definition, unless it is there; among sorted classes in its place, else at the end."""
    found = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    if edit.name in [node.name for node in found]:
        return text
    classes = [node for node in found if isinstance(node, ast.ClassDef)]
    new = ast.parse(edit.text).body[0]
    names = [node.name for node in classes]
    if isinstance(new, ast.ClassDef) and len(names) > 1 and _nearly_sorted(names):
        place = sorted_place(names, edit.name)
        if place and place < len(found):
            end = classes[place - 1].end_lineno or classes[place - 1].lineno
            return inserted(text, end, ["", "", *edit.text.strip("\n").split("\n")])
    return text.rstrip("\n") + "\n\n\n" + edit.text.strip("\n") + "\n"


def _nearly_sorted(names: list[str]) -> bool:
    """Return whether nearly every name comes after the one before it: how a name's case counts differs."""
    right = sum(one.lower() <= other.lower() for one, other in pairwise(names))
    return right >= 0.8 * (len(names) - 1)


def add_item(text: str, edit: ItemEntry) -> str:
    """Return the text with the item at the end of the dict, or of the pairs that one is made of, unless it has the key.

    Raises:
        BadInput: no dict is assigned to that name.
    """
    for node in ast.walk(ast.parse(text)):
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if isinstance(value, ast.Dict) and any(isinstance(one, ast.Name) and one.id == edit.name for one in targets):
            return _with_item(text, value, edit)
        pairs = value.args[0] if isinstance(value, ast.Call) and value.args else None
        if isinstance(pairs, ast.List) and any(isinstance(one, ast.Name) and one.id == edit.name for one in targets):
            return _with_pair(text, pairs, edit)
    raise BadInput(f"{edit.path} has no dict {edit.name} to add to")


def _with_pair(text: str, made: ast.List, edit: ItemEntry) -> str:
    """Return the text with one more pair."""
    known = [ast.literal_eval(one.elts[0]) for one in made.elts if isinstance(one, ast.Tuple) and _is_text(one.elts[0])]
    if edit.key in known:
        return text
    lines = text.split("\n")
    if not made.elts or made.lineno == made.end_lineno:
        raise BadInput(f"{edit.path}: {edit.name} is written on one line", "write each item on a line of its own")
    last = made.elts[-1]
    end = (last.end_lineno or last.lineno) - 1
    if not lines[end].rstrip().endswith(","):
        lines[end] = lines[end].rstrip() + ","
    return inserted("\n".join(lines), end + 1, [f'{indent_of(lines[last.lineno - 1])}("{edit.key}", {edit.value}),'])


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _with_item(text: str, made: ast.Dict, edit: ItemEntry) -> str:
    keys = [key.value for key in made.keys if isinstance(key, ast.Constant)]
    if edit.key in keys:
        return text
    lines = text.split("\n")
    if not made.values or made.lineno == made.end_lineno:
        raise BadInput(f"{edit.path}: {edit.name} is written on one line", "write each item on a line of its own")
    last = made.values[-1]
    indent = indent_of(lines[(made.keys[-1] or last).lineno - 1])
    end = (last.end_lineno or last.lineno) - 1
    if not lines[end].rstrip().endswith(","):
        lines[end] = lines[end].rstrip() + ","
    value = edit.value.strip("\n").split("\n")
    new = [f'{indent}"{edit.key}": {value[0]}', *(indent + line for line in value[1:])]
    new[-1] += ","
    return inserted("\n".join(lines), end + 1, new)
