"""Leftovers of an excluded class: its name in code that stays, and code that only it used."""

import ast
from collections.abc import Iterator

from omni_kit.patchgen.checks.facts import Facts
from omni_kit.patchgen.diagnostics import Diagnostic, error, warning
from omni_kit.patchgen.scopes import quoted_names


def excluded_references(facts: Facts) -> Iterator[Diagnostic]:
    """Yield code that stays names what is gone: it fails on import, or when a function gets there."""
    if not facts.excluded:
        return
    by_place: dict[str, set[str]] = {}
    for name in facts.excluded - facts.scopes.bound:
        for place in facts.scopes.uses.get(name, ()):
            by_place.setdefault(place, set()).add(name)
    for place, names in sorted(by_place.items()):
        at_import = sorted(n for n in names if place in facts.scopes.eager.get(n, ()))
        if at_import:
            kind = "as a base, decorator or default" if place else "at module level"
            message = f"{place or 'module'} names excluded {', '.join(at_import)} {kind}; exclude or replace it too"
            yield error("excluded-reference", message, facts.origin_of(place), at_import)
        if later := sorted(names - set(at_import)):
            tested = _tested_with_isinstance(facts, place, set(later))
            kind = "in isinstance" if tested else "in its body"
            message = (
                f"{place} names excluded {', '.join(later)} {kind}; override it, it raises NameError when it gets there"
            )
            yield error("excluded-reference", message, facts.origin_of(place), later)
    yield from _quoted(facts)
    yield from _exported(facts)


def dead_helpers(facts: Facts) -> Iterator[Diagnostic]:
    """Yield definitions that upstream used in excluded code alone: dead weight in the result."""
    dead = sorted(dead_names(facts))
    if dead:
        message = f"only excluded code used {', '.join(dead)}; add to exclude_from_output (run --fix does it)"
        yield warning("dead-helper", message, facts.config.origin, dead)


def dead_names(facts: Facts) -> set[str]:
    """Return the top-level definitions that nothing in the result uses, and that excluded code used upstream."""
    if not facts.excluded:
        return set()
    tops = {node.name for node in facts.tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    users = facts.scopes.users_by_definition()
    left = tops - _exported_names(facts.tree) - set(facts.patched_at)
    gone = set(facts.excluded)
    dead: set[str] = set()
    while fresh := {name for name in left - dead if not users.get(name, set()) - {name} - dead}:
        upstream = facts.upstream_scopes.users_by_definition()
        fresh = {name for name in fresh if upstream.get(name, set()) & gone}
        fresh -= {*quoted_names(facts.tree), *_strings(facts.tree)} if fresh else set()
        if not fresh:
            break
        dead |= fresh
        gone |= fresh
    return dead


def _tested_with_isinstance(facts: Facts, place: str, names: set[str]) -> bool:
    definition = facts.generated.get(place)
    calls = ast.walk(definition.node) if definition else ()
    return any(
        isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("isinstance", "issubclass")
        and any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(call))
        for call in calls
    )


def _quoted(facts: Facts) -> Iterator[Diagnostic]:
    gone = {name for name in facts.excluded - facts.scopes.bound if name in facts.made.text}
    for node in facts.tree.body if gone else ():
        text = facts.generated.rows(node.lineno, node.end_lineno or node.lineno)
        if names := sorted(set(quoted_names(node)) & gone if any(name in text for name in gone) else ()):
            place = getattr(node, "name", "module")
            message = f"{place} names excluded {', '.join(names)} in a quoted annotation; get_type_hints fails on it"
            yield warning("excluded-reference", message, facts.origin_of(place), names)


def _exported(facts: Facts) -> Iterator[Diagnostic]:
    left = sorted(_exported_names(facts.tree) & (facts.excluded - facts.scopes.bound))
    if left:
        message = (
            f"__all__ still lists excluded {', '.join(left)}; star imports fail: override it in a post-import block"
        )
        yield error("excluded-reference", message, facts.config.origin, left)


def _exported_names(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            found |= _strings(node)
    return found


def _strings(tree: ast.AST) -> set[str]:
    return {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and isinstance(n.value, str)}
