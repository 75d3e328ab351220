"""The steps that a worker can take; each takes paths and numbers and leaves tensors in files."""

import gc
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import torch

from omni_kit.parity.attention import attention_recorded, save_calls
from omni_kit.parity.builder import make_builder
from omni_kit.parity.faults import FAULTS
from omni_kit.parity.faults.planting import Place, find_places, planted
from omni_kit.parity.tensors import load_tensors, save_tensors, state_of
from omni_kit.parity.trace import Recording, Script, recorded
from omni_kit.parity.weights import nudged
from omni_kit.targets.builder import Builder, Distributed, Mesh, Slotted, Tensors, Upstream

Pairs = list[tuple[str, int, int]]


class Side:
    """One side of the comparison: its builder and, once loaded, its model.

    Every public method is a step; arguments and results are JSON-ready.
    """

    def __init__(self) -> None:
        self._builder: Builder | None = None
        self._model: Any = None
        self._forbidden: list[str] = []
        self._name = ""
        self._options: Mapping[str, Any] = {}
        self._places: list[Place] = []

    def open(self, builder: str, options: Mapping[str, Any], forbidden: list[str]) -> dict[str, Any]:
        """Makes the builder; `forbidden` packages must never be imported in this process."""
        self._forbidden, self._name, self._options = forbidden, builder, options
        self._builder = make_builder(builder)
        facts = self._builder.open(options)
        gc.freeze()  # what was imported stays: a collection, and loaders ask for many, need not walk it
        return facts

    def make_toy(self, source: str, out: str, layout: str) -> dict[str, Any]:
        """Makes a toy of upstream's own class; writes its checkpoint, its state and its inputs below `out`."""
        self._model = self._upstream.make_toy(source)
        self._upstream.save_toy(self._model, Path(out, "checkpoint"), layout)
        return self._describe(out)

    def save_toy(self, source: str, out: str, layout: str) -> None:
        """Makes a toy of upstream's own class and writes nothing but its checkpoint."""
        self._upstream.save_toy(self._upstream.make_toy(source), Path(out), layout)

    def open_checkpoint(self, checkpoint: str, out: str) -> dict[str, Any]:
        """Loads a checkpoint and writes its state and the inputs for it below `out`."""
        self._model = self._side.load(Path(checkpoint))
        return self._describe(out)

    def shapes(self, config_dir: str) -> dict[str, list[int]]:
        """Name -> shape of the state that the side would load."""
        return self._side.shapes(Path(config_dir))

    def load(self, checkpoint: str, state: str) -> dict[str, Any]:
        """Loads the checkpoint and writes what the model then holds."""
        self._model = self._side.load(Path(checkpoint))
        save_tensors(state_of(self._model), Path(state))
        return {"class": f"{type(self._model).__module__}.{type(self._model).__name__}"}

    def save(self, checkpoint: str, out: str) -> None:
        """Exports the loaded model."""
        self._side.save(self._model, Path(checkpoint), Path(out))

    def reload(self, checkpoint: str, state: str) -> None:
        """Loads another checkpoint beside the model of this side and writes what it then holds."""
        save_tensors(state_of(self._side.load(Path(checkpoint))), Path(state))

    def run(self, inputs: str, out: str) -> dict[str, Any]:
        """Forward and backward.

        Writes outputs.safetensors, gradients.safetensors and attention.json below `out`; returns the names of all
        parameters and what is to be said about the run.
        """
        self._run(self._model, Path(inputs), Path(out))
        return {"parameters": [name for name, _ in self._model.named_parameters()], "notes": self._side.notes()}

    def run_nudged(self, inputs: str, out: str) -> None:
        """As `run`, with every weight moved to the next float32 number: what rounding alone can do to this model."""
        exact = {name: parameter.detach().clone() for name, parameter in self._model.named_parameters()}
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                parameter.copy_(nudged(name, parameter))
        self._run(self._model, Path(inputs), Path(out))
        with torch.no_grad():
            for name, parameter in self._model.named_parameters():
                parameter.copy_(exact[name])

    def trace(self, inputs: str, out: str) -> None:
        """Forward and backward with everything recorded that goes in and out of every module."""
        with recorded(self._model) as recording:
            outputs = self._side.forward(self._model, batch_for(self._model, Path(inputs)), loss_only=True)
            torch.autograd.backward(outputs["loss"])
        recording.save(Path(out))

    def replay(self, inputs: str, script: str, pairs: Pairs, out: str, complete: bool = False) -> None:
        """Forward with every paired module fed, and its answer replaced, from another side's recording.

        Args:
            script: directory of that recording.
            pairs: module, occurrence, and number of the call in the recording.
            complete: also gives each module what it is not handed.
        """
        self._replay(self._model, Path(inputs), Path(script), pairs, Path(out), complete)

    def run_as(self, checkpoint: str, dtype: str, inputs: str, script: str, pairs: Pairs, out: str) -> list[str]:
        """Loads the checkpoint once more in another dtype, runs it, and replays a recording in it.

        Returns:
            What is to be said about it.
        """
        model = self._side.load(Path(checkpoint), dtype)
        self._run(model, Path(inputs), Path(out))
        self._replay(model, Path(inputs), Path(script), pairs, Path(out, "replay"))
        return self._side.notes()

    def places(self, inputs: str) -> list[dict[str, Any]]:
        """Where faults can be planted in the loaded model."""
        self._places = find_places(
            self._model, FAULTS, lambda: self._side.forward(self._model, batch_for(self._model, Path(inputs)))
        )
        return [{**place.described(), "number": number} for number, place in enumerate(self._places)]

    def run_planted(self, number: int, inputs: str, script: str, pairs: Pairs, out: str) -> dict[str, bool]:
        """As `run`, `trace` and `replay`, with a fault in the model; writes what it then holds, too."""
        with planted(self._model, self._places[number]) as outcome:
            save_tensors(state_of(self._model), Path(out, "loaded.safetensors"))
            self._run(self._model, Path(inputs), Path(out))
            self.trace(inputs, str(Path(out, "trace")))
            self._replay(self._model, Path(inputs), Path(script), pairs, Path(out, "replay"))
        return vars(outcome)

    def complete_planted(self, number: int, inputs: str, script: str, pairs: Pairs, out: str) -> None:
        """As `replay`, each module given what it is not handed, with a fault in the model."""
        with planted(self._model, self._places[number]):
            self._replay(self._model, Path(inputs), Path(script), pairs, Path(out), complete=True)

    def _replay(self, model: Any, inputs: Path, script: Path, pairs: Pairs, out: Path, complete: bool = False) -> None:
        known = {(module, occurrence): number for module, occurrence, number in pairs}
        with recorded(model, Script(Recording.load(script), known, complete)) as recording:
            self._side.forward(model, batch_for(model, inputs), loss_only=True)
        recording.save(out)

    def _run(self, model: Any, inputs: Path, out: Path, forward: Callable[[Tensors], Tensors] | None = None) -> None:
        model.zero_grad(set_to_none=True)
        batch = batch_for(model, inputs)
        with attention_recorded(model) as calls:
            outputs = forward(batch) if forward else self._side.forward(model, batch)
        save_tensors(outputs, out / "outputs.safetensors")
        torch.autograd.backward(outputs["loss"])
        gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
        save_tensors(gradients, out / "gradients.safetensors")
        save_calls(calls, out)

    def slots(self, config_dir: str) -> list[dict[str, Any]]:
        """Every kernel slot that the integration declares."""
        return [asdict(slot) for slot in cast(Slotted, self._side).slots(Path(config_dir))]

    def run_with(self, checkpoint: str, slot: str, kernel: str, dtype: str, inputs: str, out: str) -> list[str]:
        """As `run`, of the checkpoint loaded once more with a kernel in a slot; returns the slot's calls."""
        side = cast(Slotted, self._side)
        model = side.load_with(Path(checkpoint), slot, kernel, dtype)
        self._run(model, Path(inputs), Path(out), lambda batch: side.forward_with(model, slot, batch))
        return side.calls().get(slot, [])

    def meshes(self, level: str, config_dir: str) -> list[dict[str, Any]] | str:
        """What a level of several processes runs on, or why it makes no sense for this model."""
        found = cast(Distributed, self._side).meshes(level, Path(config_dir))
        return found if isinstance(found, str) else [asdict(mesh) for mesh in found]

    def launch(self, mesh: dict[str, Any], device: str, timeout: float, fault: str = "", **paths: str) -> list[str]:
        """Trains one step in all processes of a mesh; returns what is to be said about it.

        Args:
            timeout: seconds after which every process writes its stack and ends.
            fault: one to plant between the processes.
            paths: `checkpoint`, `batches` and `out`.
        """
        from omni_kit.parity.ranks import Job, launch

        places = {name: Path(path) for name, path in paths.items()}
        job = Job(self._name, self._options, device, mesh=Mesh(**mesh), timeout=timeout, fault=fault, **places)
        launch(job, cast(Distributed, self._side))
        return list(json.loads((job.out / "notes.json").read_text(encoding="utf-8")))

    def check_imports(self) -> None:
        """Raises if a forbidden package came in after all: the side would no longer be independent.

        Raises:
            RuntimeError: which package.
        """
        if strangers := [name for name in self._forbidden if name in sys.modules]:
            raise RuntimeError(f"the reference process imported {strangers[0]}: it proves nothing any more")

    @property
    def _side(self) -> Builder:
        if self._builder is None:
            raise RuntimeError("the first step must be open")
        return self._builder

    @property
    def _upstream(self) -> Upstream:
        return cast(Upstream, self._side)

    def _describe(self, out: str) -> dict[str, Any]:
        save_tensors(state_of(self._model), Path(out, "state.safetensors"))
        save_tensors(self._upstream.inputs(self._model), Path(out, "inputs.safetensors"))
        kind = type(self._model).__name__
        return {"model_type": getattr(self._model.config, "model_type", kind), "class": kind}


def batch_for(model: torch.nn.Module, inputs: Path) -> Tensors:
    """The batch on the model's device, and what is no whole number in the model's dtype."""
    example = next(model.parameters())
    batch = {name: tensor.to(example.device) for name, tensor in load_tensors(inputs).items()}
    return {name: t.to(example.dtype) if t.is_floating_point() else t for name, t in batch.items()}
