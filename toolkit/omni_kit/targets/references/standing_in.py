"""Values that stand for what authors' methods have from elsewhere: text encoders, autoencoders, settings."""

import dis
import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from omni_kit.targets.replacing import replaced
from omni_kit.upstream.repositories.sampler_step.members import MADE

_ENCODES = re.compile(r"^_?(encode|check|offload|maybe_|load|enable|disable|disperse)")
"""Methods that prepare conditions or check them: they change no step."""
_PLACES = ("_execution_device", "execution_device")
_COMPARED = ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__")
_SIZED = ("zeros", "ones", "empty", "full", "arange", "linspace", "rand", "randint", "eye")
_RESIZED = ("expand", "repeat", "view", "reshape", "new_zeros", "new_ones", "new_empty", "unflatten", "split", "chunk")
_COMPUTED = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor")


class Refused(Exception):
    """The method does something that a pipeline cannot repeat."""


class Misshapen(Refused):
    """The latents of the method have other axes."""


class StandIn:
    """Stands for any object: what is read, called or computed of it is another one.

    It is false; so is every comparison with it, unless `verdict` says otherwise; and it is the number `size` where one
    is needed. Tensors that are computed with it become stand-ins.
    """

    size, verdict, masked = 2, False, False
    """The last says that a tensor was to be changed where a mask is set."""
    heard: Callable[["StandIn", Sequence[Any], Mapping[str, Any]], Any] | None = None
    """Function that gets every call first; its result is returned unless it is `NotImplemented`."""

    def __init__(self, name: str) -> None:
        self.__dict__["_name"] = name

    def __getattr__(self, name: str) -> Any:
        """Return what stands for an attribute."""
        if name.startswith("__"):
            raise AttributeError(name)
        known = known_by_name(name)
        return StandIn(f"{self._name}.{name}") if known is None else known

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what stands for the result of a call."""
        found = StandIn.heard(self, args, kwargs) if StandIn.heard is not None else NotImplemented
        return StandIn(self._name) if found is NotImplemented else found

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Stand for the result of a computation with tensors.

        Raises:
            Refused: a tensor is changed by a stand-in; one changed only where a mask is set stays as it is.
        """
        name, first = getattr(func, "__name__", ""), args[0] if args else None
        if isinstance(first, torch.Tensor) and (name == "__setitem__" or re.search(r"[a-z]_$", name)):
            if name == "__setitem__" and isinstance(args[1], StandIn) and "mask" in args[1]._name:
                StandIn.masked = True
                return None  # an empty mask
            raise Refused(f"changes tensors by {next(stand_ins([*args[1:]]))._name}")
        found = next(stand_ins([*args, *(kwargs or {}).values()]))
        return Compared(found._name) if f"__{name.strip('_')}__" in _COMPARED else found

    def __getitem__(self, key: Any) -> "StandIn":
        return StandIn(self._name)

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def __iter__(self) -> Iterator["StandIn"]:
        frame = inspect.currentframe()
        caller = frame.f_back if frame is not None else None
        return iter([StandIn(self._name) for _ in range(_unpacked(caller) or 1)])

    def keys(self) -> list[str]:
        """Return no keys."""
        return []

    def __len__(self) -> int:
        return 1

    def __bool__(self) -> bool:
        return False

    def __index__(self) -> int:
        return StandIn.size

    __int__ = __ceil__ = __floor__ = __trunc__ = __index__

    def __round__(self, digits: int | None = None) -> int:
        return StandIn.size

    def __float__(self) -> float:
        return float(StandIn.size)

    def __next__(self) -> "StandIn":
        return StandIn(self._name)

    def __contains__(self, other: object) -> bool:
        return False

    def __enter__(self) -> "StandIn":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __str__(self) -> str:
        return str(self._name)

    __repr__ = __str__


class Compared(StandIn):
    """The result of a comparison with a stand-in."""

    def __bool__(self) -> bool:
        return StandIn.verdict


def _same(self: StandIn, *_: Any) -> StandIn:
    return StandIn(self._name)


for _name in _COMPUTED:
    setattr(StandIn, f"__{_name}__", _same)
    setattr(StandIn, f"__r{_name}__", _same)
for _name in ("__neg__", "__pos__", "__abs__", "__invert__"):
    setattr(StandIn, _name, _same)
for _name in _COMPARED:
    setattr(StandIn, _name, lambda self, other: Compared(self._name))
StandIn.__hash__ = object.__hash__  # type: ignore[method-assign]


def _unpacked(frame: Any) -> int:
    """Return into how many targets the statement that a frame is at unpacks; 0 where it does not."""
    if frame is None:
        return 0
    code, at = frame.f_code.co_code, frame.f_lasti
    return int(code[at + 1]) if dis.opname[code[at]] == "UNPACK_SEQUENCE" else 0


def stand_ins(values: Any) -> Iterator[StandIn]:
    """Yield the stand-ins among values, and in lists and dictionaries of them."""
    if isinstance(values, StandIn):
        yield values
    elif isinstance(values, list | tuple):
        for one in values:
            yield from stand_ins(one)
    elif isinstance(values, Mapping):
        yield from stand_ins([*values.values()])


def known_by_name(name: str) -> Any:
    """Return a device or a dtype for what is called so; None for other names."""
    if name.endswith("device"):
        return torch.device("cpu")
    return torch.float32 if name.endswith("dtype") else None


@contextmanager
def sizes() -> Iterator[None]:
    """Let stand-ins be the sizes of tensors, which torch takes no objects for."""

    def numbers(function: Callable[..., Any]) -> Callable[..., Any]:
        def made(*args: Any, **kwargs: Any) -> Any:
            own = [one if isinstance(one, torch.Tensor) else _number(one) for one in args]
            return function(*own, **{name: _number(one) for name, one in kwargs.items()})

        return made

    with ExitStack() as stack:
        for owner, names in ((torch, _SIZED), (torch.Tensor, _RESIZED)):
            for name in names:
                stack.enter_context(replaced(owner, name, numbers(getattr(owner, name))))
        yield


def _number(value: Any) -> Any:
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return type(value)(map(_number, value)) if any(isinstance(one, StandIn) for one in value) else value
    return int(value) if isinstance(value, StandIn) else value


@contextmanager
def sized(size: int) -> Iterator[None]:
    """Let stand-ins be this number where one is needed."""
    with replaced(StandIn, "size", size):
        yield


_PART = re.compile(r"args|config|opt|model|unet|transformer|dit|net|encoder|tokenizer|vae|processor")


def standing(cls: type, missing: Callable[[str], Any]) -> Any:
    """Return an object whose constructor did not run.

    An attribute is what `missing` returns for its name, or a stand-in where that is None; a number that the
    constructor has by default is that number. Methods that encode or check are stand-ins.
    """
    numbers = _defaults(cls)

    def absent(self: Any, name: str) -> Any:
        if name.startswith("__") or (isinstance(self, nn.Module) and name in ("_parameters", "_buffers", "_modules")):
            raise AttributeError(name)
        found = missing(name)
        found = known_by_name(name) if found is None else found
        plain = name.lstrip("_")
        if found is None:
            found = numbers[plain] if plain in numbers else StandIn(name)
        object.__setattr__(self, name, found)
        return found

    own: dict[str, Any] = {name: StandIn(name) for name in dir(cls)
                           if _ENCODES.match(name) and callable(getattr(cls, name, None))}  # fmt: skip
    own |= dict.fromkeys((*_PLACES, "device"), torch.device("cpu")) | {"__getattr__": absent, "dtype": torch.float32}
    own |= {"progress_bar": _Bar, "__module__": cls.__module__, "__setattr__": object.__setattr__}
    made: Any = object.__new__(_concrete(type(cls)(cls.__name__, (cls,), own)))
    if isinstance(made, nn.Module):
        nn.Module.__init__(made)
        made.eval()
    return made


def _concrete(cls: type) -> type:
    cls.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
    return cls


def _defaults(cls: type) -> dict[str, Any]:
    try:
        given = inspect.signature(getattr(cls, MADE)).parameters.values()
    except (TypeError, ValueError):
        return {}
    return {one.name: one.default for one in given if isinstance(one.default, int | float | str | tuple)
            or (one.default is None and not _PART.search(one.name))}  # fmt: skip


class _Bar:
    """A progress bar that shows nothing; around what is iterated over, that."""

    def __init__(self, owner: Any = None, iterable: Any = None, *args: Any, **kwargs: Any) -> None:
        self._iterable = owner if iterable is None else iterable

    def __iter__(self) -> Iterator[Any]:
        return iter(self._iterable)

    def __enter__(self) -> "_Bar":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def update(self, *_: Any) -> None:
        """Show nothing."""

    set_postfix = set_description = update
