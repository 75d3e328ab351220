"""Tensors in files: how the two processes hand each other what they computed."""

import json
import os
import stat
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from omni_kit.isolation.worker import StepError
from omni_kit.toys.tensors import Tensors


def save_tensors(tensors: Mapping[str, torch.Tensor], file: Path) -> None:
    """Writes tensors to a file, each with storage of its own, so that ties do not matter."""
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: _storable(tensor).cpu().clone().contiguous() for name, tensor in tensors.items()}, file)


def _storable(tensor: torch.Tensor) -> torch.Tensor:
    """As files can hold it: of complex numbers they know single precision alone."""
    found = tensor.detach()
    return found.to(torch.complex64) if found.dtype == torch.complex128 else found


def load_tensors(file: Path) -> Tensors:
    """Every tensor of a file that `save_tensors` wrote.

    Raises:
        StepError: it is missing or damaged, is not a file, or a link leads there: the writer would choose what is read.
    """
    with own_file(file) as opened:
        try:
            return cast(Tensors, load_file(opened))
        except SafetensorError as error:
            raise StepError(f"{file.name} cannot be read: {error}", blames_candidate=True) from error


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


def stored_dtypes(directory: Path) -> dict[str, torch.dtype]:
    """Name -> dtype of every tensor in the safetensors files of a directory, not of those below it."""
    found: dict[str, torch.dtype] = {}
    for file in sorted(directory.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            found |= {name: opened.get_tensor(name).dtype for name in opened.keys()}  # noqa: SIM118  it is no dict
    return found


def same_tensors(one: Tensors, other: Tensors) -> bool:
    """Whether two sets of tensors have the same names and the same bits."""
    return one.keys() == other.keys() and all(tensor.equal(other[name]) for name, tensor in one.items())


def state_of(model: torch.nn.Module) -> Tensors:
    """Parameters and persistent buffers, tied ones under each of their names."""
    return {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, torch.Tensor)}


NAMING = frozenset({"_class_name", "architectures", "model_type"})
"""The keys of a config.json that say of which class a model is."""


def config_difference(one: Path, other: Path, keys: Collection[str] | None = None) -> str:
    """How the config.json of `other` differs from that of `one`, by the first key; empty where neither differs.

    Keys with an underscore in front say by whom and from where it was written; of these the class alone counts.

    Args:
        keys: those that are compared; None compares all.
    """
    first, second = (_config(directory) for directory in (one, other))
    if first is None or second is None:
        return "" if first is None else "no config.json"
    names = first.keys() | second.keys()
    for name in sorted(names if keys is None else names.intersection(keys)):
        if name not in second:
            return f"config.json lacks {name}"
        if name not in first:
            return f"config.json says {name}, which upstream's does not"
        if first[name] != second[name]:
            return f"config.json: {name} is {second[name]!r}, upstream's {first[name]!r}"
    return ""


def _config(directory: Path) -> dict[str, object] | None:
    file = directory / "config.json"
    if not file.is_file():
        return None
    values = json.loads(file.read_text(encoding="utf-8"))
    return {name: value for name, value in values.items() if name == "_class_name" or not name.startswith("_")}
