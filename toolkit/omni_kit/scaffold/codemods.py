"""Edits of files that a framework already has: the smallest change, everything else byte for byte as it was."""

from collections.abc import Sequence

import libcst as cst
from libcst.helpers import get_full_name_for_node

from omni_kit.errors import BadInput
from omni_kit.scaffold.edits.definitions import add_definition, add_item
from omni_kit.scaffold.edits.imports import longest_import, make_import
from omni_kit.scaffold.edits.keyed import add_keyed
from omni_kit.scaffold.edits.lines import sorted_place
from omni_kit.scaffold.edits.pages import add_page
from omni_kit.targets.protocol import (
    DefinitionEntry,
    Edit,
    ImportEntry,
    ItemEntry,
    KeyedEntry,
    ListEntry,
    PageEntry,
)


def apply_edit(text: str, edit: Edit) -> str:
    """Return the text after one edit; unchanged when it already has the entry.

    Raises:
        BadInput: the text cannot be parsed, or has nothing that the edit could be made in.
    """
    if isinstance(edit, PageEntry):
        return add_page(text, edit)
    try:
        return _edited(text, edit)
    except (SyntaxError, cst.ParserSyntaxError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else error.raw_line
        raise BadInput(f"{edit.path} is not valid Python: line {line}") from error


def _edited(text: str, edit: ListEntry | ImportEntry | KeyedEntry | ItemEntry | DefinitionEntry) -> str:
    if isinstance(edit, KeyedEntry):
        return add_keyed(text, edit)
    if isinstance(edit, ItemEntry):
        return add_item(text, edit)
    if isinstance(edit, DefinitionEntry):
        return add_definition(text, edit)
    return _visited(text, edit)


def _visited(text: str, edit: ListEntry | ImportEntry) -> str:
    module = cst.parse_module(text)
    transformer = (
        _AddToList(edit) if isinstance(edit, ListEntry) else _AddImport(edit, longest_import(text, edit.module))
    )
    changed = module.visit(transformer)
    if not transformer.found and isinstance(edit, ImportEntry) and edit.made:
        return make_import(text, edit)
    if not transformer.found:
        what = f"list {edit.name}" if isinstance(edit, ListEntry) else f"'from {edit.module} import ...'"
        raise BadInput(f"{edit.path} has no {what} to add to")
    return changed.code


class _AddImport(cst.CSTTransformer):
    """Adds a name, in alphabetical place, to one of the statements `from <module> import (...)`: its number is told."""

    def __init__(self, edit: ImportEntry, number: int) -> None:
        self.edit = edit
        self.number = number
        self.found = False

    def leave_ImportFrom(self, original: cst.ImportFrom, updated: cst.ImportFrom) -> cst.ImportFrom:  # noqa: N802
        module = "." * len(original.relative)
        module += (get_full_name_for_node(original.module) or "") if original.module is not None else ""
        if self.found or module != self.edit.module or isinstance(updated.names, cst.ImportStar):
            return updated
        self.number -= 1
        if self.number >= 0:
            return updated
        self.found = True
        names = list(updated.names)
        present = [name.evaluated_name for name in names]
        if self.edit.name in present:
            return updated
        index = sorted_place(present, self.edit.name)
        added = cst.ImportAlias(name=cst.Name(self.edit.name), comma=_comma(names))
        if index == len(names) and names:
            last = names[-1]
            names[-1] = last.with_changes(comma=_comma(names))
            added = added.with_changes(comma=last.comma)
        names.insert(index, added)
        return updated.with_changes(names=names)


class _AddToList(cst.CSTTransformer):
    """Appends an element to the list or tuple that is assigned to a top-level name."""

    def __init__(self, edit: ListEntry) -> None:
        self.edit = edit
        self.found = False

    def leave_Assign(self, original: cst.Assign, updated: cst.Assign) -> cst.Assign:  # noqa: N802
        names = [get_full_name_for_node(target.target) for target in original.targets]
        if self.found or self.edit.name not in names or not isinstance(updated.value, (cst.List, cst.Tuple)):
            return updated
        self.found = True
        elements = list(updated.value.elements)
        element = cst.parse_expression(self.edit.element)
        if any(_same(item.value, element) for item in elements):
            return updated
        added = cst.Element(element)
        if elements:
            last = elements[-1]
            elements[-1] = last.with_changes(comma=_comma(elements))
            added = added.with_changes(comma=last.comma)
        return updated.with_changes(value=updated.value.with_changes(elements=[*elements, added]))


def _same(one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
    def plain(node: cst.BaseExpression) -> str:
        return "".join(cst.Module([]).code_for_node(node).split()).replace('"', "'").replace(",)", ")")

    return plain(one) == plain(other)


def _comma(items: "Sequence[cst.ImportAlias] | Sequence[cst.BaseElement]") -> cst.Comma:
    """Return the separator that the other entries use: each on its own line, or all on one."""
    for item in items[:-1]:
        if isinstance(item.comma, cst.Comma):
            return item.comma
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
