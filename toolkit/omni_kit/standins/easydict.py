"""Dictionaries whose keys are attributes."""

from typing import Any


class EasyDict(dict[str, Any]):
    """A dictionary; those within it, and within its lists, are of this class, too."""

    def __init__(self, d: Any = None, **kwargs: Any) -> None:
        super().__init__()
        for name, value in {**(d or {}), **kwargs}.items():
            self[name] = _attributed(value)

    def __getattr__(self, name: str) -> Any:
        """Return the value of a key."""
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __setattr__(self, name: str, value: Any) -> None:
        """Set the value of a key."""
        self[name] = value


def _attributed(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(map(_attributed, value))
    return EasyDict(value) if isinstance(value, dict) else value
