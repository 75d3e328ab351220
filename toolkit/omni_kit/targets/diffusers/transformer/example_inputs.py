"""Inputs of a model's tests, written as diffusers' own tests write them."""

from collections.abc import Iterator, Mapping
from typing import Any

_DTYPES: Mapping[type | None, str] = {bool: "bool", int: "int64", float: "float32"}
"""The dtype that torch.tensor gives numbers of a type."""


def expressions(inputs: Mapping[str, Any], names: Mapping[str, str], device: str = "") -> dict[str, str]:
    """Return a Python expression for each argument of a port's forward; it draws from a `generator`.

    Args:
        inputs: authors' name of forward's argument -> what it is; see `toys.batches.denoiser.described`.
        names: authors' name -> the port's.
        device: the name of a device, to which tensors are moved; empty leaves them.
    """
    moved = f".to({device})" if device else ""
    return {name: _expression(one, moved) for name, one in _by_the_ports_names(inputs, names)}


def _by_the_ports_names(inputs: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the arguments; entries of a mapping, `name{key}`, that the port takes by themselves come after it."""
    for name, said in inputs.items():
        entries = said.get("dict", [])
        apart = {key: names[full] for key, _ in entries if (full := f"{name}{{{key}}}") in names}
        rest = [[key, one] for key, one in entries if key not in apart]
        if rest or not apart:
            yield names.get(name, name), {**said, "dict": rest} if apart else said
        yield from ((apart[key], one) for key, one in entries if key in apart)


def _expression(said: Mapping[str, Any], moved: str) -> str:
    if "shape" in said:
        return _tensor(said, moved)
    if "dict" in said:
        return "{" + ", ".join(f"{key!r}: {_expression(one, moved)}" for key, one in said["dict"]) + "}"
    for kind, start, end in (("list", "[", "]"), ("tuple", "(", ")")):
        if kind in said:
            inner = [_expression(one, moved) for one in said[kind]]
            return f"{start}{', '.join(inner)}{',' if kind == 'tuple' and len(inner) == 1 else ''}{end}"
    return repr(said["value"])


def _tensor(said: Mapping[str, Any], moved: str) -> str:
    shape, dtype = tuple(said["shape"]), said["dtype"]
    if "values" in said:
        return f"torch.tensor({said['values']}{_typed(dtype, _DTYPES.get(_kind(said['values'])))}){moved}"
    if "high" in said:
        typed = _typed(dtype, "int64")
        return f"torch.randint({said['low']}, {said['high'] + 1}, {shape}, generator=generator{typed}){moved}"
    typed = _typed(dtype, "float32")
    if "full" not in said:
        return f"torch.randn({shape}, generator=generator{typed}){moved}"
    filled = {0: f"zeros({shape}", 1: f"ones({shape}"}.get(said["full"], f"full({shape}, {said['full']!r}")
    return f"torch.{filled}{typed}){moved}"


def _typed(dtype: str, default: str | None) -> str:
    return "" if dtype == default else f", dtype=torch.{dtype}"


def _kind(values: Any) -> type | None:
    """Return the type of the numbers in nested lists; None if there are none."""
    if not isinstance(values, list):
        return type(values)
    return next((kind for one in values if (kind := _kind(one)) is not None), None)
