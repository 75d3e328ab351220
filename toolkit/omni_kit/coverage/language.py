"""Every model of the installed transformers that outputs text, with and without media."""

import re
from collections.abc import Sequence
from pathlib import Path

from omni_kit.coverage.case import Case, Outcome, as_markdown, proof
from omni_kit.errors import BadInput, OmniKitError
from omni_kit.parity import make_toy_checkpoint, run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.patchgen import run_config
from omni_kit.pysource.library import find_library
from omni_kit.scaffold import new_model
from omni_kit.targets.veomni.text.plan import UNSHARED
from omni_kit.upstream.kinds import MULTIMODAL
from omni_kit.upstream.subject import open_source
from omni_kit.upstream.transformers.autoclasses import CAUSAL_TABLE, IMAGE_TEXT_TABLE, MULTIMODAL_TABLE, auto_table
from omni_kit.upstream.transformers.configs import model_types

TARGET = "veomni"
_MESHES = ("sp", "fsdp")
_MEANING: dict[Outcome, str] = {
    "proven": "what new-model writes passes `verify --quick`, with no edit by hand",
    "to finish": "new-model says what is left to do by hand, and until then `verify` fails",
    "refused": "new-model says why it would not be right, and writes nothing",
    "not tested": "new-model writes it, and its levels were not run",
    "no toy": "transformers cannot build or run it small, so nothing could be compared",
    "fault": "something on the way failed",
}


def names() -> list[str]:
    """Return every model_type of the installed transformers with a model that outputs text, sorted.

    An old name of another type, without a configuration of its own, is left out.
    """
    library = find_library("transformers")
    tables = (CAUSAL_TABLE, IMAGE_TEXT_TABLE, MULTIMODAL_TABLE)
    configured = model_types(library)
    return sorted({name for table in tables for name in auto_table(library, table) if name in configured})


def cover_one(name: str, place: Path, sides: Sides) -> Case:
    """Bring one model through the path; all files stay below `place`."""
    kind, package = "", "my_" + re.sub(r"\W", "_", name)  # which is the name of no other package
    # the version that runs, and not the one that the target pins, which new-model would find
    running = find_library("transformers").root
    try:
        kind = open_source(name).kind
        new_model(package, name, target=TARGET, into=place, dry_run=True, transformers=running)
    except OmniKitError as error:
        return Case(name, kind, "refused", error.message)
    try:
        checkpoint = make_toy_checkpoint(name, place / "checkpoint", sides=sides)
    except BadInput as error:
        return Case(name, kind, "no toy", error.message.partition(": ")[2])
    try:
        scaffold = new_model(package, str(checkpoint), target=TARGET, into=place, transformers=running)
    except OmniKitError as error:
        return Case(name, kind, "refused", error.message)
    outcome, reason = _proof(place / package, sides)
    if outcome == "proven" and kind in MULTIMODAL:
        unshared = next((one.reason for one in scaffold.plan.decisions if one.choice == UNSHARED), "")
        reason += f"; {_among_processes(place / package, sides, unshared)}"
    reason = reason.replace(f"{place}/", "")
    if outcome in {"fault", "proven"} and scaffold.plan.todo:
        told = [scaffold.plan.todo[0].what, *([reason] if outcome == "fault" else [])]
        return Case(name, kind, "to finish", "; ".join(told))
    return Case(name, kind, outcome, reason)


def _proof(directory: Path, sides: Sides) -> tuple[Outcome, str]:
    try:
        for config in directory.glob("*_patch_gen_config.py"):
            wrong = [item.message for item in run_config(config).diagnostics if item.severity == "error"]
            if wrong:
                return "fault", f"patchgen: {wrong[0]}"
    except OmniKitError as error:
        return "fault", error.message
    return proof(directory, sides)


def _among_processes(directory: Path, sides: Sides, unshared: str) -> str:
    """Return the largest relative difference of each level with several processes, or why it fails.

    Args:
        unshared: why the forward cannot have a part of a sequence; empty if it can.
    """
    try:
        levels = run_parity(directory, _MESHES[bool(unshared) :], sides=sides).levels
    except OmniKitError as error:
        return f"not compared among processes: {error.message}"
    passed = (one.status == "pass" and one.max_rel is not None for one in levels)
    found = [
        f"{one.level} {one.max_rel:.0e}" if ok else f"{one.level} {one.status}: {one.reason}"
        for one, ok in zip(levels, passed, strict=True)
    ]
    return ", ".join([*([f"no {_MESHES[0]}: {unshared}"] if unshared else []), *found])


def _passes_among_processes(case: Case) -> bool:
    return case.outcome == "proven" and all(re.search(rf"\b{name} \d", case.reason) for name in _MESHES)


def page(cases: Sequence[Case]) -> str:
    """Return the counts and a table."""
    library = find_library("transformers")
    media = [one for one in cases if one.about in {*MULTIMODAL}]
    heading = [
        "# Models of transformers that answer in text, brought into VeOmni",
        "",
        f"Made by `make coverage-models` with {library.name} {library.version}: every model_type that has a",
        "causal language model or one that takes media, from a toy with the library's own classes. A toy is small",
        "and keeps the model's decisions.",
        "",
        f"{len(media)} of them take media, and {sum(one.outcome == 'proven' for one in media)} of these are proven.",
        "Rows with `sp` and `fsdp` were also compared among 2 and 4 processes with media on some of them only, by",
        f"sequence parallelism and by FSDP: {sum(map(_passes_among_processes, media))} pass both.",
    ]
    return as_markdown(heading, _MEANING, ("model_type", "kind"), cases)
