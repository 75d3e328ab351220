"""Compares a generated file with what its config generates now."""

import ast
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omni_checkers.engine.files import same_code
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.veomni.facts_generated import Generated, PatchConfigFile

if TYPE_CHECKING:
    from omni_kit.patchgen import ConfigResult

_KEPT_BY_ALL = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.Expr)


@dataclass(frozen=True)
class Difference:
    message: str
    path: Path
    line: int


@dataclass(frozen=True)
class Regenerated:
    """A patch config, and what it generates now."""

    config: PatchConfigFile
    result: "ConfigResult"


def regenerated(patch_configs: list[PatchConfigFile]) -> list[Regenerated]:
    """Every patch config, run in memory."""
    from omni_kit.patchgen import run_configs

    if not patch_configs:
        raise NotApplicable("the directory has no patch config")
    results = run_configs([config.file.path for config in patch_configs], write=False)
    return [Regenerated(config, result) for config, result in zip(patch_configs, results, strict=True)]


def difference(config: PatchConfigFile, item: Generated, result: "ConfigResult") -> Difference | None:
    """The first place where a generated file is not what its config makes; None when it is."""
    assert item.file.tree is not None
    if not result.text:
        why = next((d for d in result.diagnostics if d.severity == "error"), None)
        reason = f"{why.code}: {why.message}" if why else result.status
        return Difference(f"the config no longer generates: {reason}", config.file.path, why.line or 1 if why else 1)
    if _same_text(item, result.text):
        return None
    wanted = ast.parse(result.text)
    if same_code(item.file.tree.body, wanted.body) or (not item.ours and _only_dropped(item.file.tree, wanted)):
        return None
    return _first(item, wanted)


def _same_text(item: Generated, text: str) -> bool:
    """Whether the texts agree from the first statement on."""
    assert item.file.tree is not None
    if not item.file.tree.body:
        return False
    lines = item.file.text.splitlines(keepends=True)
    own = "".join(lines[item.file.tree.body[0].lineno - 1 :])
    before = text.removesuffix(own)
    return text.endswith(own) and all(not line.strip() or line.startswith("#") for line in before.splitlines())


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
