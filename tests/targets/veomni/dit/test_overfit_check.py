"""What a trainer is handed by a model of conditions: right as it is generated, and seen where something is left out."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from omni_kit.parity import run_parity
from omni_kit.parity.report.report import LevelResult
from omni_kit.scaffold import new_model
from tests.conftest import first

WAN = Path(__file__).parents[4] / "reference_models" / "veomni" / "wan"


def asked(package: Path) -> LevelResult:
    """What the level says, which runs where none is named."""
    (found,) = run_parity(package, ["hooks"]).levels
    return found


def changed(file: Path, right: str, wrong: str) -> None:
    """Replace the one place in a generated file that is right."""
    text = file.read_text(encoding="utf-8")
    assert text.count(right) == 1
    file.write_text(text.replace(right, wrong), encoding="utf-8")


@pytest.mark.sweep
def test_what_is_generated_teaches_what_the_pipeline_draws() -> None:
    found = asked(WAN)
    assert found.status == "pass"
    assert "4 called: attention, get_condition" in found.reason


# File of the wrapper, the right text, the wrong text, and the expected message.
_ENCODED = (
    "condition",
    "self._normalised(self._encoded(pixels))",
    "self._encoded(pixels)",
    "get_condition: the pipeline",
)
_HALVED = (
    "condition", "**given}\n\n    @property\n    def _steps",
    "**{k: v * (torch.arange(v.shape[-1]) % 2) if v.dim() > 2 else v for k, v in given.items()}}\n\n"
    "    @property\n    def _steps", "get_condition: encoder_hidden_states differs from what the pipeline passes",
)  # fmt: skip
_DRAWN = (
    "condition", "torch.randint(len(timesteps),", "torch.randint(len(timesteps) - 1,",
    "process_condition: of a schedule of 8 steps, 7 are drawn",
)  # fmt: skip
_LOWERED = (
    "transformer", " and value.is_floating_point() and value.dim() > 1", " and value.is_floating_point()",
    "the trainer's call: in bfloat16, at time",
)  # fmt: skip
_RANKS = (
    "condition", " + max(state.dp_rank, 0)\n", "\n", "the first two data-parallel processes draw the same noise",
)  # fmt: skip
_MORE = [
    ("transformer", "from_pretrained(pretrained_model_name_or_path, **kwargs)\n        c",
     "from_pretrained(pretrained_model_name_or_path)\n        c", "although torch_dtype is"),
    ("condition", "step, end - start", "step, start - end", "process_condition: a transformer"),
    ("condition", "append(_step(step))", "append(_step(step) / 2)", "process_condition: at 64x64 noise level"),
    ("transformer", "values[i] for name", "values[0] for name", "size of tensor"),
]  # fmt: skip


@pytest.mark.parametrize(
    "mistakes", first(1, [[_ENCODED], [_HALVED, _DRAWN], [_LOWERED, _RANKS], *([one] for one in _MORE)])
)
def test_what_is_left_out_is_seen(mistakes: Sequence[tuple[str, str, str, str]], tmp_path: Path) -> None:
    """Mistakes that do not keep each other from being seen are made in one copy."""
    package = tmp_path / "wan"
    shutil.copytree(WAN, package, ignore=shutil.ignore_patterns("__pycache__"))
    for part, right, wrong, _ in mistakes:
        changed(package / f"wan_{part}" / f"modeling_wan_{part}.py", right, wrong)
    found = asked(package)
    assert found.status == "fail"
    assert [said for _, _, _, said in mistakes if said not in found.reason] == []


SHIFTS = [
    # CogView4 shifts noise levels by the size of latents, and not the times that go with them.
    ("CogView4Pipeline", "sigmas[: len(timesteps)]])", "timesteps / 1000])", "process_condition: at 64x64 noise level"),
    # Of Lumina2's scheduler, times and noise levels agree whatever the shift; how often each is drawn does not.
    ("Lumina2Pipeline", "beside = {} if clean.shape == whole.shape",
     "pipeline.scheduler.set_timesteps(self._steps, mu=0.0)\n        beside = {} if clean.shape == whole.shape",
     "process_condition: at 64x64 half of the noise levels lie below"),
]  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("pipeline", [pipeline for pipeline, _, _, _ in SHIFTS])
def test_a_shift_that_is_the_pipelines_passes(pipeline: str, tmp_path: Path) -> None:
    new_model("shifting", pipeline, target="veomni", into=tmp_path)
    assert asked(tmp_path / "shifting").status == "pass"


@pytest.mark.sweep
@pytest.mark.parametrize(("pipeline", "right", "wrong", "said"), SHIFTS)
def test_a_shift_that_is_not_the_pipelines_is_seen(
    pipeline: str, right: str, wrong: str, said: str, tmp_path: Path
) -> None:
    new_model("shifting", pipeline, target="veomni", into=tmp_path)
    changed(tmp_path / "shifting" / "shifting_condition" / "modeling_shifting_condition.py", right, wrong)
    found = asked(tmp_path / "shifting")
    assert found.status == "fail"
    assert said in found.reason


@pytest.mark.sweep
def test_conditions_behind_the_latents_stay_as_they_are(tmp_path: Path) -> None:
    """HunyuanVideo 1.5 concatenates channels of conditions, zeros for a prompt alone, with its latents."""
    new_model("hunyuan", "HunyuanVideo15Transformer3DModel", target="veomni", into=tmp_path)
    assert asked(tmp_path / "hunyuan").status == "pass"
    file = tmp_path / "hunyuan" / "hunyuan_condition" / "modeling_hunyuan_condition.py"
    right = "whole = whole.to(latents, copy=True)"
    changed(file, right, f"{right} + 1")
    found = asked(tmp_path / "hunyuan")
    assert found.status == "fail"
    assert "the conditions behind the latents differ" in found.reason


@pytest.mark.sweep
def test_a_film_starts_from_its_first_frame(tmp_path: Path) -> None:
    """ChronoEdit's only pipeline requires a picture, whose latents it concatenates with the noise."""
    new_model("edit", "ChronoEditTransformer3DModel", target="veomni", into=tmp_path)
    assert asked(tmp_path / "edit").status == "pass"
    changed(
        tmp_path / "edit" / "edit_condition" / "modeling_edit_condition.py",
        "_picture(target[0])",
        "_picture(target[-1])",
    )
    found = asked(tmp_path / "edit")
    assert found.status == "fail"
    assert "differ" in found.reason


@pytest.mark.sweep
def test_a_pipeline_that_reads_an_output_by_its_name(tmp_path: Path) -> None:
    """Kandinsky 5's pipeline reads `sample` of an output, where others index a tuple."""
    new_model("five", "Kandinsky5Transformer3DModel", target="veomni", into=tmp_path)
    assert asked(tmp_path / "five").status == "pass"


@pytest.mark.sweep
def test_what_the_pipeline_draws_itself_is_no_difference(tmp_path: Path) -> None:
    """GlmImage's encoder samples a code for each patch, other ones in each call."""
    new_model("glm", "GlmImagePipeline", target="veomni", into=tmp_path)
    assert asked(tmp_path / "glm").status == "pass"
