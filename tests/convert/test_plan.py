"""Plans: what goes where, how files are filled, and that nothing is lost."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file

from omni_kit.convert.forms import Form
from omni_kit.convert.plan import ConversionPlan, make_plan, parse_size
from omni_kit.errors import BadInput
from omni_kit.layout import read_checkpoint
from tests.conftest import Models
from tests.convert.conftest import Toys

CONFIG: dict[str, Any] = {"hidden_size": 64, "moe_intermediate_size": 24, "num_experts": 6, "num_hidden_layers": 3}


def planned(place: Path, model: Models, form: str = "canonical", **options: Any) -> ConversionPlan:
    return make_plan(read_checkpoint(place), model("qwen3_moe", **CONFIG), Form(form), **options)


def test_every_element_of_the_source_is_planned_once(toy: Toys, model: Models) -> None:
    plan = planned(toy("qwen3_moe"), model)
    moved = sum(piece.size for output in plan.outputs for piece in output.expression.pieces)
    assert moved == sum((info.end - info.begin) // 4 for info in plan.sources.values())
    assert plan.bytes == sum(info.end - info.begin for info in plan.sources.values())


@pytest.mark.parametrize("size", [1, 20_000, 60_000, 10**9])
def test_files_are_filled_up_to_the_size(toy: Toys, model: Models, size: int) -> None:
    plan = planned(toy("qwen3_moe"), model, shard_size=size)
    for shard in plan.shards:
        assert len(shard.outputs) == 1 or sum(output.size for output in shard.outputs) <= size
    names = [shard.name for shard in plan.shards]
    count = len(names)
    wanted = [f"model-{n:05}-of-{count:05}.safetensors" for n in range(1, count + 1)]
    assert names == (wanted if count > 1 else ["model.safetensors"])
    assert len({output.name for output in plan.outputs}) == len(list(plan.outputs))


def test_the_index_says_where_everything_is(toy: Toys, model: Models) -> None:
    plan = planned(toy("qwen3_moe"), model, shard_size=60_000)
    index = json.loads(plan.index or "")
    assert index["metadata"]["total_size"] == plan.bytes
    assert index["weight_map"] == {output.name: shard.name for shard in plan.shards for output in shard.outputs}
    assert planned(toy("qwen3_moe"), model).index is None


def test_a_header_is_what_safetensors_reads(toy: Toys, model: Models, tmp_path: Path) -> None:
    (shard,) = planned(toy("qwen3_moe"), model).shards
    assert len(shard.header) % 8 == 0
    file = tmp_path / "empty.safetensors"
    file.write_bytes(shard.header + bytes(shard.size - len(shard.header)))
    with safe_open(file, "numpy") as opened:
        assert opened.metadata() == {"format": "pt", "experts": "canonical"}
        assert {n: opened.get_slice(n).get_shape() for n in opened.keys()} == {  # noqa: SIM118
            output.name: list(output.expression.shape) for output in shard.outputs
        }


def test_large_elements_come_first_so_that_all_are_aligned(tmp_path: Path, model: Models) -> None:
    tensors = {"a": np.ones(3, np.uint8), "b": np.ones(5, np.float32), "c": np.ones(1, np.float16), "d": np.ones(1)}
    save_file(tensors, tmp_path / "model.safetensors")
    (shard,) = make_plan(read_checkpoint(tmp_path), model("llama"), Form.memory).shards
    assert [output.name for output in shard.outputs] == ["d", "b", "c", "a"]
    for output, begin in shard.places():
        assert begin % {"d": 8, "b": 4, "c": 2, "a": 1}[output.name] == 0


def test_metadata_stays_and_the_mark_goes_with_the_canonical_form(toy: Toys, model: Models) -> None:
    for form, mark in (("canonical", {"experts": "canonical"}), ("memory", {}), ("hub", {})):
        assert planned(toy("qwen3_moe"), model, form).shards[0].metadata == {"format": "pt", **mark}


def test_a_cast_touches_weights_alone(tmp_path: Path, model: Models) -> None:
    tensors = {
        "model.layers.0.mlp.gate.weight": np.ones((4, 4), np.float32),
        "model.layers.0.mlp.gate.e_score_correction_bias": np.ones(4, np.float32),
        "model.position_ids": np.arange(4),
        "model.layers.0.q_proj.weight_scale_inv": np.ones((1, 1), np.float32),
    }
    save_file(tensors, tmp_path / "model.safetensors")
    plan = make_plan(read_checkpoint(tmp_path), model("deepseek_v3"), Form.memory, "BF16")
    assert {output.name: output.dtype for output in plan.outputs} == {
        "model.layers.0.mlp.gate.weight": "BF16",
        "model.layers.0.mlp.gate.e_score_correction_bias": "F32",
        "model.position_ids": "I64",
        "model.layers.0.q_proj.weight_scale_inv": "F32",
    }


def test_the_fingerprint_follows_sources_and_options(toy: Toys, model: Models) -> None:
    place = toy("qwen3_moe")
    first = planned(place, model).fingerprint
    assert planned(place, model).fingerprint == first
    others = [
        planned(place, model, form="hub").fingerprint,
        planned(place, model, shard_size=60_000).fingerprint,
        planned(place, model, dtype="BF16").fingerprint,
    ]
    shard = sorted(place.glob("*.safetensors"))[0]
    content = shard.read_bytes()
    shard.write_bytes(content)
    others.append(planned(place, model).fingerprint)
    assert len({first, *others}) == 5


def test_dtypes_that_differ_inside_one_tensor_are_refused(tmp_path: Path, model: Models) -> None:
    base = "model.layers.0.mlp.experts"
    tensors = {
        f"{base}.{e}.{p}_proj.weight": np.ones((4, 4), np.float32) for e in (0, 1) for p in ("gate", "up", "down")
    }
    tensors[f"{base}.1.up_proj.weight"] = np.ones((4, 4), np.float16)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(BadInput, match=r"is F16, .* is F32: a stack has one dtype"):
        planned(tmp_path, model)


def test_elements_smaller_than_a_byte_only_pass_through(tmp_path: Path, model: Models) -> None:
    base = "model.layers.0.mlp"
    names = [f"{base}.experts.{e}.{p}_proj.weight" for e in (0, 1) for p in ("gate", "up", "down")]

    def write(*packed: str) -> None:
        entries: dict[str, Any] = {}
        for number, name in enumerate([*names, f"{base}.other"]):
            dtype, size = ("F4", 8) if name in packed else ("U8", 16)
            begin = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
            entries[name] = {"dtype": dtype, "shape": [4, 4], "data_offsets": [begin, begin + size]}
            if dtype == "U8" and number < len(names):
                entries[name]["dtype"] = "F8_E4M3"
        header = json.dumps(entries).encode()
        body = bytes(max(entry["data_offsets"][1] for entry in entries.values()))
        (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + body)

    write(*names)
    for form in ("canonical", "memory", "hub"):
        with pytest.raises(BadInput, match="is packed as F4"):
            planned(tmp_path, model, form)
    write(f"{base}.other")
    (other,) = [output for output in planned(tmp_path, model).outputs if output.name.endswith("other")]
    assert other.passes_through


def test_an_index_alone_is_refused(toy: Toys, model: Models, tmp_path: Path) -> None:
    index = tmp_path / "model.safetensors.index.json"
    index.write_bytes((toy("qwen3_moe") / index.name).read_bytes())
    with pytest.raises(BadInput, match="index whose shards are missing"):
        planned(index, model)


@pytest.mark.parametrize(
    ("text", "size"),
    [("5GB", 5 * 10**9), ("500MB", 5 * 10**8), ("1.5kb", 1500), ("2GiB", 2**31), ("77", 77), ("3 M", 3 * 10**6)],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "5 gigabytes", "0", "1e9"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(BadInput, match="is not a valid shard size"):
        parse_size(text)
