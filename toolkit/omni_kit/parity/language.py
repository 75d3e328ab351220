"""How a language model is fed and what it answers, on either side."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from omni_kit.parity.builder import Tensors
from omni_kit.parity.media import samples_of

_IGNORED = -100
Arguments = Callable[[Any, Tensors], dict[str, Any]]


def speaker_of(model: Any) -> Any:
    """The part that answers in text: the thinker of a model that is several in one, or the model itself."""
    return getattr(model, "thinker", model)


def language_model(model: nn.Module, inputs: Tensors, arguments: Arguments) -> Tensors:
    """Logits from a forward without labels; losses from one with them, which keeps the graph.

    A batch with media, or for a model with linear attention, goes through sample by sample without padding, because
    neither side promises to ignore padding there.

    Args:
        inputs: input_ids, attention_mask and labels, [batch, length], and media.
        arguments: makes the arguments of forward of a batch, labels left out.

    Returns:
        logits [unpadded tokens, vocabulary]; loss [], the mean over all labels; and aux_loss [], where the model has
        one, its mean over what went through together.
    """
    if "pixel_values" not in inputs and not _has_linear_attention(model):
        return _answer(model, arguments(model, inputs), inputs)
    samples = samples_of(inputs)
    answers = [_answer(model, arguments(model, sample), sample) for sample in samples]
    counts = [int((sample["labels"][:, 1:] != _IGNORED).sum()) for sample in samples]
    joined = {"logits": torch.cat([answer["logits"] for answer in answers])}
    joined["loss"] = torch.stack([a["loss"] * (c / sum(counts)) for a, c in zip(answers, counts, strict=True)]).sum()
    if "aux_loss" in answers[0]:
        joined["aux_loss"] = torch.stack([answer["aux_loss"] for answer in answers]).mean()
    return joined


def as_named(model: nn.Module, inputs: Tensors) -> dict[str, Any]:
    """The inputs that forward takes by name."""
    named = inspect.signature(model.forward).parameters
    return {name: tensor for name, tensor in inputs.items() if name in named and name != "labels"}


def _answer(model: nn.Module, fed: Mapping[str, Any], inputs: Tensors) -> Tensors:
    with torch.no_grad():
        plain = model(**fed, use_cache=False)
    labelled = model(**fed, labels=inputs["labels"], use_cache=False)
    # Models are free to answer anything at padding, so it is left out.
    outputs = {"logits": plain.logits[inputs["attention_mask"].bool()], "loss": labelled.loss}
    if getattr(labelled, "aux_loss", None) is not None:
        outputs["aux_loss"] = labelled.aux_loss
    return outputs


def _has_linear_attention(model: Any) -> bool:
    return "linear_attention" in (getattr(model.config.get_text_config(), "layer_types", None) or [])
