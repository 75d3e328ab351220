"""Checks of a generated module before it is written: one module per topic, one function per question."""

from collections.abc import Callable, Iterable

from omni_kit.patchgen.checks import calls, docs, imports, leftovers, names, outputs, replacements, version
from omni_kit.patchgen.checks.facts import Facts
from omni_kit.patchgen.diagnostics import Diagnostic, error
from omni_kit.patchgen.generate import Generated
from omni_kit.patchgen.locate import Libraries

Check = Callable[[Facts], Iterable[Diagnostic]]

CHECKS: tuple[Check, ...] = (
    version.transformers_version,
    version.open_conflicts,
    replacements.injected,
    replacements.guarded,
    replacements.async_mismatch,
    replacements.decorators,
    replacements.mutable_defaults,
    replacements.no_change,
    outputs.output_fields,
    outputs.name_map_keys,
    calls.signatures,
    docs.undocumented,
    imports.missing,
    imports.collisions,
    imports.config_imports,
    leftovers.excluded_references,
    leftovers.dead_helpers,
    names.undefined,
)


def check_generated(made: Generated, libraries: Libraries) -> list[Diagnostic]:
    """Return everything that the checks have to say about one result."""
    try:
        facts = Facts(made, libraries)
    except SyntaxError as wrong:
        return [
            error(
                "invalid-python",
                f"the result is not Python: line {wrong.lineno}: {wrong.msg}",
                made.loaded.config.origin,
            )
        ]
    return [found for check in CHECKS for found in check(facts)]
