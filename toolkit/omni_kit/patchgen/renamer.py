# ruff: noqa: N802 - libcst calls visitors by the names of its nodes
"""The libcst half of name_map, imported only when a patch has one."""

import re
from collections.abc import Mapping

import libcst as cst

from omni_kit.patchgen.name_map import mapped

_IDENTIFIER = re.compile(r"[^\W\d]\w*")


class Renamer(cst.CSTTransformer):
    """Renames identifiers, also those inside f-strings and quoted annotations, but never the definition's own name."""

    def __init__(self, name_map: Mapping[str, str], own_name: str) -> None:
        super().__init__()
        self.name_map, self.own_name = name_map, own_name
        self.renamed: dict[str, str] = {}
        self.kept: set[str] = set()
        self._annotations = 0

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.Name:
        """Rename an identifier."""
        return updated_node.with_changes(value=self._mapped(updated_node.value))

    def visit_Annotation(self, node: cst.Annotation) -> None:
        """Count the annotations around what follows: strings in them are code."""
        self._annotations += 1

    def leave_Annotation(self, original_node: cst.Annotation, updated_node: cst.Annotation) -> cst.Annotation:
        """Leave the annotation."""
        self._annotations -= 1
        return updated_node

    def leave_SimpleString(self, original_node: cst.SimpleString, updated_node: cst.SimpleString) -> cst.SimpleString:
        """Rename the identifiers of a quoted annotation; other strings stay."""
        if not self._annotations:
            return updated_node
        return updated_node.with_changes(value=_IDENTIFIER.sub(lambda m: self._mapped(m.group()), updated_node.value))

    def _mapped(self, name: str) -> str:
        if name == self.own_name:
            return name
        new = mapped(name, self.name_map)
        if new == name:
            self.kept.add(name)
        else:
            self.renamed[name] = new
        return new
