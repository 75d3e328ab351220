"""Small arguments for a class of the authors': the toy config as it is, and others where the class takes no such."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import dotted
from omni_kit.toys.batches.denoiser.failed_checks import required_sizes
from omni_kit.toys.batches.denoiser.resized import in_proportion
from omni_kit.toys.configs.denoiser import HEAD_DIM, HEADS, IS_LAYERS, as_wide
from omni_kit.toys.width_errors import ADDED, WIDTHS
from omni_kit.upstream.repositories.passed_arguments import allowed_values, counted_with
from omni_kit.upstream.repositories.reference import Reference

_WIDER = (HEADS * 16, HEADS * 32)  # kernels take heads that are multiples of 8, 16 or 32
_LITERAL = re.compile(r"\bLiteral(\[[^\[\]]*\])")
_IS_RATIO = re.compile(r"(^|_)(ratio|mult|multiplier|expansion|factor)(_|$)")  # of a width to another one
_IS_WIDTH = re.compile(r"(^|_)(dims?|channels?|width|features|size|embed|embeds)$")
_IS_INNER, _TIMES = re.compile(r"(^|_)(mlp|ffn?|feed_?forward|intermediate)(_|$)"), 4  # between a block's two layers
_SMALL = 8  # published numbers below are layers, patches and channels
_LARGEST, _MOST_CHECKED = 2048, 100
_INPUT, _OUTPUT = "in_", "out_"
_FEW = (1, 2)  # numbers for null
_EMPTY = "has no elements"
NULL = "NoneType"  # in errors about null
NOT_MADE = "cannot be made"  # in the error of a constructor


def small_arguments(
    reference: Reference, given: Mapping[str, Any], refused: Sequence[tuple[Mapping[str, Any], str]] = ()
) -> Iterator[dict[str, Any]]:
    """Yield the values of a toy config, then variants of it, each once.

    In turn: numbers where null will not do; sizes that are equal where they are equal in the published config; as few
    layers as it has; words
    that the code compares an argument with; other widths of the whole; all this with the other words that an argument
    takes; without one of the parts that are switched on; sizes that the constructor's checks allow; the published
    sizes. After each of them, the same with a width that other parts have fixed, as an error of forward says, and with
    values for null where an error of the constructor is about null.

    Args:
        refused: those of these values that the constructor, or forward with any inputs, did not take so far, each with
            the error; the caller adds to it.
    """
    seen: list[dict[str, Any]] = []
    for values in _variants(reference, given, refused):
        waiting = [values]
        while waiting:
            one = waiting.pop(0)
            if one not in seen:
                seen.append(one)
                yield one
                waiting += with_fixed_widths(reference, refused[-1:])
                waiting += _without_nulls(reference, refused[-1:])
                waiting += _without_zeros(refused[-1:])


def _variants(
    reference: Reference, given: Mapping[str, Any], refused: Sequence[tuple[Mapping[str, Any], str]]
) -> Iterator[dict[str, Any]]:
    yield dict(given)
    published = _as_published(reference)
    whole = _with_numbers(reference, given)
    yield from (whole, _alike(published, whole), _as_few(published, whole))
    yield from _in_compared_words(reference, whole)
    for worded in (whole, *_in_other_words(reference, whole)):
        bases = worded, _alike(published, worded)
        yield from (dict(values) for values in bases)
        yield from (as_wide(values, width) for values in bases for width in _WIDER)
    yield from ({**whole, name: False} for name, value in whole.items() if value is True)
    checked = (values for before, error in refused for values in as_checked(before, error))
    yield from islice(checked, _MOST_CHECKED)
    large = {name: value for name, value in published.items() if _is_size(value) and _is_size(given.get(name))}
    yield {**whole, **large}


def with_fixed_widths(
    reference: Reference, refused: Sequence[tuple[Mapping[str, Any], str]]
) -> Iterator[dict[str, Any]]:
    """Yield values with the published size of an argument that an error names next to the toy's, where another part of
    the model takes no other, or with the multiple of another argument that it is where it is published.
    """
    published = _as_published(reference)
    for values, error in refused:
        said = next((found for pattern in (*WIDTHS, ADDED) if (found := pattern.search(error))), None)
        sizes = {int(said["came"]), int(said["wants"])} if said is not None else set()
        changed = {
            name: published[name]
            for name, value in values.items()
            if _is_size(value) and value in sizes and published.get(name) in sizes - {value}
        }
        if changed:
            yield {**values, **changed}
        yield from ({**values, name: size} for name, value in values.items() if _is_size(value) and value in sizes
                    for size in _in_published_proportion(name, values, published, sizes))  # fmt: skip


def _in_published_proportion(
    name: str, values: Mapping[str, Any], published: Mapping[str, Any], sizes: Collection[int]
) -> list[int]:
    """Return the multiples of other arguments that a size is where it is published, of those that an error names."""
    real = published.get(name)
    parts = {other: one for other, one in published.items() if _is_size(one) and _is_size(values.get(other))}
    found = [values[other] * (real // one) for other, one in parts.items()
             if _is_size(real) and one < real and real % one == 0 and values[other] in sizes]  # fmt: skip
    return [size for size in dict.fromkeys(found) if size != values[name] and size <= _LARGEST]


def _without_nulls(reference: Reference, refused: Sequence[tuple[Mapping[str, Any], str]]) -> Iterator[dict[str, Any]]:
    """Yield values with small numbers for null where constructors compute with it, with widths for arguments that are
    called so, and with texts that constructors allow. What is called a width is tried as one first.
    """
    for values, error in refused:
        nulls = [name for name, value in values.items() if value is None and NOT_MADE in error]
        numbers = counted_with(reference.cls) if NULL in error else frozenset[str]()
        counted = [name for name in nulls if name in numbers]
        widths = [name for name in nulls if NULL in error and _IS_WIDTH.search(name)]
        wide = {name: _SMALL * number for number, name in enumerate(widths, _SMALL)}
        yield from ({**values, **dict.fromkeys(counted, number), **wide} for number in _FEW if counted)
        if widths:
            yield {**values, **wide}
        yield from ({**values, **dict.fromkeys(counted, number)} for number in _FEW if set(counted) & {*widths})
        allowed = allowed_values(reference.cls) if NULL not in error else {}
        words = {name: allowed[name] for name in nulls if name in allowed}
        first = {name: listed[0] for name, listed in words.items()}
        for name, listed in words.items():
            yield from ({**values, **first, name: word} for word in listed)


def _without_zeros(refused: Sequence[tuple[Mapping[str, Any], str]]) -> Iterator[dict[str, Any]]:
    """Yield values with a width for those that are zero where a layer has no elements: parts without which authors can
    do, and forward cannot. Where none is zero, with a wider feed-forward: blocks may have a fraction of it.
    """
    for values, error in refused:
        widths = {name: value for name, value in values.items() if type(value) is int}
        zeros = [name for name, value in widths.items() if value == 0 and _IS_WIDTH.search(name)]
        inner = {name: value * _TIMES for name, value in widths.items() if _IS_INNER.search(name) and _is_size(value)}
        if _EMPTY in error and zeros:
            yield {**values, **dict.fromkeys(zeros, _SMALL)}
        elif _EMPTY in error and inner and max(inner.values()) <= _LARGEST:
            yield {**values, **inner}


def as_checked(values: Mapping[str, Any], error: str) -> Iterator[dict[str, Any]]:
    """Yield values with a size that a failed check allows: of heads and with them of the whole, of an argument that
    has the refused size, of a ratio that makes it, of the ends of a list, of a list's length, then of an argument that
    is a part or a multiple of it.
    """
    for one, other in required_sizes(error):
        if one == HEAD_DIM:
            yield as_wide(values, HEADS * other)
        equal = {name: _replaced(value, one, other) for name, value in values.items()}
        yield from ({**values, name: new} for name, new in equal.items() if new != values[name])
        if one and f"{one} == {other}" in error:
            ratios = {name: one for name, one in values.items() if isinstance(one, float) and _IS_RATIO.search(name)}
            yield from ({**values, name: value * other / one} for name, value in ratios.items())
            yield from (
                {**values, name: new} for name, value in values.items() for new in _with_ends(value, one, other)
            )
            lists = {name: value for name, value in values.items() if isinstance(value, list) and len(value) == one}
            yield from ({**values, name: [*value, *value[-1:] * other][:other]} for name, value in lists.items())
        sizes = {name: value for name, value in values.items() if _is_size(value) and value != one}
        yield from ({**values, name: new} for name, value in sizes.items() for new in in_proportion(value, one, other)
                    if 0 < new <= _LARGEST)  # fmt: skip


def _replaced(value: Any, one: int, other: int) -> Any:
    """Return a size, or a list of sizes, with one of them become another."""
    if isinstance(value, list):
        return [_replaced(item, one, other) for item in value]
    return other if type(value) is int and value == one else value


def _with_ends(value: Any, one: int, other: int) -> Iterator[list[Any]]:
    """Yield lists with a size at both ends, around the first items of a list that has a refused one at an end."""
    if isinstance(value, list) and one in (*value[:1], *value[-1:]):
        yield from ([other, *value[:count], other] for count in range(1, len(value) + 1))


def _in_other_words(reference: Reference, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each of the other texts that an annotation allows: what is the default may need what is not here."""
    for name, one in reference.arguments.items():
        listed = _LITERAL.search(one.annotation)
        words = ast.literal_eval(listed.group(1)) if listed and isinstance(values.get(name), str) else []
        yield from ({**values, name: word} for word in words if isinstance(word, str) and word != values[name])


def _in_compared_words(reference: Reference, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield each of the other texts that the authors' code compares an argument with, or of a table that
    has it; of a table the last one first, as authors begin with the largest.
    """
    nodes = [node for one in reference.closure.definitions for node in ast.walk(one.node)]
    compared = [node for node in nodes if isinstance(node, ast.Compare) and len(node.ops) == 1]
    tables = [[*map(literal, filter(None, node.keys))] for node in nodes if isinstance(node, ast.Dict)]
    for name in (name for name, value in values.items() if isinstance(value, str)):
        own = (one for one in compared if (dotted(one.left) or "").rpartition(".")[2] == name)
        said = (node.value for one in own for node in ast.walk(one.comparators[0]) if isinstance(node, ast.Constant))
        keys = (key for table in tables if values[name] in table for key in reversed(table))
        words = dict.fromkeys(word for word in (*said, *keys) if isinstance(word, str) and word != values[name])
        yield from ({**values, name: word} for word in words)


def _as_published(reference: Reference) -> dict[str, Any]:
    """Return the authors' arguments of the model: their config, and defaults for the rest."""
    defaults = {name: one.default for name, one in reference.arguments.items()}
    return defaults | dict(reference.published.values if reference.published is not None else {})


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= _SMALL


def _with_numbers(reference: Reference, values: Mapping[str, Any]) -> dict[str, Any]:
    """Null becomes a number where the annotation allows one: what comes out is as wide as what goes in."""
    numbers = [
        name for name, one in reference.arguments.items() if "int" in one.annotation and values.get(name) is None
    ]
    inputs = {name: values.get(name.replace(_OUTPUT, _INPUT)) for name in numbers if name.startswith(_OUTPUT)}
    return {**values, **{name: value for name, value in inputs.items() if value is not None}}


def _as_few(published: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """No more layers than the published config has: authors' code may take a single one alone."""
    layers = {name: published.get(name) for name in values if IS_LAYERS.search(name)}
    fewer = {name: count for name, count in layers.items() if type(count) is int and type(values[name]) is int
             and 0 < count < values[name]}  # fmt: skip
    return {**values, **fewer}


def _alike(published: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Sizes that the published config has equal are equal: the first of them is that of all."""
    first: dict[int, Any] = {}
    found = dict(values)
    for name, size in published.items():
        if _is_size(size) and _is_size(values.get(name)):
            found[name] = first.setdefault(size, values[name])
    return found
