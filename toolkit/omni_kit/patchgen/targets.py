"""Resolution of patch targets, and patches that replace each other."""

import difflib
from typing import Literal, NamedTuple

from omni_kit.patchgen.diagnostics import Diagnostic, error, warning
from omni_kit.patchgen.source import Definition, SourceModule
from omni_kit.patchgen.spec import Patch, PatchConfig, PatchType

FoundStatus = Literal["applied", "injected", "missing-target", "ambiguous-target"]


class Found(NamedTuple):
    """The result of a search for a target: its definition and the class around it, if they exist."""

    status: FoundStatus
    definition: Definition | None = None
    owner: Definition | None = None


def find(patch: Patch, source: SourceModule) -> Found:
    """The definition of a patch's target, or why there is none."""
    match patch.patch_type:
        case PatchType.CLASS_REPLACEMENT:
            return _single([d for d in source.candidates(patch.target) if d.is_class])
        case PatchType.FUNCTION_REPLACEMENT:
            return _single([d for d in source.candidates(patch.target) if not d.is_class and d.owner is None])
        case PatchType.INIT_MODIFICATION:
            return _single(source.candidates(f"{patch.target}.__init__"))
    found = _single([d for d in source.candidates(patch.target) if d.owner is not None and not d.is_class])
    if found.status != "missing-target":
        return found
    owners = [d for d in source.candidates(patch.target.rpartition(".")[0]) if d.is_class]
    if len(owners) == 1 and not source.candidates(patch.target):
        return Found("injected", None, owners[0])
    return Found("ambiguous-target") if len(owners) > 1 else found


def unfit(patch: Patch, status: str, source: SourceModule) -> Diagnostic:
    """Return why a patch has no single target, with likely intended ones."""
    if status == "ambiguous-target":
        message = f"{patch.target} is defined more than once under conditions; replace the class or function around it"
        return error("ambiguous-target", message, patch.origin, [patch.target])
    close = similar(patch.target, source)
    meant = f"; did you mean {', '.join(close)}?" if close else ""
    what = _MISSING[patch.patch_type].format(target=patch.target)
    return error("missing-target", f"{what} in {source.name}{meant}", patch.origin, [patch.target])


def similar(target: str, source: SourceModule) -> list[str]:
    """Return paths in the source that look like `target`."""
    return difflib.get_close_matches(target, list(source.definitions), n=3, cutoff=0.75)


def shadowed(config: PatchConfig) -> tuple[set[int], list[Diagnostic]]:
    """Return the ids of patches that another one takes the place of: the last of the same target wins, a replaced class
    covers its methods, and an overridden __init__ covers a modified one."""
    hidden: set[int] = set()
    found: list[Diagnostic] = []
    last: dict[str, Patch] = {}
    for patch in config.patches:
        key = _key(patch)
        if key in last:
            hidden.add(id(last[key]))
            found.append(_twice(last[key], patch))
        last[key] = patch
    replaced = {p.target for p in last.values() if p.patch_type is PatchType.CLASS_REPLACEMENT}
    for patch in last.values():
        cover = _covering(patch, replaced)
        if cover is not None:
            hidden.add(id(patch))
            message = f"{_key(patch)} is never used: {cover} is replaced entirely; put the change into the replacement"
            found.append(error("shadowed", message, patch.origin, [patch.target]))
    return hidden, found


_MISSING = {
    PatchType.CLASS_REPLACEMENT: "there is no class {target}",
    PatchType.FUNCTION_REPLACEMENT: "there is no top-level function {target}",
    PatchType.METHOD_OVERRIDE: "there is no class for {target}",
    PatchType.INIT_MODIFICATION: "there is no class {target} with its own __init__",
    PatchType.ADDITIONAL_IMPORT: "{target} is not a definition",
}


def _single(found: list[Definition]) -> Found:
    if not found:
        return Found("missing-target")
    return Found("applied", found[0], found[0].owner) if len(found) == 1 else Found("ambiguous-target")


def _key(patch: Patch) -> str:
    return f"{patch.target}.__init__" if patch.patch_type is PatchType.INIT_MODIFICATION else patch.target


def _twice(first: Patch, second: Patch) -> Diagnostic:
    message = f"{_key(second)} is patched twice; the last patch wins"
    layered = first.origin and second.origin and first.origin.path != second.origin.path
    say = warning if layered else error
    return say("duplicate-target", message, second.origin, [second.target])


def _covering(patch: Patch, replaced: set[str]) -> str | None:
    parts = _key(patch).split(".")
    paths = [".".join(parts[:count]) for count in range(1, len(parts))]
    return next((path for path in paths if path in replaced), None)
