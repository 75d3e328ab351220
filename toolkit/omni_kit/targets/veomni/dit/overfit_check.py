"""Check of a condition model: trains a transformer as VeOmni's trainer does, then draws with diffusers' own pipeline.

A transformer that has learned its targets by heart must draw, in that pipeline, the picture that it was taught.
"""

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from diffusers.schedulers.scheduling_utils import SchedulerOutput

from omni_kit.targets.references.pipelines import read_pipeline
from omni_kit.targets.replacing import replaced
from omni_kit.targets.veomni.dit.small_pipeline import (
    STEPS,
    Size,
    asked_shape,
    call_arguments,
    decoded_latents,
    drawn_shape,
    draws_own_size,
    encoding,
    media,
    sizes_of,
)
from omni_kit.toys.batches.pipeline import PROMPTS
from omni_kit.upstream.diffusers.signatures import STEP_NAMES

GET, PROCESS, MODEL = "get_condition", "process_condition", "the trainer's call"
Fault = tuple[str, str]
IN_FULL = {"torch_dtype_of_encoders": "float32"}
"""Arguments of condition configs that `new-model` makes, in full precision so that rounding excuses nothing."""
_DRAWS, _MORE_DRAWS = 12, 3000  # of noise, by which times and noise levels are told: at last nearly all there are
_CLOSE = 1e-3  # of the largest element: what a wrong scale or shift does is a hundred times as much
_GUESSED = 5e-2  # between the times that were drawn, what was learned is guessed
_LARGE = (256, 320)  # of which small autoencoders make as many latents as real ones make of four times that
_LEVEL = 5e-3  # of a noise level from 0 to 1: what is between two of a thousand steps
_FEW_STEPS = 8  # of a schedule, each of which many draws contain but for one chance in 1e28
_MANY, _APART = 512, 0.12  # draws, and how far apart two distributions are that no chance explains: one in a million
_CHOICES = ("shift", "sampling", "weighting", "distribution")  # in names of settings that choose a distribution
_NO_NOISE = 1e-6  # a level at which a step goes nowhere, whatever is answered
_LENGTH = "num_train_timesteps"
_LOW = torch.bfloat16
_TARGET, _CLEAN = "training_target", "latents"


@dataclass
class TrainingBatch:
    """Batch that a trainer received.

    Attributes:
        pipeline: diffusers' own, of the same parts.
        own_size: it draws other sizes than it is asked for.
        encoded: what the autoencoder made of the media of each sample.
        given: what `get_condition` answered.
        ready: what `process_condition` answered, draw by draw.
    """

    pipeline: Any
    own_size: bool
    encoded: Sequence[torch.Tensor]
    given: Mapping[str, Any]
    ready: Sequence[Mapping[str, Any]]

    @cached_property
    def sizes(self) -> Sequence[Size]:
        """Of its samples."""
        return sizes_of(self.pipeline)

    def media(self, sizes: Sequence[Size]) -> dict[str, Any]:
        """Return a sample of each size, as the pipeline draws it: arguments of `get_condition`."""
        shape = drawn_shape if self.own_size else asked_shape
        return {"outputs": None, **media(self.pipeline, [shape(self.pipeline, size) for size in sizes])}

    @cached_property
    def arguments(self) -> list[str]:
        """Of the transformer's forward."""
        return list(inspect.signature(type(self.denoiser).forward).parameters)[1:]

    @cached_property
    def step(self) -> str:
        """Name of the time argument of forward."""
        return next(name for name in self.arguments if name in STEP_NAMES)

    def noisy(self, ready: Mapping[str, Any]) -> torch.Tensor:
        """Return the noisy latents of the first sample, without the conditions that are concatenated behind them."""
        return _front(_first(ready[self.arguments[0]]), _first(ready[_CLEAN]))

    @cached_property
    def denoiser(self) -> Any:
        """The pipeline's transformer."""
        return getattr(self.pipeline, read_pipeline(type(self.pipeline).__name__).denoiser.name)


def training_batch(condition: Any, pipeline: Any) -> TrainingBatch:
    """Ask a model of conditions for two samples of different sizes, as a trainer does."""
    encoded: list[torch.Tensor] = []
    taught = TrainingBatch(pipeline, draws_own_size(pipeline), encoded, {}, [])
    given = taught.media(taught.sizes)
    with encoding(type(pipeline.vae), encoded):
        taught.given = condition.get_condition(inputs=list(PROMPTS), **given)
    taught.ready = _draws(taught, condition, taught.given, _DRAWS)
    return taught


@torch.no_grad()
def _draws(taught: TrainingBatch, condition: Any, given: Mapping[str, Any], count: int) -> list[Mapping[str, Any]]:
    """Return `count` draws of noise for the same conditions, without those that hardly change the first sample.

    Such a sample's target cannot be distinguished from its latents: schedules that end at noise level 0 draw it now
    and then.
    """
    drawn = [condition.process_condition(**given) for _ in range(count)]
    noised = [one for one in drawn if not _near(taught.noisy(one).flatten(), _first(one[_CLEAN]).flatten())]
    if not noised:
        raise ValueError(f"{count} draws add no noise to the latents")
    return noised


def faults_of(taught: TrainingBatch, condition: Any, wrapper: Any) -> Iterator[Fault]:
    """Yield the faults of its latents, noise and targets, and of the transformer's outputs for both.

    Args:
        wrapper: the transformer that is trained, with the weights of the pipeline's.
    """
    if said := _decoded(taught, _ending_at(taught.ready[0][_CLEAN][0])):
        yield GET, f"the pipeline would decode other latents than the autoencoder made: {said}"
        return
    yield from ((GET, said) for said in _off_conditions(taught, condition))
    if said := _off_schedule(taught, condition):
        yield PROCESS, said
        return
    learned, close = _learned(taught, condition)
    if said := _decoded(taught, _answering(taught, learned), close):
        yield PROCESS, f"a transformer that answers its targets generates another image: {said}"
    yield from ((MODEL, said) for said in answers_off(taught, wrapper))
    if said := _rounded(taught, wrapper):
        yield MODEL, said
    yield from ((PROCESS, said) for said in _repeated(taught, condition))


def _repeated(taught: TrainingBatch, condition: Any) -> Iterator[str]:
    """Return whether each step of a model that is told its number draws noise of its own, and the same again when
    resumed.
    """
    if not hasattr(condition, "begin_step"):
        return
    drawn = []
    for number in (1, 2, 1):
        condition.begin_step(number)
        drawn.append(taught.noisy(condition.process_condition(**taught.given)))
    if torch.equal(drawn[0], drawn[1]):
        yield "steps 1 and 2 draw the same noise, so training never sees other noise"
    if not torch.equal(drawn[0], drawn[2]):
        yield "step 1 draws other noise after a restart, so a resumed training differs"
    if torch.equal(*(_drawn_at(taught, condition, rank) for rank in range(2))):
        yield "the first two data-parallel processes draw the same noise in a step"


def _drawn_at(taught: TrainingBatch, condition: Any, rank: int) -> torch.Tensor:
    """Return the noisy latents of step 1 in a data-parallel process."""
    from veomni.distributed.parallel_state import ParallelState

    with replaced(ParallelState, "dp_rank", property(lambda _: rank)):
        condition.begin_step(1)
        return taught.noisy(condition.process_condition(**taught.given))


def _off_conditions(taught: TrainingBatch, condition: Any) -> Iterator[str]:
    """Compare the conditions of the first sample with what the pipeline passes its transformer for the same prompt.

    Where the lengths differ, as of padded prompts, what both have is compared. Single numbers, such as the guidance
    that a model is trained with, are the trainer's choice. What the pipeline draws itself differs from call to call.
    """
    settings = {name: getattr(condition.config, name, None) for name in ("guidance_scale", "max_sequence_length")}
    expected = _passed(taught.pipeline, taught.sizes[0], STEPS, settings)
    again = {**settings, "generator": torch.Generator().manual_seed(1)}
    drawn = _passed(taught.pipeline, taught.sizes[0], STEPS, again)
    ready = taught.ready[0]
    latents = taught.arguments[0]
    whole, theirs, clean = (_first(one) for one in (ready[latents], [expected[latents]], ready[_CLEAN]))
    if whole.shape != clean.shape and (said := _off_overlap(*(_behind(one, clean) for one in (whole, theirs)))):
        yield f"{latents}: the conditions behind the latents differ from what the pipeline passes: {said}"
    for name in taught.arguments[1:]:
        if name == taught.step or not (wanted := _tensors(expected.get(name))):
            continue
        if any(not _same(*both) for both in zip(wanted, _tensors(drawn.get(name)), strict=False)):
            continue
        found = _tensors(ready[name][0]) if ready.get(name) is not None else []
        if len(found) != len(wanted):
            if any(one.is_floating_point() and one.numel() > 1 for one in wanted):
                yield f"{name}: the pipeline passes {len(wanted)} tensors to its transformer, and {len(found)} are here"
            continue
        for mine, theirs in zip(found, wanted, strict=True):
            if said := _off_overlap(mine.squeeze(), theirs.squeeze()):
                yield f"{name} differs from what the pipeline passes to its transformer: {said}"
                break


def _off_overlap(found: torch.Tensor, expected: torch.Tensor) -> str:
    """Return the difference in the part that both tensors share; empty if it agrees, and for single numbers."""
    if expected.dim() == 0:
        return ""
    if found.dim() != expected.dim():
        return f"{list(found.shape)} instead of {list(expected.shape)}"
    part = tuple(slice(min(one, other)) for one, other in zip(found.shape, expected.shape, strict=True))
    mine, theirs = found[part].float(), expected[part].float()
    return "" if _near(mine, theirs) else f"off by {float((mine - theirs).abs().max()):.1e}"


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and bool(one.equal(other))


def _tensors(value: Any) -> list[torch.Tensor]:
    """Return the tensors of an argument, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for one in value for tensor in _tensors(one)] if isinstance(value, list | tuple) else []


def chosen_distribution(condition: Any) -> str:
    """Return the setting of a model of conditions that chooses how noise levels are distributed; empty without one."""
    values = condition.config.to_diff_dict()
    return next((name for name in values if any(word in name for word in _CHOICES)), "")


def _off_distribution(
    taught: TrainingBatch, condition: Any, given: Mapping[str, Any], times: np.ndarray, levels: np.ndarray
) -> str:
    """Return how the distribution of noise levels in many draws differs from the pipeline's; empty if they agree.

    The measure is that of Kolmogorov and Smirnov.
    """
    with torch.no_grad():
        ready = [condition.process_condition(**given)[taught.step][0] for _ in range(_MANY)]
    drawn = np.sort(np.interp([float(torch.as_tensor(one).flatten()[0]) for one in ready], times, levels))
    own = np.sort(levels)
    everywhere = np.concatenate([drawn, own])
    shares = [np.searchsorted(one, everywhere, side="right") / len(one) for one in (drawn, own)]
    if float(np.abs(shares[0] - shares[1]).max()) <= _APART:
        return ""
    return f"half of the noise levels lie below {np.median(drawn):.3f}, and in the pipeline's loop {np.median(own):.3f}"


def _off_schedule(taught: TrainingBatch, condition: Any) -> str:
    """Return how times and noise levels differ from the pipeline's own loop at several sizes; empty if they agree.

    Looked at where clean latents and noise are mixed by a noise level, as in flow matching.
    """
    for size in (*taught.sizes, *([_LARGE] if len(taught.sizes[0]) == len(_LARGE) else [])):
        given = condition.get_condition(inputs=[PROMPTS[0]], **taught.media([size]))
        drawn = [_weights(taught, one) for one in _draws(taught, condition, given, _DRAWS)]
        if not all(abs(noisy + clean) < _CLOSE * abs(noisy) for _, noisy, clean in drawn):
            return ""
        times, levels = _schedule_of(taught.pipeline, size)
        for time, noisy, _ in drawn:
            level, expected = 1 / abs(noisy), float(np.interp(time, times, levels))
            if abs(level - expected) > _LEVEL:
                return (
                    f"at {_named(size)} noise level {level:.3f} has time {time:.4g}, and in the pipeline's loop "
                    f"{expected:.3f} has it"
                )
        said = "" if chosen_distribution(condition) else _off_distribution(taught, condition, given, times, levels)
        if said:
            return f"at {_named(size)} {said}; name a distribution that is set in the config"
    return "" if chosen_distribution(condition) else _never_drawn(taught, condition)


def _never_drawn(taught: TrainingBatch, condition: Any) -> str:
    """Return how many steps of a short schedule are drawn; empty if all are, or if the config sets no length."""
    if not hasattr(condition.config, _LENGTH):
        return ""
    with replaced(condition.config, _LENGTH, _FEW_STEPS), torch.no_grad():
        given = condition.get_condition(inputs=[PROMPTS[0]], **taught.media(taught.sizes[:1]))
        drawn = [condition.process_condition(**given)[taught.step][0] for _ in range(_MANY)]
    found = {float(torch.as_tensor(one).flatten()[0]) for one in drawn}
    _, levels = _schedule_of(taught.pipeline, taught.sizes[0], _FEW_STEPS)
    noisy = int((levels > _NO_NOISE).sum())
    return f"of a schedule of {noisy} steps, {len(found)} are drawn" if len(found) < noisy else ""


def _named(size: Size) -> str:
    """Return a size for reports: columns and rows, or samples."""
    return "x".join(map(str, reversed(size))) if len(size) > 1 else f"{size[0]} samples"


def _schedule_of(pipeline: Any, size: Size, most: int = 1000) -> tuple[np.ndarray, np.ndarray]:
    """Times as the transformer is told them, ascending, and the noise levels there, of a long run of the pipeline."""
    steps = min(most, int(pipeline.scheduler.config.num_train_timesteps))
    passed = _passed(pipeline, size, steps)
    name = next(one for one in passed if one in STEP_NAMES)
    found = float(torch.as_tensor(passed[name]).flatten()[0])
    scheduler = pipeline.scheduler
    own = scheduler.timesteps.float().cpu().numpy()
    levels = scheduler.sigmas[: len(own)].float().cpu().numpy()
    if scheduler.config.get("invert_sigmas", False):
        levels = 1 - levels
    # The pipeline passes the scheduler's timesteps scaled by one factor, which the first step shows; or inverted, as 1
    # minus the noise level; or less 1, where they are numbered from 0.
    if np.isclose(found, own[0] - 1) and found > 1:
        told = own - 1
    else:
        told = own * (found / own[0]) if not _turned(found, own[0], levels[0]) else 1 - own / steps
    order = np.argsort(told)
    return told[order], levels[order]


@torch.no_grad()
def _passed(pipeline: Any, size: Size, steps: int, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the arguments of the first call of a pipeline's transformer, by name.

    Args:
        settings: other arguments of the pipeline's call; those that are None are left to it.
    """
    found: dict[str, Any] = {}
    cls = type(getattr(pipeline, read_pipeline(type(pipeline).__name__).denoiser.name))
    signature = inspect.signature(cls.forward)

    class Seen(Exception):
        """Ends the pipeline at its transformer."""

    def forward(self: Any, *args: Any, **kwargs: Any) -> None:
        found.update(signature.bind(self, *args, **kwargs).arguments)
        raise Seen

    with (
        encoding(type(pipeline.vae), []),
        replaced(cls, "forward", forward),
        contextlib.suppress(Seen),
        torch.no_grad(),
    ):
        pipeline(**call_arguments(pipeline, size, steps, settings or {}))
    return found


def _turned(told: float, step: float, level: float) -> bool:
    """Return whether the transformer is told how much is clean, where the scheduler's steps say how much is noise."""
    return told < 0.5 < level and step > told


def _learned(
    taught: TrainingBatch, condition: Any
) -> tuple[Callable[[torch.Tensor, torch.Tensor], torch.Tensor], float]:
    """Return a transformer that has learned its targets by heart, as its output for noisy latents of the first sample.

    A target is a sum of noisy and clean latents, each with a weight that goes with the time; also, how close that is.

    Raises:
        ValueError: it is not.
    """
    ready = list(taught.ready)
    weighed = [_weights(taught, one) for one in ready]
    if not (flows := all(abs(noisy + clean) < _CLOSE * abs(noisy) for _, noisy, clean in weighed)):
        weighed += [_weights(taught, one) for one in _draws(taught, condition, taught.given, _MORE_DRAWS)]
    times, noisy, clean = np.array(sorted(weighed)).T
    sign = float(np.sign(noisy.mean()))
    on_schedule = _schedule_of(taught.pipeline, taught.sizes[0]) if flows else (times, noisy)
    first = taught.ready[0][_CLEAN][0]

    def answer(given: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        at = float(time)
        found = float(np.interp(at, *on_schedule))
        one = sign / max(found, _NO_NOISE) if flows else found
        other = -one if flows else float(np.interp(at, times, clean))
        noisy = _front(given, first)
        answered: torch.Tensor = one * noisy + other * first.expand_as(noisy)
        return answered

    return answer, _CLOSE if flows else _GUESSED


def _weights(taught: TrainingBatch, ready: Mapping[str, Any]) -> tuple[float, float, float]:
    """Return the time of a draw, and how much of its target noisy and clean latents are."""
    found = (taught.noisy(ready), _first(ready[_TARGET]), _first(ready[_CLEAN]))
    noisy, target, clean = (one.double().flatten() for one in found)
    given = torch.stack([noisy, clean], dim=1)
    weights = torch.linalg.lstsq(given, target[:, None]).solution
    if not _near((given @ weights)[:, 0], target):
        raise ValueError("a target is not a sum of noisy and clean latents")
    time = torch.as_tensor(ready[taught.step][0]).float().flatten()[0]
    return float(time), float(weights[0]), float(weights[1])


def _answering(
    taught: TrainingBatch, learned: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
) -> Callable[[Any], Any]:
    """The pipeline's transformer answers what was learned."""
    signature = inspect.signature(type(taught.denoiser).forward)
    own = taught.denoiser.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(None, *args, **kwargs).arguments
        noisy, time = given[taught.arguments[0]], torch.as_tensor(given[taught.step]).flatten()[0]
        answers = [learned(one, time).to(one.dtype) for one in (noisy if isinstance(noisy, list) else [noisy])]
        usual = own(*args, **kwargs)
        shapes = [one.shape for one in (usual[0] if isinstance(usual[0], list) else [usual[0]])]
        # behind what is predicted there may be a variance, which is not taught
        answers = [torch.cat([one, torch.zeros_like(one)], dim=1) if shape[1] == 2 * one.shape[1] else one
                   for one, shape in zip(answers, shapes, strict=True)]  # fmt: skip
        answer = answers if isinstance(noisy, list) else answers[0]
        return (answer,) if isinstance(usual, tuple) else replace(usual, **{fields(usual)[0].name: answer})

    return lambda pipeline: replaced(taught.denoiser, "forward", forward)


def _ending_at(clean: torch.Tensor) -> Callable[[Any], Any]:
    """Every step of the pipeline's scheduler ends at these latents."""

    def step(output: Any, time: Any, sample: torch.Tensor, *args: Any, **kwargs: Any) -> SchedulerOutput:
        return SchedulerOutput(clean.reshape(sample.shape).to(sample.dtype))

    return lambda pipeline: replaced(pipeline.scheduler, "step", step)


def _decoded(taught: TrainingBatch, changed: Callable[[Any], Any], close: float = _CLOSE) -> str:
    """Return how the latents that the pipeline decodes differ from the encoded first sample; empty if they agree."""
    found, expected = decoded_latents(taught.pipeline, changed), taught.encoded[0]
    if found.numel() != expected.numel():
        return f"{list(found.shape)} instead of {list(expected.shape)}"
    found = found.reshape(expected.shape)
    return "" if _near(found, expected, close) else _off(found, expected)


@torch.no_grad()
def answers_off(taught: TrainingBatch, wrapper: Any) -> Iterator[str]:
    """Yield the differences of the wrapper's output for a whole batch from diffusers' model on each sample."""
    ready = taught.ready[0]
    answer = wrapper.eval()(**ready)
    if not getattr(answer, "loss", None):
        yield "it returns no loss"
        return
    for number, prediction in enumerate(getattr(answer, "predictions", None) or []):
        sample = {name: values[number] for name, values in ready.items() if name in taught.arguments}
        expected = taught.denoiser.eval()(**sample)[0]
        expected = expected[0] if isinstance(expected, list) else expected
        if prediction.shape == expected.shape and not _near(prediction, expected):
            yield f"sample {number} has another output than diffusers' model: {_off(prediction, expected)}"


@torch.no_grad()
def _rounded(taught: TrainingBatch, wrapper: Any) -> str:
    """Return the wrapper's results in low precision, next to those of diffusers' model; empty if it refuses that.

    Features come in that precision, and vectors, such as a time that it cannot hold, as they were drawn.
    """
    drawn = [one for one in taught.ready if not torch.equal(time := _first(one[taught.step]), time.to(_LOW).to(time))]
    if not drawn:
        return ""
    ready = {name: [_lowered(one) for one in values] for name, values in drawn[0].items()}
    sample = {name: values[0] for name, values in ready.items() if name in taught.arguments}
    own, theirs = (copy.deepcopy(one).to(_LOW).eval() for one in (wrapper, taught.denoiser))
    try:
        expected = theirs(**sample)[0]
    except (RuntimeError, TypeError, ValueError):  # upstream's own: it takes no such vector
        return ""
    expected = expected[0] if isinstance(expected, list) else expected
    prediction = own(**ready).predictions[0]
    if prediction.shape != expected.shape or _near(prediction, expected):
        return ""
    at = float(_first(sample[taught.step]))
    return f"in bfloat16, at time {at:.6g}, it has another output than diffusers' model: {_off(prediction, expected)}"


def _lowered(value: Any) -> Any:
    if isinstance(value, list):
        return [_lowered(one) for one in value]
    features = isinstance(value, torch.Tensor) and value.is_floating_point() and value.dim() > 1
    return value.to(_LOW) if features else value


def _first(values: Any) -> torch.Tensor:
    """Of the first sample, also where latents come in a list."""
    one = values[0]
    return torch.as_tensor(one[0] if isinstance(one, list) else one)


def _front(whole: torch.Tensor, clean: torch.Tensor) -> torch.Tensor:
    """Return the front of a transformer's input, of the size of the clean latents except the batch."""
    return whole[:, *(slice(length) for length in clean.shape[1:])]


def _behind(whole: torch.Tensor, clean: torch.Tensor) -> torch.Tensor:
    """Return the rest of that input."""
    axis = next((place for place in range(1, clean.dim()) if whole.shape[place] != clean.shape[place]), 1)
    return whole.narrow(axis, clean.shape[axis], whole.shape[axis] - clean.shape[axis])


def _near(one: torch.Tensor, other: torch.Tensor, close: float = _CLOSE) -> bool:
    return float((one - other).abs().max()) <= close * float(other.abs().max())


def _off(one: torch.Tensor, other: torch.Tensor) -> str:
    return f"off by {float((one - other).abs().max() / other.abs().max()):.1e}"
