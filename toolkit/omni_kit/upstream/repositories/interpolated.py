"""References between values in yaml configs, as OmegaConf writes them: `${model.width}`, `${.width}`."""

import ast
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from omni_kit.pysource.eval import UNKNOWN, OpenDomain, Unsupported
from omni_kit.pysource.eval.frame import evaluate
from omni_kit.pysource.eval.python import plain_items

_REFERENCE = re.compile(r"\$\{([\w.]+)\}")
_COMPUTED = re.compile(r"\$\{eval:\s*(['\"]?)(.+)\1\s*\}")
_DEEPEST = 8


def interpolated(document: Any) -> Any:
    """Return a document with every reference replaced whose value is known; others stay as they are written."""
    return _Document(document).filled(document, ())


def is_reference(value: Any) -> bool:
    """Return whether a value is a reference, whose own value is not known."""
    return isinstance(value, str) and _REFERENCE.fullmatch(value) is not None


class _Document:
    def __init__(self, root: Any) -> None:
        self.root = root

    def filled(self, value: Any, place: tuple[str | int, ...], depth: int = 0) -> Any:
        """Return a value that stands at a place, given by the keys that lead there."""
        if isinstance(value, Mapping):
            return {name: self.filled(one, (*place, name), depth) for name, one in value.items()}
        if isinstance(value, Sequence) and not isinstance(value, str):
            return [self.filled(one, (*place, at), depth) for at, one in enumerate(value)]
        if not isinstance(value, str) or "${" not in value or depth > _DEEPEST:
            return value
        if whole := _REFERENCE.fullmatch(value):
            found = self._meant(whole[1], place, depth)
            return value if found is UNKNOWN else found
        if computed := _COMPUTED.fullmatch(value):
            text = _REFERENCE.sub(lambda one: repr(self._meant(one[1], place, depth)), computed[2])
            with suppress(Unsupported, SyntaxError, ValueError):
                found = plain_items(evaluate(ast.parse(text, mode="eval").body, OpenDomain()))
                return value if found is UNKNOWN else found
        return value

    def _meant(self, reference: str, place: tuple[str | int, ...], depth: int) -> Any:
        """Return what a reference means: one dot is its own mapping, each further one the mapping above."""
        dots = len(reference) - len(reference.lstrip("."))
        base = place[: len(place) - dots] if dots else ()
        at = (*base, *filter(None, reference.lstrip(".").split(".")))
        value = self.root
        for key in at:
            try:
                value = value[key]
            except (KeyError, IndexError, TypeError):
                return UNKNOWN
        return self.filled(value, at, depth + 1)
