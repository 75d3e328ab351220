"""The object that authors sample with."""

import re

from omni_kit.upstream.repositories.processes.ddim import samplers
from omni_kit.upstream.repositories.processes.diffusing import diffusions
from omni_kit.upstream.repositories.processes.integrating import integrations
from omni_kit.upstream.repositories.processes.process import Process
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sources import sources_of

_EACH_STEP = "_progressive"
_SAMPLES = {"ddim_sampling": "sample"}
"""Methods with a loop -> the method that calls them and returns latents."""


def process_of(reference: Reference, condition: str) -> Process | None:
    """Return the nearest object that authors sample with, of those that draw noise before others; None without one.

    Files that name the class come before others. If the reference names a sampler, only its objects count.

    Args:
        condition: what they call the argument of the model for labels or an embedded prompt.
    """
    found = []
    for source in sorted(sources_of(reference), key=lambda one: reference.class_name not in one.text):
        found += [
            *diffusions(reference, source),
            *integrations(source),
            *samplers(source, condition, reference.published),
        ]
    found = [one for one in found if not reference.loop or _is_of(one, reference.loop)]
    return next((one for one in found if one.draws_noise), next(iter(found), None))


def _is_of(process: Process, named: str) -> bool:
    """Return whether an object is sampled from by the function or method that a user names."""
    name = named.rpartition(".")[2].removesuffix(_EACH_STEP)
    return re.search(rf"\b{_SAMPLES.get(name, name)}\(", process.called) is not None
