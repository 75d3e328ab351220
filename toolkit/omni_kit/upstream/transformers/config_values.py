"""The door for the values of a config.json: of the types that the config class declares, and of a size that can be.

What the class's own annotations refuse is refused here; a whole number is a float, too, and a list a tuple, as JSON has
them. Attributes without an annotation take any value.
"""

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.upstream.transformers.configs import (
    BY_LAYER,
    ConfigClass,
    ModelConfig,
    config_class,
    model_types,
    part_class,
)

# Layers are built one by one, and experts may be: far more than any model has, and few enough to be gone through.
MOST_LAYERS, MOST_EXPERTS = 1000, 65_536
_MOST = 2**63 - 1  # what a size in bytes or elements can be
_LAYERS = re.compile(r"(^|_)(layers?|depths?|stages?|blocks)$")
_EXPERTS = re.compile(r"(^|_)experts$")
_SIZES = re.compile(r"(^|_)(size|dim|heads|layers|experts)$")
_SIMPLE: Mapping[str, type | tuple[type, ...]] = {
    "int": int, "float": (int, float), "str": str, "list": list, "tuple": list, "set": list, "Sequence": list,
    "dict": Mapping, "Mapping": Mapping, "RopeParameters": Mapping,
}  # fmt: skip
# What any config may say, and no class declares.
_OF_ANY: Mapping[str, ast.expr] = {
    name: ast.parse(declared, mode="eval").body
    for name, declared in {
        BY_LAYER: "dict[str, dict] | None", "quantization_config": "dict | None", "rope_scaling": "dict | None",
    }.items()
}  # fmt: skip
_SPECIAL = "__float__"  # how infinity and its like are written, for which JSON has no number
_LISTS = frozenset({"list", "List", "tuple", "Tuple", "Sequence", "set"})


def check_values(config: ModelConfig) -> None:
    """Check every value that config.json gives, those of its parts included.

    Raises:
        BadInput: the first that its class would refuse, or that is not a model size; with key, value and expectation.
    """
    _check(config.cls, config.given, config.origin)


def _check(cls: ConfigClass, given: Mapping[str, Any], origin: str) -> None:
    for key, value in given.items():
        declared = {**_OF_ANY, **cls.annotations}
        annotation = next((declared[name] for name in cls.spellings(key) if name in declared), None)
        if annotation is not None and not matches(value, annotation):
            expected = ast.unparse(annotation)
            raise BadInput(f"{origin}: {key} is {shown(value)}, {cls.name} expects {expected}", f"correct {origin}")
        _check_size(cls, key, value, origin)
        part = _part(cls, key, value)
        if part is not None:
            _check(part, value, f"{origin}: {key}")


def _check_size(cls: ConfigClass, key: str, value: Any, origin: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        return
    names = cls.spellings(key)
    most = MOST_LAYERS if _any(_LAYERS, names) else MOST_EXPERTS if _any(_EXPERTS, names) else _MOST
    default = next((cls.defaults[name].value for name in names if name in cls.defaults), None)
    least = 0 if _any(_SIZES, names) and not (isinstance(default, int) and default < 0) else -_MOST
    if not least <= value <= most:
        wanted = f"at most {most}" if value > most else f"at least {least}"
        raise BadInput(f"{origin}: {key} is {shown(value)}, expected {wanted}", f"correct {origin}")


def _any(pattern: re.Pattern[str], names: list[str]) -> bool:
    return any(pattern.search(name) for name in names)


def _part(cls: ConfigClass, key: str, value: Any) -> ConfigClass | None:
    """Return the class of a part of the config; None for any other value, and for parts that the library does
    not have.
    """
    if not isinstance(value, Mapping) or not key.endswith("config"):
        return None
    model_type, library = value.get("model_type"), cls.source.library
    if isinstance(model_type, str) and model_type:
        return config_class(library, model_type) if model_type in model_types(library) else None
    return part_class(cls, key)


def shown(value: Any) -> str:
    """Return a value as a message cites it: shortened, and told by its kind where it is long."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _MOST:
        return "an integer of more than 64 bits"
    text = json.dumps(value, ensure_ascii=True, default=repr)
    return f"{text[:60]}..." if len(text) > 60 else text


def matches(value: Any, annotation: ast.expr) -> bool:
    """Return whether a value of JSON is of an annotated type; of one that is not known, any is."""
    if isinstance(annotation, ast.BinOp):
        return matches(value, annotation.left) or matches(value, annotation.right)
    if isinstance(annotation, ast.Constant):
        return value is None if annotation.value is None else True
    if isinstance(annotation, ast.Name):
        return _of_name(value, annotation.id)
    if isinstance(annotation, ast.Subscript) and isinstance(annotation.value, ast.Name):
        return _of_container(value, annotation.value.id, annotation.slice)
    return True


def _of_name(value: Any, name: str) -> bool:
    if name == "bool":
        return isinstance(value, bool)
    if name.endswith("Config"):
        return isinstance(value, Mapping)
    if name == "float" and isinstance(value, Mapping):
        return value.keys() == {_SPECIAL}
    kind = _SIMPLE.get(name)
    return kind is None or (isinstance(value, kind) and not isinstance(value, bool))


def _of_container(value: Any, name: str, inner: ast.expr) -> bool:
    arguments = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    arguments = [item for item in arguments if not (isinstance(item, ast.Constant) and item.value is Ellipsis)]
    if name == "Optional":
        return value is None or matches(value, inner)
    if name == "Union":
        return any(matches(value, argument) for argument in arguments)
    if name == "Literal":
        return any(isinstance(a, ast.Constant) and a.value == value and type(a.value) is type(value) for a in arguments)
    if name in _LISTS:
        return isinstance(value, list) and all(any(matches(item, a) for a in arguments) for item in value)
    if name in {"dict", "Dict", "Mapping"}:
        return isinstance(value, Mapping) and all(matches(item, arguments[-1]) for item in value.values())
    return True
