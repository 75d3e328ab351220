"""Consumers of a checkpoint: the libraries, and every target that defines how it loads."""

from omni_kit.errors import BadInput
from omni_kit.layout.consumer import Consumer, LibraryConsumer
from omni_kit.targets.protocol import SaysHowItLoads
from omni_kit.targets.registry import get_target, targets
from omni_kit.upstream.subject import DIFFUSERS, TRANSFORMERS

_LIBRARIES = (TRANSFORMERS, DIFFUSERS)


def consumer_names() -> list[str]:
    """Return the values that --for accepts."""
    asked = (name for name, target in targets().items() if isinstance(target, SaysHowItLoads))
    return list(dict.fromkeys((*_LIBRARIES, *asked)))


def consumer_of(name: str) -> Consumer:
    """Return the consumer with a name.

    Raises:
        BadInput: nobody is called so, or a target that does not say how it loads.
    """
    if name in _LIBRARIES:
        return LibraryConsumer(name)
    if name in targets() and isinstance(found := get_target(name), SaysHowItLoads):
        return found.consumer
    raise BadInput(f"--for {name}: no loader has that name", f"one of {', '.join(consumer_names())}")
