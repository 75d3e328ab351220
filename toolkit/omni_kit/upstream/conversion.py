"""Recipes: what transformers declares for loading each model, read without torch.

`conversion_mapping.py` builds its table with later statements, copies and loops, so reading its literals is wrong for
several models. It is executed instead, with stand-ins for the operation classes that only record their arguments.
"""

import ast
import builtins
import re
from collections.abc import Iterator, Mapping, Sequence
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
        scope: only keys below this sub-model are meant; "" for the whole model.
        bounded: a pattern that ends in a word must end at the word's end in the key, as newer transformers want it.
    """

    kind: str
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    operations: tuple[Operation, ...] = ()
    scope: str = ""
    bounded: bool = False

    @property
    def converts(self) -> bool:
        return bool(self.operations)

    def rename(self, key: str) -> str | None:
        """The key after this transform, or None if it does not match.

        Follows `WeightTransform.rename_source_key` of transformers 5: the first matching source is replaced by the
        first target; backreferences in the target mean groups of that source.
        """
        prefix = f"{self.scope}." if self.scope else ""
        if not key.startswith(prefix):
            return None
        rest = key[len(prefix) :]
        pattern, starts = _compiled(self.sources, self.bounded)
        match = pattern.search(rest)
        if match is None:
            return None
        group = next(i for i, start in enumerate(starts) if match.group(f"g{i}") is not None)
        target = re.sub(
            r"\\(\d+)", lambda m: match.group(starts[group] + int(m.group(1))) or "", _plain(self.targets[0])
        )
        return prefix + rest.replace(match.group(0), target, 1)

    def scoped(self, prefix: str) -> "Transform":
        return replace(self, scope=prefix)


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

    def map_key(self, key: str) -> tuple[str, Transform | None]:
        """The name that a key on disk feeds, and the converter that it passes through, if any.

        All renamings apply in order, then at most one converter, as transformers does.
        """
        for transform in self.transforms:
            if not transform.converts:
                key = transform.rename(key) or key
        for transform in self.transforms:
            if transform.converts and (renamed := transform.rename(key)) is not None:
                return renamed, transform
        return key, None

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

    def resolve(self, submodels: Sequence[tuple[str, str, str]]) -> Recipe | None:
        """The recipe of a model, found as transformers finds it; None when no sub-model has an entry.

        Args:
            submodels: (path, class name, model_type) of every pre-trained sub-model, the root ("") first.
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
            found += [t.scoped(path) for t in self.entries[key]]
            origins.append(f"{kind}:{key}")
            alias = alias or self._alias(key)
            shadowed = shadowed or self._shadowed(key)
            seen.setdefault(class_name, []).append(path)
            if kind == "model_type":
                seen.setdefault(model_type, []).append(path)
        return Recipe(tuple(found), tuple(origins), alias, shadowed, self.version) if origins else None

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
    bounded = _ends_on_boundaries(library)
    entries = {name: tuple(_transform(item, bounded) for item in items) for name, items in table.items()}
    return RecipeBook(entries, dict(aliases), library.version)


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


def _ends_on_boundaries(library: Library) -> bool:
    """Whether this version's matching of keys ends a pattern at the end of a name: read from its loader."""
    loader = library.root / "core_model_loading.py"
    return loader.is_file() and r'r"(?!\w)"' in loader.read_text(encoding="utf-8")


def _transform(item: Any, bounded: bool) -> Transform:
    values = item.values
    operations = tuple(_operation(op) for op in values.get("operations") or ())
    sources, targets = values.get("source_patterns", ()), values.get("target_patterns", ())
    if not sources and not targets:
        sources, targets = _prefix_change(values)
    names, goals = tuple(_strings(sources)), tuple(_strings(targets))
    if len(names) == len(goals):
        names = tuple(_anchored(name, goal) for name, goal in zip(names, goals, strict=True))
    return Transform(item.kind, names, goals, operations, bounded=bounded)


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
