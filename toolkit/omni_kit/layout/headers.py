"""Reads safetensors headers: names, dtypes, shapes and offsets. Never tensor data.

The format: eight bytes, little-endian, with the length of a JSON header; the header; the tensors' bytes without holes.
Everything that the safetensors library refuses is refused here.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from omni_kit.errors import BadInput, reason
from omni_kit.files import is_file

MAX_HEADER = 100_000_000
_AGAIN = "copy or download the file again"
# bits per element, as the safetensors format defines its dtypes
DTYPE_BITS: Mapping[str, int] = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip
# what torch calls those that it has
TORCH_NAMES: Mapping[str, str] = {
    "BOOL": "bool", "U8": "uint8", "I8": "int8", "I16": "int16", "I32": "int32", "I64": "int64", "F16": "float16",
    "BF16": "bfloat16", "F32": "float32", "F64": "float64", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}  # fmt: skip


class TensorInfo(NamedTuple):
    """One tensor of a file: `begin` and `end` are absolute byte positions."""

    dtype: str
    shape: tuple[int, ...]
    file: Path
    begin: int
    end: int


def read_header(path: Path) -> tuple[dict[str, TensorInfo], dict[str, str]]:
    """Return the tensors of one file, and its metadata.

    Raises:
        BadInput: truncated, lying about its length, not JSON, duplicate keys, unknown dtypes, offsets that overlap,
            leave holes or reach outside the file.
    """
    if path.exists() and not is_file(path):
        raise BadInput(f"{path} is not a file", "pass a safetensors file")
    try:
        size = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if size < 8 or length > min(MAX_HEADER, size - 8):
                raise BadInput(f"{path.name} is truncated or not a safetensors file", _AGAIN)
            text = stream.read(length)
    except OSError as error:
        raise BadInput(f"cannot read {path}: {reason(error)}") from error
    header = _parse(text, path.name)
    metadata = _metadata(header.pop("__metadata__", {}), path.name)
    return _tensors(header, path, length + 8, size), metadata


def _parse(text: bytes, name: str) -> dict[str, Any]:
    if not text.startswith(b"{"):
        raise BadInput(f"{name} has no safetensors header", _AGAIN)
    try:
        header = json.loads(text.decode("utf-8"))
        if not isinstance(header, dict):
            raise ValueError("it is not a JSON object")
        if b"\\u" in text:
            json.dumps(header, ensure_ascii=False).encode()  # the library takes no half of a character
        if text.count(b'":') != _pairs(header):
            json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"{name} has a damaged header: {error}", _AGAIN) from error
    return header


def _pairs(header: Mapping[str, Any]) -> int:
    """Return the key count of an ordinary header, nested ones included: if the text has more, a key may repeat."""
    return len(header) + sum(len(entry) for entry in header.values() if isinstance(entry, dict))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key appears twice")
    return result


def _metadata(value: Any, name: str) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise BadInput(f"{name} has metadata that is not text", _AGAIN)
    return value


def _tensors(header: dict[str, Any], path: Path, start: int, size: int) -> dict[str, TensorInfo]:
    tensors: dict[str, TensorInfo] = {}
    spans: list[tuple[int, int]] = []
    fitting: dict[tuple[str, tuple[int, ...]], int] = {}  # a checkpoint has few shapes, and many tensors of each
    for name, entry in header.items():
        try:
            kind = dtype, shape = entry["dtype"], tuple(entry["shape"])
            begin, end = entry["data_offsets"]
            length = fitting.get(kind)
            if length is None:
                length = fitting[kind] = _length(dtype, shape)
            whole = type(begin) is type(end) is int and type(entry["shape"]) is list
            fits = len(entry) == 3 and whole and begin >= 0 and end - begin == length
        except (KeyError, TypeError, ValueError) as error:
            raise BadInput(f"{path.name}: tensor {name} has a damaged entry ({error})", _AGAIN) from error
        if not fits:
            said = f"offsets that do not fit its shape {list(shape)} of {dtype}"
            raise BadInput(f"{path.name}: tensor {name} has {said}", _AGAIN)
        spans.append((begin, end))
        tensors[name] = TensorInfo(dtype, shape, path, start + begin, start + end)
    _check_spans(spans, size - start, path.name)
    return tensors


def _length(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor; -1, which nothing has, for sizes that are not whole and non-negative."""
    bits = DTYPE_BITS[dtype]
    for dimension in shape:
        if type(dimension) is not int or dimension < 0:
            return -1
        bits *= dimension
    return bits // 8 if bits % 8 == 0 else -1


def _check_spans(spans: list[tuple[int, int]], size: int, name: str) -> None:
    position = 0
    spans.sort()
    for begin, end in spans:
        if begin != position:
            raise BadInput(f"{name} has tensors that overlap or leave a hole at byte {position}", _AGAIN)
        position = end
    if position != size:
        raise BadInput(f"{name} is truncated: its header declares {position} bytes of tensors, it has {size}", _AGAIN)
