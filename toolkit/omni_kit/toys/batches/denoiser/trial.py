"""The inputs that a model accepts, found by calling it: bounded, and the same in every run.

How far a forward comes before it fails is the line at which it does, then that of the method of the same model that it
calls there (a forward may hand everything on to one), then the number of torch's operations, then how
near the sizes are that torch's error names: where several inputs are joined, each right one brings the sum nearer. A
wrong width fails at the first layer that sees it, so of several choices for one argument the right one comes furthest,
whatever is wrong with the others. Operations alone would not do: how many there are may depend on the sizes.
"""

import inspect
import math
import re
import traceback
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch
import torch._dynamo  # which takes a second, and which the first operation below a dispatch mode imports
from torch.utils._python_dispatch import TorchDispatchMode

from omni_kit.toys.batches.denoiser.arguments import TARGET, ask_again
from omni_kit.toys.batches.denoiser.failed_checks import asserted, condition_of
from omni_kit.toys.batches.denoiser.failing_line import guards, lines_of, read_at
from omni_kit.toys.batches.denoiser.layouts import Layout
from omni_kit.toys.batches.denoiser.options import LikeLatents
from omni_kit.toys.batches.denoiser.provenance import Provenance
from omni_kit.toys.batches.denoiser.resized import Resized, resized
from omni_kit.toys.batches.denoiser.samples import noisy_name
from omni_kit.toys.elapsed import Elapsed
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.width_errors import ADDED, EXPANDED, LENGTHS, WIDTHS

_ROUNDS = 8
_LIKELY = 12
_IDLE = 5
_ENOUGH = 100  # inputs after which an output that is laid out unlike the latents counts
LONGEST = 80.0
"""Seconds of the processor, see `Elapsed`."""
_SHARE = 0.25  # of them, for all arguments at once: of a slow model, one that may be left out can take up all of them
_LARGEST = 2**26  # numbers of a tensor
_END = 10**6  # a line after all others
_MOST_JOINED = 100
_INSIDE = ("", "[", "{", "(")  # what comes after an argument's name where it has parts
# How torch names the tensor of a list that does not fit the others.
_JOINED = re.compile(r"for tensor number (\d+) in the list")

# How einops, torch, Python and a check name a tensor with too few or too many dimensions.
_DIMENSIONS = re.compile(
    r"expected (\d+) dims\. Received (\d+)-dim"
    r"|number of sizes provided \((\d+)\) must be greater or equal to the number of dimensions in the tensor \((\d+)\)"
    r"|not enough values to unpack \(expected (\d+), got (\d+)\)"
    r"|asserted (?P<received>[1-6]) == (?P<expected>[1-6])\b"
)

# What follows where code squeezes a batch of one away.
_LOST_AXIS = re.compile(r"too many indices for tensor|Dimension out of range|not enough values to unpack")
# Files that raise what no input changes, and after how many of one error that is believed.
_SURROUNDINGS = re.compile(r"^<frozen os>$|[/\\](os\.py|torch[/\\](distributed|cuda)[/\\].*)$")
_SAME = 16
_FEW = 12  # numbers of a sound of any length
# Of tensors that number things, as rows of tables: no whole numbers, or too large ones.
_NUMBERS = re.compile(
    r"'indices'|used as indices|index tensor|for index$|index out of range|is out of bounds|Class values"
)
_UNSET = re.compile(r"cannot access local variable '(\w+)'")
# How Python names an argument that a part of the model does not take.
_UNEXPECTED = re.compile(r"unexpected keyword argument '(\w+)'")
# How Python names a value that is absent where code needs one.
_ABSENT = re.compile(r"\bNoneType\b")

Choices = Mapping[str, list[Any]]
Chosen = dict[str, int]
Maker = Callable[[Chosen], Tensors]


@dataclass(frozen=True)
class Reach:
    """The progress of a forward.

    Attributes:
        far: the line of the model's forward, that of a method that it calls there, how many of torch's operations were
            done, and how near the sizes of the error are to each other: 0 where they are equal or none are named, less
            where they are not.
        answer: what it answered; None if it failed, or where the answer is not finite.
        error: why it failed, in one line.
        as_latents: the answer has as many dimensions as the latents.
        dimensions: of what came out, whatever is wrong with it; 0 if nothing did.
        of_surroundings: the error was raised by what reads the environment, or by torch.distributed or torch.cuda.
        in_training: it answered in training, and failed in evaluation.
    """

    far: tuple[int, int, int, int]
    answer: torch.Tensor | None = None
    error: str = ""
    as_latents: bool = True
    dimensions: int = 0
    of_surroundings: bool = False
    in_training: bool = False


class _Paused(Exception):
    """Raised where the search from one start has taken its share of the time."""


class _Exhausted(Exception):
    """Raised when the limit of tried inputs is reached, or where no input makes a difference."""


@dataclass
class Trial:
    """Chooses for every argument.

    Attributes:
        choices: for each argument what it may be, the likeliest first; None leaves it out.
        make: the inputs of a sample, of what was chosen.
        alike: arguments that have one role, where there are several.
        most: how many inputs are tried before the model is taken to accept none.
        seconds: of the processor, after which it is taken to accept none, too.
        offered: how many choices each argument had before the search added some.
    """

    model: Any
    choices: Choices
    make: Maker
    alike: Sequence[Sequence[str]] = ()
    most: float = math.inf
    seconds: float = LONGEST
    offered: Mapping[str, int] = field(init=False)
    _known: dict[tuple[int, ...], Reach] = field(default_factory=dict)
    _tensors: dict[tuple[str, int, int], torch.Tensor | None] = field(default_factory=dict)
    _alike: Counter[str] = field(default_factory=Counter)  # errors of the surroundings
    _cached: bool = False  # the model has answered once
    _any_shape: bool = False
    _modes: bool = False  # the model must answer in training and in evaluation
    _elapsed: Elapsed = field(default_factory=Elapsed)
    _pause: float = math.inf  # seconds after which the search from one start pauses

    def __post_init__(self) -> None:
        """Count the choices."""
        self.offered = {name: len(options) for name, options in self.choices.items()}
        self._modes = isinstance(self.model, torch.nn.Module) and _asks_for_training(self.model)

    def of_other_places(self, chosen: Chosen) -> Iterator[Chosen]:
        """Yield a choice, then the same with latents that have other numbers of places: as many rows as columns, or
        numbers that divide by 8.
        """
        yield chosen
        latents, layouts = next(iter(self.choices.items()))
        now = layouts[chosen[latents]] if chosen[latents] < len(layouts) else None
        flags = ({"coarse": True}, {"square": True}, {"fixed": True})
        for other in (_laid(now, **one) for one in flags if now is not None):
            if other not in layouts:
                layouts.append(other)
            yield {**chosen, latents: layouts.index(other)}

    def reach(self, chosen: Chosen) -> Reach:
        """Return the progress of the model's forward with a choice."""
        key = tuple(chosen.values())
        if key not in self._known:
            one = self._called(chosen)
            if one.answer is not None and not self._cached:
                self._cached = True
                one = self._called(chosen)  # what a function caches at the first call is more operations
            self._known[key] = one
            self._alike.update([one.error] if one.of_surroundings else [])
        reach = self._known[key]
        if reach.answer is None or self._any_shape or reach.as_latents:
            return reach
        error = "its output is laid out unlike the latents"
        return Reach((_END - 1, *reach.far[1:]), error=error, dimensions=reach.dimensions)

    def _called(self, chosen: Chosen) -> Reach:
        return how_far(self.model, lambda: self.make(chosen), next(iter(self.choices)), modes=self._modes)

    def run(self) -> tuple[Chosen, Reach]:
        """Return the first choice that the model accepts, found one argument at a time, or the furthest one.

        The search starts from all arguments, then from the required ones. An output with another layout than the
        latents counts only where no other input works. After `most` inputs, or where a model is so slow that the
        process would be ended before it has been called with all, the search returns the furthest.
        """
        self._elapsed = Elapsed()
        try:
            return self._longer(*self._searched())
        except _Exhausted:
            self._any_shape = self.most >= _ENOUGH
            key = max(self._known, key=lambda one: self._known[one].far)
            furthest = dict(zip(self.choices, key, strict=True))
            return furthest, self.reach(furthest)

    @property
    def tried(self) -> int:
        """Return the number of calls of the model."""
        return len(self._known)

    def _searched(self) -> tuple[Chosen, Reach]:
        found = self._run()
        if found[1].answer is None and any(one.in_training for one in self._known.values()):
            self._modes = False  # a model that evaluates otherwise, or not at all
            self._known.clear()
            found = self._run()
        if found[1].answer is None and found[1].far[0] == _END - 1:
            self._any_shape = True
            found = self._run()
        return found

    def _longer(self, chosen: Chosen, reach: Reach) -> tuple[Chosen, Reach]:
        """Return a choice with latents as long as the answer, or of a few numbers, where one number fits any length."""
        latents, layouts = next(iter(self.choices.items()))
        if reach.answer is None or math.prod(self._shape(chosen, latents)) != 1:
            return chosen, reach
        for size in (reach.answer.shape[-1], _FEW):
            layouts.append(Resized(layouts[chosen[latents]], latents, len(self._shape(chosen, latents)) - 1, size))
            tried = {**chosen, latents: len(layouts) - 1}
            if size > 1 and (found := self.reach(tried)).answer is not None:
                return tried, found
        return chosen, reach

    def _run(self) -> tuple[Chosen, Reach]:
        found: tuple[Chosen, Reach] | None = None
        waiting = [*self._starts()]
        self._pause = _SHARE * self.seconds
        while waiting and (found is None or found[1].answer is None):
            start = waiting.pop(0)
            try:
                tried = self._from(start)
                found = tried if found is None else max(found, tried, key=_succeeded)
            except _Paused:
                waiting.append(start)
            self._pause = math.inf
        assert found is not None
        return found

    def _starts(self) -> Iterator[Chosen]:
        """Yield all arguments, the required ones, then latents of each kind with all that may be laid out like them."""
        yield dict.fromkeys(self.choices, 0)
        least = {name: options.index(None) if None in options else 0 for name, options in self.choices.items()}
        yield least
        alike = {name: at for name in self.choices for at in self._like_latents(name) if least[name] == 0}
        latents, layouts = next(iter(self.choices.items()))
        kinds = {layout.axes: at for at, layout in reversed([*enumerate(layouts)])}
        yield from ({**least, **alike, latents: at} for at in sorted(kinds.values()) if alike)

    def _from(self, chosen: Chosen) -> tuple[Chosen, Reach]:
        best = self._within_bounds(chosen)
        for _ in range(_ROUNDS):
            if best.answer is not None:
                break
            before, (chosen, best) = chosen, self._better(chosen, best)
            if chosen == before:
                chosen, best = self._with_other_sizes(chosen, best)
            if chosen == before:
                break
        return chosen, best

    def _with_other_sizes(self, chosen: Chosen, best: Reach) -> tuple[Chosen, Reach]:
        """With one size of one argument as the error asks for it; no role offers such a size."""
        found = chosen, best
        latents = next(iter(self.choices))
        kinds = {one.axes: at for at, one in reversed([*enumerate(self.choices[latents])])}
        places = [*((latents, at) for at in kinds.values()), *chosen.items()]
        for name, at in places:
            for tried in self._resized({**chosen, name: at}, name):
                reach = self._within_bounds(tried)
                if reach.answer is not None:
                    return tried, reach
                if _further(reach, found[1]):
                    found = tried, reach
        return found

    def _resized(self, chosen: Chosen, name: str) -> Iterator[Chosen]:
        """Of one argument, new choices with one size as the error asks for it."""
        try:
            made = self.make(chosen)
        except Exception:  # as in `how_far`: whatever is wrong, there is nothing to change
            return
        parts = (one for key, one in made.items() if key.startswith(name) and key[len(name) :][:1] in _INSIDE)
        tensor = next(parts, None)
        option = self.choices[name][chosen[name]]
        if tensor is None or option is None:
            return
        for other in resized(name, option, tensor.shape, self._within_bounds(chosen).error):
            self.choices[name].append(other)
            yield {**chosen, name: len(self.choices[name]) - 1}

    def _like_latents(self, name: str) -> Iterator[int]:
        return (at for at, one in enumerate(self.choices[name]) if isinstance(one, LikeLatents))

    def _within_bounds(self, chosen: Chosen) -> Reach:
        """Return the result of `reach`.

        Raises:
            _Paused: after a share of them, where another start waits.
            _Exhausted: after `most` inputs, after `seconds`, or where the furthest fail alike in the surroundings.
        """
        late = self.tried and self._elapsed.seconds > self.seconds
        if self.tried >= self.most or late or self._hindered():
            raise _Exhausted
        if self.tried and self._elapsed.seconds > self._pause:
            raise _Paused
        return self.reach(chosen)

    def _hindered(self) -> bool:
        often = [error for error, count in self._alike.items() if count >= _SAME]
        return bool(often) and max(self._known.values(), key=lambda one: one.far).error in often

    def _better(self, chosen: Chosen, best: Reach) -> tuple[Chosen, Reach]:
        """With one change: the first with which the model answers, or else the one that comes furthest.

        What the failing operation computes with comes first, then what its statement depends on; and of that what is
        as wide as the weights there, or has as many dimensions as the error asks for, then the likeliest choices, and
        last new ones of that width.
        """
        unset = _UNSET.search(best.error)
        read = read_at(self.model, best.far[:2])
        inner = read_at(self.model, best.far[:2] if unset else best.far[1:2], unset[1] if unset else "")
        computed = set() if unset else self._computed_with(chosen)
        if unset:
            ranked = self._with_dimensions(chosen, guards(self.model, best.far[:2], unset[1]))
        else:
            ranked = self._with_other_dimensions(chosen, best.error, computed or inner or read)
        more = self._with_more_rows(chosen) if _LOST_AXIS.search(best.error) else iter(())
        changes = [[self._changes(chosen, most, names) for most in (_LIKELY, None)] if names is None or names else []
                   for names in (computed, inner, read, None)]  # fmt: skip
        like_output = self._laid_out_like(chosen, best.dimensions)
        whole = self._of_whole_numbers(chosen, computed or inner) if _NUMBERS.search(best.error) else iter(())
        present = self._present(chosen, inner or read) if _ABSENT.search(best.error) else iter(())
        unexpected = self._without_unexpected(chosen, best.error)
        as_wide = self._as_wide(chosen, best.error, computed)
        phases = [unexpected, present, whole, as_wide, ranked, more, *changes[0], like_output,
                  self._widened(chosen, best.error, computed), *chain(*changes[1:])]  # fmt: skip
        if best.far[0] == _END - 1:  # the model takes them
            phases = [like_output, self._changes(chosen, _LIKELY, None)]
        for phase in phases:
            found = chosen, best
            for tried in phase:
                reach = self._within_bounds(tried)
                if reach.answer is not None:
                    return tried, reach
                if _further(reach, found[1]):
                    found = tried, reach
            if found[0] != chosen:
                break
        return found

    def _computed_with(self, chosen: Chosen) -> set[str]:
        """Return the arguments from which the operands of the failing operation were computed."""
        try:
            sample = self.make(chosen)
        except Exception:  # as in `how_far`
            return set()
        noted = Provenance(sample)
        with suppress(Exception), torch.no_grad(), noted:
            ask_again(self.model, sample)
        return {re.split(r"\W", name)[0] for name in noted.names}

    def _as_wide(self, chosen: Chosen, error: str, names: set[str]) -> Iterator[Chosen]:
        """Of an argument that the failing layer takes, the choices that differ in one width alone."""
        said = next((found for pattern in WIDTHS if (found := pattern.search(error))), None)
        if said is None:
            return
        for name in _within(chosen, names):
            shape, came, wants = self._shape(chosen, name), int(said["came"]), int(said["wants"])
            wanted = {(*shape[:at], wants, *shape[at + 1 :]) for at, size in enumerate(shape) if size == came}
            every = ({**chosen, name: index} for index in range(len(self.choices[name])) if wanted)
            yield from (tried for tried in every if self._shape(tried, name) in wanted)

    def _widened(self, chosen: Chosen, error: str, names: set[str]) -> Iterator[Chosen]:
        """Of the one argument that the failing layer takes, new choices as wide as its weights."""
        if len(names) == 1 and any(pattern.search(error) for pattern in WIDTHS):
            for name in _within(chosen, names):
                yield from (tried for tried in self._resized(chosen, name) if self._has_other_channels(tried, name))

    def _has_other_channels(self, chosen: Chosen, name: str) -> bool:
        """Return whether a new choice changes channels, and not the places of latents."""
        option = self.choices[name][chosen[name]]
        axes = getattr(option, "axes", "")
        return not axes or axes[option.axis] == "c"

    def _with_other_dimensions(self, chosen: Chosen, error: str, names: set[str]) -> Iterator[Chosen]:
        """Of one argument that a failing statement reads, the choices with as many dimensions more as it expects."""
        said = _DIMENSIONS.search(error)
        if said is None:
            return
        numbers = [int(one) for one in said.groups() if one is not None]
        expected, received = reversed(numbers) if said["expected"] else numbers
        now = {name: self._dimensions(chosen, name) for name in _within(chosen, names)}
        yield from self._with_dimensions(chosen, {name: one + expected - received for name, one in now.items() if one})

    def _of_whole_numbers(self, chosen: Chosen, names: set[str]) -> Iterator[Chosen]:
        """Of one argument, the choices that are whole numbers."""
        for name in _within(chosen, names):
            for index in range(len(self.choices[name])):
                made = self._tensor(tried := {**chosen, name: index}, name)
                if made is not None and not made.is_floating_point():
                    yield tried

    def _present(self, chosen: Chosen, names: set[str]) -> Iterator[Chosen]:
        """Of one absent argument that the failing statement reads, the choices for it."""
        for name in _within(chosen, names):
            options = self.choices[name]
            if options[chosen[name]] is None:
                yield from ({**chosen, name: index} for index, one in enumerate(options) if one is not None)

    def _without_unexpected(self, chosen: Chosen, error: str) -> Iterator[Chosen]:
        """Yield the choice without the argument that a part of the model does not take."""
        unexpected = _UNEXPECTED.search(error)
        for name in _within(chosen, [unexpected[1]] if unexpected else []):
            if None in (options := self.choices[name]):
                yield {**chosen, name: options.index(None)}

    def _with_more_rows(self, chosen: Chosen) -> Iterator[Chosen]:
        """Yield the latents as they are, with several samples."""
        latents, layouts = next(iter(self.choices.items()))
        now = layouts[chosen[latents]]
        if isinstance(now, Layout) and (other := replace(now, rows=True)) in layouts:
            yield {**chosen, latents: layouts.index(other)}

    def _laid_out_like(self, chosen: Chosen, dimensions: int) -> Iterator[Chosen]:
        """Yield latents with as many dimensions as the output and as many channels as before, alone and with one other
        change: where axes of one place are squeezed away, whatever else has several places leaves its axis behind.
        """
        latents, layouts = next(iter(self.choices.items()))
        now = layouts[chosen[latents]]
        if not dimensions or len(now.axes) == dimensions:
            return
        kinds = {one.axes: at for at, one in reversed([*enumerate(layouts)])
                 if len(one.axes) == dimensions and one.channels == now.channels and not one.inside}  # fmt: skip
        for at in sorted(kinds.values()):
            yield {**chosen, latents: at}
        for at in sorted(kinds.values()):
            yield from self._changes({**chosen, latents: at}, None, {*chosen} - {latents})

    def _with_dimensions(self, chosen: Chosen, wanted: Mapping[str, int]) -> Iterator[Chosen]:
        """Yield of one argument the choices with as many dimensions as wanted."""
        for name in (name for name in wanted if name in chosen):
            for index in range(len(self.choices[name])):
                tried = {**chosen, name: index}
                if self._dimensions(tried, name) == wanted[name]:
                    yield tried

    def _dimensions(self, chosen: Chosen, name: str) -> int:
        """Return the number of dimensions of an argument; 0 if it is not a single tensor."""
        return len(self._shape(chosen, name))

    def _shape(self, chosen: Chosen, name: str) -> tuple[int, ...]:
        """Return the shape of an argument; empty if it is not a single tensor."""
        made = self._tensor(chosen, name)
        return tuple(made.shape) if made is not None else ()

    def _tensor(self, chosen: Chosen, name: str) -> torch.Tensor | None:
        """Return an argument, which depends on the latents alone; None if it is not a single tensor."""
        key = name, chosen[name], chosen[next(iter(self.choices))]
        if key not in self._tensors:
            try:
                self._tensors[key] = self.make(chosen).get(name)
            except Exception:  # as in `how_far`
                return None
        return self._tensors[key]

    def _changes(self, chosen: Chosen, most: int | None, names: set[str] | None) -> Iterator[Chosen]:
        """Of one argument, or of all that have the same role: what fits one fits the others, too."""
        for alike in self.alike if names is None else ():
            for index in range(1, min(len(self.choices[name]) for name in alike)):
                if most is None or index < most:
                    yield {**chosen, **dict.fromkeys(alike, index)}
        changed = {name: options for name, options in self.choices.items()
                   if names is None or re.split(r"\W", name)[0] in names}  # fmt: skip
        for index in range(most or max(map(len, changed.values()), default=0)):
            yield from ({**chosen, name: index} for name, options in changed.items() if index < len(options))
        absent = {name: options.index(None) for name, options in changed.items() if None in options}
        yield from ({**chosen, name: index} for name, index in absent.items())
        if most is None and names is None:
            yield from self._beside_latents(chosen)

    def _beside_latents(self, chosen: Chosen) -> Iterator[Chosen]:
        """Yield other latents, with another argument that has their shape: what is put next to them must fit at once,
        and nothing that may be left out stand in the way.
        """
        latents = next(iter(self.choices))
        chosen = {**chosen, **{name: options.index(None) for name, options in self.choices.items() if None in options}}
        for name in self.choices:
            if (alike := next(self._like_latents(name), None)) is not None:
                for index in range(len(self.choices[latents])):
                    yield {**chosen, latents: index, name: alike}

    def settle(self, chosen: Chosen) -> Chosen:
        """Remove inputs without an effect, and add optional ones that have one, as far as there is time."""
        optional = [name for name, options in self.choices.items() if None in options]
        for name in [*optional, *optional]:  # one may stand in the way of another
            chosen = self._settled(chosen, name)
        return chosen

    def _settled(self, chosen: Chosen, name: str) -> Chosen:
        """Return the first choice for an argument that makes a difference; without it if there is none."""
        options = self.choices[name]
        absent = {**chosen, name: options.index(None)}
        without, idle = self.reach(absent), 0
        for index in dict.fromkeys((chosen[name], *range(len(options)))):
            if index != chosen[name] and self._elapsed.seconds > self.seconds:
                break
            reach = self.reach({**chosen, name: index})
            if options[index] is None or reach.answer is None:
                continue
            if without.answer is not None and reach.far < without.far:  # it takes the place of what the model computes
                continue
            if _differ(reach, without):
                return {**chosen, name: index}
            idle += 1
            if idle == _IDLE:  # the model takes it, and does nothing with it
                break
        return absent if without.answer is not None else chosen


def _laid(layout: Any, **flags: Any) -> Any:
    """Return latents of other places: a layout, or one of another size, with these flags."""
    if isinstance(layout, Layout):
        return replace(layout, **{"square": False, "fixed": False, "coarse": False, **flags})
    return replace(layout, option=_laid(layout.option, **flags))


def _within(chosen: Chosen, names: Collection[str]) -> list[str]:
    """Return the arguments, and the entries of arguments, that belong to arguments of these names."""
    return [name for name in chosen if re.split(r"\W", name)[0] in names]


def _further(one: Reach, other: Reach) -> bool:
    """Return whether a forward came further than another: more operations before the same error at one line do not."""
    return one.far > other.far and (one.far[:2] != other.far[:2] or one.error != other.error)


def _succeeded(found: tuple[Chosen, Reach]) -> tuple[bool, tuple[int, int, int, int]]:
    return found[1].answer is not None, found[1].far


def _differ(one: Reach, other: Reach) -> bool:
    if one.answer is None or other.answer is None:
        return True
    return not torch.equal(one.answer, other.answer)


def how_far(model: Any, make: Callable[[], Tensors], latents: str = "", modes: bool = False) -> Reach:
    """Calls a model with what `make` makes.

    Args:
        latents: the argument for them, where no input has the output's shape.
        modes: a model in training must answer in evaluation, too: where it drops conditions, wrong ones are broadcast.
    """
    counter, answered = _Counter(), False
    # Whatever is wrong with an input shows as some error of the code that meets it first.
    try:
        sample = make()
        with torch.no_grad(), counter:
            answer = ask_again(model, sample)
            answered = True
            if modes and model.training:
                with _evaluating(model):
                    ask_again(model, sample)
    except Exception as error:
        said = " ".join(filter(None, (str(error) or condition_of(error), asserted(error))))
        far = (*lines_of(model, error), counter.count, _nearness(said))
        raised = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
        surrounding = bool(_SURROUNDINGS.search(raised))
        return Reach(far, error=f"{type(error).__name__}: {said}", of_surroundings=surrounding, in_training=answered)
    done = (_END, 0, counter.count, 0)
    if answer.numel() == 0 or not bool(torch.isfinite(answer).all()):
        return Reach(done, error="its output contains NaN or infinity")
    noisy = sample[noisy_name({**sample, TARGET: answer})]
    if noisy.shape != answer.shape:
        noisy = next((one for name, one in sample.items() if re.split(r"\W", name)[0] == latents), noisy)
    if len(answer) not in (len(noisy), len(noisy) * noisy.shape[1] if answer.dim() == noisy.dim() - 1 else 0):
        return Reach(done, error="it takes one sample for several", dimensions=answer.dim())
    joined = answer.dim() == 2 < noisy.dim()  # several outputs in one row
    return Reach(done, answer, as_latents=joined or answer.dim() == noisy.dim(), dimensions=answer.dim())


def _asks_for_training(model: torch.nn.Module) -> bool:
    kinds = {(type(one).__module__, type(one).__qualname__): type(one) for one in model.modules()}
    return any(_reads_mode(kind) for (module, _), kind in kinds.items() if module.partition(".")[0] != torch.__name__)


def _reads_mode(kind: type) -> bool:
    with suppress(OSError, TypeError):  # it was made by code that has no file
        return "self.training" in inspect.getsource(kind)
    return False


@contextmanager
def _evaluating(model: torch.nn.Module) -> Iterator[None]:
    before = [(one, one.training) for one in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for one, training in before:
            one.training = training


def _nearness(error: str) -> int:
    """Return how near the sizes in torch's error are: those of a layer and of its input, of joined tensors, of rows
    and columns, or before and after one is expanded.
    """
    if said := _JOINED.search(error):
        return int(said[1]) - _MOST_JOINED
    patterns = (*WIDTHS, EXPANDED, ADDED) if LENGTHS.search(error) else (*WIDTHS, EXPANDED)
    said = next((found for pattern in patterns if (found := pattern.search(error))), None)
    return -abs(int(said["wants"]) - int(said["came"])) - _MOST_JOINED if said else -_END


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts operations.

    Raises:
        ValueError: inputs of unlike shapes make a tensor that no toy has, such as one with an axis for each of theirs.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        sizes = [one.shape for one in args if isinstance(one, torch.Tensor)]
        if len(sizes) > 1 and math.prod(map(math.prod, sizes)) > _LARGEST and _broadcast(sizes) > _LARGEST:
            raise ValueError(f"{' and '.join(str(list(one)) for one in sizes)} together are too large")
        done = func(*args, **(kwargs or {}))
        self.count += 1
        return done


def _broadcast(sizes: Sequence[torch.Size]) -> int:
    """Return how many numbers shapes have together; 0 where they do not fit."""
    try:
        return math.prod(torch.broadcast_shapes(*sizes))  # type: ignore[no-untyped-call]
    except RuntimeError:
        return 0
