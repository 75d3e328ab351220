"""Calls the callbacks of a PipelineConfig on tiny tensors, as SGLang's stages call them, and looks at their answers.

Only answers are judged. A callback that fails here may want what a stage before it makes: nothing is said of it.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import torch

_SIDE, _STEPS = 64, 4
_SIZED = ("get_decode_scale_and_shift", "prepare_latent_shape", "maybe_pack_latents")
_AXES = (3, 4, 5)  # tokens, pictures, films


def answers_of(config: Any, sampling: Any, sized: bool) -> Iterator[tuple[str, str]]:
    """(method, what is wrong with its answer).

    Args:
        sized: it was told what diffusers' components are configured by; without that, no size is judged.
    """
    batch = _batch(sampling)
    cpu, dtype = torch.device("cpu"), torch.float32
    told: Sequence[tuple[str, Callable[[], Any], Callable[[Any], str]]] = (
        ("get_decode_scale_and_shift", lambda: config.get_decode_scale_and_shift(cpu, dtype, _vae(config)), _scale),
        ("get_classifier_free_guidance_scale", lambda: config.get_classifier_free_guidance_scale(batch, 4.0), _number),
        ("prepare_sigmas", lambda: config.prepare_sigmas(None, _STEPS), _sigmas),
        ("prepare_latent_shape", lambda: config.prepare_latent_shape(batch, 1, 1), _shape),
        ("get_latent_dtype", lambda: config.get_latent_dtype(dtype), _kind),
        ("prepare_pos_cond_kwargs", lambda: config.prepare_pos_cond_kwargs(batch, cpu, None, dtype), _words),
        ("prepare_neg_cond_kwargs", lambda: config.prepare_neg_cond_kwargs(batch, cpu, None, dtype), _words),
        ("get_pos_prompt_embeds", lambda: config.get_pos_prompt_embeds(batch), _embeds),
        ("get_neg_prompt_embeds", lambda: config.get_neg_prompt_embeds(batch), _embeds),
        ("maybe_pack_latents", lambda: _packed(config, batch), _same_numbers),
        ("postprocess_cfg_noise", lambda: _guided(config, batch), _same_shape),
    )
    for method, call, judge in told:
        if not sized and method in _SIZED:
            continue
        with suppress(Exception):
            answer = call()
            if said := judge(answer):
                yield method, said


def _batch(sampling: Any) -> Any:
    """Return a request as it is before its first step."""
    from sglang.multimodal_gen.configs.sample.sampling_params import SamplingParams
    from sglang.multimodal_gen.runtime.pipelines_core.schedule_batch import Req

    batch = Req(sampling_params=sampling if sampling is not None else SamplingParams())
    batch.height = batch.width = _SIDE
    batch.num_frames = getattr(batch, "num_frames", None) or 1
    batch.guidance_scale, batch.prompt = 4.0, "a cat"
    for name in ("prompt_embeds", "negative_prompt_embeds", "pooled_embeds", "neg_pooled_embeds"):
        setattr(batch, name, [torch.ones(1, 8, 8) for _ in range(3)])
    return batch


def _vae(config: Any) -> Any:
    from types import SimpleNamespace

    return SimpleNamespace(config=config.vae_config.arch_config)


def _packed(config: Any, batch: Any) -> tuple[Any, Any]:
    noise = torch.arange(float(torch.Size(config.prepare_latent_shape(batch, 1, 1)).numel()))
    latents = noise.reshape(config.prepare_latent_shape(batch, 1, 1))
    return latents, config.maybe_pack_latents(latents, 1, batch)


def _guided(config: Any, batch: Any) -> tuple[Any, Any]:
    noise = torch.ones(1, 4, 8, 8)
    return noise, config.postprocess_cfg_noise(batch, noise, 2 * noise)


def _scale(answer: Any) -> str:
    if not isinstance(answer, tuple | list) or len(answer) != 2:
        return f"answers {_shown(answer)}, but DecodingStage takes a scale and a shift"
    scale, shift = answer
    if scale is None or not _finite(scale):
        return f"the scale is {_shown(scale)}: latents are divided by it"
    if not bool(torch.as_tensor(scale).ne(0).all()):
        return "the scale is 0, and latents are divided by it"
    if shift is not None and not _finite(shift):
        return f"the shift is {_shown(shift)}"
    shapes = [tuple(one.shape) for one in (scale, shift) if isinstance(one, torch.Tensor)]
    if any(len(shape) > 1 and len(shape) not in _AXES for shape in shapes) or (len(shapes) == 2 and not _fit(*shapes)):
        return f"scale and shift are of shapes {shapes}, which do not broadcast together"
    return ""


def _fit(one: tuple[int, ...], two: tuple[int, ...]) -> bool:
    pairs = zip(reversed(one), reversed(two), strict=False)
    return all(left == right or 1 in (left, right) for left, right in pairs)


def _finite(value: Any) -> bool:
    known = isinstance(value, int | float | torch.Tensor)
    return known and bool(torch.as_tensor(value).isfinite().all())


def _number(answer: Any) -> str:
    return "" if _finite(answer) and torch.as_tensor(answer).numel() == 1 else f"answers {_shown(answer)}, not a number"


def _sigmas(answer: Any) -> str:
    if answer is None:
        return ""
    values = torch.as_tensor(answer).flatten()
    if len(values) not in (_STEPS, _STEPS + 1):
        return f"answers {len(values)} sigmas for {_STEPS} steps"
    return "" if bool((values.diff() < 0).all()) else f"the sigmas {_shown(answer)} do not decrease"


def _shape(answer: Any) -> str:
    plain = isinstance(answer, tuple | list | torch.Size) and all(type(one) is int and one > 0 for one in answer)
    if not plain or len(answer) not in _AXES:
        return f"answers {_shown(answer)}, not a latent shape"
    return "" if answer[0] == 1 else f"answers {answer[0]} rows for a batch of 1"


def _kind(answer: Any) -> str:
    return "" if isinstance(answer, torch.dtype) else f"answers {_shown(answer)}, not a dtype"


def _words(answer: Any) -> str:
    named = isinstance(answer, dict) and all(isinstance(one, str) for one in answer)
    return "" if named else f"answers {_shown(answer)}, not a dict of arguments"


def _embeds(answer: Any) -> str:
    tensors = answer if isinstance(answer, tuple | list) else [answer]
    good = bool(tensors) and all(isinstance(one, torch.Tensor) for one in tensors)
    return "" if good else f"answers {_shown(answer)}, not a tensor"


def _same_numbers(answer: tuple[Any, Any]) -> str:
    noise, packed = answer
    if not isinstance(packed, torch.Tensor) or packed.numel() != noise.numel():
        return f"makes {_shown(packed)} of noise of shape {tuple(noise.shape)}"
    return "" if torch.equal(packed.flatten().sort().values, noise.flatten()) else "changes values while packing"


def _same_shape(answer: tuple[Any, Any]) -> str:
    noise, guided = answer
    good = isinstance(guided, torch.Tensor) and guided.shape == noise.shape
    return "" if good else f"makes {_shown(guided)} of an answer of shape {tuple(noise.shape)}"


def _shown(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a tensor of shape {tuple(value.shape)}"
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:80]}..."
