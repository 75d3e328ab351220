"""Stand-ins for heavy modules: a config mentions torch and transformers, but rarely needs them to be read.

A stand-in can be named, called, subscripted, or'ed, subclassed and used as a decorator, which is all that annotations,
decorators and bases do. Code that needs a value gets `NeedsReal`, and the config is then loaded with real imports.
"""

from typing import Any, NoReturn

_VALUES = (str, bytes, int, float, complex, tuple, list, dict, set, frozenset)


class NeedsReal(Exception):
    """The config's own top-level code needs the value of something that was stood in."""


class StandIn:
    """Something of a module that was not imported; `path` is its dotted name."""

    def __init__(self, path: str) -> None:
        self.__dict__["path"] = path
        self.__dict__["__name__"] = self.__dict__["__qualname__"] = path.rpartition(".")[2]
        self.__dict__["__module__"] = path.rpartition(".")[0] or path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        child = StandIn(f"{self.path}.{name}")
        self.__dict__[name] = child
        return child

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the decorated function if used as a decorator, so that the config's function stays itself."""
        if len(args) == 1 and not kwargs and (isinstance(args[0], type) or hasattr(args[0], "__code__")):
            return args[0]
        return StandIn(f"{self.path}()")

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __getitem__(self, item: Any) -> "StandIn":
        return StandIn(f"{self.path}[]")

    def __or__(self, other: Any) -> "StandIn":
        return StandIn(f"{self.path} | ...")

    __ror__ = __or__

    def __hash__(self) -> int:
        return hash(self.path)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, StandIn):
            return bool(self.path == other.path)
        return self._refuse() if isinstance(other, _VALUES) else False

    def __repr__(self) -> str:
        return f"<stand-in {self.path}>"

    def _refuse(self, *_: Any) -> NoReturn:
        raise NeedsReal(f"the value of {self.path}")

    __bool__ = __len__ = __iter__ = __contains__ = __enter__ = __exit__ = __int__ = __float__ = __index__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __sub__ = __mul__ = __rmul__ = __neg__ = _refuse
    __str__ = __format__ = _refuse
