"""Recipes: what transformers declares for loading each model, read without torch.

`conversion_mapping.py` builds its table with later statements, copies and loops, so reading its literals is wrong for
several models. It is executed instead, with stand-ins for the operation classes that only record their arguments.
"""

import ast
import builtins
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.upstream.library import Library

_ALIASES = "_MODEL_TO_CONVERSION_PATTERN"
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
        return bool(self.operations)

    @property
    def paired(self) -> bool:
        """Each source has a target of its own, and all wait for the first source to be seen."""
        return self.kind == "GroupWeightRename"

    def rename(self, key: str, target: int = 0) -> str | None:
        """The key after this transform, or None if it does not match.

        Follows `WeightTransform.rename_source_key` of transformers 5: the first matching source is replaced by the
        first target, or its own; backreferences in the target mean groups of that source.

        Args:
            target: which of several targets, where an operation splits.
        """
        found = self._match(key)
        if found is None:
            return None
        prefix, rest, match, source = found
        _, starts = _compiled(self.sources, self.bounded)

        def group(reference: re.Match[str]) -> str:
            text = match.group(starts[source] + int(reference.group(1))) or ""
            return str(int(text) + self.offset) if self.offset else text

        text = re.sub(r"\\(\d+)", group, _plain(self.targets[source if self.paired else target]))
        return prefix + rest.replace(match.group(0), text, 1)

    def awaits(self, key: str) -> bool:
        """Whether this is a key of the first source, without which nothing of a paired renaming applies."""
        found = self._match(key)
        return found is not None and found[3] == 0

    def _match(self, key: str) -> tuple[str, str, re.Match[str], int] | None:
        """(scope, rest of the key, match in the rest, number of the source that matched)."""
        prefix = next((scope for scope in self.scopes if key.startswith(scope)), None) if self.scopes else ""
        if prefix is None:
            return None
        rest = key[len(prefix) :]
        pattern, _ = _compiled(self.sources, self.bounded)
        match = pattern.search(rest)
        if match is None:
            return None
        return prefix, rest, match, next(i for i in range(len(self.sources)) if match.group(f"g{i}") is not None)

    def substitution(self, source: int = 0, target: int = 0) -> tuple[str, str]:
        """A source as a regular expression on whole keys, scope included, and its target as the replacement text."""
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
        return replace(self, scopes=scopes)


@cache
def _compiled(sources: tuple[str, ...], bounded: bool) -> tuple[re.Pattern[str], tuple[int, ...]]:
    """The pattern of all sources, and where the groups of each begin.

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
    """A target pattern as replacement text: anchors, lookarounds and escapes removed."""
    text = _LOOKAROUND.sub("", target.removeprefix("^").removesuffix("$")).replace(r"\.", ".")
    group = re.search(r"\(.+?\)", text)
    return text.replace(group.group(0), r"\1", 1) if group else text


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
        """The recipe as it applies to a checkpoint: without paired renamings whose first source no key matches."""
        waiting = [transform for transform in self.transforms if transform.paired]
        if not waiting:
            return self
        seen = list(keys)
        idle = {id(t) for t in waiting if not any(t.awaits(key) for key in seen)}
        return replace(self, transforms=tuple(t for t in self.transforms if id(t) not in idle))

    def map_key(self, key: str) -> tuple[str, Transform | None]:
        """The name that a key on disk feeds, and the converter that it passes through, if any.

        All renamings apply in order, then at most one converter, as transformers does.
        """
        key = self.renamed(key)
        for transform in self.transforms:
            if transform.converts and (renamed := transform.rename(key)) is not None:
                return renamed, transform
        return key, None

    def targets(self, key: str) -> tuple[str, ...]:
        """All the names that a key on disk feeds: an operation that splits has several."""
        first, transform = self.map_key(key)
        if transform is None or len(transform.targets) == 1:
            return (first,)
        key = self.renamed(key)
        names = (transform.rename(key, target) for target in range(len(transform.targets)))
        return tuple(name for name in names if name is not None)

    def renamed(self, key: str) -> str:
        """A key after all renamings, before any conversion."""
        return next((name for _, name in reversed([*self.renamings(key)])), key)

    def renamings(self, key: str) -> Iterator[tuple[Transform, str]]:
        """Each renaming that matches, with the name that it leads to."""
        for transform in self.transforms:
            if not transform.converts and (changed := transform.rename(key)) is not None:
                key = changed
                yield transform, key

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
        """The recipe of a model, found as transformers finds it; None when no sub-model has an entry.

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


@cache
def recipe_book(library: Library) -> RecipeBook:
    """Reads the recipes of this transformers.

    Raises:
        BadInput: the version has no conversion_mapping.py that can be read (transformers before 5).
    """
    file = library.root / "conversion_mapping.py"
    if not file.is_file():
        raise BadInput(
            f"transformers {library.version} has no conversion_mapping.py", "transformers 5 or newer is needed"
        )
    namespace = _execute(file.read_text(encoding="utf-8"), str(file))
    try:
        table = namespace["_build_checkpoint_conversion_mapping"]()
    except Exception as error:  # upstream code with stand-ins: whatever it raises means the same thing
        raise BadInput(f"cannot read the recipes of transformers {library.version}: {error}") from error
    aliases = namespace.get(_ALIASES, {})
    loader = _loader(library)
    bounded, optional_base = r'r"(?!\w)"' in loader, "self.base_model_prefix" in loader
    entries = {name: tuple(_transform(item, bounded) for item in items) for name, items in table.items()}
    return RecipeBook(entries, dict(aliases), library.version, optional_base)


class _Recorded:
    """A stand-in for an operation or transform class: it keeps what it was called with.

    Recipes also read attributes of transforms that they made earlier, so the patterns are there as upstream has them:
    lists.
    """

    kind = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs
        self.values = dict(zip(("source_patterns", "target_patterns", "operations"), args, strict=False)) | kwargs

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("values", {})
        if name not in values:
            raise AttributeError(f"{self.kind} has no {name}")
        value = values[name]
        return [value] if name.endswith("_patterns") and isinstance(value, str) else value


class _StandIns(ModuleType):
    """A module in which every name is a recording class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        created = type(name, (_Recorded,), {"kind": name})
        setattr(self, name, created)
        return created


def _execute(text: str, filename: str) -> dict[str, Any]:
    stand_ins = _StandIns("stand_ins")
    real_import = builtins.__import__

    def guarded_import(name: str, globals: Any = None, locals: Any = None, fromlist: Any = (), level: int = 0) -> Any:  # noqa: A002
        if level or name.partition(".")[0] in {"torch", "transformers", "numpy"}:
            return stand_ins
        return real_import(name, globals, locals, fromlist, level)

    namespace: dict[str, Any] = {
        "__name__": "transformers.conversion_mapping",
        "__package__": "transformers",
        "__builtins__": {**vars(builtins), "__import__": guarded_import},
    }
    exec(compile(ast.parse(text), filename, "exec"), namespace)
    return namespace


def _loader(library: Library) -> str:
    """The source of this version's loader: how it matches keys changed between versions."""
    file = library.root / "core_model_loading.py"
    return file.read_text(encoding="utf-8") if file.is_file() else ""


def _transform(item: Any, bounded: bool) -> Transform:
    values = item.values
    operations = tuple(_operation(op) for op in values.get("operations") or ())
    sources, targets = values.get("source_patterns", ()), values.get("target_patterns", ())
    if not sources and not targets:
        sources, targets = _prefix_change(values)
    names, goals = tuple(_strings(sources)), tuple(_strings(targets))
    if len(names) == len(goals):
        names = tuple(_anchored(name, goal) for name, goal in zip(names, goals, strict=True))
    return Transform(item.kind, names, goals, operations, bounded=bounded, offset=int(values.get("offset") or 0))


def _anchored(source: str, target: str) -> str:
    """A source with the anchors of its target: upstream carries `^` and `$` over between paired patterns."""
    if target.startswith("^") and not source.startswith("^"):
        source = f"^{source}"
    return f"{source}$" if target.endswith("$") and not source.endswith("$") else source


def _prefix_change(values: Mapping[str, Any]) -> tuple[str, str]:
    """PrefixChange(prefix_to_remove=..., prefix_to_add=..., model_prefix=...) as the renaming that it makes."""
    add, remove = values.get("prefix_to_add"), values.get("prefix_to_remove")
    base = f"{values['model_prefix']}." if values.get("model_prefix") else ""
    if add:
        return rf"^{re.escape(base)}(?!(?:{re.escape(add)}\.))(.+)$", rf"{base}{add}.\1"
    if remove:
        return rf"^{re.escape(base)}{re.escape(remove)}\.(.+)$", rf"{base}\1"
    return "(?!)", ""


def _operation(op: Any) -> Operation:
    return Operation(op.kind, tuple(_value(a) for a in op.args), tuple((k, _value(v)) for k, v in op.kwargs.items()))


def _value(value: Any) -> Any:
    return value.kind if isinstance(value, _Recorded) else value


def _strings(value: Any) -> Iterator[str]:
    yield from [value] if isinstance(value, str) else (str(item) for item in value)
