"""Attributes in which a model keeps something between its calls, such as the embedding of its first prompt."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

_OF_EVERY_MODULE = frozenset(vars(nn.Module()))


@contextmanager
def without_kept_state(model: nn.Module) -> Iterator[None]:
    """Give each module after a call the attributes from before: another call is then answered as the first one.

    Parameters, buffers and modules stay as the call leaves them.
    """
    before = [(module, {name: _copied(one) for name, one in _plain(module).items()}) for module in model.modules()]
    try:
        yield
    finally:
        for module, attributes in before:
            _restore(module, attributes)


def _restore(module: nn.Module, attributes: dict[str, tuple[Any, Any]]) -> None:
    for name in _plain(module).keys() - attributes.keys():
        del vars(module)[name]
    for name, (one, content) in attributes.items():
        if isinstance(content, list):
            one[:] = content
        elif isinstance(content, dict):
            one.clear()
            one.update(content)
        vars(module)[name] = one


def _plain(module: nn.Module) -> dict[str, Any]:
    return {name: one for name, one in vars(module).items() if name not in _OF_EVERY_MODULE}


def _copied(one: Any) -> tuple[Any, Any]:
    """Return an attribute, and what it holds where a call may change that in place."""
    return one, type(one)(one) if type(one) in (list, dict) else None
