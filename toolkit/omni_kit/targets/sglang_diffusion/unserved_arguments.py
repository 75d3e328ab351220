"""Arguments of a pipeline's call that SGLang's requests do not carry: a server leaves them at their defaults."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from omni_kit.targets.protocol import Decision
from omni_kit.upstream.diffusers.calling import call_arguments
from omni_kit.upstream.diffusers.pipelines import Pipeline

_OF_THE_CALL = ("return_dict", "output_type", "callback")  # how a call answers, which a server decides
_READY = ("embeds", "mask", "ids", "lens", "kwargs")  # what callers prepare in Python


@dataclass(frozen=True)
class Unserved:
    """An argument that no request carries.

    Attributes:
        default: what it stays, as Python text.
        ready: it is prepared in Python by the caller: embeddings, masks, keyword arguments.
    """

    name: str
    default: str
    where: str
    ready: bool


def unserved(pipeline: Pipeline, served: Collection[str]) -> Iterator[Unserved]:
    """Yield the arguments of a pipeline's call that are not among those that are served, in order."""
    for name, one in call_arguments(pipeline).items():
        if name not in served and not name.startswith(_OF_THE_CALL):
            default = "required" if one.required else repr(one.default)
            yield Unserved(name, default, one.where, name.endswith(_READY))


def decisions(found: Collection[Unserved]) -> Iterator[Decision]:
    """Yield a row for each argument; one for all that callers prepare in Python."""
    for one in found:
        if not one.ready:
            yield Decision("not served", one.name, f"it stays {one.default}: requests have no field for it", one.where)
    if ready := [one for one in found if one.ready]:
        names = ", ".join(one.name for one in ready)
        yield Decision("not served", names, "callers prepare them in Python", ready[0].where)
