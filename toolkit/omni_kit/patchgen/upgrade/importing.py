"""Imports of a config file, and those that it adds to the generated one, as a newer upstream needs them."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_kit.patchgen.imports import absolute, bound_by
from omni_kit.patchgen.scopes import scopes_of
from omni_kit.patchgen.source import SourceModule
from omni_kit.patchgen.spans import Edit, splice
from omni_kit.patchgen.upgrade.contracts import Upstream
from omni_kit.patchgen.upgrade.parts import Item, removal

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
    """Return the `add_import` that brings back a name which upstream no longer imports; None if it is gone for good."""
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


def imports_from(tree: ast.Module) -> Iterator[tuple[ast.AST, str, list[str]]]:
    """Yield (node of the import or of the module's name, module, names) of what a config imports or has generated."""
    for top in tree.body:
        match top:
            case ast.ImportFrom(module=str(module), names=names):
                yield top, module, [one.name for one in names]
            case ast.Expr(
                value=ast.Call(func=ast.Attribute(attr="add_import"), args=[ast.Constant() as first, *_]) as call
            ):
                listed = [one.value for one in call.keywords if one.arg == "names"]
                words = [one.value for top in listed for one in ast.walk(top) if isinstance(one, ast.Constant)]
                yield first, str(first.value), list(map(str, words))


def import_beside(text: str, source: str, name: str) -> str:
    """Return a config's text that imports one more name from a module that it imports from."""
    module = SourceModule("config", Path(), text)
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == source:
            at = module.end_of(node.names[-1])
            known = any(one.name == name for one in node.names)
            return text if known else splice(text, [Edit(at, at, f", {name}")])
    return text


def follow_imports(text: str, before: str, upstreams: list[Upstream], has: dict[str, bool]) -> str:
    """Return a config's text whose own imports fit what its patches name now.

    Names that patches use since the upgrade are imported from where upstream has them, also those that it moved;
    imports that nothing uses any more go.

    Args:
        before: the config's text before the upgrade.
        has: for each "module.name" that was looked up, whether the newer upstream has it.
    """
    known = scopes_of(before)
    new = {name for name in scopes_of(text).undefined() if name in scopes_of(text).eager and name not in known.eager}
    module = SourceModule("config", upstreams[0].module.path, text)
    used, was = (
        {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)} for tree in (module.tree, ast.parse(before))
    )
    edits: list[Edit] = []
    for node, source, names in imports_from(module.tree):
        lost = {name for name in names if not has.get(f"{source}.{name}", True)}
        homes = {name: home for name in lost if (home := _home(name, upstreams)) not in (None, source)}
        if isinstance(node, ast.ImportFrom):
            bound = {one.name: one.asname or one.name for one in node.names}
            moved = {name for name in homes if bound[name] == name and name in used}
            gone = {name for name in names if bound[name] not in used and (name in lost or bound[name] in was)}
            edits += _without(module, node, gone | moved)
            new |= moved
        elif lost and lost == set(names) and homes.keys() == lost and len(set(homes.values())) == 1:
            edits.append(Edit(module.start_of(node), module.end_of(node), f'"{homes.popitem()[1]}"'))
    wanted: dict[str, list[str]] = {}
    for start, imported in sorted(filter(None, (_import_of(name, upstreams) for name in new))):
        wanted.setdefault(start, []).append(imported)
    if wanted:
        last = _last_import(module, upstreams[0].module.name.partition(".")[0])
        edits.append(Edit(last, last, "".join(f"{start} {', '.join(names)}\n" for start, names in wanted.items())))
    return splice(text, edits)


def _home(name: str, upstreams: list[Upstream]) -> str | None:
    """Return the module from which the newer upstream imports a name under that name."""
    for upstream in upstreams:
        found = binding(upstream.module, name)
        if found is not None and found[1] == name:
            return found[0]
    return None


def _import_of(name: str, upstreams: list[Upstream]) -> tuple[str, str] | None:
    """Return the start of the import that binds a name ("from a.b import", "import") and what it imports."""
    for upstream in upstreams:
        if upstream.module.get(name) is not None:
            return f"from {upstream.module.name} import", name
        found = binding(upstream.module, name)
        if found is not None:
            module, original, alias = found
            as_name = f" as {alias}" if alias else ""
            return (f"from {module} import", original + as_name) if original else ("import", module + as_name)
    return None


def _last_import(module: SourceModule, library: str) -> int:
    """Return the offset behind the last import of upstream's library in the config's head, or behind the first
    import.
    """
    last = 0
    for node in module.tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            name = (node.module or "") if isinstance(node, ast.ImportFrom) else node.names[0].name
            if not last or name.partition(".")[0] == library:
                last = node.end_lineno or node.lineno
        elif last:
            break
    return module.line_start(last + 1)


def _without(module: SourceModule, node: ast.ImportFrom, names: set[str]) -> Iterator[Edit]:
    """Yield the edits that take names out of an import."""
    items = [Item(one.name, "", module.start_of(one), module.end_of(one)) for one in node.names]
    gone = {index for index, one in enumerate(items) if one.key in names}
    if len(gone) == len(items):
        yield Edit(module.line_start(node.lineno), module.line_start((node.end_lineno or node.lineno) + 1), "")
    else:
        yield from removal(module, items, gone)
