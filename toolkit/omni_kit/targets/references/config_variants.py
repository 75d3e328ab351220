"""Config fields that upstream's modeling code reads, and the variants that upstream accepts."""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from types import ModuleType
from typing import Any, Literal, get_args, get_origin

from transformers import PreTrainedConfig, configuration_utils
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from omni_kit.isolation.failures import one_line
from omni_kit.toys.configs.values import Declared
from omni_kit.toys.configs.variants import TIED, Source
from omni_kit.upstream.transformers.fields import ConfigField, FieldsRead, fields_read

_LIBRARY = "transformers."
_MODELS = "transformers.models."
_CONFIG = "config"


def source_of(model: Any, spoken: str) -> Source:
    """Collect the sources for varying a model's config.

    Args:
        spoken: the one config within it that the model is asked by; empty if it is asked as a whole.
    """
    config, module = model.config, sys.modules[type(model).__module__]
    read = _read(*_trees(module, config))
    if getattr(model, "_tied_weights_keys", None):
        read = replace(read, fields={TIED: ConfigField(TIED), **read.fields})
    ropes = {name: _words(function) for name, function in ROPE_INIT_FUNCTIONS.items()}
    return Source(config.to_dict(), _own_names(read, config), _declared(module, config), ropes, spoken)


def acceptance(config_class: Any, toy: Mapping[str, Any], run: Callable[[Any], None]) -> Callable[[Any], str]:
    """Return a function of a config: why upstream does not accept it; empty if it does.

    Args:
        toy: the config that is varied.
        run: builds and runs a model of a config.
    """

    def why(values: Mapping[str, Any]) -> str:
        try:
            config = config_class.from_dict(dict(values))
            if config.to_dict() == toy:
                return f"{config_class.__name__} sets it back"
            run(config)
        except Exception as error:  # upstream's, whatever it raises
            return one_line(error)
        return ""

    return why


@cache
def _read(*trees: ast.AST) -> FieldsRead:
    return fields_read(trees)


def _trees(module: ModuleType, config: Any) -> Iterator[ast.AST]:
    """Yield the modeling file, those of its configs, and the library's functions that it passes its config to."""
    yield _tree(module)
    for one in (config, *_parts(config)):
        yield _tree(sys.modules[type(one).__module__])
    for function in {id(one): one for one in vars(module).values() if _takes_config(one)}.values():
        yield _tree(function)
    if "ROPE_INIT_FUNCTIONS" in vars(module):
        yield from map(_tree, ROPE_INIT_FUNCTIONS.values())


@cache
def _tree(what: Any) -> ast.AST:
    return ast.parse(inspect.getsource(what))


def _takes_config(one: Any) -> bool:
    if not inspect.isfunction(one) or not one.__module__.startswith(_LIBRARY) or one.__module__.startswith(_MODELS):
        return False
    return _CONFIG in inspect.signature(one).parameters


def _words(function: Any) -> frozenset[str]:
    found = ast.walk(_tree(inspect.unwrap(function)))
    return frozenset(node.value for node in found if isinstance(node, ast.Constant) and isinstance(node.value, str))


def _parts(config: Any) -> list[PreTrainedConfig]:
    parts = [getattr(config, name, None) for name in config.sub_configs]
    return [part for part in parts if isinstance(part, PreTrainedConfig)]


def _own_names(read: FieldsRead, config: Any) -> FieldsRead:
    """Return the fields by the names that the config gives them, where the code uses another."""
    real: dict[str, str] = {}
    for one in (config, *_parts(config)):
        real |= getattr(one, "attribute_map", {})
    fields: dict[str, ConfigField] = {}
    for name, one in read.fields.items():
        held = fields.setdefault(real.get(name, name), ConfigField(real.get(name, name), default=one.default))
        held.uses |= one.uses
        held.tables |= one.tables
        held.constants |= one.constants
    pairs = frozenset((real.get(first, first), real.get(second, second)) for first, second in read.pairs)
    return FieldsRead(fields, pairs, read.strings)


def _declared(module: ModuleType, config: Any) -> Declared:
    types: dict[str, set[type]] = {}
    choices: dict[str, list[Any]] = {}
    for one in (config, *_parts(config)):
        for base in type(one).__mro__:
            for name, hint in vars(base).get("__annotations__", {}).items():
                members = get_args(hint) if get_origin(hint) not in (list, dict, tuple, Literal) else (hint,)
                for member in members or (hint,):
                    if get_origin(member) is Literal:
                        choices.setdefault(name, []).extend(get_args(member))
                    else:
                        types.setdefault(name, set()).add(get_origin(member) or member)
    tables = {name: list(value) for name, value in vars(module).items() if name.isupper() and hasattr(value, "keys")}
    tables |= {name: list(value) for name, value in vars(module).items() if name == "ACT2FN"}
    kinds = getattr(configuration_utils, "ALLOWED_LAYER_TYPES", ())
    return Declared({name: frozenset(found) for name, found in types.items()}, choices, tables, kinds)
