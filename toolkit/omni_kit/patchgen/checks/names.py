"""Names that the result uses and nothing defines."""

import ast
from collections.abc import Iterator

from omni_kit.patchgen.checks.facts import Facts
from omni_kit.patchgen.diagnostics import Diagnostic, error


def undefined(facts: Facts) -> Iterator[Diagnostic]:
    """Yield a NameError waits: a patch uses what upstream does not import, or a dropped import is still in use."""
    found = facts.scopes.undefined()
    if not found:
        return
    ours = {helper.name for helper in facts.made.helpers}
    already = facts.upstream_scopes.undefined()
    for name, places in sorted(found.items()):
        if name in facts.excluded:
            continue
        guilty = sorted(p for p in places if not _is_upstreams(facts, p, ours) or p not in already.get(name, ()))
        if not guilty:
            continue
        guilty = [_precisely(facts, place, name) for place in guilty]
        where = ", ".join(place or "module-level code" for place in guilty[:3])
        if name in facts.config.drop_imported_names:
            advice = "its import is dropped, and nothing else defines it"
        else:
            library = f"{facts.source.name.partition('.')[0]} {facts.made.version}"
            advice = (
                f"the module of {library} lacks it: declare it with add_import, add_helper or add_post_import_block"
            )
        yield error("undefined-name", f"{where}: {name} is not defined; {advice}", facts.origin_of(guilty[0]), [name])


def _is_upstreams(facts: Facts, place: str, ours: set[str]) -> bool:
    return facts.patch_around(place) is None and place.partition(".")[0] not in ours


def _precisely(facts: Facts, place: str, name: str) -> str:
    """Return the definition whose decorators, bases or annotations use `name`: they run in the scope around it."""
    for path, definitions in facts.generated.definitions.items():
        node = definitions[-1].node
        outside: list[ast.AST] = [*node.decorator_list]
        outside += node.bases if isinstance(node, ast.ClassDef) else [node.args, *filter(None, [node.returns])]
        if path.rpartition(".")[0] == place and any(_uses(part, name) for part in outside):
            return path
    return place


def _uses(part: ast.AST, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(part))
