"""Guiders: which of them computes a pipeline's formula, worked out from their own forward."""

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import Frame, Unknown, Unsupported
from omni_kit.pysource.library import Library
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.guidance import Formula
from omni_kit.upstream.repositories.numbers import Numbers, called

COMPONENT = "guider"
SCALE = "guidance_scale"
_SELF = Unknown("self")
_TAKEN = re.compile(rf'ComponentSpec\(\s*"{COMPONENT}\w*",\s*(\w+)')
_POSITIVE, _NEGATIVE, _BY = 0.7, -0.4, 3.3
_COMPUTED = {
    Formula.between: _NEGATIVE + _BY * (_POSITIVE - _NEGATIVE),
    Formula.beyond: _POSITIVE + _BY * (_POSITIVE - _NEGATIVE),
}


@dataclass(frozen=True)
class Guider:
    """A guider.

    Attributes:
        name: the class.
        config: what it is made with, other than the scale.
    """

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)


def guider_for(library: Library, formula: Formula) -> Guider | None:
    """Return the guider, of those that the library's own modular pipelines take, that computes a formula; None for
    none.
    """
    for name in _taken(library):
        cls = find_class(library, name)
        for config in _configs(cls) if cls is not None else ():
            if cls is not None and _computes(cls, config, formula):
                return Guider(name, config)
    return None


def _taken(library: Library) -> list[str]:
    """Return the guiders of the library's own modular pipelines, most used first."""
    files = (library.root / "modular_pipelines").rglob("*.py")
    found = Counter(name for file in files for name in _TAKEN.findall(file.read_text(encoding="utf-8")))
    return [name for name, _ in found.most_common()]


def _configs(cls: ClassRef) -> Iterator[dict[str, Any]]:
    """Yield the default config, and each one with one switch reversed."""
    yield {}
    for name, value in _defaults(cls).items():
        if isinstance(value, bool) and name != "enabled":
            yield {name: not value}


def _defaults(cls: ClassRef) -> dict[str, Any]:
    found = cls.method("__init__")
    if found is None:
        return {}
    given = found[1].args
    pairs = zip(given.args[::-1], given.defaults[::-1], strict=False)
    return {one.arg: value.value for one, value in pairs if isinstance(value, ast.Constant)}


def _computes(cls: ClassRef, config: Mapping[str, Any], formula: Formula) -> bool:
    found, wanted = cls.method("forward"), _COMPUTED.get(formula)
    if found is None or wanted is None:
        return False
    own = {**_defaults(cls), **config, SCALE: _BY}
    try:
        answer = called(found[0].source, found[1], (_SELF, _POSITIVE, _NEGATIVE), domain=_Guiding(own))
    except Unsupported:
        return False
    return isinstance(answer, float) and math.isclose(answer, wanted)


class _Guiding(Numbers):
    """A guider's forward, with numbers for both answers, where it guides.

    Args:
        own: what the guider was made with.
    """

    def __init__(self, own: Mapping[str, Any]) -> None:
        super().__init__()
        self.own = own

    def name(self, name: str, frame: Frame) -> Any:
        """See `Domain`: classes of outputs are not looked at."""
        return Unknown(name) if name.endswith("Output") else super().name(name, frame)

    def attribute(self, base: Any, name: str, frame: Frame) -> Any:
        """See `Domain`: what it was made with."""
        return self.own[name] if base == _SELF and name in self.own else super().attribute(base, name, frame)

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], frame: Frame, node: ast.expr) -> Any:
        """See `Domain`: of an output the first field counts; asked whether it guides, it does."""
        if isinstance(function, Unknown) and function.name.startswith(f"{_SELF.name}."):
            return True
        if isinstance(function, Unknown) and function.name.endswith("Output"):
            return next(iter([*arguments, *keywords.values()]))
        return super().call(function, arguments, keywords, frame, node)
