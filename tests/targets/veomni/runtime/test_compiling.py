"""Compiled decoder blocks on a CPU: graphs are captured by torch's own tracer and run as plain code."""

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("veomni")

from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from omni_kit.kernels.proof import errors_of
from omni_kit.parity.candidate import find_candidate
from omni_kit.targets.graphs import graphs_compiled
from omni_kit.targets.references.transformers import TransformersBuilder
from omni_kit.targets.sides import KernelCall
from omni_kit.targets.veomni.runtime.arguments import repacked
from omni_kit.targets.veomni.runtime.compiling import BLOCKS, OFF, SETTING, compile_choice, decoder_calls, select_blocks
from omni_kit.targets.veomni.runtime.kernels import brought
from omni_kit.targets.veomni.runtime.side import VeOmniBuilder

MODEL = Path(__file__).parents[4] / "reference_models" / "veomni" / "qwen3_moe"
CHOSEN = {SETTING: BLOCKS}
ATTENTION = "reading"


def reading_attention(
    module: Any, query: Any, key: Any, value: Any, mask: Any, cu_seq_lens_q: Any, max_length_q: int, **kwargs: Any
) -> tuple[Any, None]:
    """torch's attention, which also reads where samples begin and how long the longest is, as packed kernels do."""
    answer, _ = sdpa_attention_forward(module, query, key, value, mask, **kwargs)
    return answer + 0 * max_length_q * cu_seq_lens_q.sum(), None


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VeOmniBuilder, Any, Path]]:
    candidate = find_candidate(MODEL)
    place = tmp_path_factory.mktemp("model")
    config = json.loads((MODEL / "toy_config.json").read_text(encoding="utf-8"))
    (place / "config.json").write_text(json.dumps({**config, "output_router_logits": False}), encoding="utf-8")
    builder = VeOmniBuilder()
    builder.open(candidate.options)
    ALL_ATTENTION_FUNCTIONS.register(ATTENTION, reading_attention)
    model = builder.sized(place, "bfloat16")
    for module in model.modules():
        if (own := getattr(module, "config", None)) is not None:
            own._attn_implementation = ATTENTION
    yield builder, model, place
    sys.path.remove(str(candidate.options["sys_path"]))
    own = str(candidate.options["import_name"])
    for name in [name for name in sys.modules if name == own or name.startswith(f"{own}.")]:
        del sys.modules[name]


@pytest.fixture
def experts(built: tuple[VeOmniBuilder, Any, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Experts by torch's grouped products, which a CPU computes, too."""
    from veomni.ops.kernels import moe

    slot = vars(sys.modules[type(built[1]).__module__])["veomni_moe_experts_forward"]
    monkeypatch.setattr(slot, "_kernel", moe._make_moe_experts_adapter(brought("grouped_mm").grouped_mm_forward))


def _steps(built: tuple[VeOmniBuilder, Any, Path]) -> list[Any]:
    builder, model, _ = built
    rows = repacked(model, TransformersBuilder().inputs(model, 2, 12))
    return [partial(builder._step, model, {**row, "use_cache": False}) for row in rows]


def test_rows_are_packed_differently(built: tuple[VeOmniBuilder, Any, Path]) -> None:
    rows = repacked(built[1], TransformersBuilder().inputs(built[1], 2, 12))
    assert [row["cu_seq_lens_q"].tolist() for row in rows] == [[0, 12, 24], [0, 4, 12, 24], [0, 8, 24]]
    assert all(torch.equal(row["input_ids"], rows[0]["input_ids"]) for row in rows)


def test_the_choice_is_offered_with_what_it_needs_in_other_slots(built: tuple[VeOmniBuilder, Any, Path]) -> None:
    choices = built[0].choices(built[2])
    (choice,) = [one for one in choices if one.setting == SETTING]
    off, blocks = choice.kernels
    assert (choice.default, choice.fallback, off.plain) == (OFF, OFF, True)
    assert blocks.along["rms_norm_implementation"] == "eager"
    assert blocks.along["moe_implementation"] == "fused_grouped_mm"
    assert "cross_entropy_loss_implementation" not in blocks.along
    assert off.training == {"train.torch_compile.enable": False}
    assert blocks.training == {"train.torch_compile.enable": True, "train.pad_to_length": True}
    assert bool(blocks.missing) is not torch.cuda.is_available()


def test_a_model_without_decoder_blocks_has_no_such_choice() -> None:
    assert compile_choice(torch.nn.Linear(1, 1), []) == []


@pytest.mark.usefixtures("experts")
def test_blocks_compile_once_for_all_packings_and_are_proven(built: tuple[VeOmniBuilder, Any, Path]) -> None:
    model = built[1]
    select_blocks(model, CHOSEN, backend="eager")
    before = graphs_compiled()
    calls = decoder_calls(model, _steps(built))
    assert len(calls) == 1
    assert isinstance(calls[0], KernelCall)
    errors = errors_of(calls[0], torch.bfloat16)
    assert graphs_compiled() == before + 1
    assert {"answer", "gradient of argument 2"} < {error.what for error in errors}
    assert any("experts" in error.what for error in errors)
    assert ALL_ATTENTION_FUNCTIONS[ATTENTION] is reading_attention


@pytest.mark.usefixtures("experts")
def test_blocks_that_compile_again_for_another_packing_are_refused(
    built: tuple[VeOmniBuilder, Any, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the brought module, every number of samples and every longest sample is another graph."""
    monkeypatch.setattr(brought("compiled_blocks"), "_of_row", lambda model, args, kwargs: (args, kwargs))
    select_blocks(built[1], {**CHOSEN, "other": "choice"}, backend="eager")
    with pytest.raises(RuntimeError, match="2 graphs are compiled again for 2 rows that are packed differently"):
        decoder_calls(built[1], _steps(built))


def test_blocks_that_do_not_compile_are_refused(built: tuple[VeOmniBuilder, Any, Path]) -> None:
    """The plain loop over experts depends on the data."""
    select_blocks(built[1], {**CHOSEN, "moe_implementation": "eager"}, backend="eager")
    with pytest.raises(Exception, match=r"(?i)dynam|graph"):
        decoder_calls(built[1], _steps(built))


def test_it_is_undone(built: tuple[VeOmniBuilder, Any, Path]) -> None:
    model = built[1]
    select_blocks(model, CHOSEN, backend="eager")
    select_blocks(model, {SETTING: OFF})
    assert not any("forward" in vars(module) for module in model.modules())
    assert not model._forward_pre_hooks
    before = graphs_compiled()
    _steps(built)[1]()
    assert graphs_compiled() == before
