"""Reads the metadata of torch.distributed.checkpoint (DCP), and nothing else that a pickle can be.

The file is a pickle, which could run code. Nothing is taken from it but the classes that torch itself writes there, all
of which only hold data; whatever else it names is refused before it is imported. Python's own unpickler reads it: the
one in C reserves memory for whatever number stands in the file.
"""

import io
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from omni_kit.errors import BadInput, MissingRequirement

_HINT = "pass a checkpoint that torch.distributed wrote"
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


_LARGEST = 1 << 30  # bytes; a checkpoint of a million tensors has some hundred MB
# What a pickle of such objects consists of: no sets, no text form, no size of eight bytes, nothing outside the file.
_OPERATIONS = (
    "PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1",
    "BINFLOAT", "SHORT_BINUNICODE", "BINUNICODE", "SHORT_BINBYTES", "BINBYTES", "EMPTY_DICT", "EMPTY_LIST",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "BINGET",
    "LONG_BINGET", "BINPUT", "LONG_BINPUT", "MEMOIZE", "GLOBAL", "STACK_GLOBAL", "NEWOBJ", "REDUCE", "BUILD",
)  # fmt: skip


_PLAIN: Mapping[int, Any] = pickle._Unpickler.dispatch


class _Reader(pickle._Unpickler):
    """An unpickler that knows what DCP's metadata consists of."""

    stack: list[Any]
    dispatch: ClassVar[dict[int, Any]] = {
        code: _PLAIN[code] for code in (getattr(pickle, name)[0] for name in _OPERATIONS)
    }

    def load_build(self) -> None:
        """Set the state of an object; a class would keep it for the whole process."""
        if isinstance(self.stack[-2], type):
            raise pickle.UnpicklingError("it changes a class")
        _PLAIN[pickle.BUILD[0]](self)

    def load_setitem(self) -> None:
        """Put one value into a dictionary."""
        _check_keys(self.stack[-2:-1])
        _PLAIN[pickle.SETITEM[0]](self)

    def load_setitems(self) -> None:
        """Put values into a dictionary."""
        _check_keys(self.stack[::2])
        _PLAIN[pickle.SETITEMS[0]](self)

    dispatch |= {pickle.BUILD[0]: load_build, pickle.SETITEM[0]: load_setitem, pickle.SETITEMS[0]: load_setitems}

    def find_class(self, module: str, name: str) -> Any:
        """Return the class or dtype of that name; a path, which is one of the machine that wrote it, becomes a plain
        one.
        """
        import torch

        if name in _ALLOWED.get(module, ()):
            return super().find_class(module, name)
        if module == "torch" and isinstance(found := vars(torch).get(name), torch.dtype):
            return found
        if module.partition(".")[0] == "pathlib" and name in {"PosixPath", "WindowsPath", "PurePosixPath"}:
            return PurePosixPath
        raise pickle.UnpicklingError(f"it names {module}.{name}, which checkpoint metadata never contains")


def _check_keys(keys: Sequence[Any]) -> None:
    """Refuse what no metadata has for a key: hashing tuples within tuples may take for ever."""
    from torch.distributed.checkpoint.metadata import MetadataIndex

    for key in keys:
        parts = (key.fqn, key.index, *(key.offset or ())) if type(key) is MetadataIndex else (key,)
        if not all(part is None or type(part) in (str, int) for part in parts):
            raise pickle.UnpicklingError(f"it has a {type(key).__name__} for a key")


def read_metadata(path: Path) -> Any:
    """Return the `Metadata` of a DCP directory.

    Raises:
        BadInput: it cannot be read, or holds something else.
        MissingRequirement: torch is not installed.
    """
    try:
        from torch.distributed.checkpoint.metadata import Metadata
    except ImportError as error:
        raise MissingRequirement(
            "reading torch.distributed checkpoints requires torch, which is not installed", "pip install torch"
        ) from error
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST:
            raise ValueError(f"it is not a file of at most {_LARGEST >> 20} MiB")
        found = _Reader(io.BytesIO(path.read_bytes())).load()
    except KeyError as error:
        raise BadInput(f"cannot read {path}: it is not a pickle of metadata", _HINT) from error
    except Exception as error:  # what damaged bytes raise is as arbitrary as they are
        raise BadInput(f"cannot read {path}: {error}", _HINT) from error
    if not isinstance(found, Metadata) or not _sound(found):
        raise BadInput(f"{path} is not checkpoint metadata", _HINT)
    return found


def _sound(found: Any) -> bool:
    """Return whether every value has a name, and a place in a file."""
    kinds, places = getattr(found, "state_dict_metadata", None), getattr(found, "storage_data", None)
    if not isinstance(kinds, dict) or not isinstance(places, dict) or not all(isinstance(key, str) for key in kinds):
        return False
    named = all(getattr(index, "fqn", None) in kinds for index in places)
    return named and all(_is_place(info) for info in places.values())


def _is_place(info: Any) -> bool:
    numbers = (getattr(info, "offset", None), getattr(info, "length", None))
    return isinstance(getattr(info, "relative_path", None), str) and all(type(n) is int and n >= 0 for n in numbers)
