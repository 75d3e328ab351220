"""The profile of a model or pipeline of diffusers, from where its class stands and what its config says."""

from collections.abc import Iterator, Mapping
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.upstream.diffusers.classes import MODULAR, PIPELINES, TRANSFORMERS, place_of
from omni_kit.upstream.kinds import Signs, derive
from omni_kit.upstream.library import Library
from omni_kit.upstream.profile import Component, ModelProfile


def profile(library: Library, class_name: str, values: Mapping[str, Any]) -> ModelProfile:
    """The profile of a class.

    Args:
        values: its config, or the model_index.json of a pipeline; empty where only the class is known.

    Raises:
        BadInput: the library has no such class.
    """
    place = place_of(library, class_name)
    if place is None:
        raise BadInput(
            f"{library.name} {library.version} has no class {class_name}", "give another --diffusers, or a newer one"
        )
    kind, evidence = derive(_signs(f"{library.name}/{place}", place))
    return ModelProfile(
        model_type=class_name,
        library=library.name,
        library_version=library.version,
        architectures=(class_name,),
        kind=kind,
        kind_evidence=evidence,
        components=tuple(_components(values)),
    )


def _signs(evidence: str, place: str) -> Signs:
    """The library keeps each sort of class in a folder of its own."""
    if place.startswith(f"{TRANSFORMERS}/"):
        return Signs(denoises=evidence)
    if place.startswith(f"{MODULAR}/"):
        return Signs(composes=evidence)
    return Signs(assembles=evidence) if place.startswith(f"{PIPELINES}/") else Signs()


def _components(values: Mapping[str, Any]) -> Iterator[Component]:
    """The entries of a model_index.json that name a library and a class."""
    for name, value in values.items():
        if isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(part, str) for part in value):
            yield Component(name, *value)
