"""The object that authors sample with."""

from omni_kit.upstream.repositories.processes.ddim import samplers
from omni_kit.upstream.repositories.processes.diffusing import diffusions
from omni_kit.upstream.repositories.processes.integrating import integrations
from omni_kit.upstream.repositories.processes.process import Process
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sources import sources_of


def process_of(reference: Reference, condition: str) -> Process | None:
    """Return the nearest object that authors sample with, of those that draw noise before others; None without one.

    Files that name the class come before others.

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
    return next((one for one in found if one.draws_noise), next(iter(found), None))
