"""Guiders: which of them computes a pipeline's formula, worked out from their own forward."""

import ast
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.guidance import Formula
from omni_kit.upstream.repositories.numbers import Worker
from omni_kit.upstream.repositories.vectors import Untold

COMPONENT = "guider"
SCALE = "guidance_scale"
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
        config: what it is made with, besides the scale.
    """

    name: str
    config: Mapping[str, Any] = field(default_factory=dict)


def guider_for(library: Library, formula: Formula) -> Guider | None:
    """The guider, of those that the library's own modular pipelines take, that computes a formula; None for none."""
    for name in _taken(library):
        cls = find_class(library, name)
        for config in _configs(cls) if cls is not None else ():
            if cls is not None and _computes(cls, config, formula):
                return Guider(name, config)
    return None


def _taken(library: Library) -> list[str]:
    """The guiders of the library's own modular pipelines, most used first."""
    files = (library.root / "modular_pipelines").rglob("*.py")
    found = Counter(name for file in files for name in _TAKEN.findall(file.read_text(encoding="utf-8")))
    return [name for name, _ in found.most_common()]


def _configs(cls: ClassRef) -> Iterator[dict[str, Any]]:
    """As it is by default, and with one switch the other way round."""
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
    names = [one.arg for one in found[1].args.args][1:]
    if len(names) != 2:
        return False
    scope = dict(zip(names, (_POSITIVE, _NEGATIVE), strict=True))
    worker = _Forward(found[0].source, scope, {**_defaults(cls), **config, SCALE: _BY})
    try:
        _, answer = worker.run(found[1].body)
    except Untold:
        return False
    return isinstance(answer, float) and math.isclose(answer, wanted)


class _Forward(Worker):
    """A guider's forward, with numbers for both answers, where it guides."""

    def __init__(self, source: Any, scope: dict[str, Any], own: Mapping[str, Any]) -> None:
        super().__init__(source, scope, 0)
        self.own = own

    def run(self, body: Sequence[ast.stmt]) -> tuple[bool, Any]:
        """As its base; of an output's class the first field counts."""
        for node in body:
            if isinstance(node, ast.Return) and isinstance(node.value, ast.Call) and node.value.keywords:
                return True, self.value(node.value.keywords[0].value)
            answered, answer = super().run([node])
            if answered:
                return True, answer
        return False, None

    def get_attribute(self, node: ast.Attribute) -> Any:
        """What it was made with."""
        name = (dotted(node) or "").removeprefix("self.")
        return self.own[name] if name in self.own else super().get_attribute(node)

    def get_call(self, node: ast.Call) -> Any:
        """It is asked whether it guides: it does."""
        return True if (dotted(node.func) or "").startswith("self.") else super().get_call(node)
