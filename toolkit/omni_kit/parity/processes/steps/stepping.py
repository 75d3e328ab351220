"""The step that trains: a few updates by an optimizer, and once more from what was saved in between."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from omni_kit.parity.compare.files import load_tensors, save_tensors
from omni_kit.parity.processes.chance import seeded
from omni_kit.parity.processes.outcomes import UPDATES
from omni_kit.parity.processes.side import Side, placed
from omni_kit.parity.processes.step import Step
from omni_kit.parity.processes.steps.running import nudging
from omni_kit.toys.tensors import Tensors

# Linear in the gradients: an optimizer that divides by their size would make steps of rounding alone.
_RATE, _MOMENTUM, _MOST = 0.1, 0.9, 1.0
_SAVED = "saved.safetensors"


@dataclass(frozen=True)
class TakeSteps(Step[list[str]]):
    """Loads the checkpoint, takes a few steps with an optimizer, and writes what came of them below `out`.

    That is, as outputs.safetensors: loss.N and gradient_norm.N of each step, and delta.NAME, how far each trained
    parameter moved, under upstream's name. With a `salt` every weight begins at the next float32 number;
    another one moves other weights up.

    Answers what is different in one more step when model and optimizer are saved, made again and loaded before it.
    """

    checkpoint: Path
    inputs: Path
    out: Path
    salt: int | None = None

    def take(self, side: Side) -> list[str]:
        """See `Step.take`."""
        training = _Training(side, self.checkpoint, load_tensors(self.inputs))
        if self.salt is None:
            return training.run(self.out)
        with nudging(training.model, restore=False, salt=self.salt):
            return training.run(self.out)


class _Training:
    """A model and its optimizer."""

    def __init__(self, side: Side, checkpoint: Path, batch: Tensors) -> None:
        self._side, self._checkpoint = side, checkpoint
        self.model: Any = side.builder.load(checkpoint)
        self._batch = placed(self.model, batch)
        self._optimizer = torch.optim.SGD(self.model.parameters(), _RATE, _MOMENTUM)

    def run(self, out: Path) -> list[str]:
        """Return all steps; see `TakeSteps`."""
        seeded()
        before = self._parameters()
        found: Tensors = {}
        for number in range(UPDATES):
            found[f"loss.{number}"], found[f"gradient_norm.{number}"] = self._step()
        moved = {name: value - before[name] for name, value in self._parameters().items()}
        found |= {f"delta.{name}": value for name, value in self._side.as_upstream(self.model, moved).items()}
        save_tensors(found, out / "outputs.safetensors")
        again = self._resumed(out / _SAVED)
        chance = torch.get_rng_state()
        mine = self._step()
        torch.set_rng_state(chance)
        theirs = again._step()
        other = again._parameters()
        wrong = [name for name, value in self._parameters().items() if not value.equal(other[name])]
        return wrong if mine[0].equal(theirs[0]) else ["loss", *wrong]

    def _resumed(self, file: Path) -> "_Training":
        """Return the training resumed from disk: only parameters, buffers and the optimizer's state survive."""
        save_tensors({name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}, file)
        again = _Training(self._side, self._checkpoint, self._batch)
        again.model.load_state_dict(load_tensors(file))
        again._optimizer.load_state_dict(copy.deepcopy(self._optimizer.state_dict()))
        return again

    def _step(self) -> tuple[torch.Tensor, torch.Tensor]:
        self._optimizer.zero_grad(set_to_none=True)
        loss = self._side.builder.forward(self.model, self._batch, loss_only=True)["loss"]
        loss.backward()  # type: ignore[no-untyped-call]
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), _MOST)
        self._optimizer.step()
        return loss.detach().clone(), norm.detach().clone()

    def _parameters(self) -> Tensors:
        trained = ((name, one) for name, one in self.model.named_parameters() if one.requires_grad)
        return {name: parameter.detach().clone() for name, parameter in trained}
