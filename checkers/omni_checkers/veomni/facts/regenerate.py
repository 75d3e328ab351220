"""Compares a generated file with what its config generates now."""

import ast
import re
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from omni_checkers.engine.facts import fact
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.veomni.facts.generated import Generated, PatchConfigFile
from omni_kit.pysource.equality import same_statement
from omni_kit.pysource.library import Library

if TYPE_CHECKING:
    from omni_kit.patchgen import ConfigResult
    from omni_kit.patchgen.staleness import Difference

_Alias = tuple[str, str, str]  # module with its leading dots, name, the name that it gets
_Statement = ast.stmt | set[_Alias]  # all imports of a run stand for one


@dataclass(frozen=True)
class Regenerated:
    """A patch config, and what it generates now, not yet formatted."""

    config: PatchConfigFile
    result: "ConfigResult"


@fact
def regenerated(patch_configs: list[PatchConfigFile], transformers: Library) -> list[Regenerated]:
    """Return every patch config, read and generated in memory; nothing of it is run."""
    from omni_kit.patchgen import draft_configs

    if not patch_configs:
        raise NotApplicable("the directory has no patch config")
    results = draft_configs([config.file.path for config in patch_configs], run=False)
    return [Regenerated(config, result) for config, result in zip(patch_configs, results, strict=True)]


def difference(config: PatchConfigFile, item: Generated, result: "ConfigResult") -> "Difference | None":
    """Return the first place where a generated file is not what its config makes; None when it is."""
    from omni_kit.patchgen import finish
    from omni_kit.patchgen.staleness import Difference, GeneratedFile, code_difference, diff_difference

    assert item.file.tree is not None
    there = GeneratedFile(item.file.path, item.file.text, item.file.tree)
    found = None
    if not (result.text and _same_unformatted(item, result)):
        finish([result])
        if not result.text:
            why = next((d for d in result.diagnostics if d.severity == "error"), None)
            reason = f"{why.code}: {why.message}" if why else result.status
            line = why.line or 1 if why else 1
            message = f"the config no longer generates: {reason}"
            return Difference("no-longer-generates", message, config.file.path, line)
        found = code_difference(there, result.text, config.file.path.name)
    assert result.generated is not None
    return found or diff_difference(there, result.generated.source.text, result.source_module)


def _same_unformatted(item: Generated, result: "ConfigResult") -> bool:
    """Return whether the file surely is what a draft becomes. Formatting sorts imports and removes unused ones, no
    more.

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
    """Return whether the statements are the same; files of VeOmni's generator may lack those that it drops."""
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
    from omni_kit.patchgen.staleness import KEPT_BY_ALL

    return not item.ours and not isinstance(statement, (set, *KEPT_BY_ALL))


def _strings(item: Generated) -> Iterator[str]:
    return (node.value for node in item.file.nodes(ast.Constant) if isinstance(node.value, str))


def _statements(body: list[ast.stmt], gone: Container[_Alias] = ()) -> Iterator[_Statement]:
    """Yield the statements, with each run of imports as the set of what it imports."""
    for imports, run in groupby(body, lambda node: isinstance(node, (ast.Import, ast.ImportFrom))):
        if not imports:
            yield from run
        elif aliases := {alias for node in run for alias in _imported(node) if alias not in gone}:
            yield aliases


def _is_kept(node: ast.Import | ast.ImportFrom, lines: Sequence[str]) -> bool:
    """Return whether it stays, used or not."""
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
