"""The header reader against the safetensors library."""

import json
import os
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from omni_kit.errors import BadInput
from omni_kit.layout import check_layout
from omni_kit.layout.headers import read_header


def library_accepts(path: Path) -> bool:
    try:
        with safe_open(path, framework="np") as file:
            list(file.keys())
    except Exception:
        return False
    return True


def reader_accepts(path: Path) -> bool:
    try:
        read_header(path)
    except BadInput:
        return False
    return True


def write(path: Path, header: Any, body: bytes) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


def entry(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


@pytest.fixture
def good(tmp_path: Path) -> Path:
    tensors = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(4, dtype=np.int8)}
    save_file(tensors, tmp_path / "good.safetensors", metadata={"format": "pt"})
    return tmp_path / "good.safetensors"


def test_reads_what_the_library_wrote(good: Path) -> None:
    tensors, metadata = read_header(good)
    assert {name: (info.dtype, info.shape) for name, info in tensors.items()} == {
        "a": ("F32", (2, 3)),
        "b": ("I8", (4,)),
    }
    assert metadata == {"format": "pt"}
    info = tensors["a"]
    assert good.read_bytes()[info.begin : info.end] == np.arange(6, dtype=np.float32).tobytes()


@pytest.mark.parametrize(
    ("header", "body", "says"),
    [
        ({"a": entry("F32", [2], 0, 8)}, b"\0" * 4, "truncated"),
        ({"a": entry("F32", [2], 0, 4)}, b"\0" * 4, "do not fit its shape"),
        ({"a": entry("F33", [2], 0, 8)}, b"\0" * 8, "damaged entry"),
        ({"a": entry("U8", [4], 0, 4), "b": entry("U8", [4], 2, 6)}, b"\0" * 6, "overlap"),
        ({"a": entry("U8", [4], 4, 8)}, b"\0" * 8, "hole"),
        ({"a": entry("U8", [-4], 0, 4)}, b"\0" * 4, "do not fit"),
        ({"a": entry("U8", [4], 4, 0)}, b"\0" * 4, "do not fit"),
        ({"a": {"dtype": "U8"}}, b"", "damaged entry"),
        (b'{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4.0]}}', b"\0" * 4, "do not fit"),
        (b'{"a":{"dtype":"U8","shape":{},"data_offsets":[0,1]}}', b"\0", "do not fit"),
        (b'{"\\ud800":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"\0", "damaged header"),
        ({"__metadata__": {"a": 1}}, b"", "metadata"),
        (b'{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":1}', b"", "twice"),
        (b"[]", b"", "no safetensors header"),
        (b'{"\xff": 1}', b"", "damaged header"),
        (b"{" + b'"a":[' * 50_000, b"", "damaged header"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, header: Any, body: bytes, says: str) -> None:
    path = write(tmp_path / "bad.safetensors", header, body)
    with pytest.raises(BadInput, match=says):
        read_header(path)
    assert not library_accepts(path)


@pytest.mark.parametrize("length", [1 << 62, 200_000_000, 1000])
def test_lying_header_length(tmp_path: Path, length: int) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(struct.pack("<Q", length) + b"{}")
    with pytest.raises(BadInput, match="truncated or not a safetensors file"):
        read_header(path)


def test_absent_file(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        read_header(tmp_path / "none.safetensors")


def test_never_accepts_what_the_library_refuses(good: Path, tmp_path: Path) -> None:
    """Two thousand random mutations of a good file."""
    rng = random.Random(0)
    original = good.read_bytes()
    path = tmp_path / "mutated.safetensors"
    refused = 0
    for _ in range(2000):
        data = bytearray(original)
        for _ in range(rng.randint(1, 3)):
            kind, place = rng.randrange(3), rng.randrange(len(data))
            if kind == 0:
                data[place] = rng.randrange(256)
            elif kind == 1:
                del data[place : place + rng.randint(1, 8)]
            else:
                data[place:place] = bytes(rng.randrange(256) for _ in range(rng.randint(1, 4)))
        path.write_bytes(data)
        if not library_accepts(path):
            refused += 1
            assert not reader_accepts(path), bytes(data)
    assert refused > 500


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    """Reading one would wait for ever."""
    os.mkfifo(tmp_path / "model.safetensors")
    for given in (tmp_path, tmp_path / "model.safetensors"):
        with pytest.raises(BadInput, match=r"not a file|neither a file|no safetensors files"):
            check_layout(str(given))
    (tmp_path / "model.safetensors").unlink()
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(BadInput, match="is not a file"):
        check_layout(str(tmp_path))


def test_a_name_that_no_file_can_have(tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "x" * 5000, "b": "b.safetensors"}}))
    (tmp_path / "b.safetensors").touch()
    with pytest.raises(BadInput, match="which is missing"):
        check_layout(str(tmp_path))
    for given in ("x" * 5000, "a\0b", "~nobody-has-this-name/x"):
        with pytest.raises(BadInput, match=r"is neither a file|does not exist"):
            check_layout(given)
