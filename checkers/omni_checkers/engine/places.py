"""Findings at nodes of source files."""

import ast

from omni_checkers.engine.rule import Finding
from omni_kit.pysource.source import SourceFile


def at(source: SourceFile, node: ast.AST, message: str) -> Finding:
    """Return a finding at a node."""
    return Finding(message, source.path, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1)
