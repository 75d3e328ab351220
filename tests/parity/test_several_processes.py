"""The levels of several processes: VeOmni's own models pass, and faults that one process does not show fail."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from transformers import AutoConfig

from omni_kit.parity import ParityReport, run_parity
from omni_kit.parity.processes.workers import GRACE, Sides
from omni_kit.toys.configs.language import toy_config
from tests.conftest import first, sampled

from .conftest import MODELING, Plant

PLAN = "parallel_plan.py"
LAYERS = "for decoder_layer in self.layers[: self.config.num_hidden_layers]:"
STATE = "from veomni.distributed.parallel_state import get_parallel_state"
SECOND = "torch.distributed.get_world_size() > 1 and torch.distributed.get_rank() == 1"

# Adds the first token to all others, which lies with one process and is used by all of them.
FIRST_TOKEN = """
class _FirstToken(torch.autograd.Function):
    @staticmethod
    def forward(ctx, states):
        first = states[:, :1].clone()
        if (state := get_parallel_state()).sp_enabled:
            torch.distributed.broadcast(first, src=0, group=state.sp_group)
        ctx.shape = states.shape
        return first

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        if (state := get_parallel_state()).sp_enabled:
            torch.distributed.all_reduce(gradient, group=state.sp_group)
        whole = gradient.new_zeros(ctx.shape)
        if state.sp_rank in (-1, 0):
            whole[:, :1] = gradient
        return whole


"""
# Puts the whole sequence together and takes this process's part of it again.
TOGETHER = """if (state := get_parallel_state()).sp_enabled:
            from veomni.distributed.sequence_parallel import gather_outputs, slice_input_tensor
            whole = gather_outputs(hidden_states, gather_dim=1, group=state.sp_group)
            whole = whole.reshape(1, -1, hidden_states.shape[-1])
            hidden_states = slice_input_tensor(whole, dim=1, group=state.sp_group)
        """
ROUTER = "class Qwen3MoeTopKRouter(nn.Module):"


def before_layers(text: str, definitions: str = "") -> list[tuple[str, str]]:
    """Edits of the modeling: code in front of the layers, and definitions on top."""
    return [(LAYERS, f"{text}{LAYERS}"), (ROUTER, f"{STATE}\n{definitions}\n{ROUTER}")]


def failing(statement: str) -> list[tuple[str, str]]:
    return [(LAYERS, f"if {SECOND}:\n            {statement}\n        {LAYERS}")]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Processes of their own, because some tests shorten the time that they have."""
    with Sides(tmp_path_factory.mktemp("several"), timeout=120) as running:
        yield running


def with_two_heads(model: Path) -> Path:
    """Four processes cannot share two heads: this spares them where two processes show the fault."""
    config = AutoConfig.for_model("qwen3_moe").to_dict()
    toy = {**toy_config(config), "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    (model / "toy_config.json").write_text(json.dumps(toy), encoding="utf-8")
    return model


def compare(path: Path, sides: Sides, *levels: str) -> ParityReport:
    return run_parity(path, levels, sides=sides)


@pytest.mark.parametrize(("level", "reason", "note"), first(1, [
    ("ep", "ep=2 as one process", "torch stood in for VeOmni's grouped Triton kernels"),
    ("sp", "ulysses=2, ulysses=4 as one process", "torch stood in for the flash attention kernel"),
    ("fsdp", "fsdp=2, fsdp=4 as one process", ""),
]))  # fmt: skip
def test_a_mixture_of_experts_passes_in_several_processes(
    level: str, reason: str, note: str, veomni_models: Path, sides: Sides
) -> None:
    report = compare(veomni_models / "qwen3_moe", sides, level)

    assert [(one.status, one.reason) for one in report.levels] == [("pass", reason)]
    assert 0 < (report.level(level).max_rel or 0) < 1e-5
    assert note in " ".join(report.notes)


@pytest.mark.sweep
def test_a_process_without_pictures_keeps_step_with_one_that_has_some(veomni_models: Path, sides: Sides) -> None:
    assert compare(veomni_models / "qwen3_vl", sides, "fsdp").ok


def test_experts_cannot_be_shared_out_where_there_are_none(veomni_models: Path, sides: Sides) -> None:
    report = compare(veomni_models / "llama", sides, "ep")

    assert report.level("ep").status == "skip"
    assert report.level("ep").reason == "not applicable: the model has no stacked experts to share out"
    assert report.exit_code == 3


@pytest.mark.sweep
@pytest.mark.parametrize(("model", "level"), [
    ("deepseek_v4", "ep"), ("qwen2_5_omni", "fsdp"), ("qwen3_5", "sp"),
])  # fmt: skip
def test_what_only_legal_toys_can_run(veomni_models: Path, sides: Sides, model: str, level: str) -> None:
    """A table of experts that names one twice, or patches of another size than an empty image has, end in a crash.

    A number of heads that 2 does not divide, be they of linear attention, cannot be shared at all.
    """
    report = compare(veomni_models / model, sides, level)

    assert report.level(level).status == "pass", report.level(level).reason


def test_experts_whose_kernels_a_cpu_cannot_run_are_an_error(veomni_models: Path, sides: Sides) -> None:
    report = compare(veomni_models / "gpt_oss", sides, "ep")

    assert report.level("ep").status == "error"
    assert "only on accelerators" in report.level("ep").reason
    assert report.exit_code == 3


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("dimension", "status"), sampled([("gather_dim=1", "pass"), ("gather_dim=2", "fail")], ("gather_dim=2", "fail"))
)
def test_a_sequence_put_together_along_the_wrong_axis(plant: Plant, sides: Sides, dimension: str, status: str) -> None:
    text = TOGETHER.replace("gather_dim=1", dimension)
    report = compare(with_two_heads(plant(f"gathers_{dimension[-1]}", {MODELING: before_layers(text)})), sides, "sp")

    assert report.level("sp").status == status
    assert ("ulysses=2, batch 1 of 2: 2 of 2 figures differ" in report.level("sp").reason) is (status == "fail")


@pytest.mark.parametrize("reduces", first(1, [True, False]))
def test_a_missing_all_reduce_in_the_backward_pass(plant: Plant, sides: Sides, reduces: bool) -> None:
    definition = (
        FIRST_TOKEN if reduces else FIRST_TOKEN.replace("torch.distributed.all_reduce", "_ = (lambda *a, **k: 0)")
    )
    edits = before_layers("hidden_states = hidden_states + _FirstToken.apply(hidden_states)\n        ", definition)
    report = compare(with_two_heads(plant(f"reduces_{reduces}", {MODELING: edits})), sides, "sp")

    level = report.level("sp")
    assert level.status == ("pass" if reduces else "fail")
    assert "loss" not in level.reason
    assert ("gradients differ" in level.reason) is not reduces
    assert any("sp leaves out ulysses=4, which does not divide 2 heads" in note for note in report.notes)


def test_a_plan_that_leaves_a_tensor_out(plant: Plant, sides: Sides) -> None:
    edits = {PLAN: [('"model.layers.*.mlp.experts.down_proj": Shard(0),', "")]}
    report = compare(plant("wrong_plan", edits), sides, "ep")

    assert report.level("ep").status == "fail"
    assert "tokens are grouped for 5 experts, and there are weights of 10" in report.level("ep").reason


def test_the_process_that_raised_first_is_reported(plant: Plant, sides: Sides) -> None:
    edits = {MODELING: failing("raise ValueError('planted here')")}
    report = compare(plant("raises", edits), sides, "ep")

    assert report.level("ep").status == "fail"
    assert report.level("ep").reason.startswith("rank 1 of 2 (ep=2): ValueError: planted here (")
    assert "patched_modeling_qwen3_moe_gpu.py" in report.level("ep").reason


@pytest.mark.sweep
def test_a_process_that_crashes_is_reported_and_not_the_one_that_lost_it(plant: Plant, sides: Sides) -> None:
    report = compare(plant("aborts", {MODELING: failing("__import__('os').abort()")}), sides, "ep")

    assert report.level("ep").status == "error"
    assert "rank 1 of 2 (ep=2) crashed (Aborted)" in report.level("ep").reason
    assert report.exit_code == 3


@pytest.mark.sweep
def test_a_process_that_hangs_is_an_error_with_every_stack(plant: Plant, sides: Sides, tmp_path: Path) -> None:
    launcher = sides.launcher()
    launcher.timeout = GRACE + 10
    started = time.monotonic()

    second = f"torch.distributed.is_initialized() and {SECOND}"
    forgets = "__import__('faulthandler').cancel_dump_traceback_later()  # its time is never up: the first's is"
    sleeps = "__import__('time').sleep(600)"
    sleeping = f"def __init__(self, config):\n        if {second}:\n            {forgets}\n            {sleeps}"
    hanging = plant("hangs_alone", {MODELING: [("def __init__(self, config):", sleeping)]})
    report = run_parity(hanging, ["ep"], sides=sides, work_dir=tmp_path / "evidence")

    level = report.level("ep")
    assert level.status == "error"
    assert "ep=2 hangs: not done after 10 s" in level.reason
    assert "rank 0 in " in level.reason
    assert "rank 1 in __init__ (" in level.reason
    assert report.exit_code == 3
    assert time.monotonic() - started < 300
    logs = sorted((tmp_path / "evidence" / "ranks" / "ep").rglob("rank?.log"))
    assert len(logs) == 3
    hung = [text for log in logs if "(most recent call first)" in (text := log.read_text(encoding="utf-8"))]
    assert len(hung) == 2
    assert sum("Timeout (0:00:10)!" in text for text in hung) == 1
