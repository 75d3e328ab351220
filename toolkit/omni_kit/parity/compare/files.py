"""Tensors in files: how the two processes hand each other what they computed."""

import filecmp
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from omni_kit.documents import read_json
from omni_kit.isolation.worker import StepError
from omni_kit.toys.tensors import Tensors

CONFIG = "config.json"
_LONGEST_JSON = 1 << 26  # bytes


def save_tensors(tensors: Mapping[str, torch.Tensor], file: Path) -> None:
    """Write tensors to a file, each with storage of its own, so that ties do not matter."""
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: _storable(tensor).cpu().clone().contiguous() for name, tensor in tensors.items()}, file)


def _storable(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in a dtype that files support: of complex numbers, single precision alone."""
    found = tensor.detach()
    return found.to(torch.complex64) if found.dtype == torch.complex128 else found


def load_tensors(file: Path) -> Tensors:
    """Return every tensor of a file that `save_tensors` wrote.

    Raises:
        StepError: it is missing or damaged, is not a file, or a link leads there: the writer would choose what is read.
    """
    with reading_results(file) as opened:
        return cast(Tensors, load_file(opened))


@contextmanager
def own_file(file: Path) -> Iterator[Path]:
    """Yield a path of the very file that lies there, which nobody can replace meanwhile.

    Raises:
        StepError: as `load_tensors`.
    """
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        raise StepError(f"{file.name} cannot be read: {error.strerror}", blames_candidate=True) from error
    try:
        link = Path(f"/proc/self/fd/{handle}")
        place = os.readlink(link) if link.is_symlink() else os.path.realpath(file)
        if not stat.S_ISREG(os.fstat(handle).st_mode) or place != os.path.abspath(file):
            raise StepError(f"{file.name} is a link or not a file: a result lies elsewhere", blames_candidate=True)
        yield link if link.is_symlink() else file
    finally:
        os.close(handle)


@contextmanager
def reading_results(file: Path) -> Iterator[Path]:
    """Yield `own_file`; any error while its content is read and understood is the fault of what wrote it.

    Raises:
        StepError: as `load_tensors`.
    """
    with own_file(file) as opened:
        try:
            yield opened
        except Exception as error:
            said = " ".join(str(error).split())[:200] or "no message"
            message = f"{file.name} cannot be read: {type(error).__name__}: {said}"
            raise StepError(message, blames_candidate=True) from error


def load_json(file: Path) -> Any:
    """Return the JSON value of a file; of a result, use it within `reading_results`.

    Raises:
        ValueError: it is not JSON, or longer than any result.
    """
    if file.stat().st_size > _LONGEST_JSON:
        raise ValueError(f"it has more than {_LONGEST_JSON} bytes")
    return read_json(file.read_text(encoding="utf-8"))


def stored_dtypes(directory: Path) -> dict[str, torch.dtype]:
    """Name -> dtype of every tensor in the safetensors files of a directory, not of those below it.

    Raises:
        StepError: as `load_tensors`.
    """
    found: dict[str, torch.dtype] = {}
    for file in sorted(directory.glob("*.safetensors")):
        with reading_results(file) as opened, safe_open(opened, framework="pt") as tensors:
            found |= {name: tensors.get_tensor(name).dtype for name in tensors.keys()}  # noqa: SIM118  it is no dict
    return found


def same_tensors(one: Tensors, other: Tensors) -> bool:
    """Return whether two sets of tensors have the same names and the same bits."""
    return one.keys() == other.keys() and all(tensor.equal(other[name]) for name, tensor in one.items())


def same_bytes(one: Path, other: Path) -> bool:
    """Return whether two files have the same content.

    Raises:
        StepError: as `load_tensors`.
    """
    with own_file(one) as first, own_file(other) as second:
        return filecmp.cmp(first, second, shallow=False)


def state_of(model: torch.nn.Module) -> Tensors:
    """Return parameters and persistent buffers, tied ones under each of their names."""
    return {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, torch.Tensor)}


NAMING = frozenset({"_class_name", "architectures", "model_type"})
"""The keys of a config.json that say of which class a model is."""


def config_difference(one: Path, other: Path, keys: Collection[str] | None = None) -> str:
    """Return the first key by which the config.json of `other` differs from that of `one`; empty if they agree.

    Keys with an underscore in front say by whom and from where it was written; of these the class alone counts.

    Args:
        one: upstream's directory; `other` was written by the candidate.
        keys: those that are compared; None compares all.

    Raises:
        StepError: as `load_tensors`, of `other`.
    """
    if not (one / CONFIG).is_file():
        return ""
    if not os.path.lexists(other / CONFIG):
        return "no config.json"
    first = _compared(load_json(one / CONFIG))
    with reading_results(other / CONFIG) as file:
        second = _compared(load_json(file))
    names = first.keys() | second.keys()
    for name in sorted(names if keys is None else names.intersection(keys)):
        if name not in second:
            return f"config.json lacks {name}"
        if name not in first:
            return f"config.json says {name}, which upstream's does not"
        if first[name] != second[name]:
            return f"config.json: {name} is {second[name]!r}, upstream's {first[name]!r}"
    return ""


def _compared(config: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in config.items() if name == "_class_name" or not name.startswith("_")}
