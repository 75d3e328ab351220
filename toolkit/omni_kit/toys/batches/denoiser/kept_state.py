"""Attributes in which a model keeps something between its calls, such as the embedding of its first prompt."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


@contextmanager
def without_kept_state(model: nn.Module) -> Iterator[None]:
    """Give each module after a call the attributes from before: another call is then answered as the first one.

    Parameters, buffers and modules stay as the call leaves them.
    """
    # Most of a large model's modules are torch's own, which keep nothing there.
    kept = [vars(one) for one in model.modules() if type(one).__module__.partition(".")[0] != torch.__name__]
    before = [(own, {name: _copied(own[name]) for name in _names(own)}) for own in kept]
    try:
        yield
    finally:
        for own, attributes in before:
            _restore(own, attributes)


def _restore(own: dict[str, Any], attributes: dict[str, tuple[Any, Any]]) -> None:
    for name in _names(own) - attributes.keys():
        del own[name]
    for name, (one, content) in attributes.items():
        if type(content) is list:
            one[:] = content
        elif content is not None:
            one.clear()
            one.update(content)
        own[name] = one


def _names(own: dict[str, Any]) -> set[str]:
    """Return the names of a module's attributes that not every module has."""
    return own.keys() - _OF_EVERY_MODULE


def _copied(one: Any) -> tuple[Any, Any]:
    """Return an attribute, and what it holds where a call may change that in place."""
    return one, type(one)(one) if type(one) in (list, dict) else None
