"""Compiled blocks of a wrapper on a CPU: graphs are captured by torch's own tracer and run as plain code."""

import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("veomni")

from veomni.distributed import parallel_state

from omni_kit.kernels.proof import errors_of
from omni_kit.parity.candidate import find_candidate
from omni_kit.resources import resource_dir
from omni_kit.targets.graphs import graphs_compiled
from omni_kit.targets.references.diffusers import DiffusersBuilder
from omni_kit.targets.sides import Choosing, KernelCall
from omni_kit.targets.veomni.dit.side import VeOmniDiffusionBuilder
from omni_kit.targets.veomni.dit.transformer import WRAPPER
from omni_kit.targets.veomni.runtime.compiling import BLOCKS, OFF, SETTING, wrapper_blocks, wrapper_choice

WAN = resource_dir("reference_models") / "veomni" / "wan"
PLAIN = {"attn_implementation": "sdpa", SETTING: OFF}
COMPILED = {**PLAIN, SETTING: BLOCKS}
Built = tuple[VeOmniDiffusionBuilder, Any, Path]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Built]:
    candidate = find_candidate(WAN)
    place = tmp_path_factory.mktemp("wan")
    (place / "config.json").write_bytes((WAN / "toy_config.json").read_bytes())
    builder = VeOmniDiffusionBuilder()
    builder.open(candidate.options)
    yield builder, builder.choose(builder.sized(place, "bfloat16"), PLAIN), place
    sys.path.remove(str(candidate.options["sys_path"]))
    own = str(candidate.options["import_name"])
    for name in [name for name in sys.modules if name == own or name.startswith(f"{own}.")]:
        del sys.modules[name]


@pytest.fixture
def _traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without inductor, which takes long."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))


def _calls(built: Built, patches: int) -> list[KernelCall | str]:
    builder, model, place = built
    upstream = DiffusersBuilder()
    upstream.open({})
    inputs = upstream.inputs(upstream.sized(place, "bfloat16"), 1, patches)
    return list(builder.kernel_calls(model, SETTING, inputs))


def test_the_choice_is_offered_where_the_wrapper_can_compile(
    built: Built,
) -> None:
    builder, _, place = built
    assert isinstance(builder, Choosing)
    attention, compiled = builder.choices(place)
    assert attention.setting == "attn_implementation"
    assert [kernel.name for kernel in compiled.kernels] == [OFF, BLOCKS]
    assert [dict(kernel.training) for kernel in compiled.kernels] == [{WRAPPER: False}, {WRAPPER: True}]
    assert wrapper_choice(torch.nn.Linear(1, 1)) == []


@pytest.mark.sweep
@pytest.mark.usefixtures("_traced")
def test_blocks_are_one_graph_and_a_few_more_for_other_sizes_which_are_kept(
    built: Built,
) -> None:
    builder, model, _ = built
    assert builder.choose(model, COMPILED) is model
    before = graphs_compiled()
    (call,) = _calls(built, 64)
    assert graphs_compiled() == before + 1
    assert isinstance(call, KernelCall)
    errors = errors_of(call, torch.bfloat16)
    assert all(error.kernel <= error.allowed for error in errors)
    assert any(error.what.startswith("gradient of argument 1.") for error in errors)
    for patches in (100, 144):
        _calls(built, patches)
    several = graphs_compiled()
    assert several - before <= torch._dynamo.config.recompile_limit
    for patches in (64, 144):
        _calls(built, patches)
    assert graphs_compiled() == several
    assert not torch._dynamo.utils.counters["graph_break"]


@pytest.mark.sweep
@pytest.mark.usefixtures("_traced")
def test_processors_find_their_names_after_a_break_of_the_graph(built: Built, monkeypatch: pytest.MonkeyPatch) -> None:
    """VeOmni warns where nothing began its parallel state: torch compiles what comes before and after that apart."""
    builder, model, _ = built
    monkeypatch.setattr(parallel_state, "_PARALLEL_STATE", None)
    assert builder.choose(model, COMPILED) is model
    (call,) = _calls(built, 36)
    assert isinstance(call, KernelCall)
    assert torch._dynamo.utils.counters.pop("graph_break")
    assert all(error.kernel <= error.allowed for error in errors_of(call, torch.bfloat16))


@pytest.mark.usefixtures("_traced")
def test_it_is_undone(built: Built) -> None:
    builder, model, _ = built
    assert all("forward" in vars(block) for block in wrapper_blocks(builder.choose(model, COMPILED)))
    assert not any("forward" in vars(block) for block in wrapper_blocks(builder.choose(model, PLAIN)))


@pytest.mark.usefixtures("_traced")
def test_the_setting_of_a_training_file_compiles_blocks_and_stays_out_of_the_config(
    built: Built,
) -> None:
    from veomni.models import build_foundation_model

    from omni_kit.targets.veomni.runtime.kernels import eager_operations

    given = {WRAPPER.rpartition(".")[2]: True}
    model = build_foundation_model(
        config_path=str(built[2]), init_device="meta", ops_implementation=eager_operations(), config_kwargs=given
    )
    assert all("forward" in vars(block) for block in wrapper_blocks(model))
    assert not given.keys() & model.config.to_dict().keys()
    assert not given.keys() & model.config.to_diffuser_dict().keys()
