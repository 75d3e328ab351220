"""Finds for every layer of a model the upstream weights with which the whole answers as upstream does."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from omni_kit.parity.renaming.holders import Holder, matched, own_tensors
from omni_kit.parity.renaming.moves import TensorTransform, rotary_ways
from omni_kit.parity.renaming.options import Option, chunks, options_for
from omni_kit.toys.tensors import Tensors

_NUMBER = re.compile(r"\d+")
_MOST_EFFORT = 4
_RUNS = (120, 1500)  # with one convention of rotary positions: the right one is mostly found in a few
_SECONDS = 120.0


class _DeadEnd(Exception):
    """Raised when the choices so far lead to numbers that upstream never saw."""


@dataclass
class _Choice:
    """Choice for one module among its options; right once it led to numbers that upstream saw."""

    module: str
    options: list[Option]
    at: int = 0
    right: bool = False

    @property
    def option(self) -> Option:
        return self.options[self.at]


@dataclass
class Solution:
    """Assignment of upstream's weights to a model.

    Attributes:
        chosen: module -> its option.
        rivals: module -> the sources of other options, where the answers would be the same.
        unreached: modules that no run came to.
        reason: why there is no solution; empty if there is one.
        runs: how often the model was run.
    """

    chosen: dict[str, Option] = field(default_factory=dict)
    rivals: dict[str, str] = field(default_factory=dict)
    unreached: list[str] = field(default_factory=list)
    reason: str = ""
    runs: int = 0


def solve(
    model: nn.Module, run: Callable[[], Tensors], answers: Tensors, holders: Sequence[Holder],
    state: Mapping[str, torch.Tensor], heads: Sequence[int], seconds: float = _SECONDS,
) -> Solution:  # fmt: skip
    """The weights with which `run` gives `answers`.

    Args:
        run: asks the model.
        answers: upstream's.
        holders, state: upstream's modules, with what they were fed, and what they hold.
        heads: how many heads the model may have.
        seconds: how long is looked.
    """
    search = _Search(model, run, answers, holders, state, heads)
    deadline = time.monotonic() + seconds
    found = Solution(reason="nothing was tried")
    square = [part.out_features for part in model.modules() if isinstance(part, nn.Linear)]
    widths = sorted(dict.fromkeys(square), key=square.count, reverse=True)
    rotary = {way.text: way for width in widths for way in rotary_ways(heads, width)}
    ways = (None, *rotary.values())
    tried = [(0, None, _RUNS[0]), *((_MOST_EFFORT, way, runs) for runs in _RUNS for way in ways)]
    for effort, one, runs in tried:
        found = search.with_effort(effort, one, runs, deadline)
        if not found.reason or time.monotonic() > deadline:
            break
    found.runs = search.runs
    if not found.reason:
        found.rivals = search.rivals()
    return found


class _Search:
    """One model, run again and again with other weights."""

    def __init__(
        self, model: nn.Module, run: Callable[[], Tensors], answers: Tensors, holders: Sequence[Holder],
        state: Mapping[str, torch.Tensor], heads: Sequence[int],
    ) -> None:  # fmt: skip
        self.model = model
        self.run = run
        self.answers = answers
        self.holders = holders
        self.state = state
        self.heads = heads
        self.runs = 0
        self.learned: dict[str, str] = {}
        self.trail: list[_Choice] = []
        self.furthest: tuple[int, str] = (0, "")
        self.own = {name: own for name, module in model.named_modules() if (own := own_tensors(module))}
        # Only a part of what these answer may be in what was seen: that proves nothing about the rest.
        self.chunked = {name: any(map(chunks, held.values())) for name, held in self.own.items()}
        self.rotary: TensorTransform | None = None
        self._known: dict[tuple[str, TensorTransform | None, bytes | None], list[Option]] = {}
        self.holder_of = {id(own): name for name, held in self.own.items() for own in held.values()}

    def with_effort(self, effort: int, rotary: TensorTransform | None, runs: int, deadline: float) -> Solution:
        """Looks for a solution among options up to an effort, deepest choices first.

        Args:
            rotary: what is done to rows of queries and keys.
            runs: how often the model is run at most.
        """
        self.trail, self.rotary, self.learned = [], rotary, {}
        most = self.runs + runs
        while time.monotonic() < deadline and self.runs < most:
            if self._attempt(effort):
                self._learn()
                self._make_plain(effort)
                chosen = {choice.module: choice.option for choice in self.trail}
                return Solution(chosen, unreached=[name for name in self.own if name not in chosen])
            while self.trail and (self.trail[-1].right or self.trail[-1].at + 1 >= len(self.trail[-1].options)):
                left = self.trail.pop()
                if left.right:
                    self.learned[_NUMBER.sub("*", left.module)] = _relative(left.option)
            if not self.trail:
                break
            self.trail[-1].at += 1
        return Solution({}, reason=f"no upstream module received the input of {self.furthest[1] or 'the model'} is")

    def _make_plain(self, effort: int) -> None:
        """Take rows as they are where that does as well: who takes values can undo any order of them."""
        index = 0
        while self.rotary is not None and index < len(self.trail):
            trail, choice = list(self.trail), self.trail[index]
            plain = (
                at for at, one in enumerate(choice.options)
                if one.key() == choice.option.key() and one.moves() < choice.option.moves()
            )  # fmt: skip
            if (at := next(plain, None)) is not None:
                self.trail = [*trail[:index], _Choice(choice.module, choice.options, at)]
                if not self._attempt(effort):
                    self.trail = trail
            index += 1

    def rivals(self) -> dict[str, str]:
        """Return where another choice gives the same outputs: no run can settle which is right."""
        found: dict[str, str] = {}
        seen: set[str] = set()
        trail = list(self.trail)
        for index, choice in enumerate(trail):
            pattern = _NUMBER.sub("*", choice.module)
            own = choice.option.key()
            others = [at for at, one in enumerate(choice.options) if one.effort == 0 and one.key() != own]
            if pattern in seen or not others:
                continue
            seen.add(pattern)
            for at in others[:4]:
                self.trail = [*trail[:index], _Choice(choice.module, choice.options, at)]
                if self._attempt(_MOST_EFFORT):
                    sources = choice.options[at].sources
                    found[choice.module] = ", ".join(one for names in sources.values() for one in names)
                    break
        self.trail = trail
        return found

    def _attempt(self, effort: int) -> bool:
        """Return whether a run with the trail's choices, and the likeliest after them, gives upstream's answers."""
        self.runs += 1
        given = {choice.module: choice for choice in self.trail}
        reached: dict[str, int] = {}
        walked: set[Any] = set()
        handles = [
            module.register_forward_pre_hook(self._hook(name, given, (reached, walked), effort), with_kwargs=True)
            for name, module in self.model.named_modules() if name in self.own
        ]  # fmt: skip
        try:
            with torch.enable_grad():
                return _same(self.run(), self.answers)
        except _DeadEnd as end:
            if len(self.trail) >= self.furthest[0]:
                self.furthest = len(self.trail), str(end)
            return False
        except (RuntimeError, ValueError, TypeError, IndexError):
            return False
        finally:
            for handle in handles:
                handle.remove()

    def _hook(
        self, name: str, given: dict[str, _Choice], seen: tuple[dict[str, int], set[Any]], effort: int
    ) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]:
        reached, walked = seen

        def choose(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            occurrence = reached.get(name, 0)
            reached[name] = occurrence + 1
            if occurrence:
                return
            if name not in given:
                fed = next((one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)), None)
                options = self._options(name, fed, occurrence, given, effort)
                if not options:
                    raise _DeadEnd(name)
                if fed is not None and any(
                    matched(fed, one, ()) for holder in self.holders for one in holder.at(occurrence)
                ):
                    for behind in self._behind(fed, walked):
                        given[behind].right = not self.chunked[behind]
                given[name] = _Choice(name, options)
                self.trail.append(given[name])
            for own, tensor in given[name].option.made(self.state).items():
                self.own[name][own].data.copy_(tensor)

        return choose

    def _behind(self, fed: torch.Tensor, walked: set[Any]) -> Iterator[str]:
        """The modules whose weights are in a tensor, and are not known to be right yet."""
        todo = [fed.grad_fn]
        while todo:
            node = todo.pop()
            if node is None or node in walked:
                continue
            walked.add(node)
            variable = getattr(node, "variable", None)
            if variable is not None and id(variable) in self.holder_of:
                yield self.holder_of[id(variable)]
            todo += [one for one, _ in node.next_functions]

    def _options(
        self, name: str, fed: torch.Tensor | None, occurrence: int, given: Mapping[str, _Choice], effort: int
    ) -> list[Option]:
        """Return the options of a module, what its likes in other blocks are made of first, and what is taken already
        last.
        """
        key = (name, self.rotary, None if fed is None else fed.detach().cpu().numpy().tobytes())
        if key not in self._known:
            self._known[key] = options_for(self.own[name], fed, occurrence, self.holders, self.heads, self.rotary)
        found = [one for one in self._known[key] if one.effort <= effort]
        taken = {part for choice in given.values() for part in choice.option.key()}
        learned = self._learned(name, given)
        free = [one for one in found if not taken.intersection(one.key())]
        return sorted(free or found, key=lambda one: (_relative(one) != learned, one.effort, not _alike(name, one)))

    def _learned(self, name: str, given: Mapping[str, _Choice]) -> str:
        pattern = _NUMBER.sub("*", name)
        same = [choice for module, choice in given.items() if _NUMBER.sub("*", module) == pattern]
        return _relative(same[-1].option) if same else self.learned.get(pattern, "")

    def _learn(self) -> None:
        self.learned |= {_NUMBER.sub("*", choice.module): _relative(choice.option) for choice in self.trail}


def _alike(name: str, option: Option) -> bool:
    """Return whether upstream's module has the same name."""
    return all(source.rpartition(".")[0] == name for sources in option.sources.values() for source in sources)


def _relative(option: Option) -> str:
    """Return an option without the numbers of blocks."""
    return str([(name, [_NUMBER.sub("*", one) for one in sources], option.way[name].text)
                for name, sources in sorted(option.sources.items())])  # fmt: skip


def _same(one: Tensors, other: Tensors) -> bool:
    for name, expected in other.items():
        answer = one.get(name)
        if answer is None or answer.shape != expected.shape:
            return False
        if not torch.allclose(answer, expected, rtol=1e-4, atol=1e-5 * max(1.0, float(expected.abs().max()))):
            return False
    return True
