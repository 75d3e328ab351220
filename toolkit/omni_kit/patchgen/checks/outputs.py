"""name_map reuse: a body that builds one output class cannot serve another that has other fields."""

import ast
from collections.abc import Iterator

from omni_kit.patchgen.apply import Applied
from omni_kit.patchgen.checks.facts import Facts
from omni_kit.patchgen.diagnostics import Diagnostic, error, info
from omni_kit.patchgen.imports import absolute, bound_by
from omni_kit.patchgen.locate import Libraries
from omni_kit.patchgen.source import SourceModule, read_module


def output_fields(facts: Facts) -> Iterator[Diagnostic]:
    """Yield the renamed body builds an output class whose fields differ: those it does not know are silently lost."""
    for applied in facts.applied:
        if applied.renaming is None or applied.fragment is None or not applied.renaming.renamed:
            continue
        home = _home(applied, facts)
        for old, new in applied.renaming.renamed.items():
            call = _call_of(applied.fragment.node, new)
            if call is None:
                continue
            before, after = fields(home, old, facts.libraries), fields(facts.source, new, facts.libraries)
            wanted = _wanted(applied, new)
            lost = [
                n
                for n in (after or ())
                if n not in (before or ()) and n not in _passed(call) and (wanted is None or n in wanted)
            ]
            extra = [name for name in _passed(call) if after is not None and name not in after]
            if before is not None and after is not None and (lost or extra):
                what = f"leaves out {', '.join(lost)}" if lost else f"passes {', '.join(extra)}, which it does not have"
                message = f"{applied.patch.target}: renamed {old} to {new}, but the body {what}; write the patch out"
                yield error("output-fields", message, applied.patch.origin, [new, *lost, *extra])


def name_map_keys(facts: Facts) -> Iterator[Diagnostic]:
    """Yield keys that matched nothing, and identifiers that hold a key where no word begins."""
    for applied in facts.applied:
        renaming = applied.renaming
        if renaming is None or not applied.patch.name_map:
            continue
        if renaming.unused:
            message = f"{applied.patch.target}: name_map key {', '.join(renaming.unused)} matches no identifier"
            yield info("name-map-unused", message, applied.patch.origin, renaming.unused)
        if renaming.passed_over:
            message = f"{applied.patch.target}: name_map does not touch {', '.join(renaming.passed_over)}"
            yield info("name-map-skipped", message, applied.patch.origin, renaming.passed_over)


def fields(module: SourceModule | None, name: str, libraries: Libraries, depth: int = 0) -> list[str] | None:
    """Return the annotated fields of an output class, inherited ones first; None when it is no output class that is
    found.
    """
    if module is None or depth > 8:
        return None
    definition = module.get(name)
    if definition is None:
        elsewhere = _imported(module, name, libraries)
        return fields(elsewhere[0], elsewhere[1], libraries, depth + 1) if elsewhere else None
    node = definition.node
    if not isinstance(node, ast.ClassDef):
        return None
    inherited: list[str] = []
    known = any(ast.unparse(d).split("(")[0].endswith("dataclass") for d in node.decorator_list)
    for base in node.bases:
        if isinstance(base, ast.Name):
            known = known or base.id == "ModelOutput"
            inherited += fields(module, base.id, libraries, depth + 1) or []
    own = [n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)]
    return [*dict.fromkeys([*inherited, *own])] if known or inherited else None


def _home(applied: Applied, facts: Facts) -> SourceModule | None:
    """Return the upstream module that the replacement was written for: that of the config in its file."""
    assert applied.fragment is not None
    if applied.fragment.path == facts.made.loaded.path:
        names = [a for a in (applied.renaming.renamed if applied.renaming else ()) if facts.source.get(a)]
        if names:
            return facts.source
    config = facts.made.loaded.siblings.get(applied.fragment.path)
    if config is None:
        return read_module(applied.fragment.path.stem, applied.fragment.path)
    path = facts.libraries.file_of(config.source_module)
    return read_module(config.source_module, path) if path else None


def _imported(module: SourceModule, name: str, libraries: Libraries) -> tuple[SourceModule, str] | None:
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if bound_by(alias, node) == name:
                    dotted = absolute(node, module.name, module.path.name == "__init__.py")
                    path = libraries.file_of(dotted)
                    return (read_module(dotted, path), alias.name) if path else None
    return None


def _call_of(tree: ast.AST, name: str) -> ast.Call | None:
    calls = (n for n in ast.walk(tree) if isinstance(n, ast.Call))
    return next((c for c in calls if isinstance(c.func, ast.Name) and c.func.id == name), None)


def _wanted(applied: Applied, name: str) -> set[str] | None:
    """Return the fields that upstream's own body gives that class; None when it builds no such thing."""
    call = _call_of(applied.definition.node, name) if applied.definition else None
    return _passed(call) if call else None


def _passed(call: ast.Call) -> set[str]:
    return {keyword.arg for keyword in call.keywords if keyword.arg}
