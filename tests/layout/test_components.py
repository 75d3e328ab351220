"""Checkpoints of diffusers' models: every key accounted for, and original layouts refused with their conversion."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.numpy import load_file, save_file

from omni_kit.layout import check_layout
from omni_kit.layout.loading import loading
from tests.conftest import run_cli
from tests.diffusers_models import WAN, save, shallow_config

FILE = "diffusion_pytorch_model.safetensors"
# What the original authors of Wan call the parts that diffusers renames.
RENAMED = {
    "condition_embedder.time_embedder.linear_1": "time_embedding.0",
    "condition_embedder.time_embedder.linear_2": "time_embedding.2",
    "condition_embedder.text_embedder.linear_1": "text_embedding.0",
    "condition_embedder.text_embedder.linear_2": "text_embedding.2",
    "condition_embedder.time_proj": "time_projection.1",
    "attn1": "self_attn", "attn2": "cross_attn", ".to_out.0.": ".o.", ".to_q.": ".q.", ".to_k.": ".k.", ".to_v.": ".v.",
    ".ffn.net.0.proj": ".ffn.0", ".ffn.net.2": ".ffn.2", "proj_out": "head.head",
}  # fmt: skip


@pytest.fixture(scope="module")
def wan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy of Wan, in one file."""
    return save("WanTransformer3DModel", tmp_path_factory.mktemp("wan") / "transformer", WAN)


@pytest.fixture
def changed(wan: Path, tmp_path: Path) -> Callable[[Callable[[dict[str, Any]], object]], Path]:
    """The same with its tensors, or its config, changed."""

    def make(change: Callable[[dict[str, Any]], object]) -> Path:
        tensors = load_file(wan / FILE)
        change(tensors)
        save_file(tensors, tmp_path / FILE)
        (tmp_path / "config.json").write_bytes((wan / "config.json").read_bytes())
        return tmp_path

    return make


def original(tensors: dict[str, Any]) -> dict[str, Any]:
    """Tensors under the names of the original authors."""
    found = {}
    for name, tensor in tensors.items():
        for own, theirs in RENAMED.items():
            name = name.replace(own, theirs)
        name = "head.modulation" if name == "scale_shift_table" else name.replace("scale_shift_table", "modulation")
        found[name.replace("norm2", "norm__").replace("norm3", "norm2").replace("norm__", "norm3")] = tensor
    return found


def test_every_key_of_a_model_of_diffusers_is_accounted_for(wan: Path) -> None:
    verdict = check_layout(str(wan))
    assert (verdict.ok, verdict.verdict, verdict.findings) == (True, "not-moe", ())
    keys = verdict.as_json()["keys"]
    assert keys["mapped"] == keys["total"] == len(load_file(wan / FILE))
    assert keys["proof"] == "names and shapes against WanTransformer3DModel as read from source"


def test_shards_and_a_single_file_are_accounted_for(tmp_path: Path, wan: Path) -> None:
    sharded = save("WanTransformer3DModel", tmp_path, WAN, max_shard_size="20KB")
    assert len(list(sharded.glob("*.safetensors"))) > 2
    for place in (sharded, sharded / f"{FILE}.index.json", wan / FILE):
        code, answer = run_cli("check-layout", str(place))
        assert (code, answer["model_type"], answer["verdict"]) == (0, "WanTransformer3DModel", "not-moe")


def test_of_a_pipeline_the_denoiser_is_looked_at(tmp_path: Path) -> None:
    save("WanTransformer3DModel", tmp_path / "transformer", WAN)
    index = {"_class_name": "WanPipeline", "transformer": ["diffusers", "WanTransformer3DModel"]}
    (tmp_path / "model_index.json").write_text(json.dumps(index), encoding="utf-8")
    code, answer = run_cli("check-layout", str(tmp_path))
    assert (code, answer["model_type"]) == (0, "WanTransformer3DModel")


def test_another_component_is_accounted_for(tmp_path: Path) -> None:
    config = {
        "block_out_channels": [8, 16], "down_block_types": ["DownEncoderBlock2D"] * 2,
        "up_block_types": ["UpDecoderBlock2D"] * 2, "norm_num_groups": 4,
    }  # fmt: skip
    assert check_layout(str(save("AutoencoderKL", tmp_path, config))).ok


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda t: t.pop("blocks.1.attn1.to_q.weight"), "missing-parameters"),
        (lambda t: t.update({"blocks.2.attn1.to_q.weight": t["blocks.1.attn1.to_q.weight"]}), "extra-layers"),
        (lambda t: t.update({"nobody.weight": t["proj_out.bias"]}), "unmapped-keys"),
        (lambda t: t.update({"proj_out.weight": t["proj_out.weight"].T.copy()}), "shape-mismatch"),
    ],
)
def test_what_does_not_fit_is_found(
    changed: Callable[[Callable[[dict[str, Any]], object]], Path], change: Callable[[dict[str, Any]], object], code: str
) -> None:
    verdict = check_layout(str(changed(change)))
    assert not verdict.ok
    assert not verdict.untested
    assert code in {finding.code for finding in verdict.findings}


def test_routed_experts_of_a_denoiser_load_as_they_lie(tmp_path: Path) -> None:
    """HiDream routes, and holds its experts one by one, as on disk."""
    small = {"attention_head_dim": 16, "axes_dims_rope": [8, 4, 4], "num_layers": 1, "num_single_layers": 1}
    name = "HiDreamImageTransformer2DModel"
    verdict = check_layout(str(save(name, tmp_path, {**shallow_config(name), **small})))
    assert verdict.ok
    assert {tree.num_experts for tree in verdict.subtrees} == {4}
    assert loading(verdict).converter == "none"


def test_what_could_not_be_read_is_not_judged(tmp_path: Path) -> None:
    """Oobleck wraps its convolutions in weight_norm: nothing is wrong, and nothing proven."""
    config = {"encoder_hidden_size": 8, "downsampling_ratios": [2], "channel_multiples": [1], "decoder_channels": 8}
    made = save("AutoencoderOobleck", tmp_path, {**config, "decoder_input_channels": 4})
    code, answer = run_cli("check-layout", str(made))
    assert (code, answer["ok"]) == (3, False)
    assert answer["keys"]["not_judged"]
    assert answer["keys"]["unmapped"] == []


def test_a_class_alone_says_what_its_checkpoint_will_have() -> None:
    code, answer = run_cli("check-layout", "WanTransformer3DModel")
    assert (code, answer["verdict"], answer["keys"]["missing"]) == (0, "not-moe", [])
    assert answer["findings"][0]["code"] == "no-checkpoint"


def test_an_original_layout_is_refused_with_its_conversion(wan: Path, tmp_path: Path) -> None:
    import torch
    from diffusers.loaders.single_file_utils import convert_wan_transformer_to_diffusers

    own = load_file(wan / FILE)
    theirs = original(own)
    back = convert_wan_transformer_to_diffusers({key: torch.from_numpy(value) for key, value in theirs.items()})
    assert {key: tuple(value.shape) for key, value in back.items()} == {key: value.shape for key, value in own.items()}
    file = tmp_path / "wan.safetensors"
    save_file(theirs, file)
    written = tmp_path / "written"
    for config in (
        None,
        {"_class_name": "WanModel", "model_type": "t2v"},
        {"_class_name": "WanTransformer3DModel", **WAN},
    ):
        if config is not None:
            (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
        for command in (
            ["inspect"], ["check-layout"], ["new-model", "m", "--into", str(written), "--from"],
        ):  # fmt: skip
            code, answer = run_cli(*command, str(file))
            assert code == 2
            assert "in its original authors' layout, which diffusers calls 'wan-i2v-14B'" in answer["error"]
            assert f"WanTransformer3DModel.from_single_file('{file}')" in answer["hint"]
            assert "by convert_wan_transformer_to_diffusers" in answer["hint"]
    assert not written.exists()
    (tmp_path / "config.json").unlink()
    code, answer = run_cli("convert", str(file), str(written), "--to", "canonical")
    assert (code, written.exists()) == (2, False)
    assert "original authors" in answer["error"]


def test_shards_of_an_original_are_refused_too(wan: Path, tmp_path: Path) -> None:
    theirs = original(load_file(wan / FILE))
    halves = [dict(list(theirs.items())[part::2]) for part in (0, 1)]
    for number, half in enumerate(halves, 1):
        save_file(half, tmp_path / f"model-{number:05}-of-00002.safetensors")
    code, answer = run_cli("check-layout", str(tmp_path))
    assert code == 2
    assert "from_single_file(a state dict of all its shards)" in answer["hint"]


def test_a_file_of_diffusers_without_a_config_is_no_original(wan: Path, tmp_path: Path) -> None:
    """Nothing says which model it is; that is all that is wrong with it, and --model-type mends it."""
    alone = tmp_path / "alone.safetensors"
    alone.write_bytes((wan / FILE).read_bytes())
    assert {finding.code for finding in check_layout(str(alone)).findings} == {"no-config"}
    config = wan / "config.json"
    assert check_layout(str(alone), config=config).ok


def test_a_class_can_be_given_for_a_file_that_does_not_say_it(wan: Path, tmp_path: Path) -> None:
    values = json.loads((wan / "config.json").read_text(encoding="utf-8"))
    del values["_class_name"]
    (tmp_path / "config.json").write_text(json.dumps(values), encoding="utf-8")
    (tmp_path / FILE).write_bytes((wan / FILE).read_bytes())
    assert check_layout(str(tmp_path), model_type="WanTransformer3DModel").ok


def test_the_proof_by_transformers_loader_is_not_for_models_of_diffusers(wan: Path) -> None:
    code, answer = run_cli("check-layout", str(wan), "--against-model")
    assert code == 2
    assert "supports transformers models only" in answer["error"]
