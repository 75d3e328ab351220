"""Changes of one upstream definition between two versions."""

import ast
import copy
import difflib
from dataclasses import dataclass
from inspect import Parameter
from typing import Literal

from omni_kit.patchgen.source import Definition, DefinitionNode, SourceModule
from omni_kit.patchgen.spans import shift
from omni_kit.plurals import counted
from omni_kit.pysource.nodes import rebuilt, without_docstring
from omni_kit.pysource.signatures import signature

_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
DriftStatus = Literal["unchanged", "body-changed", "signature-changed", "decorators-changed", "vanished"]


@dataclass(frozen=True)
class Change:
    """`then` and `now` are the definition without decorators, dedented; `detail` says what changed in one line."""

    status: DriftStatus
    detail: str
    then: str = ""
    now: str = ""
    cosmetic: bool = False


def compare(before: SourceModule, old: Definition, after: SourceModule | None, path: str) -> Change:
    """Return the change of `old` at `path` in the newer module; None for a module that no longer exists."""
    then = body_text(before, old)
    if after is None:
        return Change("vanished", "the whole module is gone", then)
    new = after.get(path)
    if new is None:
        return Change("vanished", _where_to(then, old, after, path), then)
    now = body_text(after, new)
    if then == now and before.decorators_of(old) == after.decorators_of(new):
        return Change("unchanged", "", then, now)
    if (signature := _signature_change(old.node, new.node)) is not None:
        return Change("signature-changed", signature, then, now)
    if _code(old.node) != _code(new.node):
        return Change("body-changed", _count(then, now), then, now)
    if _decorators(old.node) == _decorators(new.node) and _all_decorators(old.node) != _all_decorators(new.node):
        return Change("decorators-changed", "decorators of nested definitions", then, now)
    if _decorators(old.node) != _decorators(new.node):
        detail = f"was {_decorators(old.node) or 'bare'}, is {_decorators(new.node) or 'bare'}"
        return Change("decorators-changed", detail, then, now)
    return Change("unchanged", "comments, docstring or layout only", then, now, cosmetic=True)


def body_text(module: SourceModule, definition: Definition) -> str:
    """Return a definition from its def or class line on, dedented."""
    node = definition.node
    return shift(module.rows(node.lineno, definition.last_line), node.col_offset, 0).rstrip() + "\n"


def _signature_change(old: DefinitionNode, new: DefinitionNode) -> str | None:
    if isinstance(old, ast.ClassDef) or isinstance(new, ast.ClassDef):
        differ = type(old) is not type(new) or _bases(old) != _bases(new)
        return f"bases were ({_bases(old)}), are ({_bases(new)})" if differ else None
    if type(old) is not type(new):
        return "async became plain, or plain became async"
    was, now = _parameters(old), _parameters(new)
    if was == now:
        return None
    gone, come = [n for n in was if n not in now], [n for n in now if n not in was]
    changed = [n for n in was if n in now and was[n] != now[n]]
    parts = [("without", gone), ("with new", come), ("other default of", changed)]
    said = "; ".join(f"{what} {', '.join(names)}" for what, names in parts if names)
    return said or "parameter order changed"


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, str]:
    """Parameter name, with its stars, to its default; annotations do not count."""
    stars: dict[object, str] = {Parameter.VAR_POSITIONAL: "*", Parameter.VAR_KEYWORD: "**"}
    return {
        stars.get(one.kind, "") + name: "" if one.default is one.empty else ast.dump(one.default)
        for name, one in signature(node).parameters.items()
    }


def _bases(node: DefinitionNode) -> str:
    return ", ".join(ast.unparse(b) for b in node.bases) if isinstance(node, ast.ClassDef) else "a function"


def _decorators(node: DefinitionNode) -> str:
    return " ".join(f"@{ast.unparse(d)}" for d in node.decorator_list)


def _all_decorators(node: DefinitionNode) -> list[list[str]]:
    """Return the decorators of a definition and of those inside, in their order."""
    return [
        [ast.unparse(one) for one in inner.decorator_list] for inner in ast.walk(node) if isinstance(inner, _DEFINED)
    ]


def _code(node: DefinitionNode) -> str:
    """Return the statements of a definition, without its docstring and without the decorators of nested definitions."""
    return "\n".join(ast.unparse(rebuilt(one, _undecorated)) for one in without_docstring(node.body))


def _undecorated(node: ast.AST) -> ast.AST | None:
    if not isinstance(node, _DEFINED) or not node.decorator_list:
        return None
    bare = copy.copy(node)
    bare.decorator_list = []
    return rebuilt(bare, _undecorated)


def _count(then: str, now: str) -> str:
    old, new = then.splitlines(), now.splitlines()
    same = sum(b.size for b in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks())
    return f"{counted(len(old) - same, 'line')} went, {len(new) - same} came"


def _where_to(then: str, old: Definition, after: SourceModule, path: str) -> str:
    """Return a guess at where a vanished definition went: most of its lines elsewhere, or a name like its own."""
    wanted = _telling_lines(then)
    best, share = "", 0.0
    for other, definitions in after.definitions.items():
        if definitions[-1].is_class == old.is_class and other.rpartition(".")[0] == path.rpartition(".")[0]:
            lines = _telling_lines(body_text(after, definitions[-1]))
            common = len(wanted & lines) / max(len(wanted | lines), 1)
            best, share = (other, common) if common > share else (best, share)
    if share > 0.5:
        return f"{round(share * 100)} % of its lines are now in {best}"
    owner = path.rpartition(".")[0]
    if owner and after.get(owner) is None:
        return f"class {owner} is gone"
    close = difflib.get_close_matches(path, list(after.definitions), n=1, cutoff=0.85)
    return f"no such name; {close[0]} is similar" if close else "no such name"


def _telling_lines(text: str) -> set[str]:
    return {line.strip() for line in text.splitlines()[1:] if any(c.isalnum() for c in line)}
