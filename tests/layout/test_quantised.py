"""Quantised checkpoints: what check-layout calls convertible, convert does; what it does not, convert refuses."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from omni_kit.convert import convert
from omni_kit.errors import BadInput
from omni_kit.layout import check_layout
from tests.conftest import Checkpoints, run_cli

# name -> (dtype as safetensors names it, its elements as bytes or numbers)
Tensors = dict[str, tuple[str, np.ndarray]]
_NAMES = {"float32": "F32", "uint8": "U8", "int32": "I32", "float16": "F16", "int64": "I64"}


def write(place: Path, tensors: Tensors) -> None:
    """A checkpoint of one file, with dtypes that numpy does not have."""
    entries: dict[str, Any] = {}
    body = b""
    for name, (dtype, array) in tensors.items():
        content = np.ascontiguousarray(array).tobytes()
        span = [len(body), len(body) + len(content)]
        entries[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": span}
        body += content
    header = json.dumps(entries).encode()
    (place / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + body)


@pytest.fixture
def quantised(checkpoint: Checkpoints, tmp_path: Path) -> Callable[..., Path]:
    """A Qwen3-MoE checkpoint whose expert weights are what a function makes of each."""

    def make(quantise: Callable[[str, np.ndarray], Tensors], model_type: str = "qwen3_moe", **config: Any) -> Path:
        source, place = checkpoint(model_type), tmp_path / "quantised"
        place.mkdir()
        found: Tensors = {}
        for shard in sorted(source.glob("*.safetensors")):
            for name, array in load_file(shard).items():
                expert = ".experts." in name and name.endswith("weight")
                found |= quantise(name, array) if expert else {name: (_NAMES[str(array.dtype)], array)}
        write(place, found)
        given = json.loads((source / "config.json").read_text())
        (place / "config.json").write_text(json.dumps(given | config))
        return place

    return make


def fp8(array: np.ndarray) -> tuple[str, np.ndarray]:
    return "F8_E4M3", np.zeros(array.shape, np.uint8)


def scale(*shape: int) -> tuple[str, np.ndarray]:
    return "F32", np.ones(shape, np.float32)


def blocks(size: int) -> Callable[[str, np.ndarray], Tensors]:
    return lambda name, array: {
        name: fp8(array),
        f"{name}_scale_inv": scale(*(-(-length // size) for length in array.shape)),
    }


def half(name: str, array: np.ndarray) -> Tensors:
    return blocks(8)(name, array) if ".experts.1." not in name else {name: ("F32", array)}


def lacking(name: str, array: np.ndarray) -> Tensors:
    found = blocks(8)(name, array)
    return found if "experts.3.up_proj" not in name else {name: found[name]}


def gptq(name: str, array: np.ndarray) -> Tensors:
    stem, (rows, columns) = name.removesuffix(".weight"), array.shape
    return {
        f"{stem}.qweight": ("I32", np.zeros((columns // 8, rows), np.int32)),
        f"{stem}.qzeros": ("I32", np.zeros((1, rows // 8), np.int32)),
        f"{stem}.scales": ("F16", np.ones((1, rows), np.float16)),
        f"{stem}.g_idx": ("I32", np.zeros(columns, np.int32)),
    }


def packed(name: str, array: np.ndarray) -> Tensors:
    stem, (rows, columns) = name.removesuffix(".weight"), array.shape
    return {
        f"{stem}.weight_packed": ("I32", np.zeros((rows, columns // 8), np.int32)),
        f"{stem}.weight_scale": ("F16", np.ones((rows, 1), np.float16)),
        f"{stem}.weight_shape": ("I64", np.array(array.shape)),
    }


def nvfp4(name: str, array: np.ndarray) -> Tensors:
    rows, columns = array.shape
    return {
        name: ("U8", np.zeros((rows, columns // 2), np.uint8)),
        f"{name}_scale": ("F8_E4M3", np.zeros((rows, columns // 8), np.uint8)),
        f"{name}_scale_2": scale(),
        f"{name.removesuffix('weight')}input_scale": scale(),
    }


def bits4(name: str, array: np.ndarray) -> Tensors:
    return {
        name: ("U8", np.zeros((array.size // 2, 1), np.uint8)),
        f"{name}.absmax": scale(array.size // 64),
        f"{name}.quant_map": scale(16),
        f"{name}.quant_state.bitsandbytes__nf4": ("U8", np.zeros(30, np.uint8)),
    }


REFUSED: dict[str, Callable[[str, np.ndarray], Tensors]] = {
    "a scale per tensor": lambda name, array: {name: fp8(array), f"{name}_scale": scale()},
    "a scale per channel": lambda name, array: {name: fp8(array), f"{name}_scale": scale(array.shape[0], 1)},
    "an inverse scale per tensor": lambda name, array: {name: fp8(array), f"{name}_scale_inv": scale()},
    "blocks that gate does not fill": blocks(16),
    "half of the experts": half,
    "one scale missing": lacking,
    "one expert of another dtype": lambda name, array: {
        name: ("F16", array.astype(np.float16)) if ".experts.2." in name else ("F32", array)
    },
    "GPTQ": gptq,
    "compressed tensors": packed,
    "NVFP4": nvfp4,
    "4 bits": bits4,
}


@pytest.mark.parametrize("how", REFUSED)
def test_what_cannot_be_moved_exactly(quantised: Callable[..., Path], tmp_path: Path, how: str) -> None:
    place = quantised(REFUSED[how], quantization_config={"quant_method": "fp8"})
    code, data = run_cli("check-layout", str(place))
    assert (code, data["verdict"], data["converter"]) == (1, "unsupported", "unsupported")
    (said,) = [f for f in data["findings"] if f["code"] in {"quantised-experts", "not-exact"}]
    with pytest.raises(BadInput) as refused:
        convert(str(place), tmp_path / "out", to="canonical")
    assert refused.value.message == said["message"]
    assert not (tmp_path / "out").exists()
    assert data["keys"]["unmapped"] == []


@pytest.mark.parametrize("form", ["memory", "hub"])
@pytest.mark.parametrize("how", ["GPTQ", "compressed tensors", "NVFP4", "4 bits"])
def test_packed_weights_have_no_other_form(quantised: Callable[..., Path], tmp_path: Path, how: str, form: str) -> None:
    with pytest.raises(BadInput, match="is packed as"):
        convert(str(quantised(REFUSED[how])), tmp_path / "out", to=form)
    assert not (tmp_path / "out").exists()


def test_packed_weights_that_are_no_experts(
    quantised: Callable[..., Path], checkpoint: Checkpoints, tmp_path: Path
) -> None:
    place = tmp_path / "dense"
    place.mkdir()
    found: Tensors = {}
    for shard in sorted(checkpoint("llama").glob("*.safetensors")):
        for name, array in load_file(shard).items():
            found |= gptq(name, array) if "_proj" in name else {name: ("F32", array)}
    write(place, found)
    (place / "config.json").write_bytes((checkpoint("llama") / "config.json").read_bytes())
    verdict = check_layout(str(place))
    assert (verdict.verdict, verdict.ok) == ("not-moe", True), verdict.findings
    with pytest.raises(BadInput, match="is packed as I32"):
        convert(str(place), tmp_path / "out", to="memory")


@pytest.mark.parametrize("given", [{"quant_method": "fp8", "weight_block_size": [8, 8]}, None])
def test_whole_blocks_move(quantised: Callable[..., Path], tmp_path: Path, given: dict[str, Any] | None) -> None:
    place = quantised(blocks(8), **({"quantization_config": given} if given else {}))
    code, data = run_cli("check-layout", str(place))
    assert (code, data["verdict"], data["converter"]) == (0, "convertible", "merge-concat")
    assert data["subtrees"][0]["quantized"] == "fp8"
    assert data["loading"]["converter"] == "unsupported"
    assert convert(str(place), tmp_path / "out", to="canonical").tensors.converted
    assert check_layout(str(tmp_path / "out")).verdict == "native"
