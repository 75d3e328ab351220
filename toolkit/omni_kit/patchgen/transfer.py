"""A config on its way from the process that ran it: JSON, of which nothing is believed that the config could forge."""

from collections.abc import Callable
from dataclasses import fields
from types import NoneType
from typing import Any

from omni_kit.patchgen.fragment import NoSource, Position, UnmatchedHunk, position_of
from omni_kit.patchgen.locate import Libraries
from omni_kit.patchgen.spec import ImportSpec, Origin, Patch, PatchConfig, PatchType, PositionedHelper
from omni_kit.patchgen.standins import StandIn

_TAG = "is"
_RECORDS = {
    one.__name__: one for one in (PatchConfig, Patch, ImportSpec, PositionedHelper, Origin, Position, UnmatchedHunk)
}
_TYPES: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("patches", "additional_imports", "post_import_blocks", "helpers", "exclude"), list),
    "positioned_helpers": list, "drop_imported_names": (list, set), "block_origins": dict, "patch_type": PatchType,
    "origin": (Origin, NoneType), "path": str, "line": int, "name": str, "why": str, "placement": str,
    **dict.fromkeys(("strict", "optional", "inject", "is_from_import"), bool),
}  # fmt: skip
"""The types of fields that Python itself does not look at."""


class Forged(ValueError):
    """A reply that `as_json` does not give."""


def place(config: PatchConfig, libraries: Libraries) -> None:
    """Put positions in files instead of a config's live functions and classes."""
    for patch in (one for one in config.patches if isinstance(one, Patch)):
        if patch.replacement is not None:
            patch.replacement = _placed(patch.replacement, patch.origin, libraries)
    for helper in (one for one in config.positioned_helpers if isinstance(one, PositionedHelper)):
        helper.helper = _placed(helper.helper, helper.origin, libraries)
    config.helpers = [_placed(helper, config.origin, libraries) for helper in config.helpers]


def as_json(value: Any) -> Any:
    """Return a placed config, or what it is made of, as a JSON value; a live object is its `repr`."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case PatchType():
            return {_TAG: "PatchType", "value": value.value}
        case StandIn():
            return {_TAG: "StandIn", "path": value.path}
        case dict():
            return {_TAG: "dict", "items": [[as_json(key), as_json(one)] for key, one in value.items()]}
        case set() | frozenset():
            return {_TAG: "set", "items": [as_json(one) for one in value]}
        case list() | tuple():
            return [as_json(one) for one in value]
    if type(value).__name__ in _RECORDS and type(value) in _RECORDS.values():
        return {_TAG: type(value).__name__} | {one.name: as_json(getattr(value, one.name)) for one in fields(value)}
    return repr(value)


def from_json(value: Any) -> Any:
    """Return what `as_json` was called with.

    Raises:
        Forged: it was not.
    """
    if isinstance(value, list):
        return [from_json(one) for one in value]
    if not isinstance(value, dict):
        return value
    try:
        rest = {name: from_json(one) for name, one in value.items() if name != _TAG}
        return _MAKERS[value[_TAG]](**rest)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Forged(f"{type(error).__name__}: {error}") from error


def _placed(thing: Any, origin: Origin | None, libraries: Libraries) -> Position | UnmatchedHunk | StandIn:
    if isinstance(thing, (Position, UnmatchedHunk, StandIn)):  # a copy of a config shares them
        return thing
    try:
        return position_of(thing, origin, libraries)
    except NoSource as why:
        return UnmatchedHunk(str(why))


def _record(record: Callable[..., Any]) -> Callable[..., Any]:
    def make(**values: Any) -> Any:
        for name, value in values.items():
            if not isinstance(value, _TYPES.get(name, object)):
                raise Forged(f"{name} is a {type(value).__name__}")
        return record(**values)

    return make


def _stand_in(path: object) -> StandIn:
    return StandIn(str(path))


_MAKERS: dict[str, Callable[..., Any]] = {
    **{name: _record(record) for name, record in _RECORDS.items()},
    "PatchType": PatchType, "StandIn": _stand_in, "dict": lambda items: dict(items), "set": lambda items: set(items),
}  # fmt: skip
