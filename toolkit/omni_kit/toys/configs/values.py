"""Other values of a config's field, by what code does with it and by its declared type."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.toys.configs.layers import COUNTS
from omni_kit.toys.configs.sizes import AT_MOST, NOISE, SIZES
from omni_kit.upstream.transformers.fields import ConfigField, Use

_GIVEN = 0.5  # where nothing is by default: small, so that a cap or a clip cuts what toys compute
_GIVEN_COUNT = 5
_ALIGNED = 8
_FEW = 4  # a count of at most so many is also tried as one, and as a larger one
# The first that a table has is taken; none of them is what most models take.
_ENTRIES = ("gelu", "relu", "gelu_pytorch_tanh", "tanh", "sigmoid")
# What says of which kind a layer is.
OF_LAYERS = frozenset({Use.contains, Use.stride, Use.threshold, Use.by_layer})
# Why a field is not varied, by what its name begins or ends with.
_ELSEWHERE: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "scenarios call the model with it": (
        ("output_", "return_", "use_cache", "use_return", "_attn", "_experts", "logits_to_keep"), ()
    ),
    "it is the number of a token": ((), ("token_id", "token_index", "token_ids")),
    "it is random; compared as 'dropout' and 'freshly initialised'": (
        (), (*NOISE, "initializer_range", "init_std", "initializer_factor", "rescale_prenorm_residual")
    ),
    "it is a library name": (
        ("model_type", "architectures", "dtype", "torch_dtype", "id2label", "problem_type", "_name", "name_or_path"),
        (),
    ),
    "it is the framework's own": (
        ("is_decoder", "is_encoder", "torchscript", "pretraining_tp", "chunk_size_feed", "gradient_checkpointing",
         "num_labels", "quantization_config", "_pre_", "to_dict", "get_text_config"), ()
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Declared:
    """Declarations of a config's fields in its class and in the installed library.

    Attributes:
        types: field -> the types that it may have, NoneType among them.
        choices: field -> the values of a literal type.
        tables: name of a table -> its entries.
        kinds: the types of layers that the library knows.
    """

    types: Mapping[str, frozenset[type]] = field(default_factory=dict)
    choices: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    tables: Mapping[str, Collection[str]] = field(default_factory=dict)
    kinds: Collection[str] = ()


def elsewhere(name: str) -> str:
    """Return why a field is never varied in a toy's config; empty if it is varied."""
    for why, (beginnings, ends) in _ELSEWHERE.items():
        if name.startswith(beginnings) or (ends and name.endswith(ends)):
            return why
    return ""


def alternatives(
    one: ConfigField, toy: Mapping[str, Any], declared: Declared, strings: Collection[str]
) -> list[list[Any]]:
    """Return groups of values that make a difference; of each group, the first that upstream accepts is enough.

    Args:
        toy: the config of the toy.
        strings: the string constants of the code.
    """
    value = toy.get(one.name, None if one.default is UNKNOWN else one.default)
    types = declared.types.get(one.name, frozenset())
    found = [*_by_use(one, value, toy, declared, strings)] or [*_by_type(one, value, types)]
    found = [*_by_layer(one, value, types, _layers(toy)), *found]
    tested = Use.optional in one.uses or Use.switch in one.uses
    if value is not None and tested and type(None) in types and not isinstance(value, (bool, dict, list)):
        found.append([None])
    return [kept for group in found if (kept := [other for other in group if not _same(other, value)])]


def _by_use(
    one: ConfigField, value: Any, toy: Mapping[str, Any], declared: Declared, strings: Collection[str]
) -> Iterator[list[Any]]:
    layers = _layers(toy)
    if Use.looked_up in one.uses and isinstance(value, str):
        entries = [entry for table in one.tables for entry in declared.tables.get(table, ())]
        yield from ([entry] for entry in [*(e for e in _ENTRIES if e in entries and e != value), *entries][:1])
    elif one.name in declared.choices:
        yield from ([choice] for choice in declared.choices[one.name])
    elif Use.contains in one.uses and (value is None or isinstance(value, list)) and layers:
        held = value or []
        yield [[n for n in range(layers) if n not in held][:1], [*held, layers - 1]]
        if held:
            yield [[]]
    elif Use.stride in one.uses and isinstance(value, int):
        yield [2] if value != 2 else [3]
        yield [1]
    elif Use.threshold in one.uses and isinstance(value, int) and not isinstance(value, bool):
        yield [value + 1]
        if value:
            yield [0]
    elif isinstance(value, list) and value and all(isinstance(kind, str) for kind in value):
        yield from _mixes(value, one, declared, strings)
    elif one.constants and (value is None or isinstance(value, str)):
        yield from ([other] for other in sorted(one.constants) if other != value)


def _layers(toy: Mapping[str, Any]) -> int:
    return next((toy[key] for key in COUNTS if isinstance(toy.get(key), int)), 0)


def _by_layer(one: ConfigField, value: Any, types: frozenset[type], layers: int) -> Iterator[list[Any]]:
    """Yield two numbers in turn, where a list has a number for each layer, or one number may be such a list."""
    held = value if isinstance(value, list) else [value] * layers
    numbers = all(isinstance(number, (int, float)) for number in held)
    listed = isinstance(value, list) or (Use.by_layer in one.uses and list in types)
    if listed and numbers and Use.contains not in one.uses and len(held) == layers > 1:
        first = held[0]
        others = [first - 1, first + 1] if first > 1 else [first + 1]
        if isinstance(value, list) and set(value) <= {0, 1}:  # they are switches
            others = [type(first)(1 - first)]
        yield [[first if number % 2 else other for number in range(layers)] for other in others]


def _mixes(value: list[str], one: ConfigField, declared: Declared, strings: Collection[str]) -> Iterator[list[Any]]:
    """Layers in the other order, all of one kind, and each kind that the code names after the first layer."""
    kinds = list(dict.fromkeys([*value, *sorted(one.constants), *sorted(set(declared.kinds) & set(strings))]))
    yield [value[::-1]]
    for kind in kinds:
        yield [[kind] * len(value), [*value[:-1], kind], [kind, *value[1:]]]


def _by_type(one: ConfigField, value: Any, types: frozenset[type]) -> Iterator[list[Any]]:
    if isinstance(value, bool) or (value is None and bool in types):
        yield [not value]
    elif isinstance(value, int):
        yield _counts(value) if value > 0 else [SIZES.get(one.name) or AT_MOST.get(one.name) or 1, 1]
        if 0 < value <= _FEW:
            yield [value + 2, value + 3]
        if 1 < value <= _FEW:
            yield [1]
    elif value is None and float in types:
        yield [_GIVEN]
    elif value is None and (int in types or one.name in SIZES or one.name in AT_MOST):
        yield [SIZES.get(one.name) or AT_MOST.get(one.name) or _GIVEN_COUNT, 1]


def _counts(value: int) -> list[int]:
    """Other counts, the nearest first: they share no divisor with most others, except that widths stay aligned."""
    # Grouped matrix products take rows of whole 16 bytes: eight numbers of two bytes.
    step = _ALIGNED if value > _ALIGNED and value % _ALIGNED == 0 else 1
    near = [value + step, value + 2 * step, value + 4 * step, value + 8 * step, 2 * value, value // 2, value - step]
    return list(dict.fromkeys(count for count in near if count > 0 and count != value))


def _same(other: Any, value: Any) -> bool:
    return type(other) is type(value) and bool(other == value)
