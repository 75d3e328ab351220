"""Every pipeline of the installed diffusers that denoises with a transformer, served by SGLang."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from omni_kit.coverage.case import Case, Outcome, as_markdown, proof
from omni_kit.errors import BadInput, OmniKitError
from omni_kit.parity.processes.workers import Sides
from omni_kit.pysource.library import find_library
from omni_kit.scaffold import Scaffold, new_model
from omni_kit.targets.sglang_diffusion.built_in import own
from omni_kit.upstream.diffusers.classes import PIPELINES, class_names, place_of
from omni_kit.upstream.diffusers.pipelines import find_pipeline

TARGET = "sglang-diffusion"
_NOTHING = " | | "
_TOLD = ("way", "devices", "not served")
_MEANING: dict[Outcome, str] = {
    "proven": "what new-model writes passes `verify --quick` with no edit by hand: SGLang's engine and diffusers' "
    "pipeline are compared stage by stage on a small pipeline of that class",
    "to finish": "new-model leaves to-dos, and until they are done `verify` reports that they are",
    "refused": "new-model says why SGLang cannot serve it, and writes nothing",
    "no toy": "no small pipeline can be made here, so nothing was compared",
    "fault": "something on the way failed",
}


def names() -> list[str]:
    """Return every pipeline that the installed diffusers exports and that denoises with a transformer."""
    return list(_names())


def _names() -> Iterator[str]:
    library = find_library("diffusers")
    for name in class_names(library):
        if name.endswith("Pipeline") and (place_of(library, name) or "").startswith(f"{PIPELINES}/"):
            try:
                _ = find_pipeline(library, name, {}).denoiser
            except BadInput:
                continue
            yield name


def cover_one(name: str, place: Path, sides: Sides) -> Case:
    """Bring one pipeline through the path."""
    package = re.sub(r"(?<!^)(?=[A-Z][a-z])", "_", name.removesuffix("Pipeline")).lower()
    try:
        scaffold = new_model(package, name, target=TARGET, into=place, force=True)
    except OmniKitError as error:
        return Case(name, _NOTHING, "refused", error.message)
    return Case(name, " | ".join(_about(scaffold)), *proof(place / package, sides))


def _about(scaffold: Scaffold) -> Iterator[str]:
    for what in _TOLD:
        yield ", ".join(one.choice for one in scaffold.plan.decisions if one.what == what and one.evidence)


def page(cases: Sequence[Case]) -> str:
    """Return the counts and a table."""
    library = find_library("diffusers")
    heading = [
        "# Pipelines of diffusers, served by SGLang",
        "",
        f"Made by `make coverage-sglang` with {library.name} {library.version} and SGLang {own().version}: every",
        "pipeline that denoises with a transformer, from a toy with the library's own classes. `devices` says how",
        "several share the work, and `not served` names the arguments of the call that no request carries.",
    ]
    return as_markdown(heading, _MEANING, ("pipeline", *_TOLD), cases)
