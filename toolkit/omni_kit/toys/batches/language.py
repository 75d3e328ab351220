"""Inputs and outputs of a language model, with media if it reads them, the same on either side."""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from omni_kit.errors import BadInput
from omni_kit.renamed import old_names
from omni_kit.toys.batches.pictures import tower
from omni_kit.toys.batches.protocol import Batch, CallScenario, Preparation, Run
from omni_kit.toys.batches.scenarios import media_ways, prepared_ways, text_beside_media, text_ways
from omni_kit.toys.batches.scenes import APART, SHARED, with_kinds
from omni_kit.toys.batches.vision import (
    BY_TOKEN,
    GETTERS,
    kinds_taken,
    kinds_untried,
    media_inputs,
    samples_of,
    why_none_taken,
)
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import generator

_IGNORED = -100
Arguments = Callable[[Any, Tensors], dict[str, Any]]
BATCH, LENGTH, PADDED = 2, 22, 3
_ROWS = 2  # dimensions of a mask of tokens: rows, columns
_WHOLE = 4  # a length that 2 and 4 processes share without padding


class LanguageBatchBuilder:
    """Token ids without a meaning of their own, media where the model reads them, and labels."""

    def batch(self, model: Any, run: Run) -> Tensors:
        """Return two rows, the second one padded on the left; see `text_inputs` and `media_inputs`."""
        part = speaker_of(model)
        tokens = text_tokens(part.config)
        return media_inputs(part, tokens) if sees(part) else text_inputs(tokens)

    def mask(self, batch: Tensors) -> torch.Tensor:
        """Tokens that are not padding."""
        return batch["attention_mask"]

    def judged(self, names: Sequence[str]) -> list[str]:
        """Return the logits: routers decide by thresholds, so that one rounding error can change everything."""
        return [name for name in names if name == "logits"]

    def whole(self, batch: Tensors) -> list[Batch]:
        """Return a number of tokens that four divides, and an odd one."""
        samples = samples_of(batch)
        surplus = sum(sample["input_ids"].shape[1] for sample in samples) % _WHOLE
        return [[[*samples[:-1], _shortened(samples[-1], drop)]] for drop in (surplus, surplus + 1)]

    def apart(self, batch: Tensors, count: int) -> list[Batch]:
        """Whole samples, and between them ones of text alone."""
        samples = samples_of(batch)
        texts = [_text_alone(sample) for sample in samples]
        mixed = [sample for pair in zip(samples, texts, strict=True) for sample in pair]
        return [[[sample] for sample in mixed[:count]]]

    def frames(self, batch: Tensors, answers: Tensors) -> Mapping[str, torch.Tensor]:
        """Text is nothing to look at."""
        return {}

    def scenarios(self, model: Any) -> Sequence[CallScenario]:
        """Return text alone in every way that forward has arguments for, and prepared; with media, every scene and
        switch.
        """
        part = speaker_of(model)
        tokens = text_tokens(part.config)
        if not sees(part):
            text = text_inputs(tokens)
            packed = CallScenario("packed", text, backward=True, preparation=Preparation.packed)
            return [*text_ways(part, tokens), packed, *prepared_ways("a sample alone", samples_of(text)[0], part)]
        of_media = media_ways(lambda rows: media_inputs(part, tokens, rows=rows), kinds_taken(part, tokens), part)
        return [*text_beside_media(part, tokens), *of_media]

    def staged(self, model: Any, parts: int) -> Mapping[str, Batch]:
        """Scenes with media, where the model reads them: shared by all processes, or one a process."""
        part = speaker_of(model)
        if not sees(part):
            return {}
        tokens, scenes = text_tokens(part.config), SHARED if parts == 1 else APART
        taken = kinds_taken(part, tokens)
        return {
            name: [samples_of(media_inputs(part, tokens, rows=rows)) for rows in of_parts]
            for name, of_parts in scenes.items()
            if len(of_parts) == parts and all(with_kinds(rows, taken) for rows in of_parts)
        }


def sees(part: Any) -> bool:
    """Return whether the part that answers in text takes media, of which the batch builder knows how to make some.

    Raises:
        BadInput: it takes media in a form that the batch builder does not know.
    """
    if all(tower(part, getter) is None for getter in GETTERS.values()):
        return False
    tokens = text_tokens(part.config)
    if not kinds_taken(part, tokens):
        why = why_none_taken(part, tokens)
        raise BadInput(f"no media could be derived that {type(part).__name__} accepts{f': {why}' if why else ''}")
    return True


def media_untried(model: Any) -> list[str]:
    """Return the media that a comparison omits, in one line; empty if it has all."""
    part = speaker_of(model)
    if not sees(part):
        return []
    names = kinds_untried(part, text_tokens(part.config))
    return [f"not compared: {', '.join(names)}: no form that {type(part).__name__} accepts is known"] if names else []


def text_inputs(tokens: list[int]) -> Tensors:
    """Token ids, mask and labels of a small batch whose second row is padded on the left.

    Args:
        tokens: ids to draw from.

    Returns:
        input_ids, attention_mask and labels, int64 [2, 22]; labels are -100 at padding and at every fifth token.
    """
    allowed = torch.tensor(tokens)
    picks = torch.randint(len(allowed), (BATCH, LENGTH), generator=generator("input_ids"))
    ids = allowed[picks]
    mask = torch.ones_like(ids)
    mask[1, :PADDED] = 0
    labels = ids.masked_fill(mask == 0, _IGNORED)
    labels[:, ::5] = _IGNORED
    labels[1, PADDED] = _IGNORED  # nothing comes before it that could foretell it
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def text_tokens(config: Any) -> list[int]:
    """Ids without a meaning of their own: neither padding nor a medium, nor what opens or closes one.

    A config that names some words of the vocabulary needs them for media.
    """
    values = {**config.to_dict(), **config.get_text_config().to_dict()}
    given = (value for key, value in values.items() if key.endswith(("_token_id", "_token_index")))
    special = {token for value in given for token in (value if isinstance(value, list) else [value])}
    tokens = [token for token in range(config.get_text_config().vocab_size) if token not in special]
    named = {
        token for key, value in values.items() if key.endswith("vocabulary_map") for token in (value or {}).values()
    }
    return [token for token in tokens if token not in named] or tokens


def _shortened(sample: Tensors, drop: int) -> Tensors:
    """Without its last tokens, which are text."""
    length = sample["input_ids"].shape[1] - drop
    return {name: tensor[:, :length] if name in BY_TOKEN else tensor for name, tensor in sample.items()}


def _text_alone(sample: Tensors) -> Tensors:
    """Return the tokens that have a label or come first, without any media."""
    kept = sample["labels"][0] != _IGNORED
    kept[0] = True
    return {name: sample[name][:, kept] for name in BY_TOKEN if name in sample}


def speaker_of(model: Any) -> Any:
    """Return the part that outputs text: the thinker of a composite model, or the model itself."""
    return getattr(model, "thinker", model)


def language_model(
    model: nn.Module,
    inputs: Tensors,
    arguments: Arguments,
    loss_only: bool = False,
    *,
    together: bool = False,
    apart: bool = False,
    routed: bool = True,
) -> Tensors:
    """Logits from a forward without labels; losses from one with them, which keeps the graph.

    A batch with media, or for a model with linear attention, goes through sample by sample without padding, because
    neither side promises to ignore padding there.

    Args:
        inputs: input_ids, attention_mask and labels, [batch, length], and media.
        arguments: makes the arguments of forward of a batch; without labels, where they are those of the batch.
        loss_only: leaves the logits out.
        together: `arguments` knows how to hand over all samples at once.
        apart: each sample goes through by itself, as if there were no other.
        routed: with the loss that balances experts, where there is one: it is taken over what goes through together.

    Returns:
        logits [unpadded tokens, vocabulary]; loss [], the mean over all labels; and where the model has them,
        router_logits.LAYER [unpadded tokens, experts] and aux_loss [], its mean over what went through together.
    """
    ask = _Question(model, loss_only, routed and _takes_router_switch(model))
    with nullcontext() if routed else without_router_loss(model):
        apart = apart or "mm_token_type_ids" in inputs or _has_linear_attention(model)
        if together or not apart:
            return ask(arguments(model, inputs), inputs)
        samples = samples_of(inputs)
        return _joined(samples, [ask(arguments(model, sample), sample) for sample in samples])


def _joined(samples: Sequence[Tensors], answers: Sequence[Tensors]) -> Tensors:
    """The answers to samples as those to all of them."""
    counts = [int((sample["labels"][:, 1:] != _IGNORED).sum()) for sample in samples]
    by_token = [name for name in answers[0] if not name.endswith("loss")]
    joined = {name: torch.cat([answer[name] for answer in answers]) for name in by_token}
    joined["loss"] = torch.stack([a["loss"] * (c / sum(counts)) for a, c in zip(answers, counts, strict=True)]).sum()
    if "aux_loss" in answers[0]:
        joined["aux_loss"] = torch.stack([answer["aux_loss"] for answer in answers]).mean()
    return joined


@contextmanager
def without_router_loss(model: nn.Module) -> Iterator[None]:
    """No loss that balances experts while this is entered."""
    configs = {id(config): config for one in model.modules() if (config := getattr(one, "config", None)) is not None}
    asked: list[Any] = [config for config in configs.values() if getattr(config, "output_router_logits", False)]
    for config in asked:
        config.output_router_logits = False
    try:
        yield
    finally:
        for config in asked:
            config.output_router_logits = True


def as_named(model: nn.Module, inputs: Tensors) -> dict[str, Any]:
    """Return the inputs that forward takes by name."""
    named = inspect.signature(model.forward).parameters
    return {name: tensor for name, tensor in inputs.items() if name in named and name != "labels"}


@dataclass(frozen=True)
class _Question:
    """One call of a model with labels, and one without."""

    model: nn.Module
    loss_only: bool
    switched: bool

    def __call__(self, fed: Mapping[str, Any], inputs: Tensors) -> Tensors:
        fed = _counted_from_first(self.model, fed)
        if self.switched:
            fed = {**fed, "output_router_logits": True}
        labelled = self.model(**{"labels": inputs["labels"], **fed}, use_cache=False)
        outputs = {"loss": labelled.loss}
        if getattr(labelled, "aux_loss", None) is not None:
            outputs["aux_loss"] = labelled.aux_loss
        if self.loss_only:
            return outputs
        return {"logits": _logits(self.model, fed, inputs), **_router_logits(labelled, inputs), **outputs}


def _counted_from_first(model: nn.Module, fed: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments in which the positions of rows padded on the left count from the first token, as in packed rows.

    Upstream's own count from the padding, which gives other outputs where positions are learned.
    """
    mask = fed.get("attention_mask")
    if not isinstance(mask, torch.Tensor) or mask.dim() != _ROWS or bool(mask[:, 0].all()) or "position_ids" in fed:
        return fed
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return fed
    return {**fed, "position_ids": (mask.long().cumsum(-1) - 1).clamp(min=0)}


def _logits(model: nn.Module, fed: Mapping[str, Any], inputs: Tensors) -> torch.Tensor:
    """Models are free to answer anything at padding, so it is left out; rows packed into one have none."""
    with torch.no_grad():
        logits: torch.Tensor = model(**{name: v for name, v in fed.items() if name != "labels"}, use_cache=False).logits
    kept = inputs["attention_mask"].bool()
    return logits[kept] if logits.shape[:2] == kept.shape else logits[0]


def _router_logits(answer: Any, inputs: Tensors) -> Tensors:
    """Return the router logits of an output, by layer; without padding."""
    kept = inputs["attention_mask"].bool().flatten()
    layers = getattr(answer, "router_logits", None) or ()
    named = {f"router_logits.{n}": layer for n, layer in enumerate(layers) if isinstance(layer, torch.Tensor)}
    return {name: layer[kept] if len(layer) == len(kept) else layer for name, layer in named.items()}


def _takes_router_switch(model: Any) -> bool:
    """Return whether the loss that balances experts has to be asked for with each call: a model of several parts has no
    switch for it in its own config.
    """
    text = model.config.get_text_config()
    named = inspect.signature(model.forward).parameters
    return text is not model.config and hasattr(text, "router_aux_loss_coef") and "output_router_logits" not in named


def _has_linear_attention(model: Any) -> bool:
    return "linear_attention" in (getattr(model.config.get_text_config(), "layer_types", None) or [])


__getattr__ = old_names(__name__, {"LanguageFeed": "LanguageBatchBuilder"})
