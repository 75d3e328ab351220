"""Classes that are found by their names."""

from collections.abc import Callable, Mapping
from typing import Any


class Registry:
    """Names of classes and functions."""

    def __init__(self, name: str, build_func: Callable[..., Any] | None = None, **kwargs: Any) -> None:
        self.name = name
        self.module_dict: dict[str, Any] = {}
        self._build: Callable[..., Any] = build_func or build_from_cfg

    def get(self, key: str) -> Any:
        """Return what was registered under a name; None of another."""
        return self.module_dict.get(key)

    def build(self, cfg: Mapping[str, Any], **kwargs: Any) -> Any:
        """Make one of what a config names."""
        return self._build(cfg, registry=self, **kwargs)

    def register_module(self, name: Any = None, force: bool = False, module: Any = None) -> Any:
        """Register a class, or return what does, for use as a decorator."""
        if module is not None:
            return self._registered(module, name)
        if callable(name):  # without parentheses
            return self._registered(name, None)
        return lambda one: self._registered(one, name)

    def _registered(self, module: Any, name: Any) -> Any:
        for each in [name] if isinstance(name, str) else name or [module.__name__]:
            self.module_dict[each] = module
        return module


def build_from_cfg(
    cfg: Mapping[str, Any], registry: Registry, default_args: Mapping[str, Any] | None = None, **kwargs: Any
) -> Any:
    """Make one of what `cfg["type"]` names, with all else that the config has."""
    given = {**(default_args or {}), **cfg}
    kind = given.pop("type")
    return (registry.get(kind) if isinstance(kind, str) else kind)(**given)
