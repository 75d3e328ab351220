"""One side in its own process: its builder, its batch builder and, once loaded, its model."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from omni_kit.parity.compare.attention import save_calls
from omni_kit.parity.compare.files import load_tensors, save_tensors, state_of
from omni_kit.parity.compare.trace import Recording, Script, recorded
from omni_kit.parity.faults.fault_injection import Place
from omni_kit.parity.processes.builder import TargetFault, made, made_batch_builder
from omni_kit.parity.processes.chance import seeded
from omni_kit.parity.processes.code_places import OwnCode
from omni_kit.parity.processes.executed import execution
from omni_kit.targets.sides import (
    Adapted,
    Attending,
    Builder,
    Distributed,
    Fallible,
    Hooked,
    Renaming,
    ScenarioRunner,
    Slotted,
    Trains,
    TrainsPlainly,
    Upstream,
)
from omni_kit.toys.batches.protocol import BatchBuilder
from omni_kit.toys.size import of_toy_size
from omni_kit.toys.tensors import Tensors

Pairs = list[tuple[str, int, int]]  # module, occurrence, and number of the call in another side's recording


@contextmanager
def _buffers_kept(model: Any) -> Iterator[None]:
    """Restore the buffers afterwards, such as statistics of batches that calls in training mode update."""
    held = dict(model.named_buffers()) if isinstance(model, nn.Module) else {}
    before = {name: buffer.clone() for name, buffer in held.items()}
    try:
        yield
    finally:
        with torch.no_grad():
            for name, buffer in before.items():
                if held[name].shape == buffer.shape:
                    held[name].copy_(buffer)


class Side:
    """State of a process that its steps work on.

    Args:
        name: "reference", "candidate" or "ranks", for messages.

    Attributes:
        builder_name, options: as it was opened.
        places: where faults can be injected in the model.
        measures_models: what the files of the model's classes execute is measured.
        code: the integration's own files; None on upstream's side.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.builder_name = ""
        self.options: Mapping[str, Any] = {}
        self.measures_models = False
        self._model: Any = None
        self.places: Sequence[Place] = ()
        self.code: OwnCode | None = None
        self._builder: Builder | None = None
        self._batch_builder: BatchBuilder | None = None
        self._forbidden: Sequence[str] = ()
        self._gradient = True

    def open(
        self, builder: str, options: Mapping[str, Any], batch_builder: str, forbidden: Sequence[str], *, gradient: bool
    ) -> dict[str, Any]:
        """Make builder and batch_builder; `forbidden` packages must never be imported in this process."""
        self._forbidden, self.builder_name, self.options, self._gradient = forbidden, builder, options, gradient
        self._builder = cast(Builder, made(builder))
        self._batch_builder = made_batch_builder(batch_builder) if batch_builder else None
        facts = self._builder.open(options)
        if not isinstance(facts, dict) or not {"library", "version"} <= facts.keys():
            raise TargetFault(f"{builder} opens without saying its 'library' and 'version'")
        return facts

    @property
    def model(self) -> Any:
        """Model that was loaded last."""
        return self._model

    @model.setter
    def model(self, model: Any) -> None:
        """Keep what was loaded, and measure its files where that is wanted."""
        self._model = model
        if self.measures_models:
            execution.measure(_class_files(model))

    @property
    def builder(self) -> Builder:
        """The side's builder.

        Raises:
            RuntimeError: the side was not opened.
        """
        if self._builder is None:
            raise RuntimeError("the first step must be open")
        return self._builder

    @property
    def upstream(self) -> Upstream:
        """The builder as that of the reference."""
        return cast(Upstream, self.builder)

    def toy(self, source: str) -> Any:
        """Return upstream's toy; see `Upstream.make_toy`.

        Raises:
            BadInput: it is larger than a toy.
        """
        with of_toy_size(source):
            return self.upstream.make_toy(source, self.batch_builder)

    @property
    def slotted(self) -> Slotted:
        """The builder as one whose kernels can be chosen."""
        return cast(Slotted, self._able(Slotted))

    @property
    def distributed(self) -> Distributed:
        """The builder as one that trains in several processes."""
        return cast(Distributed, self._able(Distributed))

    @property
    def runner(self) -> ScenarioRunner:
        """The builder as one whose models can be called in many ways."""
        return cast(ScenarioRunner, self._able(ScenarioRunner))

    @property
    def hooked(self) -> Hooked:
        """The builder as one whose framework has hooks."""
        return cast(Hooked, self._able(Hooked))

    @property
    def adapted(self) -> Adapted:
        """The builder as one whose framework trains adapters."""
        return cast(Adapted, self._able(Adapted))

    @property
    def trains(self) -> Trains:
        """The builder as one whose framework's trainer can be run."""
        return cast(Trains, self._able(Trains))

    @property
    def trains_plainly(self) -> TrainsPlainly:
        """The builder as one that trains on another trainer's samples."""
        return cast(TrainsPlainly, self._able(TrainsPlainly))

    @property
    def fallible(self) -> Fallible:
        """The builder as one that makes mistakes on purpose."""
        return cast(Fallible, self._able(Fallible))

    def _able(self, protocol: type) -> Builder:
        if not isinstance(self.builder, protocol):
            raise TargetFault(f"{self.builder_name} is declared as {protocol.__name__}, but is not")
        return self.builder

    @property
    def batch_builder(self) -> BatchBuilder:
        """Builder of the batch.

        Raises:
            RuntimeError: the side was opened without one.
        """
        if self._batch_builder is None:
            raise RuntimeError("this side was opened without a batch builder")
        return self._batch_builder

    def check_imports(self) -> None:
        """Raise if a forbidden package came in after all: the side would no longer be independent.

        Raises:
            RuntimeError: which package.
        """
        if strangers := [name for name in self._forbidden if name in sys.modules]:
            raise RuntimeError(f"the {self.name} process imported {strangers[0]}: it proves nothing any more")

    def describe(self, out: Path) -> dict[str, str]:
        """Write what the model holds, and the batch for it, below `out`; say what the model is."""
        model = self.model

        def run(batch: Tensors) -> Tensors:
            return self.builder.forward(model, placed(model, batch), loss_only=True)

        save_tensors(self.state(model), out / "state.safetensors")
        with _buffers_kept(model):
            save_tensors(self.batch_builder.batch(model, run), out / "inputs.safetensors")
        kind = type(model).__name__
        config = getattr(model, "config", None)
        return {"model_type": str(getattr(config, "model_type", "") or kind), "class": kind}

    def state(self, model: Any) -> Tensors:
        """Return a model's tensors under upstream's names."""
        return self.as_upstream(model, state_of(model))

    def as_upstream(self, model: Any, tensors: Tensors) -> Tensors:
        """Return what belongs to a model's tensors, such as their gradients, under upstream's names."""
        return self.builder.as_upstream(model, tensors) if isinstance(self.builder, Renaming) else tensors

    def run(self, model: Any, inputs: Path, out: Path, forward: Callable[[Tensors], Tensors] | None = None) -> None:
        """Forward, and backward where the side has a gradient.

        Writes outputs.safetensors, gradients.safetensors and attention.json below `out`.
        """
        batch = placed(model, load_tensors(inputs))
        seeded()
        watched = self.builder.attention(model) if isinstance(self.builder, Attending) else nullcontext({})
        with watched as calls:
            outputs = forward(batch) if forward else self.builder.forward(model, batch)
        save_tensors(outputs, out / "outputs.safetensors")
        save_calls(calls, out)
        if self._gradient:
            model.zero_grad(set_to_none=True)
            torch.autograd.backward(_loss(outputs))
            save_tensors(self.as_upstream(model, _gradients(model)), out / "gradients.safetensors")

    def trace(self, inputs: Path, out: Path) -> None:
        """Run the model with everything recorded that goes in and out of every module."""
        batch = placed(self.model, load_tensors(inputs))
        seeded()
        with recorded(self.model) as recording:
            outputs = self.builder.forward(self.model, batch, loss_only=True)
            if self._gradient:
                torch.autograd.backward(_loss(outputs))
        recording.save(out)

    def replay(
        self,
        model: Any,
        inputs: Path,
        script: Path,
        pairs: Pairs,
        out: Path,
        *,
        complete: bool = False,
        counted: bool = False,
    ) -> None:
        """Forward with every paired module fed, and its answer replaced, from another side's recording."""
        known = {(module, occurrence): number for module, occurrence, number in pairs}
        batch = placed(model, load_tensors(inputs))
        seeded()
        with recorded(model, Script(Recording.load(script), known, complete), counted=counted) as recording:
            self.builder.forward(model, batch, loss_only=True)
        recording.save(out)


def _class_files(model: Any) -> list[str]:
    """Return the files that define the class of a model, and of each part that could be loaded by itself."""
    parts = model.modules() if isinstance(model, torch.nn.Module) else ()
    kinds = {type(model), *(type(part) for part in parts if hasattr(type(part), "from_pretrained"))}
    modules = {kind.__module__ for kind in kinds if not kind.__module__.startswith("torch.")}
    files = (getattr(sys.modules.get(name), "__file__", None) for name in sorted(modules))
    return [file for file in files if isinstance(file, str)]


def placed(model: Any, batch: Tensors) -> Tensors:
    """Return the batch on the model's device, and what is no whole number in the model's dtype."""
    example = next(model.parameters())
    on_device = {name: tensor.to(example.device) for name, tensor in batch.items()}
    return {name: t.to(example.dtype) if t.is_floating_point() else t for name, t in on_device.items()}


def _loss(outputs: Tensors) -> torch.Tensor:
    if "loss" not in outputs:
        raise TargetFault("a side returns no 'loss', although both declare a gradient")
    if outputs["loss"].dim() or not outputs["loss"].requires_grad:
        raise RuntimeError(
            "'loss' is not a scalar" if outputs["loss"].dim() else "'loss' has no gradient: it is detached"
        )
    return outputs["loss"]


def _gradients(model: Any) -> Tensors:
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
