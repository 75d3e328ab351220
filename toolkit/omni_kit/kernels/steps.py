"""Steps that the processes of a search run: build models at a real width, prove kernels, time steps."""

import gc
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch

from omni_kit.kernels.proof import errors_of, milliseconds
from omni_kit.kernels.stopwatch import stopwatch_for
from omni_kit.kernels.timing import Sample, timed
from omni_kit.parity.compare.files import load_tensors, save_tensors
from omni_kit.parity.processes.builder import TargetFault
from omni_kit.parity.processes.side import Side
from omni_kit.parity.processes.step import Step
from omni_kit.targets.graphs import graphs_compiled
from omni_kit.targets.sides import Choosing, KernelCall, Scaling, Sized
from omni_kit.toys.tensors import Tensors

_T = TypeVar("_T")
_LONG = 1000.0  # ms: nobody will choose it
_ENOUGH = 1000.0  # ms of steps, of which a few are enough
_FEWEST, _FEW = 2, 3


def _able(side: Side, protocol: type[_T]) -> _T:
    if not isinstance(side.builder, protocol):
        raise TargetFault(f"{side.builder_name} is not {protocol.__name__}: its kernels cannot be measured")
    return side.builder


@dataclass(frozen=True)
class Scale(Step[int]):
    """Write the config of a model of about `size` parameters, and return the exact number."""

    source: str
    size: int
    out: Path

    def take(self, side: Side) -> int:
        """See `Step.take`."""
        return _able(side, Scaling).scaled(self.source, self.size, self.out)  # type: ignore[type-abstract]


@dataclass(frozen=True)
class Choices(Step[dict[str, Any]]):
    """Return `choices`, as the fields of `KernelChoice`s, and `place`, the path of the settings."""

    config_dir: Path

    def take(self, side: Side) -> dict[str, Any]:
        """See `Step.take`."""
        choosing = _able(side, Choosing)  # type: ignore[type-abstract]
        choices = [asdict(choice) for choice in choosing.choices(self.config_dir)]
        return {"place": list(choosing.settings_place()), "choices": choices}


@dataclass(frozen=True)
class Make(Step[str]):
    """Build the model with random weights, and return the device's name."""

    config_dir: Path
    dtype: str

    def take(self, side: Side) -> str:
        """See `Step.take`."""
        side.model = None
        side.model = _able(side, Sized).sized(self.config_dir, self.dtype)  # type: ignore[type-abstract]
        device = next(side.model.parameters()).device
        return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


@dataclass(frozen=True)
class Feed(Step[None]):
    """Writes inputs that both sides are fed, made by upstream's."""

    sequences: int
    length: int
    out: Path

    def take(self, side: Side) -> None:
        """See `Step.take`."""
        scaling = _able(side, Scaling)  # type: ignore[type-abstract]
        save_tensors(scaling.inputs(side.model, self.sequences, self.length), self.out)
        _release()


@dataclass(frozen=True)
class Prove(Step[dict[str, Any]]):
    """Run a kernel and its reference on the inputs that the model gives the kernel.

    Answers `calls`, how many forms of calls there were; `unknown`, why one cannot be judged; `errors`, as the fields of
    `Error`s, each with `told`; `ms`, what the calls of a step take, where they are to be `timed`; and `graphs`
    that were compiled for them, in `seconds`.
    """

    setting: str
    chosen: Mapping[str, str]
    inputs: Path
    timed: bool = False

    def take(self, side: Side) -> dict[str, Any]:
        """See `Step.take`."""
        choosing = _able(side, Choosing)  # type: ignore[type-abstract]
        side.model = choosing.choose(side.model, self.chosen)
        dtype = next(side.model.parameters()).dtype
        graphs, begun = graphs_compiled(), time.perf_counter()
        calls = choosing.kernel_calls(side.model, self.setting, _inputs(side, self.inputs))
        graphs, seconds = graphs_compiled() - graphs, time.perf_counter() - begun
        errors: list[dict[str, Any]] = []
        ms = 0.0
        for call in calls:
            if isinstance(call, KernelCall):
                errors += [{**asdict(error), "told": call.told} for error in errors_of(call, dtype)]
                if self.timed:
                    ms += milliseconds(call, dtype, stopwatch_for(next(side.model.parameters()).device))
        _release()
        unknown = next((call for call in calls if isinstance(call, str)), "")
        said = {"calls": len(calls), "unknown": unknown, "errors": errors, "ms": ms}
        return {**said, "graphs": graphs, "seconds": seconds}


@dataclass(frozen=True)
class Time(Step[dict[str, Any]]):
    """Train some steps without an optimizer; return `ms` of each after the `warm` ones, and the peak memory in `gb`.

    Of long steps, fewer are timed, and of very long ones only the last of the `warm` ones. `first` and `later` are the
    graphs that the first step and those after it compiled. Memory that ran out is an answer, too: `error`.
    """

    inputs: Path
    warm: int
    steps: int
    chosen: Mapping[str, str] = field(default_factory=dict)

    def take(self, side: Side) -> dict[str, Any]:
        """See `Step.take`."""
        if self.chosen:
            side.model = _able(side, Choosing).choose(side.model, self.chosen)  # type: ignore[type-abstract]
        model, sized = side.model, _able(side, Sized)  # type: ignore[type-abstract]
        batch = sized.batch(model, _inputs(side, self.inputs))
        watch = stopwatch_for(next(model.parameters()).device)

        def step() -> None:
            model.zero_grad(set_to_none=True)
            torch.autograd.backward(sized.loss(model, batch))

        before = after = graphs_compiled()
        gc.disable()  # a collection in the middle of a step would be taken for its time
        try:
            step()
            after = graphs_compiled()
            found = timed(step, watch, warm=self.warm - 2, steps=1)
            if found.typical < _LONG:
                enough = max(_FEWEST, int(_ENOUGH / found.typical))
                kept = found if enough <= _FEW else None  # of long steps, the first counts, too
                found = timed(step, watch, warm=0, steps=min(self.steps, enough) - (kept is not None))
                if kept is not None:
                    found = Sample(kept.ms + found.ms, max(kept.gb, found.gb))
        except torch.OutOfMemoryError:
            found = None
        finally:
            gc.enable()
        model.zero_grad(set_to_none=True)
        _release()
        if found is None:
            return {"error": "out of memory"}
        return {"ms": list(found.ms), "gb": found.gb, "first": after - before, "later": graphs_compiled() - after}


def _inputs(side: Side, file: Path) -> Tensors:
    device = next(side.model.parameters()).device
    return {name: tensor.to(device) for name, tensor in load_tensors(file).items()}


def _release() -> None:
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
