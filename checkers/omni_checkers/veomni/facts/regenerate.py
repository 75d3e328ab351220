"""Compares a generated file with what its config generates now."""

import ast
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from omni_checkers.engine.facts import fact
from omni_checkers.engine.files import same_code, same_statement
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.veomni.facts.generated import Generated, PatchConfigFile

if TYPE_CHECKING:
    from omni_kit.patchgen import ConfigResult

_KEPT_BY_ALL = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom, ast.Assign, ast.Expr)
_Alias = tuple[str, str, str]  # module with its leading dots, name, the name that it gets
_Statement = ast.stmt | set[_Alias]  # all imports of a run stand for one


@dataclass(frozen=True)
class Difference:
    """The first thing in which a generated file is not what its config generates, and where it shows.

    Attributes:
        kind: "no-longer-generates", "changed-statement" or "missing-statement".
    """

    kind: str
    message: str
    path: Path
    line: int


@dataclass(frozen=True)
class Regenerated:
    """A patch config, and what it generates now, not yet formatted."""

    config: PatchConfigFile
    result: "ConfigResult"


@fact
def regenerated(patch_configs: list[PatchConfigFile]) -> list[Regenerated]:
    """Every patch config, read and generated in memory; nothing of it is run."""
    from omni_kit.patchgen import draft_configs

    if not patch_configs:
        raise NotApplicable("the directory has no patch config")
    results = draft_configs([config.file.path for config in patch_configs], run=False)
    return [Regenerated(config, result) for config, result in zip(patch_configs, results, strict=True)]


def difference(config: PatchConfigFile, item: Generated, result: "ConfigResult") -> Difference | None:
    """The first place where a generated file is not what its config makes; None when it is."""
    from omni_kit.patchgen import finish

    assert item.file.tree is not None
    if result.text and _same_unformatted(item, result):
        return None
    finish([result])
    if not result.text:
        why = next((d for d in result.diagnostics if d.severity == "error"), None)
        reason = f"{why.code}: {why.message}" if why else result.status
        line = why.line or 1 if why else 1
        return Difference("no-longer-generates", f"the config no longer generates: {reason}", config.file.path, line)
    if _same_text(item, result.text):
        return None
    wanted = ast.parse(result.text)
    if same_code(item.file.tree.body, wanted.body) or (not item.ours and _only_dropped(item.file.tree, wanted)):
        return None
    return _first(item, wanted)


def _same_unformatted(item: Generated, result: "ConfigResult") -> bool:
    """Whether the file surely is what a draft becomes. Formatting sorts imports and removes unused ones, no more.

    It says less than is true, and never more: it is what spares most files the formatting.
    """
    assert result.generated is not None
    mine, draft = item.source, result.generated.module
    used = {name.id for name in item.file.nodes(ast.Name)}
    imports = [node for node in mine.tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    kept = {alias for node in imports for alias in _imported(node)}
    certain = {alias for node in imports if _is_kept(node, mine.lines) for alias in _imported(node)}
    if not all(_bound(alias) in used for alias in kept - certain):
        return False
    strings = "\n".join(text for text in _strings(item) if "\n" not in text)
    imported = {alias for node in draft.tree.body for alias in _imported(node)}
    unused = {alias for alias in imported - kept if not (_bound(alias) in used or _speaks_of(strings, _bound(alias)))}
    return _agree(item, list(_statements(mine.tree.body)), _statements(draft.tree.body, unused), draft.lines)


def _agree(item: Generated, mine: Iterable[_Statement], theirs: Iterator[_Statement], lines: Sequence[str]) -> bool:
    """Whether the statements are the same; files of VeOmni's generator may lack those that it drops."""
    for one in mine:
        for other in theirs:
            if isinstance(one, set) or isinstance(other, set):
                same = one == other
            else:
                same = same_statement(one, item.source.lines, other, lines)
            if same:
                break
            if not _may_lack(item, other):
                return False
        else:
            return False
    return all(_may_lack(item, other) for other in theirs)


def _may_lack(item: Generated, statement: _Statement) -> bool:
    return not item.ours and not isinstance(statement, (set, *_KEPT_BY_ALL))


def _strings(item: Generated) -> Iterator[str]:
    return (node.value for node in item.file.nodes(ast.Constant) if isinstance(node.value, str))


def _statements(body: list[ast.stmt], gone: Container[_Alias] = ()) -> Iterator[_Statement]:
    """The statements, with each run of imports as the set of what it imports."""
    for imports, run in groupby(body, lambda node: isinstance(node, (ast.Import, ast.ImportFrom))):
        if not imports:
            yield from run
        elif aliases := {alias for node in run for alias in _imported(node) if alias not in gone}:
            yield aliases


def _is_kept(node: ast.Import | ast.ImportFrom, lines: Sequence[str]) -> bool:
    """Whether it stays, used or not."""
    said = any("noqa" in line for line in lines[node.lineno - 1 : node.end_lineno])
    return said or (isinstance(node, ast.ImportFrom) and node.module == "__future__")


def _imported(node: ast.stmt) -> Iterator[_Alias]:
    if isinstance(node, ast.ImportFrom):
        module = "." * node.level + (node.module or "")
        yield from ((module, alias.name, alias.asname or "") for alias in node.names)
    elif isinstance(node, ast.Import):
        yield from ((alias.name, "", alias.asname or "") for alias in node.names)


def _bound(alias: _Alias) -> str:
    module, name, new = alias
    return new or name or module.partition(".")[0]


def _speaks_of(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


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
            message = f"{what} is not what {item.config.file.path.name} generates"  # type: ignore[union-attr]
            return Difference("changed-statement", message, item.file.path, line)
    here = Counter(ast.dump(node) for node in item.file.tree.body)
    missing = next((node for node in wanted.body if not here[ast.dump(node)]), wanted.body[0])
    what = _name(missing) or ast.unparse(missing).splitlines()[0]
    return Difference("missing-statement", f"{what} is missing: the config generates it", item.file.path, 1)


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
