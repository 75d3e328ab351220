"""Facts about one model: declared by decorators, computed once each, passed to rules by the name of a parameter.

    @fact
    def plans(program: Program, generated: list[Generated]) -> list[ShardingPlan]: ...

The name of a fact is that of its function, its type what the function returns, and its parameters are facts, too. What
is known from the start, or measured by runs, is declared by `@given` on a function without a body.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any, TypeVar

from omni_checkers.engine.rule import NotApplicable

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Value = TypeVar("_Value")
_COMPUTED = "_omni_computed"


def fact(function: _Function) -> _Function:
    """Declare a fact that the function computes; NotApplicable is passed on to every rule that asks for it.

    Raises:
        TypeError: the function does not say what it returns.
    """
    return _declared(function, computed=True)


def given(function: _Function) -> _Function:
    """Declare a fact that is known from the start or from runs.

    Raises:
        TypeError: the function does not say what it returns.
    """
    return _declared(function, computed=False)


def _declared(function: _Function, computed: bool) -> _Function:
    if "return" not in function.__annotations__:
        raise TypeError(f"the fact {function.__module__}.{function.__name__} declares no type")
    setattr(function, _COMPUTED, computed)
    return function


@cache
def facts_in(package: str) -> Mapping[str, Callable[..., Any]]:
    """Return the facts that the modules of a package declare, by name.

    Raises:
        TypeError: two of them have one name.
    """
    found: dict[str, Callable[..., Any]] = {}
    for module in _modules(importlib.import_module(package)):
        for function in vars(module).values():
            if getattr(function, "__module__", "") == module.__name__ and _COMPUTED in getattr(
                function, "__dict__", {}
            ):
                other = found.setdefault(function.__name__, function)
                if other is not function:
                    raise TypeError(f"{other.__module__} and {module.__name__} both declare '{function.__name__}'")
    return found


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    yield package
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        yield importlib.import_module(info.name)


class Facts:
    """Lazily computed facts.

    Args:
        known: facts that are known from the start.
        declared: name -> function that computes a fact, see `facts_in`.
    """

    def __init__(self, known: Mapping[str, Any], declared: Mapping[str, Callable[..., Any]]) -> None:
        self._known: dict[str, Any] = dict(known)
        self._declared = declared

    def tell(self, known: Mapping[str, Any]) -> None:
        """Add facts that are known from elsewhere."""
        self._known.update(known)

    def value(self, declared: Callable[..., _Value]) -> _Value:
        """Return a fact by its declaration.

        Raises:
            NotApplicable: there is no such fact about this model.
        """
        value: _Value = self.get(declared.__name__)
        return value

    def get(self, name: str) -> Any:
        """Return a fact by its name.

        Raises:
            NotApplicable: there is no such fact about this model.
            KeyError: nobody declares a fact of that name, or it is `given` and nobody knows it.
        """
        if name not in self._known:
            function = self._declared[name]
            if not getattr(function, _COMPUTED, True):
                raise KeyError(name)
            try:
                self._known[name] = self.call(function)
            except NotApplicable as why:
                self._known[name] = why
        known = self._known[name]
        if isinstance(known, NotApplicable):
            raise known
        return known

    def call(self, function: Callable[..., Any]) -> Any:
        """Calls a function with the facts that its parameters name; a parameter with a default may go without."""
        passed: dict[str, Any] = {}
        for name, needed in _parameters(getattr(function, "__func__", function)):
            try:
                passed[name] = self.get(name)
            except NotApplicable:
                if needed:
                    raise
        return function(**passed)


@cache
def _parameters(function: Callable[..., Any]) -> list[tuple[str, bool]]:
    """Return the parameters of a function, or of the function behind a method, and whether each is needed."""
    parameters = inspect.signature(function).parameters.items()
    return [(name, one.default is inspect.Parameter.empty) for name, one in parameters if name != "self"]
