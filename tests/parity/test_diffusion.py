"""Diffusion transformers that VeOmni wraps, against diffusers: sound ones pass, and planted faults are found."""

import io
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from PIL import Image
from safetensors.torch import load_file

from omni_kit.errors import BadInput
from omni_kit.parity import DEFAULT_LEVELS, ParityReport, make_toy_checkpoint, run_parity
from omni_kit.parity.candidate import find_candidate
from omni_kit.parity.processes.workers import Sides
from omni_kit.resources import resource_dir
from omni_kit.toys.configs.denoiser import toy_denoiser
from tests.conftest import first, sampled

from .conftest import Edits

WAN, QWEN = "wan_t2v/wan_transformer", "qwen_image/qwen_image_transformer"
CLASSES = {WAN: "WanTransformer3DModel", QWEN: "QwenImageTransformer2DModel"}
MODELING = {WAN: "modeling_wan_transformer.py", QWEN: "modeling_qwen_image_transformer.py"}
LEVELS = [*DEFAULT_LEVELS, "modules"]
PlantDenoiser = Callable[[str, str, Edits], Path]


@pytest.fixture(scope="session")
def plant_denoiser(denoisers: Path, tmp_path_factory: pytest.TempPathFactory) -> PlantDenoiser:
    """Copies one of VeOmni's transformers into a plugin package of the given name, with texts replaced."""
    root = tmp_path_factory.mktemp("denoisers")

    def make(name: str, model: str, edits: Edits) -> Path:
        for file in sorted((denoisers / model).glob("*.py")):
            text = _absolute(file.read_text(encoding="utf-8"), ["veomni", "models", "diffusers", model.split("/")[0]])
            if file.name == "__init__.py":
                text = _register_by_assignment(text)
            for old, new in edits.get(file.name, ()):
                assert text.count(old) == 1, f"{file.name} has {text.count(old)} times {old!r}"
                text = text.replace(old, new)
            (root / name).mkdir(exist_ok=True)
            (root / name / file.name).write_text(text, encoding="utf-8")
        return root / name

    return make


def _absolute(text: str, package: list[str]) -> str:
    """Relative imports that leave the package become absolute: it now lies outside VeOmni."""

    def rewrite(match: re.Match[str]) -> str:
        up = len(match[1]) - 1
        return match[0] if not up else f"from {'.'.join([*package[: len(package) - up + 1], match[2]])} import"

    return re.sub(r"from (\.+)([\w.]+) import", rewrite, text)


def _register_by_assignment(text: str) -> str:
    """VeOmni's registries take a key once; an assignment replaces what is there."""
    found = re.findall(r'@(\w+)\.register\("(\w+)"\)\ndef (\w+)', text)
    assert len(found) == 2
    assignments = [f'{registry}["{key}"] = {function}' for registry, key, function in found]
    return re.sub(r'@\w+\.register\("\w+"\)\n', "", text) + "\n\n" + "\n".join(assignments) + "\n"


@dataclass(frozen=True)
class Fault:
    """What is replaced in the modeling file of a model, and the module to blame."""

    model: str
    edits: tuple[tuple[str, str], ...]
    module: str
    words: str = ""


_TO_BLOCKS = "            block.attn2.set_processor(sp_processor)\n"
_UNGATED = """

from diffusers.models.transformers.transformer_wan import WanTransformerBlock


class Ungated(WanTransformerBlock):
    def forward(self, hidden_states, encoder_hidden_states, temb, rotary_emb):
        import torch

        opened = torch.cat([temb[:, :5], 1 - self.scale_shift_table[:, 5:].expand(len(temb), -1, -1)], dim=1)
        return super().forward(hidden_states, encoder_hidden_states, opened, rotary_emb)
"""
FAULTS = {
    "wan_scale_and_shift_swapped": Fault(
        WAN,
        (("shift, scale = (self.scale_shift_table.to(", "scale, shift = (self.scale_shift_table.to("),),
        "WanTransformer3DModel",
        "proj_out",
    ),
    "wan_timestep_off_by_one": Fault(
        WAN, (("timestep=ts, enc", "timestep=ts + 1, enc"),), "WanTransformer3DModel", "condition_embedder"
    ),
    "wan_query_norm_dropped": Fault(WAN, (("query = attn.norm_q(query)\n", "\n"),), "blocks.0.attn1", "to_out.0"),
    "wan_rope_axes_permuted": Fault(
        WAN,
        ((_TO_BLOCKS, _TO_BLOCKS + "        self.rope.t_dim, self.rope.h_dim = self.rope.h_dim, self.rope.t_dim\n"),),
        "rope",
    ),
    "wan_rows_and_columns_swapped": Fault(
        WAN,
        (("rotary_emb = self.rope(hidden_states)", "rotary_emb = self.rope(hidden_states.transpose(3, 4))"),),
        "WanTransformer3DModel",
        "rope",
    ),
    "wan_gate_dropped": Fault(
        WAN,
        (
            (_TO_BLOCKS, _TO_BLOCKS + "            block.__class__ = Ungated\n"),
            ("def apply_veomni_wan_transformer_patch", _UNGATED + "\n\ndef apply_veomni_wan_transformer_patch"),
        ),
        "blocks.0",
    ),
    "wan_text_of_another_sample": Fault(
        WAN,
        (
            ("encoder_hidden_states, training_target):", "encoder_hidden_states[::-1], training_target):"),
        ),
        "WanTransformer3DModel",
        "encoder_hidden_states",
    ),
    "wan_loss_over_one_sample": Fault(
        WAN,
        (("torch.stack(per_sample_losses).mean()", "torch.stack(per_sample_losses[:1]).mean()"),),
        "WanTransformer3DModel",
    ),
    "qwen_sigma_off_by_one_step": Fault(
        QWEN,
        (("            timestep=timestep,\n            encoder_hidden_states=encoder_hidden_states.to",
          "            timestep=timestep + 0.001,\n            encoder_hidden_states=encoder_hidden_states.to"),),
        "QwenImageTransformer2DModel",
        "time_text_embed",
    ),
    "qwen_text_mask_dropped": Fault(
        QWEN,
        (("encoder_hidden_states_mask=sample_mask", "encoder_hidden_states_mask=None"),),
        "QwenImageTransformer2DModel",
        "attention_mask",
    ),
    "qwen_text_norm_of_keys_dropped": Fault(
        QWEN, (("txt_key = attn.norm_added_k(txt_key)", "pass"),), "transformer_blocks.0.attn"
    ),
    "qwen_streams_joined_in_the_wrong_order": Fault(
        QWEN,
        (("joint_value = torch.cat([txt_value, img_value]", "joint_value = torch.cat([img_value, txt_value]"),),
        "transformer_blocks.0.attn",
    ),
}  # fmt: skip

QUICK = ("wan_query_norm_dropped", "qwen_text_mask_dropped")
"""In a block, around the model, and in what goes in."""


@pytest.mark.sweep
@pytest.mark.parametrize("model", first(1, [QWEN, WAN]))
def test_a_wrapper_of_veomni_is_exactly_upstream(model: str, denoisers: Path, sides: Sides, tmp_path: Path) -> None:
    report = run_parity(denoisers / model, LEVELS, sides=sides, work_dir=tmp_path)

    assert report.ok, _show(report)
    assert report.model_type == CLASSES[model]
    assert {level.max_rel for level in report.levels[1:]} == {0.0}
    outputs = load_file(tmp_path / "candidate" / "outputs.safetensors")
    assert {name for name in outputs if bool(outputs[name].any())} == {"sample.0", "sample.1", "loss"}


@pytest.mark.parametrize("model", sampled([WAN, QWEN], WAN))
def test_the_copy_itself_passes(model: str, plant_denoiser: PlantDenoiser, sides: Sides) -> None:
    report = run_parity(plant_denoiser(f"sound_{model.split('/')[0]}", model, {}), LEVELS, sides=sides)

    assert report.ok, _show(report)
    assert report.first_divergence is None


@pytest.mark.parametrize("name", sampled(FAULTS, *QUICK))
def test_a_planted_fault_is_found_and_located(name: str, plant_denoiser: PlantDenoiser, sides: Sides) -> None:
    fault = FAULTS[name]

    report = run_parity(plant_denoiser(name, fault.model, {MODELING[fault.model]: fault.edits}), LEVELS, sides=sides)

    assert [level.status for level in report.levels] == ["pass", "pass", "pass", "fail", "fail", "fail"], _show(report)
    assert report.first_divergence is not None
    assert report.first_divergence.module == fault.module, report.first_divergence.what
    assert fault.words in report.first_divergence.what


# Of each, what only one way of being called, or another config, shows.
UNSEEN = {
    QWEN: (
        ("                image_rotary_emb,\n                block_attention_kwargs,\n                modulate_index,",
         "                image_rotary_emb,\n                attention_kwargs,\n                modulate_index,",
         "gradient checkpointing"),
    ),
    WAN: (
        ("block, hidden_states, encoder_hidden_states, timestep_proj, rotary_emb\n",
         "block, hidden_states, encoder_hidden_states, 1.01 * timestep_proj, rotary_emb\n", "gradient checkpointing"),
        ("    output = hidden_states.flatten(6, 7).flatten(4, 5).flatten(2, 3)\n",
         "    output = hidden_states.flatten(6, 7).flatten(4, 5).flatten(2, 3) * (1 if self.training else 1.01)\n",
         "evaluation"),
    ),
}  # fmt: skip


_WAYS = {"evaluation", "gradient checkpointing", "sample 0 alone", "sample 1 alone"}
_WAYS |= {"freshly initialised", "no number at its default"}


@pytest.mark.sweep
def test_a_sound_copy_passes_however_it_is_called(plant_denoiser: PlantDenoiser, sides: Sides) -> None:
    sound = run_parity(plant_denoiser("called_wan_t2v", WAN, {}), ["scenarios"], sides=sides)
    assert sound.ok, _show(sound)
    assert {one.name for one in sound.level("scenarios").scenarios if one.status == "pass"} >= _WAYS


@pytest.mark.sweep
@pytest.mark.parametrize("model", [WAN, QWEN])
def test_only_the_way_of_being_called_that_has_a_fault_shows_it(
    model: str, plant_denoiser: PlantDenoiser, sides: Sides
) -> None:
    edits = [(old, new) for old, new, _ in UNSEEN[model]]
    wrong = plant_denoiser(f"called_wrongly_{model.split('/')[0]}", model, {MODELING[model]: edits})
    report = run_parity(wrong, ["forward", "backward", "scenarios"], sides=sides)
    assert [report.level(level).status for level in ("forward", "backward")] == ["pass", "pass"]
    results = {one.name: one.status for one in report.level("scenarios").scenarios}
    seen = {way for _, _, way in UNSEEN[model]}
    assert {name for name, status in results.items() if status == "fail"} == seen
    assert {results[way] for way in _WAYS - seen} == {"pass"}


def _show(report: ParityReport) -> str:
    return "\n".join(f"{level.level}: {level.status} {level.reason}" for level in report.levels)


def test_the_directory_of_a_pipeline_means_its_transformer(denoisers: Path) -> None:
    for directory in ("wan_t2v", "qwen_image"):
        inside, itself = (find_candidate(denoisers / path) for path in (directory, f"{directory}/{_last(directory)}"))
        assert (inside.source, inside.reference, inside.batch_builder) == (
            itself.source,
            itself.reference,
            itself.batch_builder,
        )
        assert set(itself.options["registered"]) < set(inside.options["registered"])
        assert inside.reference.endswith(":DiffusersBuilder")


def _last(directory: str) -> str:
    return next(model for model in (WAN, QWEN) if model.startswith(directory)).rpartition("/")[2]


@pytest.mark.parametrize(
    ("directory", "words"),
    [
        ("ltx2_3/ltx_transformer", "LTXVideoTransformerModel, of which the installed diffusers has no class"),
        ("wan_t2v/wan_condition", "WanTransformer3DConditionModel, of which the installed diffusers has no class"),
        ("ltx2_3", "of which the installed diffusers has no class"),
    ],
)
def test_what_diffusers_has_no_class_of_is_refused(directory: str, words: str, denoisers: Path) -> None:
    with pytest.raises(BadInput, match=words):
        find_candidate(denoisers / directory)


def test_language_models_keep_their_reference(veomni_models: Path) -> None:
    assert find_candidate(veomni_models / "qwen3").reference.endswith(":TransformersBuilder")


@pytest.mark.sweep
def test_low_precision_that_upstream_avoids_is_seen_and_explained(denoisers: Path, sides: Sides) -> None:
    """diffusers keeps Wan's embedding of time in float32; VeOmni casts all of the model."""
    wan = run_parity(denoisers / WAN, ["dtype"], sides=sides)
    qwen = run_parity(denoisers / QWEN, ["dtype"], sides=sides)

    assert wan.level("dtype").status == "fail"
    assert "condition_embedder.time_embedder" in wan.level("dtype").reason
    assert any("keeps time_embedder" in note for note in wan.notes)
    assert qwen.ok, _show(qwen)


@pytest.mark.sweep
def test_a_scaffold_keeps_in_float32_what_diffusers_keeps(sides: Sides) -> None:
    report = run_parity(resource_dir("reference_models") / "veomni" / "wan", ["dtype", "opslots"], sides=sides)

    assert report.level("dtype").status == "pass", report.level("dtype").reason
    assert report.level("opslots").status == "skip", report.level("opslots").reason


def test_both_sides_are_drawn(denoisers: Path, plant_denoiser: PlantDenoiser, sides: Sides, tmp_path: Path) -> None:
    fault = FAULTS["qwen_sigma_off_by_one_step"]
    faulty = plant_denoiser("drawn", fault.model, {MODELING[QWEN]: fault.edits})
    reports = [run_parity(path, ["forward"], sides=sides) for path in (denoisers / QWEN, faulty)]

    for report in reports:
        assert [image.name for image in report.images] == ["sample.0", "sample.1"]
        alike = [image.reference_png == image.candidate_png for image in report.images]
        assert alike == [report.ok, report.ok]
    with Image.open(io.BytesIO(reports[0].images[1].reference_png)) as picture:
        assert picture.size == (3 * 16, 5 * 16)  # columns and rows of the picture, not of its condition
        assert len(set(picture.getdata())) == 15


def test_a_checkpoint_of_diffusers_is_compared_on(denoisers: Path, sides: Sides, tmp_path: Path) -> None:
    checkpoint = make_toy_checkpoint("WanTransformer3DModel", tmp_path / "toy", sides=sides)

    assert (checkpoint / "diffusion_pytorch_model.safetensors.index.json").is_file()
    report = run_parity(denoisers / WAN, ["keys", "roundtrip"], sides=sides, checkpoint=checkpoint)
    assert report.ok, _show(report)


def test_a_toy_config_says_what_is_built(plant_denoiser: PlantDenoiser, sides: Sides, tmp_path: Path) -> None:
    path = plant_denoiser("with_a_toy_config", QWEN, {})
    toy = toy_denoiser({"in_channels": 64, "out_channels": 16, "patch_size": 2, "num_layers": 60, "zero_cond_t": True})
    sizes = {"attention_head_dim": 16, "num_attention_heads": 4, "joint_attention_dim": 28, "axes_dims_rope": [4, 4, 8]}
    config = {"_class_name": CLASSES[QWEN], **toy, **sizes}
    (path / "toy_config.json").write_text(json.dumps(config), encoding="utf-8")

    report = run_parity(path, LEVELS, sides=sides, work_dir=tmp_path / "kept")

    assert report.ok, _show(report)
    written = json.loads((tmp_path / "kept" / "checkpoint" / "config.json").read_text(encoding="utf-8"))
    assert (written["zero_cond_t"], written["in_channels"], written["attention_head_dim"]) == (True, 24, 16)


def test_an_export_that_loses_bits_fails_the_round_trip(plant_denoiser: PlantDenoiser, sides: Sides) -> None:
    lossy = ("3DModel.save_pretrained(self, path", "3DModel.save_pretrained(self.half(), path")
    path = plant_denoiser("half_saved", WAN, {MODELING[WAN]: [lossy]})

    report = run_parity(path, ["keys", "roundtrip"], sides=sides)

    assert [level.status for level in report.levels] == ["pass", "fail"], _show(report)
    assert report.level("roundtrip").reason.startswith("saving: ")
