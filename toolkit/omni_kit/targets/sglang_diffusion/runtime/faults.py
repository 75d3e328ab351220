"""Mistakes that integrations of SGLang really have, made on purpose in a pipeline that is loaded."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import torch

from omni_kit.targets.replacing import replaced
from omni_kit.targets.sides import StageFault

_UNITS = 1000  # steps of training, by which units differ
_STEP = "timestep"  # as DenoisingStage calls it
_ROTATION = ("rotary", "rope")
_GUIDED = 4.0
_OF_STAGE = ("condition-dropped", "prompt-and-negative-swapped", "guidance-twice")
_SCALE = "get_classifier_free_guidance_scale"
_DECODE = "get_decode_scale_and_shift"
_EMBEDS = ("get_pos_prompt_embeds", "get_neg_prompt_embeds")
_CONDITIONS = ("prepare_pos_cond_kwargs", "prepare_neg_cond_kwargs")


@dataclass(frozen=True)
class Served:
    """Objects that faults are injected into.

    Attributes:
        config: SGLang's PipelineConfig, whose callbacks the stages ask.
        denoiser: the model.
        scheduler: the class of the scheduler that steps.
        step: what upstream's forward calls the step.
        conditions: what the callbacks call a condition -> what upstream's forward calls it.
        stage: the stage that denoises, where it is the pipeline's own and asks no callback; None if it is SGLang's.
        decodes: SGLang's own stage decodes, by the config's scale and shift.
    """

    config: Any
    denoiser: Any
    scheduler: type
    step: str
    conditions: Mapping[str, str]
    stage: Any = None
    decodes: bool = True


def faults_of(served: Served) -> Iterator[StageFault]:
    """Yield the faults that this pipeline supports, each with the first stage that shows it."""
    told = (f"positive {served.step}", "step ")
    if hasattr(served.scheduler, "set_timesteps"):
        yield StageFault("sigma-off-by-one", "every sigma is shifted by one step", ("sigmas", "timesteps"))
    yield StageFault("timestep-dtype", "the denoiser receives the timestep in bfloat16", told)
    yield StageFault("timestep-unit", f"the denoiser receives a {_UNITS}th of the step", told)
    for key, name in served.conditions.items():
        yield StageFault(f"condition-dropped:{key}", f"{name} is not passed", (f"positive {name}",))
    yield StageFault("prompt-and-negative-swapped", "each has the other's embeddings and conditions", ("positive ",))
    yield StageFault("guidance-twice", "the guidance scale is applied twice", ("step 0 guided",))
    if served.decodes:
        yield from _OF_DECODING
    if _rotations(served.denoiser):
        yield StageFault(
            "rope-layout", "RoPE uses half-split rotation instead of interleaved, or the reverse", ("step 0 guided",)
        )


_OF_DECODING = (
    StageFault("vae-scale-inverse", "latents are divided by the scale instead of multiplied", ("picture",)),
    StageFault("scale-and-shift-swapped", "the VAE's shift is used as its scale", ("picture",)),
)


@contextmanager
def made(served: Served, kind: str) -> Iterator[None]:
    """The pipeline makes that mistake; afterwards it does not."""
    with ExitStack() as stack:
        for owner, name, wrong in list(_patches(served, *kind.partition(":")[::2])):
            stack.enter_context(replaced(owner, name, wrong))
        yield


def _patches(served: Served, name: str, detail: str) -> Iterator[tuple[Any, str, Any]]:
    """Yield the attributes to replace for a fault: the object, the name and the new value."""
    config = served.config
    if name == "sigma-off-by-one":
        yield served.scheduler, "set_timesteps", _rolled(served.scheduler.set_timesteps)  # type: ignore[attr-defined]
    elif name.startswith("timestep"):
        wrong = _rounded if name == "timestep-dtype" else _in_another_unit
        step = served.step if served.stage is not None else _STEP
        yield served.denoiser, "forward", _told_otherwise(served.denoiser.forward, step, wrong)
    elif served.stage is not None and name in _OF_STAGE:
        yield from _in_stage(served, name, detail)
    elif name == "condition-dropped":
        for callback in _CONDITIONS:
            yield config, callback, _without(getattr(config, callback), detail)
    elif name == "prompt-and-negative-swapped":
        for positive, negative in (_EMBEDS, _CONDITIONS):
            for one, other in ((positive, negative), (negative, positive)):
                yield config, one, _other_where_guided(getattr(config, one), getattr(config, other))
    elif name == "guidance-twice":
        yield config, _SCALE, _squared(getattr(config, _SCALE))
    elif name in ("vae-scale-inverse", "scale-and-shift-swapped"):
        yield config, _DECODE, _decoded_otherwise(getattr(config, _DECODE), swap=name.startswith("scale"))
    elif name == "rope-layout":
        for names, function in _rotations(served.denoiser):
            yield names, function, _relaid(names[function])


def _rolled(right: Callable[..., Any]) -> Callable[..., Any]:
    def set_timesteps(self: Any, *args: Any, **kwargs: Any) -> Any:
        answer = right(self, *args, **kwargs)
        if isinstance(getattr(self, "sigmas", None), torch.Tensor):
            self.sigmas = self.sigmas.roll(1)
        return answer

    set_timesteps.__signature__ = inspect.signature(right)  # type: ignore[attr-defined]
    return set_timesteps


def _rounded(step: torch.Tensor) -> torch.Tensor:
    return step.to(torch.bfloat16).to(step.dtype)


def _in_another_unit(step: torch.Tensor) -> torch.Tensor:
    return step / _UNITS


def _in_stage(served: Served, name: str, detail: str) -> Iterator[tuple[Any, str, Any]]:
    """Faults of guidance and conditions, where a stage of the pipeline's own passes them over."""
    if name == "condition-dropped":
        yield served.denoiser, "forward", _lacking(served.denoiser.forward, served.conditions[detail])
        return
    predict = served.stage._predict_noise_with_cfg

    def predicted(*args: Any, cfg_policy: Any, **kwargs: Any) -> Any:
        if name == "prompt-and-negative-swapped":
            cfg_policy.branches.reverse()
        answers = predict(*args, cfg_policy=cfg_policy, **kwargs)
        if name != "guidance-twice" or len(answers) != 2:
            return answers
        places = [place for place, branch in enumerate(cfg_policy.branches) if branch.is_conditional]
        return [_further(one, answers[1 - place]) if place in places else one for place, one in enumerate(answers)]

    yield served.stage, "_predict_noise_with_cfg", predicted


def _further(answer: Any, other: Any) -> Any:
    """Return an answer as far from the other as guidance takes it, before guidance does."""
    if isinstance(answer, tuple):
        return tuple(map(_further, answer, other))
    return other + _GUIDED * (answer - other)


def _lacking(right: Callable[..., Any], name: str) -> Callable[..., Any]:
    signature = inspect.signature(right)

    def forward(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        if name in given.arguments:
            given.arguments[name] = None
        return right(*given.args, **given.kwargs)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    return forward


def _told_otherwise(
    right: Callable[..., Any], step: str, wrong: Callable[[torch.Tensor], torch.Tensor]
) -> Callable[..., Any]:
    signature = inspect.signature(right)

    def forward(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        if step in given.arguments:
            given.arguments[step] = wrong(torch.as_tensor(given.arguments[step]))
        return right(*given.args, **given.kwargs)

    forward.__signature__ = signature  # type: ignore[attr-defined]
    return forward


def _without(right: Callable[..., Any], key: str) -> Callable[..., Any]:
    def callback(*args: Any, **kwargs: Any) -> Any:
        return {name: value for name, value in (right(*args, **kwargs) or {}).items() if name != key}

    return callback


def _other_where_guided(right: Callable[..., Any], other: Callable[..., Any]) -> Callable[..., Any]:
    def callback(batch: Any, *args: Any, **kwargs: Any) -> Any:
        return (other if batch.do_classifier_free_guidance else right)(batch, *args, **kwargs)

    return callback


def _squared(right: Callable[..., Any]) -> Callable[..., Any]:
    def scale(*args: Any, **kwargs: Any) -> Any:
        return right(*args, **kwargs) ** 2

    return scale


def _decoded_otherwise(right: Callable[..., Any], *, swap: bool) -> Callable[..., Any]:
    def scale_and_shift(*args: Any, **kwargs: Any) -> Any:
        scale, shift = right(*args, **kwargs)
        if not swap:
            return 1 / scale, shift
        return (scale, shift) if shift is None else (shift, scale)

    return scale_and_shift


def _rotations(denoiser: Any) -> list[tuple[dict[str, Any], str]]:
    """Return functions that rotate queries and keys: the names by which the code of the model finds them, and where."""
    parts = list(denoiser.modules())
    codes = [type(part).forward for part in parts]
    codes += [type(part.processor).__call__ for part in parts if hasattr(part, "processor")]
    places = {id(code.__globals__): code.__globals__ for code in codes if isinstance(code, FunctionType)}
    return [
        (names, name)
        for names in places.values()
        for name, value in sorted(names.items())
        if isinstance(value, FunctionType) and name.startswith("apply") and any(word in name for word in _ROTATION)
    ]


def _relaid(right: Callable[..., Any]) -> Callable[..., Any]:
    """Rotates what is laid out as neighbours as if it were laid out as halves."""

    def rotate(x: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, torch.Tensor) or x.shape[-1] % 2:
            return right(x, *args, **kwargs)
        half = x.shape[-1] // 2
        answer = right(x.reshape(*x.shape[:-1], half, 2).transpose(-1, -2).flatten(-2), *args, **kwargs)
        if not isinstance(answer, torch.Tensor) or answer.shape != x.shape:
            return right(x, *args, **kwargs)
        return answer.reshape(*x.shape[:-1], 2, half).transpose(-1, -2).flatten(-2)

    return rotate
