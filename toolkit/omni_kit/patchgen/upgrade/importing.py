"""Imports of a config file, and those that it adds to the generated one, as a newer upstream needs them."""

import ast
from collections.abc import Iterator

from omni_kit.patchgen.imports import absolute, bound_by
from omni_kit.patchgen.scopes import scopes_of
from omni_kit.patchgen.source import SourceModule
from omni_kit.patchgen.spans import Edit, splice
from omni_kit.patchgen.upgrade.contracts import Upstream

_Import = ast.Import | ast.ImportFrom


def binding(module: SourceModule, name: str) -> tuple[str, str | None, str | None] | None:
    """(module, name there, alias) of an import that binds a name at the top level, also under an if or try."""
    for top in module.tree.body:
        if isinstance(top, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in ast.walk(top):
            for alias in node.names if isinstance(node, (ast.Import, ast.ImportFrom)) else ():
                if bound_by(alias, node) != name:  # type: ignore[arg-type]
                    continue
                if isinstance(node, ast.Import):
                    return alias.name, None, alias.asname
                assert isinstance(node, ast.ImportFrom)
                return absolute(node, module.name, module.path.name == "__init__.py"), alias.name, alias.asname
    return None


def add_import(name: str, old: Upstream, new: Upstream) -> str | None:
    """The `add_import` that brings back a name which upstream no longer imports; None where it is gone for good."""
    found = binding(old.module, name)
    if found is None:
        return None
    module, original, alias = found
    path = new.libraries.file_of(module)
    own = module.partition(".")[0] == new.module.name.partition(".")[0]
    if own and (path is None or (original is not None and original not in path.read_text(encoding="utf-8"))):
        return None
    as_name = f', alias="{alias}"' if alias else ""
    if original is None:
        return f'config.add_import("{module}"{as_name}, is_from_import=False)\n'
    return f'config.add_import("{module}", names=["{original}"]{as_name})\n'


def follow_imports(text: str, before: str, upstreams: list[Upstream], has: dict[str, bool]) -> str:
    """A config's text whose own imports fit what its patches name now.

    Names that patches use since the upgrade are imported from where upstream has them; imports of names that upstream
    no longer has go, where nothing uses them any more.

    Args:
        before: the config's text before the upgrade.
        has: for each "module.name" that was looked up, whether the newer upstream has it.
    """
    known = scopes_of(before)
    new = {name for name in scopes_of(text).undefined() if name in scopes_of(text).eager and name not in known.eager}
    lines = sorted({line for name in new if (line := _import_of(name, upstreams)) is not None})
    module = SourceModule("config", upstreams[0].module.path, text)
    edits = list(_without_gone(module, has))
    if lines:
        last = _last_import(module, upstreams[0].module.name.partition(".")[0])
        edits.append(Edit(last, last, "".join(lines)))
    return splice(text, edits)


def _import_of(name: str, upstreams: list[Upstream]) -> str | None:
    for upstream in upstreams:
        if upstream.module.get(name) is not None:
            return f"from {upstream.module.name} import {name}\n"
        found = binding(upstream.module, name)
        if found is not None:
            module, original, alias = found
            as_name = f" as {alias}" if alias else ""
            return f"from {module} import {original}{as_name}\n" if original else f"import {module}{as_name}\n"
    return None


def _last_import(module: SourceModule, library: str) -> int:
    """The offset behind the last import of upstream's library in the config's head, or behind the first import."""
    last = 0
    for node in module.tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            name = (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
            if not last or name.partition(".")[0] == library:
                last = node.end_lineno or node.lineno
        elif last:
            break
    return module.line_start(last + 1)


def _without_gone(module: SourceModule, has: dict[str, bool]) -> Iterator[Edit]:
    used = {one.id for one in ast.walk(module.tree) if isinstance(one, ast.Name)}
    for node in module.tree.body:
        if not isinstance(node, ast.ImportFrom) or not node.module:
            continue
        gone = [
            one
            for one in node.names
            if not has.get(f"{node.module}.{one.name}", True) and (one.asname or one.name) not in used
        ]
        if not gone:
            continue
        kept = [one for one in node.names if one not in gone]
        if not kept:
            yield Edit(module.line_start(node.lineno), module.line_start((node.end_lineno or node.lineno) + 1), "")
        for one in gone if kept else ():
            yield _without_alias(module, node, one)


def _without_alias(module: SourceModule, node: ast.ImportFrom, alias: ast.alias) -> Edit:
    index = node.names.index(alias)
    start, end = module.start_of(alias), module.end_of(alias)
    if index + 1 < len(node.names):
        return Edit(start, module.start_of(node.names[index + 1]), "")
    return Edit(module.end_of(node.names[index - 1]), end, "")
