"""Accounts for every key: which parameter it feeds, or why it is ignored; and which parameter nothing feeds."""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.groups import ExpertGroup
from omni_kit.upstream.python.skeleton import Parameter
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.recipes.book import Recipe

_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
_EXPERT = re.compile(r"experts\.\d+\.")
# What makes speech of what a model thinks; left out unless the config asks for audio.
_SPEECH = frozenset({"talker", "code2wav", "token2wav"})
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
        """Whether every key has a place or a reason, and every parameter a key."""
        return not self.unmapped and not self.missing


def account(checkpoint: Checkpoint, model: UpstreamModel, groups: Sequence[ExpertGroup] = ()) -> Accounting:
    """Maps every key through the recipe onto the parameters that the modeling source defines.

    Args:
        groups: the experts, whose numbered keys go the same way and are mapped once.
    """
    tally = _Tally(checkpoint, model)
    for keys, shape in _alike(checkpoint, groups):
        tally.add(keys, shape)
    fed = {name for targets in tally.feeds.values() for name in targets}
    fed |= _tied_to(fed, model.skeleton.tied)
    return Accounting(
        total=len(checkpoint.tensors),
        feeds=tally.feeds,
        mapped=tally.mapped,
        unmapped=tuple(tally.unmapped),
        missing=tuple(p.name for p in model.skeleton.parameters if p.certain and p.name not in fed),
        ignored=tuple(Ignored(pattern, reason, count) for (pattern, reason), count in tally.ignored.items()),
        ignored_keys=frozenset(tally.ignored_keys),
        proof=_proof(model),
    )


class _Tally:
    """What has been found out about the keys so far."""

    def __init__(self, checkpoint: Checkpoint, model: UpstreamModel) -> None:
        self._model = model
        self._parameters = model.skeleton.names()
        self._recipe = model.recipe.for_keys(checkpoint.tensors) if model.recipe is not None else None
        self.feeds: dict[str, tuple[str, ...]] = {}
        self.mapped = 0
        self.unmapped: list[str] = []
        self.ignored: Counter[tuple[str, str]] = Counter()
        self.ignored_keys: set[str] = set()

    def add(self, keys: Sequence[str], shape: tuple[int, ...] | None) -> None:
        """Accounts for keys that go the same way; with a shape only to parameters that hold experts of that shape."""
        targets = self._targets(keys[0])
        if shape is not None:
            targets = tuple(name for name in targets if _holds(self._parameters[name], shape))
        if len(keys) > 1 and any(_EXPERT.search(name) for name in targets):  # each expert is a module of its own
            for key in keys:
                self._feed([key], self._targets(key))
        elif targets:
            self._feed(keys, targets)
        elif (reason := _reason(keys[0], self._model)) is not None:
            self.ignored[_NUMBER.sub("*", keys[0]), reason] += len(keys)
            self.ignored_keys.update(keys)
        else:
            self.unmapped += keys

    def _feed(self, keys: Sequence[str], targets: tuple[str, ...]) -> None:
        if targets:
            self.feeds[keys[0]] = targets
            self.mapped += len(keys)
        else:
            self.unmapped += keys

    def _targets(self, key: str) -> tuple[str, ...]:
        return _targets(key, self._recipe, self._parameters, self._model.skeleton.base_prefix)


def _tied_to(fed: set[str], tied: Mapping[str, str]) -> set[str]:
    """Parameters that have no key of their own and need none: the one that they are tied to, or with, has."""
    return {name for pair in tied.items() for name in pair if fed & set(pair)}


def _alike(checkpoint: Checkpoint, groups: Sequence[ExpertGroup]) -> Iterator[tuple[list[str], tuple[int, ...] | None]]:
    """Keys that differ in nothing but the number of the expert, together; every other key alone.

    Where one list has experts of two widths they feed different stacks: then those of each shape, with the shape.
    """
    seen: set[str] = set()
    for group in (group for group in groups if group.split):
        alike = [] if group.by_word else [list(experts.values()) for experts in group.split.values()]
        divided = bool(alike) and len({checkpoint.shape(key) for key in alike[0]}) > 1
        for keys in (*alike, *group.scales.values()):
            seen.update(keys)
            yield from _by_shape(checkpoint, keys) if divided else [(keys, None)]
    yield from (([key], None) for key in checkpoint.tensors if key not in seen)


def _by_shape(checkpoint: Checkpoint, keys: list[str]) -> Iterator[tuple[list[str], tuple[int, ...] | None]]:
    shapes: dict[tuple[int, ...] | None, list[str]] = {}
    for key in keys:
        shapes.setdefault(checkpoint.shape(key), []).append(key)
    yield from ((same, shape) for shape, same in shapes.items())


def _holds(parameter: Parameter, expert: tuple[int, ...]) -> bool:
    """Whether a stack [E, R, C] is made of experts of this shape, or of two of them above each other."""
    rows, columns = expert[0], expert[-1]
    return parameter.shape is None or parameter.shape[1:] in {(rows, columns), (2 * rows, columns)}


def _proof(model: UpstreamModel) -> str:
    unknown = len(model.skeleton.unresolved)
    proof = f"names and patterns against {model.class_name} as read from source"
    return f"{proof}; {unknown} sub-modules could not be read" if unknown else proof


def _targets(key: str, recipe: Recipe | None, parameters: Mapping[str, Parameter], prefix: str) -> tuple[str, ...]:
    """The parameters that a key feeds; like transformers, the base model's prefix may be absent or extra."""
    names = recipe.targets(key) if recipe is not None else (key,)
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
    part = key.partition(".")[0]
    if part in _SPEECH and not _builds(model, part):
        return f"the talker: {model.class_name} does not build it"
    if key.endswith(("_scale_inv", "_scale", "_scales")):
        return "quantisation scale of the weight beside it"
    if key.endswith("rotary_emb.inv_freq"):
        return "computed when the model is built"
    return None


def _builds(model: UpstreamModel, part: str) -> bool:
    """Whether the model has a part of that name, be it one that could not be read."""
    built = (*(p.name for p in model.skeleton.parameters), *(f"{path}." for path, _ in model.skeleton.unresolved))
    return any(name.startswith(f"{part}.") for name in built)


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
