"""Every diffusion transformer of the installed diffusers."""

import re
from collections.abc import Sequence
from pathlib import Path

from omni_kit.coverage.case import Case, Outcome, as_markdown, proof
from omni_kit.errors import OmniKitError
from omni_kit.parity import make_toy_checkpoint, run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.pysource.library import find_library
from omni_kit.scaffold import new_model
from omni_kit.upstream.diffusers.classes import transformer_names

TARGET = "veomni"
_SHARED, _ALONE = "equal", "no plan"
_NOTHING = " | "
_MEANING: dict[Outcome, str] = {
    "proven": "what new-model writes passes `verify --quick` and the level `hooks`, with no edit by hand; what is "
    "saved is, in tensors and config.json, what diffusers saves, and diffusers loads it",
    "not tested": "the transformer passes `verify --quick`, and its conditions could not be tried here",
    "to finish": "new-model leaves to-dos, and until they are done `verify` reports that they are",
    "refused": "new-model says why it would not be right, and writes nothing",
    "no toy": "diffusers cannot build or run it small, so nothing could be compared",
    "fault": "something on the way failed",
}


def names() -> list[str]:
    """Return every class of a transformer that the installed diffusers exports."""
    return transformer_names(find_library("diffusers"))


def cover_one(name: str, place: Path, sides: Sides) -> Case:
    """Bring one model through the path; all files stay below `place`."""
    package = _package(name)
    try:
        scaffold = new_model(package, name, target=TARGET, into=place)
    except OmniKitError as error:
        return Case(name, _NOTHING, "refused", error.message)
    try:
        checkpoint = make_toy_checkpoint(name, place / "checkpoint", sides=sides)
    except OmniKitError as error:
        return Case(name, _NOTHING, "no toy", error.message.partition(": ")[2] or error.message)
    outcome, reason = proof(place / package, sides)
    conditions = ""
    if outcome == "proven":
        outcome, conditions, reason = _conditioned(place / package, sides, reason)
    shares = any((one.what, one.choice) == ("sequence parallelism", "patch") for one in scaffold.plan.decisions)
    about = _shared(place / package, checkpoint, sides) if shares and outcome == "proven" else _ALONE
    return Case(name, f"{about} | {conditions}", outcome, reason)


def _conditioned(directory: Path, sides: Sides, figure: str) -> tuple[Outcome, str, str]:
    """Return the result of the level `hooks` for the condition model: outcome, comparison, and figure or reason."""
    try:
        (level,) = run_parity(directory, ["hooks"], sides=sides).levels
    except OmniKitError as error:
        return "not tested", "", error.message
    if level.status == "pass":
        return "proven", _SHARED, figure
    return ("fault" if level.status == "fail" else "not tested"), "", level.reason


def _shared(directory: Path, checkpoint: Path, sides: Sides) -> str:
    """Return the results of two and four processes with sharded sequences."""
    try:
        (level,) = run_parity(directory, ["sp"], checkpoint=checkpoint, sides=sides).levels
    except OmniKitError as error:
        return error.message
    return f"{_SHARED} ({level.max_rel or 0.0:.0e})" if level.status == "pass" else f"{level.status}: {level.reason}"


def _package(name: str) -> str:
    """WanTransformer3DModel -> wan_transformer3_d."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name.removesuffix("Model"))
    return "_".join(words).lower()


def page(cases: Sequence[Case]) -> str:
    """Return the counts and a table."""
    library = find_library("diffusers")
    heading = [
        "# Diffusion transformers of diffusers, brought into VeOmni",
        "",
        f"Made by `make coverage-dit` with {library.name} {library.version}: every transformer that it exports, from a",
        "toy with the library's own class. A toy is small and keeps the model's decisions. Where the class says how a",
        "sequence is shared among processes, two and four of them are compared with one, on even and odd lengths.",
        "Conditions are compared with the pipeline's own: latents, embeddings, timesteps, noise levels and targets.",
    ]
    return as_markdown(heading, _MEANING, ("class", "sequence parallelism", "conditions"), cases)
