"""Kinds of models and pipelines, and the one place where a kind is derived from what was read."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """Kind of a Subject, as far as an integration depends on it."""

    llm = "llm"
    moe = "moe"
    vlm = "vlm"
    vlm_moe = "vlm-moe"
    omni = "omni"
    omni_moe = "omni-moe"
    dit = "dit"
    pipeline = "pipeline"
    modular = "modular"
    other = "other"


MULTIMODAL = frozenset({Kind.vlm, Kind.vlm_moe, Kind.omni, Kind.omni_moe})
WITH_EXPERTS = frozenset({Kind.moe, Kind.vlm_moe, Kind.omni_moe})


@dataclass(frozen=True)
class Signs:
    """Signs of a kind. Each sign is the place where it was read, as config key or file:line; empty if it is missing.

    Attributes:
        speaks: it answers in tokens of text, one after the other.
        silent: why it is no such language model, although it has a head for it.
        sees, hears: it takes pictures or films, and sound.
        experts: a router chooses among experts.
        denoises: it is the transformer of a diffusion model.
        assembles: it is a pipeline of several models; `composes` one whose blocks can be put together again.
    """

    speaks: str = ""
    silent: str = ""
    sees: str = ""
    hears: str = ""
    experts: str = ""
    denoises: str = ""
    assembles: str = ""
    composes: str = ""


def derive(signs: Signs) -> tuple[Kind, str]:
    """Return the kind that signs tell, and the evidence for it."""
    for kind, evidence in (
        (Kind.modular, signs.composes),
        (Kind.pipeline, signs.assembles),
        (Kind.dit, signs.denoises),
    ):
        if evidence:
            return kind, evidence
    if signs.sees and signs.hears:
        plain, routed = Kind.omni, Kind.omni_moe
    elif signs.sees or signs.hears:
        plain, routed = Kind.vlm, Kind.vlm_moe
    elif signs.speaks and not signs.silent:
        plain, routed = Kind.llm, Kind.moe
    else:
        return Kind.other, signs.silent or "no language-model head, no medium and no denoiser was found"
    found = (signs.sees, signs.hears) if signs.sees or signs.hears else (signs.speaks,)
    evidence = "; ".join(dict.fromkeys(filter(None, [*found, signs.experts])))
    return routed if signs.experts else plain, evidence
