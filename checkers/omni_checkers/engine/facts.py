"""Facts about one model, computed once each and given to rules by the name of a parameter."""

import inspect
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from omni_checkers.engine.rule import NotApplicable


class Facts:
    """Lazily computed facts.

    Args:
        given: facts that are known from the start.
        providers: name -> function that computes a fact; its own parameters are facts, too. It may raise NotApplicable,
            and then every rule that asks for it is not applicable, for that reason.
    """

    def __init__(self, given: Mapping[str, Any], providers: Mapping[str, Callable[..., Any]]) -> None:
        self._known: dict[str, Any] = dict(given)
        self._providers = providers

    def tell(self, known: Mapping[str, Any]) -> None:
        """Adds facts that are known from elsewhere."""
        self._known.update(known)

    def get(self, name: str) -> Any:
        """A fact.

        Raises:
            NotApplicable: there is no such fact about this model.
            KeyError: nobody provides a fact of that name.
        """
        if name not in self._known:
            try:
                self._known[name] = self.call(self._providers[name])
            except NotApplicable as why:
                self._known[name] = why
        known = self._known[name]
        if isinstance(known, NotApplicable):
            raise known
        return known

    def call(self, function: Callable[..., Any]) -> Any:
        """Calls a function with the facts that its parameters name; a parameter with a default may go without."""
        given: dict[str, Any] = {}
        for name, needed in _parameters(getattr(function, "__func__", function)):
            try:
                given[name] = self.get(name)
            except NotApplicable:
                if needed:
                    raise
        return function(**given)


@cache
def _parameters(function: Callable[..., Any]) -> list[tuple[str, bool]]:
    """The parameters of a function, or of the function behind a method, and whether each is needed."""
    parameters = inspect.signature(function).parameters.items()
    return [(name, one.default is inspect.Parameter.empty) for name, one in parameters if name != "self"]
