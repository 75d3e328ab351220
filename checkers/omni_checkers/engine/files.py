"""Parsed files: one parse and one walk each."""

import ast
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from omni_kit.pysource.nodes import Node, rebuilt, remembered, walked, within
from omni_kit.pysource.source import dotted, parse_file, read_text

__all__ = ["File", "functions", "read_file", "rebuilt", "remembered", "walked", "within"]


@dataclass(eq=False)
class File:
    """One Python file of a model.

    Attributes:
        tree: None when the file is not valid Python; `error` says why.
    """

    path: Path
    text: str
    tree: ast.Module | None
    error: SyntaxError | None = None

    def nodes(self, *kinds: type[Node]) -> Iterator[Node]:
        """Return all nodes of these types; the file is walked once and the result is cached."""
        return within(self.tree, *kinds) if self.tree is not None else iter(())

    def segment(self, node: ast.expr) -> str:
        """Return the text of an expression."""
        return ast.get_source_segment(self.text, node) or ast.unparse(node)

    @cached_property
    def imports(self) -> Mapping[str, str]:
        """Name -> where it comes from, dotted; relative imports begin with their dots."""
        found: dict[str, str] = {}
        for node in self.nodes(ast.ImportFrom):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{'.' * node.level}{node.module or ''}.{alias.name}"
        for plain in self.nodes(ast.Import):
            for alias in plain.names:
                first = alias.name.partition(".")[0]
                found[alias.asname or first] = alias.name if alias.asname else first
        return found

    def origin(self, node: ast.AST) -> str:
        """Return the dotted name of an expression, with its first part as the file imports it; empty for
        anything else.
        """
        first, _, rest = (dotted(node) or "").partition(".")
        real = self.imports.get(first, first)
        return f"{real}.{rest}" if rest else real

    @cached_property
    def depth(self) -> tuple[int, int]:
        """Return the depth of the most deeply nested code, in nodes of the tree, and its line."""
        deepest, line = 0, 1
        todo: list[tuple[ast.AST, int, int]] = [(self.tree, 0, 1)] if self.tree is not None else []
        while todo:
            node, depth, above = todo.pop()
            here = getattr(node, "lineno", above)
            if depth > deepest:
                deepest, line = depth, here
            todo += [(child, depth + 1, here) for child in ast.iter_child_nodes(node)]
        return deepest, line


def functions(files: Sequence[File]) -> Iterator[tuple[File, ast.FunctionDef]]:
    """Yield every function and method of some files."""
    for file in files:
        for node in file.nodes(ast.FunctionDef):
            yield file, node


def read_file(path: Path) -> File:
    """Read and parse a file in its declared encoding; a file that is not valid Python or not text has no tree."""
    try:
        text, tree = parse_file(path)
        error = _refused(tree)
        return File(path, text, tree if error is None else None, error)
    except SyntaxError as why:
        return File(path, read_text(path), None, why)
    except (OSError, UnicodeDecodeError) as why:
        return File(path, "", None, SyntaxError(str(why)))


@remembered
def _refused(tree: ast.Module) -> SyntaxError | None:
    """Return why Python does not compile what it can parse, such as `return` outside a function; nothing is run."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(tree, "<checked>", "exec", dont_inherit=True)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError):
        return SyntaxError("nested too deeply to be compiled")
    return None
