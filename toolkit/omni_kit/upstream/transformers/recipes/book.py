"""Recipes: what transformers declares for loading each model, found for a model as transformers finds it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from omni_kit.upstream.transformers.recipes.transform import Transform


@dataclass(frozen=True)
class Route:
    """Route of one key through a recipe.

    Attributes:
        names: what it feeds; several where an operation splits.
        transform: the converter that takes it; None if it is only renamed.
        source: through which of the converter's sources.
    """

    names: tuple[str, ...]
    transform: Transform | None = None
    source: int = 0


@dataclass(frozen=True)
class Recipe:
    """The transforms that loading one model applies, and how they were found.

    Attributes:
        resolved_from: "class:X" or "model_type:y" for each sub-model that has an entry, root first.
        alias_of: the entry whose recipe a model_type shares, where it has none of its own.
        shadowed_alias: an alias that is declared but loses against an explicit entry.
    """

    transforms: tuple[Transform, ...]
    resolved_from: tuple[str, ...]
    alias_of: str | None
    shadowed_alias: str | None
    library_version: str

    def for_keys(self, keys: Iterable[str]) -> "Recipe":
        """Return the recipe as it applies to a checkpoint: without paired renamings whose first source no key
        matches.
        """
        waiting = [transform for transform in self.transforms if transform.paired]
        if not waiting:
            return self
        seen = list(keys)
        idle = {id(t) for t in waiting if not any(t.awaits(key) for key in seen)}
        return replace(self, transforms=tuple(t for t in self.transforms if id(t) not in idle))

    def route(self, key: str) -> Route:
        """Route a key on disk: all renamings apply in order, then at most one converter, as in transformers."""
        key = self.renamed(key)
        for transform in self.transforms:
            source = transform.source_of(key) if transform.converts else None
            if source is not None:
                names = (transform.rename(key, target) for target in range(len(transform.targets)))
                return Route(tuple(name for name in names if name is not None), transform, source)
        return Route((key,))

    def renamed(self, key: str) -> str:
        """Return a key after all renamings, before any conversion."""
        return next((name for _, name in reversed([*self.renamings(key)])), key)

    def renamings(self, key: str) -> Iterator[tuple[Transform, str]]:
        """Yield each renaming that matches, with the name that it leads to."""
        for transform in self._renaming:
            if (changed := transform.rename(key)) is not None:
                key = changed
                yield transform, key

    @cached_property
    def _renaming(self) -> list[Transform]:
        return [transform for transform in self.transforms if not transform.converts]

    @property
    def operations(self) -> list[str]:
        """The converters, one readable line each."""
        return [
            f"{' + '.join(t.sources)} -> {' + '.join(t.targets)}: {', '.join(map(str, t.operations))}"
            for t in self.transforms
            if t.converts
        ]


@dataclass(frozen=True)
class RecipeBook:
    """All recipes of one transformers version."""

    entries: Mapping[str, tuple[Transform, ...]]
    aliases: Mapping[str, str]
    version: str
    optional_base: bool = False

    def resolve(self, submodels: Sequence[tuple[str, str, str]], base_prefix: str = "") -> Recipe | None:
        """Return the recipe of a model, found as transformers finds it; None when no sub-model has an entry.

        Args:
            submodels: (path, class name, model_type) of every pre-trained sub-model, the root ("") first.
            base_prefix: `base_model_prefix` of the root; newer transformers lets keys of a sub-model go without it.
        """
        seen: dict[str, list[str]] = {}
        found: list[Transform] = []
        origins: list[str] = []
        alias = shadowed = None
        for path, class_name, model_type in submodels:
            if _covered(path, seen.get(class_name, [])):
                continue
            key, kind = (class_name, "class") if class_name in self.entries else (model_type, "model_type")
            if kind == "model_type" and _covered(path, seen.get(model_type, [])):
                continue
            if key not in self.entries:
                continue
            found += [t.scoped(self._scopes(path, base_prefix)) for t in self.entries[key]]
            origins.append(f"{kind}:{key}")
            alias = alias or self._alias(key)
            shadowed = shadowed or self._shadowed(key)
            seen.setdefault(class_name, []).append(path)
            if kind == "model_type":
                seen.setdefault(model_type, []).append(path)
        return Recipe(tuple(found), tuple(origins), alias, shadowed, self.version) if origins else None

    def _scopes(self, path: str, base_prefix: str) -> tuple[str, ...]:
        if not path:
            return ()
        if not self.optional_base:
            return (f"{path}.",)
        rest = path.removeprefix(base_prefix).removeprefix(".")
        scope = f"{rest}." if rest else ""
        return (f"{base_prefix}.{scope}", scope) if base_prefix else (scope,)

    def _alias(self, key: str) -> str | None:
        base = self.aliases.get(key)
        return base if base and self.entries[key] == self.entries.get(base) else None

    def _shadowed(self, key: str) -> str | None:
        base = self.aliases.get(key)
        return base if base and self.entries[key] != self.entries.get(base) else None


def _covered(path: str, ancestors: Sequence[str]) -> bool:
    return any(seen == "" or path.startswith(f"{seen}.") for seen in ancestors)
