"""Reads the recipes of a transformers, without torch.

`conversion_mapping.py` builds its table with later statements, copies and loops, so reading its literals is wrong for
several models. It is executed instead, with stand-ins for the operation classes that only record their arguments.
"""

import ast
import builtins
import re
from collections.abc import Iterator, Mapping
from functools import cache
from types import ModuleType
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.pysource.library import Library
from omni_kit.upstream.transformers.recipes.book import RecipeBook
from omni_kit.upstream.transformers.recipes.transform import Operation, Transform

_ALIASES = "_MODEL_TO_CONVERSION_PATTERN"


@cache
def recipe_book(library: Library) -> RecipeBook:
    """Read the recipes of this transformers.

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
    lists, and copies of these from before loading changes them (`_original_source_patterns`, transformers 5.24).
    """

    kind = ""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.args = args
        self.kwargs = kwargs
        self.values = dict(zip(("source_patterns", "target_patterns", "operations"), args, strict=False)) | kwargs

    def __getattr__(self, name: str) -> Any:
        values = self.__dict__.get("values", {})
        known = name.removeprefix("_original")[1:] if name.startswith("_original_") else name
        if known not in values:
            raise AttributeError(f"{self.kind} has no {name}")
        value = values[known]
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
    """Return the source of this version's loader: how it matches keys changed between versions."""
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
        names = tuple(anchored(name, goal) for name, goal in zip(names, goals, strict=True))
    return Transform(item.kind, names, goals, operations, bounded=bounded, offset=int(values.get("offset") or 0))


def anchored(source: str, target: str) -> str:
    """Return a source with the anchors of its target: upstream carries `^` and `$` over between paired patterns."""
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
