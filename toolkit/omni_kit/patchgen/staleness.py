"""Staleness of a generated file: its code, or the diff next to it, differs from what its config generates.

Comments and layout do not count: the header and the banners, which name versions, places and descriptions, and line
ends. `run` still writes them as they should be.
"""

import ast
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from omni_kit.patchgen.header import written_by_omni_kit
from omni_kit.patchgen.result import Product
from omni_kit.patchgen.write import diff_path, holds, is_ours, unified_diff
from omni_kit.pysource.equality import same_code
from omni_kit.pysource.source import parse_file

KEPT_BY_ALL = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.Expr)
"""Top-level statements that the framework's own generator does not drop."""


@dataclass(frozen=True)
class Difference:
    """The first thing in which a file is not what its config generates, and where it shows.

    Attributes:
        kind: "no-longer-generates", "changed-statement", "missing-statement" or "stale-diff".
    """

    kind: str
    message: str
    path: Path
    line: int


@dataclass(frozen=True)
class GeneratedFile:
    """A generated file as it lies there."""

    path: Path
    text: str
    tree: ast.Module

    @property
    def ours(self) -> bool:
        """Return whether omni-kit's generator wrote it, not the framework's."""
        return written_by_omni_kit(self.text)


def differences(product: Product, config: str) -> list[Difference]:
    """Return the differences between a product and its files on disk: one for the module, one for its diff.

    Args:
        config: the file name of the config, for the messages.
    """
    try:
        text, tree = parse_file(product.output)
    except (SyntaxError, UnicodeDecodeError) as why:
        line = getattr(why, "lineno", None) or 1
        return [Difference("changed-statement", f"the file is not valid Python: {why}", product.output, line)]
    there = GeneratedFile(product.output, text, tree)
    module = None if holds(there.path, product.text) else code_difference(there, product.text, config)
    beside = diff_difference(there, product.generated.source.text, product.loaded.config.source_module)
    if module is not None and holds(diff_path(there.path), product.diff):
        beside = None
    return [found for found in (module, beside) if found is not None]


def code_difference(there: GeneratedFile, wanted: str, config: str) -> Difference | None:
    """Return the first statement in which a file is not the generated text `wanted`; None if the code is the same."""
    if _same_text(there, wanted):
        return None
    made = ast.parse(wanted)
    if same_code(there.tree.body, made.body) or (not there.ours and _only_dropped(there.tree, made)):
        return None
    return _first(there, made, config)


def diff_difference(there: GeneratedFile, upstream: str, source_module: str) -> Difference | None:
    """Return the diff next to a file of omni-kit's generator where it is not the diff from `upstream` to that file."""
    beside = diff_path(there.path)
    if not there.ours or not beside.is_file() or not is_ours(beside):
        return None
    if holds(beside, unified_diff(upstream, there.text, source_module, there.path.name)):
        return None
    message = f"it is not the diff from {there.path.name}"
    return Difference("stale-diff", message, beside, 1)


def _same_text(there: GeneratedFile, wanted: str) -> bool:
    """Return whether the texts agree from the first statement on."""
    if not there.tree.body:
        return False
    lines = there.text.splitlines(keepends=True)
    own = "".join(lines[there.tree.body[0].lineno - 1 :])
    before = wanted.removesuffix(own)
    return wanted.endswith(own) and all(not line.strip() or line.startswith("#") for line in before.splitlines())


def _only_dropped(tree: ast.Module, wanted: ast.Module) -> bool:
    """Return whether a file only lacks top-level statements of kinds that the framework's generator drops."""
    here = Counter(ast.dump(node) for node in tree.body)
    there = Counter(ast.dump(node) for node in wanted.body)
    if here - there:
        return False
    lacking = there - here
    return all(not isinstance(node, KEPT_BY_ALL) for node in wanted.body if lacking[ast.dump(node)])


def _first(there: GeneratedFile, wanted: ast.Module, config: str) -> Difference:
    made = Counter(ast.dump(node) for node in wanted.body)
    names = {name: node for node in wanted.body if (name := _name(node))}
    for node in there.tree.body:
        if not made[ast.dump(node)]:
            line = _line(node, names.get(_name(node)))
            what = _name(node) or "this statement"
            return Difference("changed-statement", f"{what} is not what {config} generates", there.path, line)
    here = Counter(ast.dump(node) for node in there.tree.body)
    missing = next((node for node in wanted.body if not here[ast.dump(node)]), wanted.body[0])
    what = _name(missing) or ast.unparse(missing).splitlines()[0]
    return Difference("missing-statement", f"{what} is missing, which {config} generates", there.path, 1)


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return getattr(node, "name", "")


def _line(node: ast.stmt, other: ast.stmt | None) -> int:
    """Return the first line inside a definition that differs from the other one."""
    for one, two in zip(getattr(node, "body", ()), getattr(other, "body", ()), strict=False):
        if ast.dump(one) != ast.dump(two):
            return _line(one, two)
    return node.lineno
