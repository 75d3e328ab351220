"""Moves the token ids of a toy into its small vocabulary."""

from collections.abc import Iterator
from typing import Any

_MEDIA = ("image", "video", "audio")
_PLACEHOLDERS = ("_token_id", "_token_index")
_IDS = ("_token_id", "_token_ids", "_token_index", "_bos_id", "_eos_id", "_pad_id", "_nothink_id")


def fit_token_ids(toy: dict[str, Any]) -> None:
    """Ids beyond the vocabulary move below its end, in place; ids that differed still differ.

    The parts of a config speak of the same tokens, so one id moves to the same place everywhere. Nothing happens
    without a vocabulary.
    """
    sizes = [part["vocab_size"] for part in _parts(toy) if isinstance(part.get("vocab_size"), int)]
    if not sizes:
        return
    vocabulary = min(sizes)
    given = {number for part in _parts(toy) for key in part if key.endswith(_IDS) for number in _numbers(part[key])}
    free = (number for number in range(vocabulary - 1, 0, -1) if number not in given)
    media = [key for key in toy if key.startswith(_MEDIA) and key.endswith(_PLACEHOLDERS)]
    if all(toy[key] is None for key in media):  # checkpoints name them, and without any a toy takes no media
        toy |= {key: next(free) for key in media}
    moved = {number: next(free) for number in sorted(given) if number >= vocabulary}
    for part in _parts(toy):
        for key in [key for key in part if key.endswith(_IDS)]:
            value = part[key]
            fitted = [moved.get(item, item) for item in value] if isinstance(value, list) else moved.get(value, value)
            part[key] = fitted


def is_part(key: str, value: Any) -> bool:
    """Return whether a value of a config is the config of a part: by its name, or because it names a model itself."""
    return isinstance(value, dict) and (key.endswith("config") or "model_type" in value)


def _parts(toy: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the config and every config below it."""
    yield toy
    for key, value in toy.items():
        if is_part(key, value):
            yield from _parts(value)


def _numbers(value: Any) -> list[int]:
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, int) and not isinstance(item, bool)]
