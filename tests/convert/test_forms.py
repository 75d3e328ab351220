"""The forms against transformers: what it loads from a checkpoint, and what it saves."""

from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

from omni_kit.convert import convert
from omni_kit.errors import BadInput
from tests.convert.conftest import Stored, Tensors, Toys, assert_equal, edit_config, load

SPLIT = ["qwen3_moe", "olmoe", "mixtral", "deepseek_v3", "qwen2_moe", "glm4_moe", "minimax_m2", "phimoe", "jamba"]
RENAMED = ["hy_v3", "ernie4_5_moe", "laguna"]
AS_IN_MEMORY = ["gpt_oss", "llama4_text", "granitemoe", "jetmoe", "llama", "gemma2"]
NO_GATE = ["nemotron_h"]
EVERY = [*SPLIT, *RENAMED, *AS_IN_MEMORY, *NO_GATE]


def loaded(place: Path) -> Tensors:
    """What transformers makes of a checkpoint, without the parameters that are tied to another one."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(place)
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    return {name: tensor.numpy() for name, tensor in model.state_dict().items() if name not in tied}


@pytest.mark.parametrize("model_type", EVERY)
def test_memory_is_what_transformers_loads(toy: Toys, tmp_path: Path, model_type: str) -> None:
    convert(str(toy(model_type)), tmp_path / "out", to="memory")
    assert_equal(load(tmp_path / "out"), loaded(toy(model_type)))


@pytest.mark.parametrize("model_type", [*SPLIT, *RENAMED, *NO_GATE, "llama"])
def test_canonical_is_memory_where_memory_is_canonical(toy: Toys, tmp_path: Path, model_type: str) -> None:
    convert(str(toy(model_type)), tmp_path / "out", to="canonical")
    assert_equal(load(tmp_path / "out"), loaded(toy(model_type)))


@pytest.mark.parametrize("model_type", EVERY)
def test_there_and_back(toy: Toys, tmp_path: Path, model_type: str) -> None:
    convert(str(toy(model_type)), tmp_path / "canonical", to="canonical", shard_size="50KB")
    convert(str(tmp_path / "canonical"), tmp_path / "hub", to="hub")
    assert_equal(load(tmp_path / "hub"), load(toy(model_type)))


@pytest.mark.parametrize("model_type", EVERY)
def test_memory_and_back(toy: Toys, tmp_path: Path, model_type: str) -> None:
    convert(str(toy(model_type)), tmp_path / "memory", to="memory")
    convert(str(tmp_path / "memory"), tmp_path / "hub", to="hub")
    assert_equal(load(tmp_path / "hub"), load(toy(model_type)))


@pytest.mark.parametrize("model_type", EVERY)
def test_what_has_the_form_already_passes_through(toy: Toys, tmp_path: Path, model_type: str) -> None:
    done = convert(str(toy(model_type)), tmp_path / "hub", to="hub")
    assert (done.tensors.converted, done.tensors.passed_through) == (0, done.tensors.read)
    assert_equal(load(tmp_path / "hub"), load(toy(model_type)))


@pytest.mark.parametrize("model_type", ["qwen3_moe", "gpt_oss", "llama4_text", "nemotron_h"])
def test_canonical_twice_is_canonical(toy: Toys, tmp_path: Path, model_type: str) -> None:
    """Also where the recipe or the module would say that these rows alternate: the file says what it is."""
    convert(str(toy(model_type)), tmp_path / "once", to="canonical")
    done = convert(str(tmp_path / "once"), tmp_path / "twice", to="canonical")
    assert done.tensors.converted == 0
    assert_equal(load(tmp_path / "twice"), load(tmp_path / "once"))
    with safe_open(tmp_path / "twice" / "model.safetensors", "numpy") as file:
        assert file.metadata() == {"format": "pt", "experts": "canonical"}


def test_canonical_of_transposed_and_alternating_columns(toy: Toys, tmp_path: Path) -> None:
    convert(str(toy("gpt_oss")), tmp_path / "out", to="canonical")
    before, after = load(toy("gpt_oss")), load(tmp_path / "out")
    box = "model.layers.1.mlp.experts"
    columns = before[f"{box}.gate_up_proj"]
    wanted = np.concatenate([columns[..., ::2], columns[..., 1::2]], -1).swapaxes(1, 2)
    assert (after[f"{box}.gate_up_proj"] == wanted).all()
    assert (after[f"{box}.down_proj"] == before[f"{box}.down_proj"].swapaxes(1, 2)).all()
    bias = before[f"{box}.gate_up_proj_bias"]
    assert (after[f"{box}.gate_up_proj_bias"] == np.concatenate([bias[:, ::2], bias[:, 1::2]], 1)).all()
    assert (after[f"{box}.down_proj_bias"] == before[f"{box}.down_proj_bias"]).all()


def test_canonical_of_transposed(toy: Toys, tmp_path: Path) -> None:
    convert(str(toy("llama4_text")), tmp_path / "out", to="canonical")
    before, after = load(toy("llama4_text")), load(tmp_path / "out")
    for name in (name for name in before if ".experts." in name):
        assert (after[name] == before[name].swapaxes(1, 2)).all()


def test_canonical_of_other_names(toy: Toys, tmp_path: Path) -> None:
    convert(str(toy("granitemoe")), tmp_path / "out", to="canonical")
    before, after = load(toy("granitemoe")), load(tmp_path / "out")
    box = "model.layers.0.block_sparse_moe"
    assert (after[f"{box}.gate_up_proj"] == before[f"{box}.input_linear.weight"]).all()
    assert (after[f"{box}.down_proj"] == before[f"{box}.output_linear.weight"]).all()


def test_tied_weights_stay_absent(toy: Toys, tmp_path: Path) -> None:
    for form in ("canonical", "memory", "hub"):
        convert(str(toy("gemma2")), tmp_path / form, to=form)
        assert "lm_head.weight" not in load(tmp_path / form)


def test_a_file_of_another_layout_than_the_recipe_reads(toy: Toys, stored: Stored, tmp_path: Path) -> None:
    """Fused and transposed experts of a model whose recipe splits them: the file decides, and the hub form is split."""
    convert(str(toy("qwen3_moe")), tmp_path / "fused", to="canonical")
    tensors = load(tmp_path / "fused")
    turned = {n: t.swapaxes(1, 2) if ".experts." in n else t for n, t in tensors.items()}
    place = stored("qwen3_moe", turned)
    convert(str(place), tmp_path / "canonical", to="canonical")
    assert_equal(load(tmp_path / "canonical"), tensors)
    convert(str(place), tmp_path / "hub", to="hub")
    assert_equal(load(tmp_path / "hub"), load(toy("qwen3_moe")))


def test_stacked_but_unfused(toy: Toys, stored: Stored, tmp_path: Path) -> None:
    convert(str(toy("qwen3_moe")), tmp_path / "fused", to="canonical")
    tensors = load(tmp_path / "fused")
    unfused = {n: t for n, t in tensors.items() if not n.endswith("gate_up_proj")}
    for name in tensors.keys() - unfused.keys():
        box = name.removesuffix("gate_up_proj")
        unfused[f"{box}gate_proj"], unfused[f"{box}up_proj"] = np.split(tensors[name], 2, axis=1)
    convert(str(stored("qwen3_moe", unfused)), tmp_path / "canonical", to="canonical")
    assert_equal(load(tmp_path / "canonical"), tensors)


def test_mixed_layers(toy: Toys, stored: Stored, tmp_path: Path) -> None:
    split = load(toy("qwen3_moe"))
    convert(str(toy("qwen3_moe")), tmp_path / "fused", to="canonical")
    fused = load(tmp_path / "fused")
    mixed = {n: t for n, t in split.items() if "layers.1.mlp.experts" not in n}
    mixed |= {n: t for n, t in fused.items() if "layers.1.mlp.experts" in n}
    place = stored("qwen3_moe", mixed)
    convert(str(place), tmp_path / "canonical", to="canonical")
    assert_equal(load(tmp_path / "canonical"), fused)
    convert(str(place), tmp_path / "hub", to="hub")
    assert_equal(load(tmp_path / "hub"), split)


def test_layers_that_the_model_does_not_build_come_along(toy: Toys, stored: Stored, tmp_path: Path) -> None:
    """Multi-token prediction: its experts are converted like all others, and come back."""
    tensors = load(toy("deepseek_v3"))
    tensors |= {n.replace("layers.2.", "layers.3."): t + 1 for n, t in tensors.items() if ".layers.2." in n}
    place = stored("deepseek_v3", tensors)
    convert(str(place), tmp_path / "canonical", to="canonical")
    after = load(tmp_path / "canonical")
    main, extra = (f"model.layers.{n}.mlp.experts.gate_up_proj" for n in (2, 3))
    assert (after[extra] == after[main] + 1).all()
    convert(str(tmp_path / "canonical"), tmp_path / "hub", to="hub")
    assert_equal(load(tmp_path / "hub"), tensors)


def with_fp8(tensors: Tensors, block: int) -> Tensors:
    """Experts as bytes with a scale for every block of block x block elements."""
    found = dict(tensors)
    for number, name in enumerate(n for n in tensors if ".experts." in n):
        rows, columns = tensors[name].shape
        found[name] = np.arange(rows * columns, dtype=np.uint8).reshape(rows, columns)
        scales = np.arange(-(-rows // block) * -(-columns // block), dtype=np.float32) + 1000 * number
        found[f"{name}_scale_inv"] = scales.reshape(-(-rows // block), -1)
    return found


def fp8_checkpoint(toy: Toys, stored: Stored, block: int) -> tuple[Path, Tensors]:
    tensors = with_fp8(load(toy("qwen3_moe")), block)
    place = stored("qwen3_moe", tensors)
    edit_config(place, quantization_config={"quant_method": "fp8", "weight_block_size": [block, block]})
    return place, tensors


def test_block_scales_ride_along_and_come_back(toy: Toys, stored: Stored, tmp_path: Path) -> None:
    place, tensors = fp8_checkpoint(toy, stored, 8)
    convert(str(place), tmp_path / "canonical", to="canonical", dtype="bfloat16", verify=True)
    with safe_open(tmp_path / "canonical" / "model.safetensors", "numpy") as file:
        scale = file.get_tensor("model.layers.0.mlp.experts.gate_up_proj_scale_inv")
        assert file.get_slice("model.norm.weight").get_dtype() == "BF16"
    parts = [
        [tensors[f"model.layers.0.mlp.experts.{e}.{p}_proj.weight_scale_inv"] for e in range(6)] for p in ("gate", "up")
    ]
    assert scale.dtype == np.float32
    assert (scale == np.concatenate([np.stack(part) for part in parts], 1)).all()
    convert(str(place), tmp_path / "exact", to="canonical")
    convert(str(tmp_path / "exact"), tmp_path / "hub", to="hub")
    assert_equal(load(tmp_path / "hub"), tensors)


def test_a_block_over_gate_and_up_is_refused(toy: Toys, stored: Stored, tmp_path: Path) -> None:
    place, _ = fp8_checkpoint(toy, stored, 16)  # 24 rows of gate
    with pytest.raises(BadInput, match="one scale would cover gate and up"):
        convert(str(place), tmp_path / "out", to="canonical")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("lost", ["weight_scale", "input_scale", "bias"])
def test_what_has_no_place_is_refused(toy: Toys, stored: Stored, tmp_path: Path, lost: str) -> None:
    tensors = load(toy("qwen3_moe"))
    for expert in range(6):
        tensors[f"model.layers.0.mlp.experts.{expert}.gate_proj.{lost}"] = np.ones(1, np.float32)
    with pytest.raises(BadInput, match="does not exist in another layout"):
        convert(str(stored("qwen3_moe", tensors)), tmp_path / "out", to="canonical")
    assert not (tmp_path / "out").exists()


def test_packed_blocks_are_refused(toy: Toys, stored: Stored, tmp_path: Path) -> None:
    tensors = load(toy("gpt_oss"))
    for name in [n for n in tensors if n.endswith((".experts.gate_up_proj", ".experts.down_proj"))]:
        packed = tensors.pop(name).swapaxes(1, 2).astype(np.uint8)
        tensors[f"{name}_blocks"] = packed[:, :, None, ::2]
        tensors[f"{name}_scales"] = packed[:, :, ::32]
    with pytest.raises(BadInput, match="MXFP4"):
        convert(str(stored("gpt_oss", tensors)), tmp_path / "out", to="canonical")


def test_a_missing_expert_is_refused(toy: Toys, stored: Stored, tmp_path: Path) -> None:
    tensors = load(toy("qwen3_moe"))
    del tensors["model.layers.1.mlp.experts.5.up_proj.weight"]
    with pytest.raises(BadInput, match=r"experts\.5\.up_proj"):
        convert(str(stored("qwen3_moe", tensors)), tmp_path / "out", to="canonical")


def test_experts_that_have_no_canonical_form_are_refused(toy: Toys, stored: Stored, tmp_path: Path) -> None:
    tensors = {n.replace("experts.", "experts.expert_"): t for n, t in load(toy("qwen3_moe")).items()}
    with pytest.raises(BadInput, match="module-dict"):
        convert(str(stored("qwen3_moe", tensors)), tmp_path / "out", to="canonical")


def test_without_a_config(toy: Toys, stored: Stored, tmp_path: Path) -> None:
    place = stored("qwen3_moe", load(toy("qwen3_moe")))
    (place / "config.json").unlink()
    convert(str(place), tmp_path / "out", to="canonical")
    assert_equal(load(tmp_path / "out"), loaded(toy("qwen3_moe")))
    for form in ("memory", "hub"):
        with pytest.raises(BadInput, match="names the model"):
            convert(str(place), tmp_path / form, to=form)


def test_without_a_config_nothing_says_whether_rows_alternate(toy: Toys, stored: Stored, tmp_path: Path) -> None:
    place = stored("gpt_oss", load(toy("gpt_oss")))
    (place / "config.json").unlink()
    with pytest.raises(BadInput, match="required to know whether gate and up are interleaved"):
        convert(str(place), tmp_path / "out", to="canonical")


def test_two_tensors_of_one_name_are_refused(toy: Toys, stored: Stored, tmp_path: Path) -> None:
    tensors = load(toy("mixtral"))
    name = next(n for n in tensors if "block_sparse_moe.gate" in n)
    tensors[name.replace("block_sparse_moe", "mlp")] = tensors[name]
    with pytest.raises(BadInput, match="would both become"):
        convert(str(stored("mixtral", tensors)), tmp_path / "out", to="memory")
