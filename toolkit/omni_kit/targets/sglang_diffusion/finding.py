"""Finds SGLang's pipelines on disk."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.targets.folders import integrations_below
from omni_kit.targets.protocol import Integration
from omni_kit.targets.sglang_diffusion.checkout import Checkout, checkout_around, pipeline_places
from omni_kit.targets.sglang_diffusion.pipeline_dir import STAGES, find_pipeline_dir, named_in
from omni_kit.upstream.kinds import Kind

_DEPTH = 2


def at(path: Path) -> Integration | None:
    """Return the integration whose directory `path` is; None if it is none."""
    try:
        return Integration(find_pipeline_dir(path).path, lambda: Kind.pipeline)
    except BadInput:
        return None


def find(path: Path) -> Sequence[Integration]:
    """Integrations at `path`: itself, those in a folder, or every pipeline of the SGLang that it is or is in.

    Raises:
        BadInput: there is none; what `path` itself lacks.
    """
    if (own := at(path)) is not None:
        return [own]
    checkout = checkout_around(path)
    found = list(_of_sglang(checkout, path) if checkout is not None else integrations_below(path, _DEPTH, at))
    return found or [Integration(find_pipeline_dir(path).path, lambda: Kind.pipeline)]


def _of_sglang(checkout: Checkout, path: Path) -> Iterator[Integration]:
    """Yield every pipeline that SGLang registers; those below `path`, where that is a part of SGLang's package."""
    path = path.resolve()
    part = path if path.is_relative_to(checkout.package) and path != checkout.package else checkout.package
    known = pipeline_places(checkout)
    alone = Counter(file for file, _ in known.values())
    for name, (file, _) in known.items():
        stages = at(checkout.package / STAGES / file.stem) if alone[file] == 1 else None
        place = stages.path if stages is not None else named_in(file, name)
        if place.is_relative_to(part) or file == part or file.is_relative_to(part):
            yield Integration(place, lambda: Kind.pipeline)
