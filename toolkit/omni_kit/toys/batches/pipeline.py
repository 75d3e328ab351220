"""The batch builder of whole pipelines: scenarios, each as the numbers of one row, which both sides read alike."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from omni_kit.renamed import old_names
from omni_kit.toys.batches.protocol import Batch, Run
from omni_kit.toys.tensors import Tensors

SCENARIOS = "scenarios"
PICTURE = "picture"
PROMPTS = ("a cat on the mat", "red dog")
_STEPS, _FRAMES, _SEED = 3, 5, 7
_SMALL, _LARGE = 64, 96


@dataclass(frozen=True)
class Scenario:
    """One call of a pipeline.

    Attributes:
        guided: by a negative prompt.
        prompt: its place in PROMPTS.
        pictures: how many are made of it, each of noise of its own.
        prompts: how many there are at once, from that place on and round.
        images: whether it starts from pictures where it could do without them.
    """

    rows: int
    columns: int
    guided: bool
    prompt: int
    pictures: int = 1
    steps: int = _STEPS
    frames: int = _FRAMES
    seed: int = _SEED
    prompts: int = 1
    images: bool = True

    @property
    def name(self) -> str:
        """For reports: "guided 64x96 x2"; of several prompts "guided 64x64 2 prompts x2"."""
        together = f" {self.prompts} prompts" if self.prompts > 1 else ""
        many = f" x{self.pictures}" if self.pictures > 1 else ""
        return f"{'guided' if self.guided else 'plain'} {self.rows}x{self.columns}{together}{many}"

    @property
    def text(self) -> str | list[str]:
        """The prompt, or all of them."""
        return self._from(self.prompt)

    @property
    def against(self) -> str | list[str]:
        """The negative prompt of a guided call, or all of them."""
        return self._from(1 - self.prompt)

    def _from(self, first: int) -> str | list[str]:
        found = [PROMPTS[(first + number) % len(PROMPTS)] for number in range(self.prompts)]
        return found if self.prompts > 1 else found[0]


def _enlarged(scenario: Scenario, times: int = 1) -> Scenario:
    """Both sides are so many times as long."""
    return replace(scenario, rows=scenario.rows * times, columns=scenario.columns * times)


Change = Callable[[Scenario], Scenario]
AS_IS: Change = _enlarged
ENLARGED: Sequence[Change] = (partial(_enlarged, times=2), partial(_enlarged, times=4))
"""Changes for pipelines that halve latents, or cut them into tiles: they need more of them."""
LONGER: Sequence[Change] = (partial(replace, frames=17),)
"""Change for pipelines of films that compare frames of latents with those before them: they need several."""
BARE: Sequence[Change] = (partial(replace, images=False),)
"""Change for pipelines that raise for pictures that they could do without."""

_ALL = (
    Scenario(_SMALL, _SMALL, guided=False, prompt=0),
    Scenario(_SMALL, _SMALL, guided=True, prompt=0),
    Scenario(_SMALL, _LARGE, guided=True, prompt=1),
    Scenario(_SMALL, _SMALL, guided=True, prompt=1, pictures=2),
)


def scenarios_of(batch: Tensors) -> list[Scenario]:
    """Return the scenarios of a batch."""
    rows = batch[SCENARIOS].tolist()
    return [Scenario(row[0], row[1], bool(row[2]), *row[3:]) for row in rows]


class PipelineBatchBuilder:
    """Without and with guidance, of another size and prompt, and two pictures at once.

    Attributes:
        change: what makes upstream draw its scenarios, where a toy was fitted to them; None if nobody knows yet.
    """

    scenarios: Sequence[Scenario] = _ALL
    change: Change | None = None

    def batch(self, model: Any, run: Run) -> Tensors:
        """Return a row for each scenario that upstream draws; where it raises, larger ones, or ones without images."""
        last = [one for one in self.scenarios if one.pictures == 1][-1]
        able = (change for change in (AS_IS, *ENLARGED, *BARE) if _draws(change(last), run))
        found = [*map(self.change or next(able, AS_IS), self.scenarios)]
        return _rows([one for one in found if one.pictures == 1 or _draws(one, run)])

    def mask(self, batch: Tensors) -> torch.Tensor:
        """Every element counts."""
        return torch.ones(1, 1, dtype=torch.long)

    def judged(self, names: Sequence[str]) -> list[str]:
        """Return the pictures."""
        return [name for name in names if name.endswith(PICTURE)]

    def whole(self, batch: Tensors) -> list[Batch]:
        """Return each scenario alone: pipelines are not trained."""
        return [[[{SCENARIOS: row[None]}]] for row in batch[SCENARIOS]]

    def apart(self, batch: Tensors, count: int) -> list[Batch]:
        """Return as many scenarios as there are parts."""
        rows = [batch[SCENARIOS][number % len(batch[SCENARIOS])] for number in range(count)]
        return [[[{SCENARIOS: row[None]}] for row in rows]]

    def frames(self, batch: Tensors, answers: Tensors) -> Mapping[str, torch.Tensor]:
        """Return each picture, or the middle frame of each film: [rows, columns, 3]."""
        found = {name: answers[name][0] for name in self.judged(sorted(answers))}
        return {_plain(name): _colours(one) for name, one in found.items()}


class PromptBatchBuilder(PipelineBatchBuilder):
    """Adds two prompts at once with two pictures each: only then the order of rows shows."""

    scenarios = (*_ALL, Scenario(_SMALL, _SMALL, guided=True, prompt=0, pictures=2, prompts=2))


def _rows(scenarios: Sequence[Scenario]) -> Tensors:
    return {SCENARIOS: torch.tensor([list(vars(one).values()) for one in scenarios], dtype=torch.long)}


def _draws(scenario: Scenario, run: Run) -> bool:
    """Return whether upstream draws a scenario's pictures."""
    try:
        run(_rows([scenario]))
    except Exception:  # whatever a pipeline raises
        return False
    return True


def _colours(picture: torch.Tensor) -> torch.Tensor:
    """[channels, rows, columns], or of a film [frames, channels, rows, columns]."""
    still = picture[len(picture) // 2] if picture.dim() == 4 else picture
    return still.movedim(0, -1)[..., :3]


def _plain(name: str) -> str:
    """A name that a file can have."""
    return name.partition("/")[0].replace(" ", "-")


__getattr__ = old_names(__name__, {"PipelineFeed": "PipelineBatchBuilder"})
