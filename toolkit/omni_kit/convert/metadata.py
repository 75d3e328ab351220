"""Reads the metadata of torch.distributed.checkpoint (DCP), and nothing else that a pickle can be.

The file is a pickle, which could run code. Nothing is taken from it but the classes that torch itself writes there, all
of which only hold data; whatever else it names is refused before it is imported.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from omni_kit.errors import BadInput, MissingRequirement

METADATA = ".metadata"
_STATE, _FILES = "torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem"
_ALLOWED: Mapping[str, frozenset[str]] = {
    "torch": frozenset({"Size"}),
    "torch.serialization": frozenset({"_get_layout"}),
    _FILES: frozenset({"_StorageInfo", "_StoragePrefix"}),
    _STATE: frozenset(
        {"BytesStorageMetadata", "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties",
         "TensorStorageMetadata", "_MEM_FORMAT_ENCODING"}
    ),
}  # fmt: skip


class _Reader(pickle.Unpickler):
    """An unpickler that knows what DCP's metadata consists of."""

    def find_class(self, module: str, name: str) -> Any:
        """The class or dtype of that name; a path, which is one of the machine that wrote it, becomes a plain one."""
        import torch

        if name in _ALLOWED.get(module, ()):
            return super().find_class(module, name)
        if module == "torch" and isinstance(found := getattr(torch, name, None), torch.dtype):
            return found
        if module.partition(".")[0] == "pathlib" and name in {"PosixPath", "WindowsPath", "PurePosixPath"}:
            return PurePosixPath
        raise pickle.UnpicklingError(f"it names {module}.{name}, which no metadata of a checkpoint holds")


def read_metadata(path: Path) -> Any:
    """The `Metadata` of a DCP directory.

    Raises:
        BadInput: it cannot be read, or holds something else.
        MissingRequirement: torch is not installed.
    """
    try:
        from torch.distributed.checkpoint.metadata import Metadata
    except ImportError as error:
        raise MissingRequirement(
            "torch is not installed, and reads checkpoints of torch.distributed", "pip install torch"
        ) from error
    try:
        with path.open("rb") as stream:
            found = _Reader(stream).load()
    except Exception as error:  # what damaged bytes raise is as arbitrary as they are
        raise BadInput(f"cannot read {path}: {error}", "give a checkpoint that torch.distributed wrote") from error
    if not isinstance(found, Metadata) or not _sound(found):
        raise BadInput(f"{path} is no metadata of a checkpoint", "give a checkpoint that torch.distributed wrote")
    return found


def _sound(found: Any) -> bool:
    """Whether every value has a name, and a place in a file."""
    kinds, places = getattr(found, "state_dict_metadata", None), getattr(found, "storage_data", None)
    if not isinstance(kinds, dict) or not isinstance(places, dict) or not all(isinstance(key, str) for key in kinds):
        return False
    named = all(getattr(index, "fqn", None) in kinds for index in places)
    return named and all(isinstance(getattr(info, "relative_path", None), str) for info in places.values())
