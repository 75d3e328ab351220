"""Accounts for every key: which parameter it feeds, or why it feeds none; and which parameter is not filled."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from omni_kit.layout.checkpoint import Checkpoint
from omni_kit.layout.fitting import Feeds, Misfit, Shape
from omni_kit.layout.groups import ExpertGroup
from omni_kit.layout.ignoring import Ignoring
from omni_kit.layout.quantised import packs, unpacked
from omni_kit.upstream.model import Model
from omni_kit.upstream.skeleton import Parameter
from omni_kit.upstream.transformers.recipes.book import Route
from omni_kit.upstream.transformers.recipes.rope import with_heads

_NUMBER = re.compile(r"(?<=\.)[0-9]+(?=\.|$)")
_EXPERT = re.compile(r"experts\.[0-9]+\.")


@dataclass(frozen=True)
class Ignored:
    """Keys that feed nothing, for a reason."""

    pattern: str
    reason: str
    count: int


@dataclass(frozen=True)
class Accounting:
    """The parameter that each key feeds.

    Attributes:
        feeds: key -> names of the parameters that it feeds; several where an operation splits. Of the experts of one
            container only the first is listed: the others feed the same.
        mapped: how many keys feed something.
        unmapped: keys that feed nothing and for which there is no reason.
        missing: parameters that no key feeds, or not with their shape, or not whole.
        misfits: why, for those that a key feeds; and parameters that are fed more than once.
        not_judged: keys of sub-modules that could not be read.
        predicting: keys of layers for multi-token prediction that the model does not build.
        extra: layers that stand beyond those of the model, and are not such.
        proof: how it was established.
    """

    total: int
    feeds: Mapping[str, tuple[str, ...]]
    mapped: int
    unmapped: tuple[str, ...]
    missing: tuple[str, ...]
    misfits: tuple[Misfit, ...] = ()
    ignored: tuple[Ignored, ...] = field(default=())
    not_judged: tuple[Ignored, ...] = ()
    ignored_keys: frozenset[str] = field(default=frozenset())
    predicting: frozenset[str] = frozenset()
    extra: tuple[str, ...] = ()
    proof: str = ""

    @property
    def complete(self) -> bool:
        """Return whether every key has a place or a reason, and every parameter its one value."""
        return not (self.unmapped or self.missing or self.misfits or self.not_judged)


def account(checkpoint: Checkpoint, model: Model, groups: Sequence[ExpertGroup] = ()) -> Accounting:
    """Maps every key, and what its shape becomes, through the recipe onto the parameters of the modeling source.

    Args:
        groups: the experts, whose numbered keys go the same way and are mapped once.
    """
    tally = _Tally(checkpoint, model)
    for keys in _alike(checkpoint, groups):
        tally.add(keys)
    fed = {name for targets in tally.feeds.values() for name in targets}
    fed |= _tied_to(fed, model.skeleton.tied)
    misfits = tuple(tally.fitting.misfits())
    unfit = {misfit.parameter.name for misfit in misfits if misfit.code != "fed-twice"}
    sure = [p.name for p in model.skeleton.parameters if p.certain]
    return Accounting(
        total=len(checkpoint.tensors),
        feeds=tally.feeds,
        mapped=tally.mapped,
        unmapped=tuple(tally.unmapped),
        missing=tuple(name for name in sure if name not in fed or name in unfit),
        misfits=misfits,
        ignored=_counted(tally.ignored),
        not_judged=_counted(tally.not_judged),
        ignored_keys=frozenset(tally.ignored_keys),
        predicting=frozenset(tally.predicting),
        extra=tuple(tally.extra),
        proof=_proof(checkpoint, model),
    )


def _counted(found: Counter[tuple[str, str]]) -> tuple[Ignored, ...]:
    return tuple(Ignored(pattern, reason, count) for (pattern, reason), count in found.items())


class _Tally:
    """Accounting of the keys so far."""

    def __init__(self, checkpoint: Checkpoint, model: Model) -> None:
        self._checkpoint = checkpoint
        self._prefix = model.skeleton.base_prefix
        self._parameters = model.skeleton.names()
        recipe = with_heads(model)
        self._recipe = recipe.for_keys(checkpoint.tensors) if recipe is not None else None
        self._ignoring = Ignoring(checkpoint, model)
        self.fitting = Feeds(self._parameters)
        self.feeds: dict[str, tuple[str, ...]] = {}
        self.mapped = 0
        self.unmapped: list[str] = []
        self.ignored: Counter[tuple[str, str]] = Counter()
        self.not_judged: Counter[tuple[str, str]] = Counter()
        self.ignored_keys: set[str] = set()
        self.predicting: set[str] = set()
        self.extra: dict[str, None] = {}

    def add(self, keys: Sequence[str]) -> None:
        """Accounts for keys that go the same way."""
        route, targets = self._way(keys[0])
        if len(keys) > 1 and any(_EXPERT.search(name) for name in targets if name):  # each is a module of its own
            for key in keys:
                self._feed([key], *self._way(key))
        elif any(targets):
            self._feed(keys, route, targets)
        else:
            self._leave(keys, route)

    def _feed(self, keys: Sequence[str], route: Route, targets: tuple[str | None, ...]) -> None:
        if not any(targets):
            self._leave(keys, route)
            return
        shapes = [self._shape(key) for key in keys]
        if route.transform is not None:
            self.fitting.converted(targets, route.transform, route.source, shapes)
        else:
            for shape in shapes:
                self.fitting.plain(targets[0] or "", shape)
        self.mapped += len(keys)
        for key, fed in self._divided(keys, shapes, tuple(filter(None, targets))):
            self.feeds[key] = fed

    def _divided(
        self, keys: Sequence[str], shapes: Sequence[Shape | None], targets: tuple[str, ...]
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the first key of each shape, with what it feeds: experts of two widths go to stacks of their own."""
        first: dict[Shape | None, str] = {}
        for key, shape in zip(keys, shapes, strict=True):
            first.setdefault(shape, key)
        for shape, key in first.items():
            divided = shape is not None and len(first) > 1 and len(targets) > 1
            yield key, tuple(t for t in targets if not divided or _holds(self._parameters[t], shape or ()))

    def _leave(self, keys: Sequence[str], route: Route) -> None:
        """Keys that feed nothing: for a reason, unjudged, or lost."""
        key, pattern = keys[0], _NUMBER.sub("*", keys[0])
        if (reason := self._ignoring.reason(key, route.names)) is not None:
            self.ignored[pattern, reason] += len(keys)
            self.ignored_keys.update(keys)
            if self._ignoring.predicts(key, route.names):
                self.predicting.update(keys)
        elif (unread := self._ignoring.unread(route.names)) is not None:
            self.not_judged[pattern, f"{_NUMBER.sub('*', unread)} could not be read from source"] += len(keys)
        else:
            self.unmapped += keys
            if (layer := self._ignoring.beyond(route.names)) is not None:
                self.extra[layer] = None

    def _shape(self, key: str) -> Shape | None:
        return None if packs(key, self._checkpoint.dtype(key)) else self._checkpoint.shape(key)

    def _way(self, key: str) -> tuple[Route, tuple[str | None, ...]]:
        """Return the route of a key, and the parameters that it feeds, None for each name that is none.

        Like transformers, the base model's prefix may be absent or extra.
        """
        key = unpacked(key)
        route = self._recipe.route(key) if self._recipe is not None else Route((key,))
        found = tuple(self._present(name) for name in route.names)
        if not any(found) and key in self._parameters:  # a renaming meant for others must not lose a parameter's name
            return Route((key,)), (key,)
        return route, found

    def _present(self, name: str) -> str | None:
        candidates = (name, f"{self._prefix}.{name}", name.removeprefix(f"{self._prefix}."))
        return next((candidate for candidate in candidates if candidate in self._parameters), None)


def _tied_to(fed: set[str], tied: Mapping[str, str]) -> set[str]:
    """Return parameters that have no key of their own and need none: the one that they are tied to, or with, has."""
    return {name for pair in tied.items() for name in pair if fed & set(pair)}


def _alike(checkpoint: Checkpoint, groups: Sequence[ExpertGroup]) -> Iterator[list[str]]:
    """Yield keys that differ in nothing but the number of the expert, together and in its order; every other
    key alone.
    """
    seen: set[str] = set()
    for group in (group for group in groups if group.split):
        alike: Iterable[dict[int, str]] = () if group.by_word else group.split.values()
        for keys in (*([key for _, key in sorted(experts.items())] for experts in alike), *group.scales.values()):
            seen.update(keys)
            yield keys
    yield from ([key] for key in checkpoint.tensors if key not in seen)


def _holds(parameter: Parameter, expert: tuple[int, ...]) -> bool:
    """Return whether a stack [E, R, C] is made of experts of this shape, or of two of them above each other."""
    rows, columns = expert[0], expert[-1]
    return parameter.shape is None or parameter.shape[1:] in {(rows, columns), (2 * rows, columns)}


def _proof(checkpoint: Checkpoint, model: Model) -> str:
    unknown = len(model.skeleton.unresolved)
    what = "names" if checkpoint.names_only else "names and shapes"
    proof = f"{what} against {model.class_name} as read from source"
    return f"{proof}; {unknown} sub-modules could not be read" if unknown else proof
