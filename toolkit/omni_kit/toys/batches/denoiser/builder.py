"""The batch builder of diffusion transformers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from omni_kit.errors import BadInput
from omni_kit.toys.batches.denoiser.arguments import SHAPES, ask
from omni_kit.toys.batches.denoiser.inputs import denoiser_inputs, searched_inputs
from omni_kit.toys.batches.denoiser.samples import PREDICTION, different_samples, samples_of
from omni_kit.toys.batches.denoiser.trial import LONGEST, Chosen
from omni_kit.toys.batches.protocol import Batch, CallScenario, Run
from omni_kit.toys.tensors import Tensors

_COLOURS = 3
_LEAST_TRIED = 128


class DenoiserBatchBuilder:
    """Latents, times, text embeddings and targets for a diffusion transformer.

    Later models are variants of its first one. The search for their inputs starts from the first one's, and is bounded
    by its length: a config that upstream refuses, of any kind fed, takes ten times as long to tell.
    """

    def __init__(self) -> None:
        self._most = math.inf
        self._first: Chosen | None = None
        self._refused: tuple[Any, BadInput] | None = None

    def batch(self, model: Any, run: Run) -> Tensors:
        """Return two samples of different sizes; see `searched_inputs`.

        A model that writes into its own weights as it runs, to normalise them, gets the first one alone: gradients do
        not go back through two such calls.
        """
        found = self._searched(model, self._most)
        return found if not _writes(model, found) else {name: one for name, one in found.items() if name[:2] == "0."}

    def refusal(
        self, model: Any, most: float, start: Chosen | None = None, seconds: float = LONGEST
    ) -> BadInput | None:
        """Return why a model takes none of as many inputs as are tried at most; None if it takes one.

        Args:
            start: what is tried first.
            seconds: of the processor, after which no more are tried.
        """
        try:
            self._searched(model, min(most, self._most), start, seconds)
        except BadInput as error:
            if most == math.inf:
                self._refused = model, error
            return error
        return None

    def _searched(self, model: Any, most: float, start: Chosen | None = None, seconds: float = LONGEST) -> Tensors:
        if self._refused is not None and self._refused[0] is model:  # all that there is was tried
            raise self._refused[1]
        found = searched_inputs(model, most, self._first or start, seconds)
        if self._first is None:
            self._first, self._most = found.chosen, max(found.tried, _LEAST_TRIED)
        return found.inputs

    def mask(self, batch: Tensors) -> torch.Tensor:
        """Every element of every sample counts."""
        return torch.ones(1, 1, dtype=torch.long)

    def judged(self, names: Sequence[str]) -> list[str]:
        """Return the predictions."""
        return [name for name in names if name.startswith(PREDICTION)]

    def whole(self, batch: Tensors) -> list[Batch]:
        """Samples of an even and of an odd number of patches."""
        return [[[sample]] for sample in samples_of(batch)]

    def apart(self, batch: Tensors, count: int) -> list[Batch]:
        """Return the samples, and then again with the order of their channels turned."""
        return [[[sample] for sample in different_samples(batch, count)]]

    def scenarios(self, model: Any) -> Sequence[CallScenario]:
        """In evaluation, with its blocks checkpointed, and each sample by itself."""
        batch = denoiser_inputs(model)
        numbers = sorted({name.partition(".")[0] for name in batch}, key=int)
        alone = [{name: one for name, one in batch.items() if name.startswith(f"{number}.")} for number in numbers]
        return [
            CallScenario("evaluation", batch, training=False),
            CallScenario("gradient checkpointing", batch, backward=True, checkpointing=True),
            *(
                CallScenario(f"sample {number} alone", one, backward=True)
                for number, one in zip(numbers, alone, strict=True)
            ),
        ]

    def frames(self, batch: Tensors, answers: Tensors) -> Mapping[str, torch.Tensor]:
        """Return the middle frame of each prediction that is a picture or a film, its first channels as colours."""
        found = {
            name: _frame(answers[name], batch.get(f"{name.removeprefix(PREDICTION)}.{SHAPES}"))
            for name in sorted(self.judged(list(answers)))
        }
        return {name: frame for name, frame in found.items() if frame is not None}


def _writes(model: Any, inputs: Tensors) -> bool:
    """Return whether a model changes its weights in a call."""
    weights = [*model.parameters()]
    before = [one._version for one in weights]
    with torch.no_grad():
        ask(model, samples_of(inputs)[0])
    return before != [one._version for one in weights]


def _frame(sample: torch.Tensor, sizes: torch.Tensor | None) -> torch.Tensor | None:
    """Return the middle frame of the first channels, [rows, columns, 3]; None of what is no picture."""
    if sizes is not None:  # [1, patches, channels], the picture itself first
        frames, rows, columns = sizes[0, 0].tolist()
        grid = sample[0, : frames * rows * columns].reshape(frames, rows, columns, -1)
    elif sample.dim() == 5:  # [1, channels, frames, rows, columns]
        grid = sample[0].movedim(0, -1)
    elif sample.dim() == 4:  # [1, channels, rows, columns], or of a list [channels, frames, rows, columns]
        grid = sample.movedim(1, -1) if len(sample) == 1 else sample.movedim(0, -1)
    else:
        return None
    colours = grid[len(grid) // 2, ..., :_COLOURS].float()
    return colours if colours.shape[-1] == _COLOURS else None
