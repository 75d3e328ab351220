"""Attributes of other people's objects, replaced for a while in a process that ends afterwards."""

from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any

_ABSENT = object()


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Set an attribute, or the entry of a mapping, while the context is entered.

    What a class inherits is inherited again afterwards, and what was absent is absent.

    Args:
        owner: a module, a class, an object with attributes of its own, or a mapping as `os.environ`.
    """
    if isinstance(owner, MutableMapping):
        before = dict(owner)
        owner[name] = value
        try:
            yield
        finally:
            owner.clear()
            owner.update(before)
        return
    own, seen = vars(owner).get(name, _ABSENT), getattr(owner, name, _ABSENT)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if own is not _ABSENT:
            setattr(owner, name, own)
        else:
            delattr(owner, name)
            if seen is not _ABSENT and not hasattr(owner, name):  # kept elsewhere, as torch keeps submodules
                setattr(owner, name, seen)
