"""Compares a generated file with what its config generates now."""

import ast
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from omni_checkers.veomni.facts_generated import Generated

_KEPT_BY_ALL = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.Expr)


@dataclass(frozen=True)
class Difference:
    message: str
    path: Path
    line: int


def difference(item: Generated) -> Difference | None:
    """The first place where a generated file is not what its config makes; None when it is."""
    from omni_kit.patchgen import run_config

    assert item.config is not None
    assert item.file.tree is not None
    result = run_config(item.config.file.path, write=False)
    if not result.text:
        why = next((d for d in result.diagnostics if d.severity == "error"), None)
        reason = f"{why.code}: {why.message}" if why else result.status
        return Difference(
            f"the config no longer generates: {reason}", item.config.file.path, why.line or 1 if why else 1
        )
    wanted = ast.parse(result.text)
    here, there = [ast.dump(node) for node in item.file.tree.body], [ast.dump(node) for node in wanted.body]
    if here == there or (not item.ours and _only_dropped(item.file.tree, wanted)):
        return None
    return _first(item, wanted)


def _only_dropped(tree: ast.Module, wanted: ast.Module) -> bool:
    """Whether a file only lacks top-level statements of kinds that VeOmni's generator drops."""
    here = Counter(ast.dump(node) for node in tree.body)
    there = Counter(ast.dump(node) for node in wanted.body)
    if here - there:
        return False
    lacking = there - here
    return all(not isinstance(node, _KEPT_BY_ALL) for node in wanted.body if lacking[ast.dump(node)])


def _first(item: Generated, wanted: ast.Module) -> Difference:
    assert item.file.tree is not None
    there = Counter(ast.dump(node) for node in wanted.body)
    names = {name: node for node in wanted.body if (name := _name(node))}
    for node in item.file.tree.body:
        if not there[ast.dump(node)]:
            line = _line(node, names.get(_name(node)))
            what = _name(node) or "this statement"
            return Difference(f"{what} is not what {item.config.file.path.name} generates", item.file.path, line)  # type: ignore[union-attr]
    here = Counter(ast.dump(node) for node in item.file.tree.body)
    missing = next((node for node in wanted.body if not here[ast.dump(node)]), wanted.body[0])
    what = _name(missing) or ast.unparse(missing).splitlines()[0]
    return Difference(f"{what} is missing: the config generates it", item.file.path, 1)


def _name(node: ast.stmt) -> str:
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id
    return getattr(node, "name", "")


def _line(node: ast.stmt, other: ast.stmt | None) -> int:
    """The first line inside a definition that differs from the other one."""
    for one, two in zip(getattr(node, "body", ()), getattr(other, "body", ()), strict=False):
        if ast.dump(one) != ast.dump(two):
            return _line(one, two)
    return node.lineno
