"""How a language model is fed and what it answers, on either side."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from omni_kit.parity.media import samples_of
from omni_kit.targets.builder import Tensors

_IGNORED = -100
Arguments = Callable[[Any, Tensors], dict[str, Any]]


def speaker_of(model: Any) -> Any:
    """The part that answers in text: the thinker of a model that is several in one, or the model itself."""
    return getattr(model, "thinker", model)


def language_model(model: nn.Module, inputs: Tensors, arguments: Arguments, loss_only: bool = False) -> Tensors:
    """Logits from a forward without labels; losses from one with them, which keeps the graph.

    A batch with media, or for a model with linear attention, goes through sample by sample without padding, because
    neither side promises to ignore padding there.

    Args:
        inputs: input_ids, attention_mask and labels, [batch, length], and media.
        arguments: makes the arguments of forward of a batch; without labels, where they are those of the batch.
        loss_only: leaves the logits out.

    Returns:
        logits [unpadded tokens, vocabulary]; loss [], the mean over all labels; and where the model has them,
        router_logits.LAYER [unpadded tokens, experts] and aux_loss [], its mean over what went through together.
    """
    if "pixel_values" not in inputs and not _has_linear_attention(model):
        return _answer(model, arguments(model, inputs), inputs, loss_only)
    samples = samples_of(inputs)
    answers = [_answer(model, arguments(model, sample), sample, loss_only) for sample in samples]
    counts = [int((sample["labels"][:, 1:] != _IGNORED).sum()) for sample in samples]
    by_token = [name for name in answers[0] if not name.endswith("loss")]
    joined = {name: torch.cat([answer[name] for answer in answers]) for name in by_token}
    joined["loss"] = torch.stack([a["loss"] * (c / sum(counts)) for a, c in zip(answers, counts, strict=True)]).sum()
    if "aux_loss" in answers[0]:
        joined["aux_loss"] = torch.stack([answer["aux_loss"] for answer in answers]).mean()
    return joined


def as_named(model: nn.Module, inputs: Tensors) -> dict[str, Any]:
    """The inputs that forward takes by name."""
    named = inspect.signature(model.forward).parameters
    return {name: tensor for name, tensor in inputs.items() if name in named and name != "labels"}


def _answer(model: nn.Module, fed: Mapping[str, Any], inputs: Tensors, loss_only: bool) -> Tensors:
    if _takes_router_switch(model):
        fed = {**fed, "output_router_logits": True}
    labelled = model(**{"labels": inputs["labels"], **fed}, use_cache=False)
    outputs = {"loss": labelled.loss}
    if getattr(labelled, "aux_loss", None) is not None:
        outputs["aux_loss"] = labelled.aux_loss
    return (
        outputs if loss_only else {"logits": _logits(model, fed, inputs), **_router_logits(labelled, inputs), **outputs}
    )


def _logits(model: nn.Module, fed: Mapping[str, Any], inputs: Tensors) -> torch.Tensor:
    """Models are free to answer anything at padding, so it is left out; rows packed into one have none."""
    with torch.no_grad():
        logits: torch.Tensor = model(**{name: v for name, v in fed.items() if name != "labels"}, use_cache=False).logits
    kept = inputs["attention_mask"].bool()
    return logits[kept] if logits.shape[:2] == kept.shape else logits[0]


def _router_logits(answer: Any, inputs: Tensors) -> Tensors:
    """What the answer says about the choice of experts, by layer; padding left out."""
    kept = inputs["attention_mask"].bool().flatten()
    layers = getattr(answer, "router_logits", None) or ()
    named = {f"router_logits.{n}": layer for n, layer in enumerate(layers) if isinstance(layer, torch.Tensor)}
    return {name: layer[kept] if len(layer) == len(kept) else layer for name, layer in named.items()}


def _takes_router_switch(model: Any) -> bool:
    """Whether the loss that balances experts has to be asked for with each call: a model of several parts has no
    switch for it in its own config.
    """
    text = model.config.get_text_config()
    named = inspect.signature(model.forward).parameters
    return text is not model.config and hasattr(text, "router_aux_loss_coef") and "output_router_logits" not in named


def _has_linear_attention(model: Any) -> bool:
    return "linear_attention" in (getattr(model.config.get_text_config(), "layer_types", None) or [])
