"""Accounts for every key: which parameter it feeds, or why it is ignored; and which parameter nothing feeds."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.groups import ExpertGroup
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
        feeds: key -> names of the parameters that it feeds; several where an operation splits. Of the experts of one
            container only the first is listed: the others feed the same.
        mapped: how many keys feed something.
        unmapped: keys that feed nothing and for which there is no reason.
        missing: parameters that no key feeds.
        proof: how it was established.
    """

    total: int
    feeds: Mapping[str, tuple[str, ...]]
    mapped: int
    unmapped: tuple[str, ...]
    missing: tuple[str, ...]
    ignored: tuple[Ignored, ...] = field(default=())
    ignored_keys: frozenset[str] = field(default=frozenset())
    proof: str = ""

    @property
    def complete(self) -> bool:
        return not self.unmapped and not self.missing


def account(checkpoint: Checkpoint, model: UpstreamModel, groups: Sequence[ExpertGroup] = ()) -> Accounting:
    """Maps every key through the recipe onto the parameters that the modeling source defines.

    Args:
        groups: the experts, whose numbered keys go the same way and are mapped once.
    """
    parameters = model.skeleton.names()
    prefix = _base_prefix(model)
    feeds: dict[str, tuple[str, ...]] = {}
    ignored: dict[tuple[str, str], int] = {}
    ignored_keys: set[str] = set()
    unmapped: list[str] = []
    mapped = 0
    for keys in _alike(checkpoint, groups):
        targets = _targets(keys[0], model, parameters, prefix)
        if targets:
            feeds[keys[0]] = targets
            mapped += len(keys)
        elif (reason := _reason(keys[0], model)) is not None:
            pattern = (_NUMBER.sub("*", keys[0]), reason)
            ignored[pattern] = ignored.get(pattern, 0) + len(keys)
            ignored_keys.update(keys)
        else:
            unmapped += keys
    fed = {name for targets in feeds.values() for name in targets}
    missing = tuple(
        p.name for p in model.skeleton.parameters if p.certain and p.name not in fed and not _tied(p.name, model, fed)
    )
    shown = tuple(Ignored(pattern, reason, count) for (pattern, reason), count in ignored.items())
    return Accounting(
        total=len(checkpoint.tensors),
        feeds=feeds,
        mapped=mapped,
        unmapped=tuple(unmapped),
        missing=missing,
        ignored=shown,
        ignored_keys=frozenset(ignored_keys),
        proof=_proof(model),
    )


def _alike(checkpoint: Checkpoint, groups: Sequence[ExpertGroup]) -> Iterator[list[str]]:
    """Keys that differ in nothing but the number of the expert, together; every other key alone."""
    together = [list(experts.values()) for group in groups if not group.by_word for experts in group.split.values()]
    together += [keys for group in groups if group.split for keys in group.scales.values()]
    yield from together
    seen = {key for keys in together for key in keys}
    yield from ([key] for key in checkpoint.tensors if key not in seen)


def _proof(model: UpstreamModel) -> str:
    unknown = len(model.skeleton.unresolved)
    proof = f"names and patterns against {model.class_name} as read from source"
    return f"{proof}; {unknown} sub-modules could not be read" if unknown else proof


def _targets(key: str, model: UpstreamModel, parameters: Mapping[str, Parameter], prefix: str) -> tuple[str, ...]:
    """The parameters that a key feeds; like transformers, the base model's prefix may be absent or extra."""
    name, transform = model.recipe.map_key(key) if model.recipe is not None else (key, None)
    names = [name]
    if transform is not None:  # the key was renamed to the first target; operations that split fill the others too
        first, *others = transform.targets
        names += [name.replace(first, other) for other in others]
    found = [target for name in names if (target := _present(name, parameters, prefix)) is not None]
    if not found and key in parameters:  # a renaming that is meant for other keys must not lose a parameter's own name
        return (key,)
    return tuple(found)


def _present(name: str, parameters: Mapping[str, Parameter], prefix: str) -> str | None:
    candidates = (name, f"{prefix}.{name}", name.removeprefix(f"{prefix}."))
    return next((candidate for candidate in candidates if candidate in parameters), None)


def _reason(key: str, model: UpstreamModel) -> str | None:
    layers = model.find("num_hidden_layers")
    number = _INDEX.search(key)
    listed = next((pattern for pattern in _ignore_list(model) if re.search(pattern, key)), None)
    if key.startswith("mtp.") or (number and layers is not None and int(number[1]) >= layers.value):
        known = f"the class ignores {listed}" if listed else "transformers reports it as unexpected"
        return f"multi-token prediction: the model does not build this layer; {known}"
    if listed:
        return f"the class ignores {listed}"
    if key.startswith("talker.") and "Talker" not in model.class_name:
        return f"the talker: {model.class_name} does not build it"
    if key.endswith(("_scale_inv", "_scale", "_scales")):
        return "quantisation scale of the weight beside it"
    if key.endswith("rotary_emb.inv_freq"):
        return "computed when the model is built"
    return None


def _ignore_list(model: UpstreamModel) -> list[str]:
    """`_keys_to_ignore_on_load_unexpected` of the class and of its pre-trained base."""
    found: list[str] = []
    for name, node in model.source.classes.items():
        if name != model.class_name and not name.endswith("PreTrainedModel"):
            continue
        for item in node.body:
            if isinstance(item, ast.Assign) and ast.unparse(item.targets[0]) == "_keys_to_ignore_on_load_unexpected":
                found += [
                    e.value for e in ast.walk(item.value) if isinstance(e, ast.Constant) and isinstance(e.value, str)
                ]
    return found


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
