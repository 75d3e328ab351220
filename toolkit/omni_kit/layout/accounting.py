"""Accounts for every key: which parameter it feeds, or why it is ignored; and which parameter nothing feeds."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.upstream.model import UpstreamModel
from omni_kit.upstream.skeleton import Parameter

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_INDEX = re.compile(r"\.(\d+)\.")


@dataclass(frozen=True)
class Ignored:
    """Keys that feed nothing, for a reason."""

    pattern: str
    reason: str
    count: int


@dataclass(frozen=True)
class Accounting:
    """Where each key goes.

    Attributes:
        feeds: key -> name of the parameter that it feeds.
        unmapped: keys that feed nothing and for which there is no reason.
        missing: parameters that no key feeds.
        proof: how it was established.
    """

    total: int
    feeds: Mapping[str, str]
    unmapped: tuple[str, ...]
    missing: tuple[str, ...]
    ignored: tuple[Ignored, ...] = field(default=())
    proof: str = ""

    @property
    def complete(self) -> bool:
        return not self.unmapped and not self.missing


def account(checkpoint: Checkpoint, model: UpstreamModel) -> Accounting:
    """Maps every key through the recipe onto the parameters that the modeling source defines."""
    parameters = model.skeleton.names()
    prefix = _base_prefix(model)
    feeds: dict[str, str] = {}
    ignored: dict[tuple[str, str], int] = {}
    unmapped: list[str] = []
    for key in checkpoint.tensors:
        target = _target(key, model, parameters, prefix)
        if target is not None:
            feeds[key] = target
        elif (reason := _reason(key, model)) is not None:
            pattern = (_NUMBER.sub("*", key), reason)
            ignored[pattern] = ignored.get(pattern, 0) + 1
        else:
            unmapped.append(key)
    fed = set(feeds.values())
    missing = tuple(
        p.name for p in model.skeleton.parameters if p.certain and p.name not in fed and not _tied(p.name, model, fed)
    )
    unknown = len(model.skeleton.unresolved)
    proof = f"names and patterns against {model.class_name} as read from source"
    if unknown:
        proof += f"; {unknown} sub-modules could not be read"
    shown = tuple(Ignored(pattern, reason, count) for (pattern, reason), count in ignored.items())
    return Accounting(len(checkpoint.tensors), feeds, tuple(unmapped), missing, shown, proof)


def _target(key: str, model: UpstreamModel, parameters: Mapping[str, Parameter], prefix: str) -> str | None:
    """The parameter that a key feeds; like transformers, the base model's prefix may be absent or extra."""
    name = model.recipe.map_key(key)[0] if model.recipe is not None else key
    for candidate in (name, f"{prefix}.{name}", name.removeprefix(f"{prefix}.")):
        if candidate in parameters:
            return candidate
    return None


def _reason(key: str, model: UpstreamModel) -> str | None:
    layers = model.config.get("num_hidden_layers")
    number = _INDEX.search(key)
    if key.startswith("mtp.") or (number and isinstance(layers, int) and int(number[1]) >= layers):
        return "multi-token prediction: the model does not build this layer"
    if key.endswith(("_scale_inv", "_scale", "_scales")):
        return "quantisation scale of the weight beside it"
    if key.endswith("rotary_emb.inv_freq"):
        return "computed when the model is built"
    return None


def _tied(name: str, model: UpstreamModel, fed: set[str]) -> bool:
    """Whether a parameter without a key is filled by tying: the output head of a config that ties embeddings."""
    return name == "lm_head.weight" and bool(model.config.get("tie_word_embeddings")) and bool(fed)


def _base_prefix(model: UpstreamModel) -> str:
    return next(_base_prefixes(model), "model")


def _base_prefixes(model: UpstreamModel) -> Iterator[str]:
    for node in model.source.classes.values():
        if node.name.endswith("PreTrainedModel"):
            for item in node.body:
                text = getattr(getattr(item, "value", None), "value", None)
                names = [getattr(target, "id", "") for target in getattr(item, "targets", [])]
                if names == ["base_model_prefix"] and isinstance(text, str):
                    yield text
