"""Which of several inputs a model takes, asked of the model itself: bounded, and the same at every run.

How far a forward comes before it fails is counted in operations of torch. A wrong width fails at the first layer that
sees it, so of several choices for one argument the right one comes furthest, whatever is wrong with the others.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from omni_kit.toys.feeds.denoiser.arguments import ask
from omni_kit.toys.tensors import Tensors

_ROUNDS = 6
_SEED = 0

Choices = Mapping[str, Sequence[Any]]
Chosen = dict[str, int]
Maker = Callable[[Chosen], Tensors]


@dataclass(frozen=True)
class Reach:
    """How far a forward came.

    Attributes:
        operations: how many of torch's operations were done.
        answer: what it answered; None where it failed, or where the answer is not finite.
        error: why it failed, in one line.
    """

    operations: int
    answer: torch.Tensor | None = None
    error: str = ""


@dataclass
class Trial:
    """Chooses for every argument.

    Attributes:
        choices: for each argument what it may be, the likeliest first; None leaves it out.
        make: the inputs of a sample, of what was chosen.
    """

    model: Any
    choices: Choices
    make: Maker
    calls: int = 0
    _known: dict[tuple[int, ...], Reach] = field(default_factory=dict)

    def reach(self, chosen: Chosen) -> Reach:
        """How far the model comes with a choice."""
        key = tuple(chosen.values())
        if key not in self._known:
            self.calls += 1
            self._known[key] = how_far(self.model, lambda: self.make(chosen))
        return self._known[key]

    def run(self) -> tuple[Chosen, Reach]:
        """The first choice with which the model answers, found one argument at a time; the furthest if there is none."""
        chosen = dict.fromkeys(self.choices, 0)
        best = self.reach(chosen)
        for _ in range(_ROUNDS):
            before = chosen
            for name in self.choices:
                if best.answer is not None:
                    return chosen, best
                chosen, best = self._better(chosen, best, name)
            if chosen == before:
                break
        return chosen, best

    def _better(self, chosen: Chosen, best: Reach, name: str) -> tuple[Chosen, Reach]:
        """The choice for one argument that comes furthest."""
        found = chosen
        for index in range(len(self.choices[name])):
            tried = {**chosen, name: index}
            reach = self.reach(tried)
            if reach.answer is not None:
                return tried, reach
            if reach.operations > best.operations:
                found, best = tried, reach
        return found, best

    def settle(self, chosen: Chosen) -> Chosen:
        """Leaves out what has no effect, and adds what may be left out but has one."""
        for name, options in self.choices.items():
            if None not in options:
                continue
            absent = {**chosen, name: list(options).index(None)}
            without = self.reach(absent)
            for index in (chosen[name], *range(len(options))):
                reach = self.reach({**chosen, name: index})
                if options[index] is not None and reach.answer is not None and _differ(reach, without):
                    chosen = {**chosen, name: index}
                    break
            else:
                chosen = absent if without.answer is not None else chosen
        return chosen


def _differ(one: Reach, other: Reach) -> bool:
    if one.answer is None or other.answer is None:
        return True
    return one.answer.shape != other.answer.shape or not torch.allclose(one.answer, other.answer, rtol=0, atol=0)


def how_far(model: Any, make: Callable[[], Tensors]) -> Reach:
    """Calls a model with what `make` makes."""
    counter = _Counter()
    # Whatever is wrong with an input shows as some error of the code that meets it first.
    try:
        sample = make()
        with torch.no_grad(), counter:
            answer = ask(model, sample)
    except Exception as error:
        return Reach(counter.count, error=f"{type(error).__name__}: {error}")
    if not bool(torch.isfinite(answer).all()) or answer.numel() == 0:
        return Reach(counter.count, error="its answer is not finite")
    return Reach(counter.count, answer)


class _Counter(TorchDispatchMode):
    """Counts operations."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        done = func(*args, **(kwargs or {}))
        self.count += 1
        return done
