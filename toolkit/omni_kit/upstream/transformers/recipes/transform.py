"""One transform of a recipe: a renaming of keys, or a conversion of the tensors below them."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

_LOOKAROUND = re.compile(r"\(\?.+?\)?\)")


@dataclass(frozen=True)
class Operation:
    """One tensor operation with its arguments, as the recipe declares them ("Concatenate", {"dim": 1})."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        shown = [repr(arg) for arg in self.args] + [f"{key}={value!r}" for key, value in self.kwargs]
        return f"{self.name}({', '.join(shown)})"


@dataclass(frozen=True)
class Transform:
    """A WeightRenaming (no operations) or a WeightConverter.

    Attributes:
        kind: upstream's class name.
        sources: patterns of keys on disk, `*` for an index.
        targets: names in memory.
        scopes: only keys that begin with one of these are meant, and what begins is kept; none for the whole model.
        offset: what is added to the number that a source captures.
        bounded: a pattern that ends in a word must end at the word's end in the key, as newer transformers want it.
    """

    kind: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    operations: tuple[Operation, ...] = ()
    scopes: tuple[str, ...] = ()
    bounded: bool = False
    offset: int = 0

    @property
    def converts(self) -> bool:
        """Return whether it changes tensors, and not only keys."""
        return bool(self.operations)

    @cached_property
    def by_source(self) -> tuple["Transform", ...]:
        """The transform with one source alone, for each of them."""
        return tuple(replace(self, sources=(source,)) for source in self.sources)

    @property
    def paired(self) -> bool:
        """Each source has a target of its own, and all wait for the first source to be seen."""
        return self.kind == "GroupWeightRename"

    def rename(self, key: str, target: int = 0) -> str | None:
        """Return the key after this transform, or None if it does not match.

        Follows `WeightTransform.rename_source_key` of transformers 5: the first matching source is replaced by the
        first target, or its own; backreferences in the target mean groups of that source.

        Args:
            target: which of several targets, where an operation splits.
        """
        if not self.scopes and self._search(key) is None:  # of most keys, without a further call
            return None
        found = self._match(key)
        if found is None:
            return None
        prefix, rest, match, source = found
        _, starts = self._compiled

        def group(reference: re.Match[str]) -> str:
            text = match.group(starts[source] + int(reference.group(1))) or ""
            return str(int(text) + self.offset) if self.offset and len(text) < 10 else text

        text = re.sub(r"\\(\d+)", group, _plain(self.targets[source if self.paired else target]))
        return prefix + rest.replace(match.group(0), text, 1)

    def awaits(self, key: str) -> bool:
        """Return whether this is a key of the first source, without which nothing of a paired renaming applies."""
        return self.source_of(key) == 0

    def source_of(self, key: str) -> int | None:
        """Return which source a key matches; None if it matches none."""
        found = self._match(key)
        return None if found is None else found[3]

    def _match(self, key: str) -> tuple[str, str, re.Match[str], int] | None:
        """(scope, rest of the key, match in the rest, number of the source that matched)."""
        prefix = next((scope for scope in self.scopes if key.startswith(scope)), None) if self.scopes else ""
        if prefix is None:
            return None
        rest = key[len(prefix) :]
        match = self._search(rest)
        if match is None:
            return None
        return prefix, rest, match, next(i for i in range(len(self.sources)) if match.group(f"g{i}") is not None)

    @cached_property
    def _search(self) -> Callable[[str], re.Match[str] | None]:
        return self._compiled[0].search

    @cached_property
    def _compiled(self) -> tuple[re.Pattern[str], tuple[int, ...]]:
        return _compiled(self.sources, self.bounded)

    def substitution(self, source: int = 0, target: int = 0) -> tuple[str, str]:
        """Return a source as a regular expression on whole keys, scope included, and its target as the replacement
        text.
        """
        pattern = (_bounded if self.bounded else _unbounded)(self.sources[source])
        text = _plain(self.targets[source if self.paired else target])
        if not self.scopes:
            return pattern, text
        scope = "|".join(re.escape(prefix) for prefix in self.scopes)
        ahead = f"^({scope})" if pattern.startswith("^") else f"^({scope})(.*?)"
        kept = ahead.count("(")
        shifted = re.sub(r"\\(\d+)", lambda m: rf"\{int(m.group(1)) + kept}", text)
        return ahead + pattern.removeprefix("^"), "".join(rf"\{i + 1}" for i in range(kept)) + shifted

    def scoped(self, scopes: tuple[str, ...]) -> "Transform":
        """Return the transform for keys that begin with one of these."""
        return replace(self, scopes=scopes)


@cache
def _compiled(sources: tuple[str, ...], bounded: bool) -> tuple[re.Pattern[str], tuple[int, ...]]:
    """Return the pattern of all sources, and where the groups of each begin.

    Bounded patterns are those of transformers that end a name at its boundary; there the longest source comes first.
    """
    order = sorted(enumerate(sources), key=lambda item: -len(item[1])) if bounded else list(enumerate(sources))
    branches = [f"(?P<g{i}>{_bounded(source) if bounded else _unbounded(source)})" for i, source in order]
    pattern = re.compile("|".join(branches))
    return pattern, tuple(pattern.groupindex[f"g{i}"] for i in range(len(sources)))


def _unbounded(source: str) -> str:
    return source.replace(".*.", r"[.].*[.]")


def _bounded(source: str) -> str:
    pattern = source.replace("*.", r".*[.]")
    return rf"{pattern}(?!\w)" if re.search(r"[a-zA-Z0-9]$", pattern) else pattern


@cache
def _plain(target: str) -> str:
    """Return a target pattern as replacement text: anchors, lookarounds and escapes removed."""
    text = _LOOKAROUND.sub("", target.removeprefix("^").removesuffix("$")).replace(r"\.", ".")
    group = re.search(r"\(.+?\)", text)
    return text.replace(group.group(0), r"\1", 1) if group else text
