"""Derivation of a plan that shards a model's tokens over devices: observed in runs, verified in two processes."""

import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn

from omni_kit.errors import Refusal
from omni_kit.isolation.forking import may_fork
from omni_kit.isolation.groups import run_group
from omni_kit.isolation.servers import can_fork
from omni_kit.targets.diffusers.runtime.module_calls import Call, watched
from omni_kit.targets.diffusers.runtime.side import ConvertedBuilder
from omni_kit.targets.diffusers.transformer.handler import TransformerHandler
from omni_kit.targets.sides import Candidate
from omni_kit.toys.batches.denoiser import ask, denoiser_inputs, samples_of
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import fill

_RANKS = 2
_CLOSE = 1e-4
Split = tuple[int, int]  # an axis, and how many there are


@dataclass(frozen=True)
class Plan:
    """Sharding of tokens.

    Attributes:
        inputs: module -> argument -> how it is split; several where it is a tuple of tensors, None for one that is not.
        output: the module whose answer is put together again, and along which axis.
    """

    inputs: Mapping[str, Mapping[str, Split | Sequence[Split | None]]]
    output: tuple[str, Split]

    def text(self) -> str:
        """Return the source text of the plan in a class."""
        lines = ["_cp_plan = {"]
        for module, given in self.inputs.items():
            told = ", ".join(f'"{name}": {_said(split)}' for name, split in given.items())
            lines.append(f'    "{module}": {{{told}}},')
        name, (axis, dims) = self.output
        lines += [f'    "{name}": ContextParallelOutput(gather_dim={axis}, expected_dims={dims}),', "}"]
        return "\n".join(lines)

    def made(self) -> dict[str, Any]:
        """Return the plan as objects of the library."""
        from diffusers.models._modeling_parallel import ContextParallelInput, ContextParallelOutput

        def one(split: Any) -> Any:
            if isinstance(split, list):
                return [*map(one, split)]
            return None if split is None else ContextParallelInput(split[0], split[1])

        inputs = {module: {name: one(split) for name, split in given.items()} for module, given in self.inputs.items()}
        return {**inputs, self.output[0]: ContextParallelOutput(*self.output[1])}


def _said(split: Split | Sequence[Split | None] | None) -> str:
    if split is None:
        return "None"
    if isinstance(split, list):
        return f"[{', '.join(map(_said, split))}]"
    return "ContextParallelInput(split_dim={}, expected_dims={})".format(*split)


def derive(path: Path) -> str:
    """Return the plan of the model at `path`, as it stands in a class; it gave in two processes what one process gives.

    Raises:
        BadInput: there is no such integration.
        Refusal: no plan was found, or it changes what the model answers; why.
    """
    candidate = TransformerHandler().candidate(path)
    forks = can_fork() and may_fork()
    with tempfile.TemporaryDirectory() as place:
        said = Path(place, "said.json")
        if any(codes := run_group(_run, (candidate, Path(place, "store"), said), _RANKS, fork=forks)):
            raise Refusal(f"no plan is certain: of {_RANKS} processes, one ended with code {next(filter(None, codes))}")
        text, reason = json.loads(said.read_text(encoding="utf-8"))
    if reason:
        raise Refusal(f"no plan is certain: {reason}")
    return str(text)


def proposed(model: nn.Module, runs: Sequence[Sequence[Call]]) -> Plan:
    """Derive a plan from two runs of different sizes.

    Raises:
        Refusal: they say nothing; why.
    """
    lists = _lists(model)
    if not lists:
        raise Refusal("the model has no list of blocks")
    pairs = [(one, other) for one, other in zip(*runs, strict=False) if one.module == other.module]
    here, there = next(pair for pair in pairs if pair[0].module == f"{lists[0]}.0")
    carried = here.carried(next((call for call in runs[0] if call.module == f"{lists[0]}.1"), None))
    axes = {name: _axis(here.given[name], there.given[name]) for name in carried}
    streams = {name: axis for name, axis in axes.items() if axis is not None}
    if not streams:
        raise Refusal("no block passes its tokens to the next one")
    counts = {(here.given[name][0].shape[axis], there.given[name][0].shape[axis]) for name, axis in streams.items()}
    split = {name: (axis, here.given[name][0].dim()) for name, axis in streams.items()}
    beside = {
        f"{one.module[:-2]}.*": found
        for one, other in pairs
        if one.module in {f"{name}.0" for name in lists} and (found := _beside(one, other, carried, counts))
    }
    output = _gathered(pairs, lists[-1], next(iter(streams.values())), counts)
    return Plan({here.module: split, **beside}, output)


def _lists(model: nn.Module) -> list[str]:
    """Return the lists of blocks, in the order in which the model has them."""
    classes = set(getattr(model, "_repeated_blocks", None) or ())
    found = [(name, one) for name, one in model.named_children() if isinstance(one, nn.ModuleList) and len(one) > 1]
    return [name for name, one in found if type(one[0]).__name__ in classes]


def _axis(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> int | None:
    """Return the only axis along which two tensors differ in size."""
    differ = [axis for axis, sizes in enumerate(zip(one[0].shape, other[0].shape, strict=False)) if len({*sizes}) > 1]
    return differ[0] if len(differ) == 1 else None


def _beside(one: Call, other: Call, carried: Sequence[str], counts: set[Split]) -> dict[str, Any]:
    """Return the split of a block's other inputs: those with as many of something as there are tokens."""
    found: dict[str, Any] = {}
    for name in [name for name in one.given if name not in carried and name in other.given]:
        splits: list[Split | None] = []
        for here, there in zip(one.given[name], other.given[name], strict=False):
            axes = [axis for axis, sizes in enumerate(zip(here.shape, there.shape, strict=False)) if sizes in counts]
            splits.append((axes[0], here.dim()) if len(axes) == 1 else None)
        if any(splits):
            found[name] = splits if len(splits) > 1 else splits[0]
    return found


def _gathered(pairs: Sequence[tuple[Call, Call]], last: str, axis: int, counts: set[Split]) -> tuple[str, Split]:
    """Return the last module behind the blocks that answers all tokens."""
    behind = max(place for place, (call, _) in enumerate(pairs) if call.module.startswith(f"{last}."))
    for one, other in reversed(pairs[behind + 1 :]):
        a, b = one.answers, other.answers
        if one.top and len(a) == 1 and a[0].dim() > axis and (a[0].shape[axis], b[0].shape[axis]) in counts:
            return one.module, (axis, a[0].dim())
    raise Refusal("no module after the blocks returns all of their tokens")


def _small(candidate: Candidate) -> tuple[Any, list[Tensors]]:
    """Return the small model, the same in every process, and what it is asked."""
    builder = ConvertedBuilder()
    builder.open(candidate.options)
    with tempfile.TemporaryDirectory() as place:
        shutil.copy(candidate.source, Path(place, "config.json"))
        model = builder.blank(Path(place)).eval()
    fill(model)
    return model, samples_of(denoiser_inputs(model))


def _run(rank: int, environment: Mapping[str, str], candidate: Candidate, store: Path, said: Path) -> None:
    """One of the processes: what it answers alone, and what with its share."""
    shared = distributed.FileStore(str(store), _RANKS)
    distributed.init_process_group("gloo", store=shared, rank=rank, world_size=_RANKS)
    model, samples = _small(candidate)
    text, reason = "", ""
    try:
        plan = proposed(model, [watched(model, partial(ask, model, one)) for one in samples])
        text, reason = plan.text(), _compared(model, samples, plan)
    except Refusal as refusal:
        reason = refusal.message
    except (RuntimeError, ValueError, AssertionError) as error:
        reason = " ".join(f"in {_RANKS} processes: {error}".split())[:200]
    if rank == 0:
        said.write_text(json.dumps([text, reason]), encoding="utf-8")
    distributed.destroy_process_group()


@torch.no_grad()
def _compared(model: Any, samples: Sequence[Tensors], plan: Plan) -> str:
    """Return why the plan does not work; empty if it does."""
    from diffusers import ContextParallelConfig

    alone = [ask(model, sample) for sample in samples]
    model.enable_parallelism(config=ContextParallelConfig(ulysses_degree=_RANKS), cp_plan=plan.made())
    tried = 0
    for sample, expected in zip(samples, alone, strict=True):
        try:
            found = ask(model, sample)
        except AssertionError as error:  # its tokens cannot be divided evenly
            if "divisible" not in str(error):
                raise
            continue
        tried += 1
        off = (found - expected).abs().max() / expected.abs().max().clamp(min=1e-6)
        if not off < _CLOSE:
            return f"it changes the model's output by {off:.1e}"
    return "" if tried else "no sample has an even number of tokens"
