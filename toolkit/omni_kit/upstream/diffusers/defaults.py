"""What the conditions in a pipeline's `__call__` come to when it is called by default."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.calling import call_arguments, media_of
from omni_kit.upstream.diffusers.pipelines import SCHEDULER, Pipeline

_KNOWN = {"XLA_AVAILABLE": False, "use_resolution_binning": False}  # sizes are taken as they are asked for
_OF_MEDIA = ("image", "video", "mask")
_OF_ANSWERS = ("postprocess", "resize_and_crop")  # what is made of an answer, which may have the name of what was given
_NUMBERS: Mapping[type[ast.cmpop], Any] = {ast.Gt: float.__gt__, ast.GtE: float.__ge__, ast.Lt: float.__lt__}


@dataclass(frozen=True)
class Defaults:
    """A pipeline that is called with a prompt and nothing else.

    Attributes:
        scheduler: the class that steps.
    """

    pipeline: Pipeline
    scheduler: str

    @cached_property
    def _assigned(self) -> frozenset[str]:
        """The variables of `__call__` that are assigned anew: what they are hangs on more than defaults."""
        found = self.pipeline.cls.method("__call__")
        nodes = ast.walk(found[1]) if found is not None else ()
        targets = (node.targets[0] for node in nodes if isinstance(node, ast.Assign))
        return frozenset(target.id for target in targets if isinstance(target, ast.Name))

    def told(self, test: ast.expr) -> bool | None:
        """What a condition comes to; None where that hangs on more."""
        match test:
            case ast.UnaryOp(op=ast.Not()):
                told = self.told(test.operand)
                return None if told is None else not told
            case ast.BoolOp():
                told_all = [self.told(one) for one in test.values]
                decisive = isinstance(test.op, ast.Or)
                if decisive in told_all:
                    return decisive
                return None if None in told_all else not decisive
            case ast.Call(func=ast.Name(id="isinstance"), args=[owner, kind]) if dotted(owner) == f"self.{SCHEDULER}":
                return dotted(kind) == self.scheduler
            case ast.Compare(ops=[operator], comparators=[right]):
                return _compared(operator, self._value(test.left), self._value(right))
        value = self._value(test)
        return None if value is UNKNOWN else bool(value)

    def _value(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        name = (dotted(node) or "").removeprefix("self.").removeprefix("_")
        if name in _KNOWN:
            return _KNOWN[name]
        given = call_arguments(self.pipeline).get(name)
        if given is None or name in self._assigned:
            return UNKNOWN
        return given.default


def media_needed(defaults: Defaults) -> list[str]:
    """The pictures, films and sounds that a pipeline cannot be called without: required, or worked on by default."""
    given = call_arguments(defaults.pipeline)
    named = media_of(defaults.pipeline)
    found = defaults.pipeline.cls.method("__call__")
    used = (
        {name for node in _taken(defaults, found[1].body) for name in _worked_on(node)} if found is not None else set()
    )
    return [name for name in named if given[name].required or name in used]


def _taken(defaults: Defaults, nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The code that runs by default."""
    for node in nodes:
        yield node
        if isinstance(node, (ast.If, ast.IfExp)):
            told = defaults.told(node.test)
            yield from _taken(defaults, _listed(node.body) if told is not False else [])
            yield from _taken(defaults, _listed(node.orelse) if told is not True else [])
        else:
            yield from _taken(defaults, ast.iter_child_nodes(node))


def _listed(body: ast.expr | list[ast.stmt]) -> list[ast.AST]:
    return [body] if isinstance(body, ast.expr) else [*body]


def _worked_on(node: ast.AST) -> Iterator[str]:
    """The variables that are asked for an attribute or an item, or given to what prepares media."""
    if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.value, ast.Name):
        yield node.value.id
    elif isinstance(node, ast.Call):
        name = dotted(node.func) or ""
        if any(word in name for word in _OF_ANSWERS):
            return
        if name.count(".") > 1 or any(word in name for word in _OF_MEDIA):
            given = [*node.args, *(one.value for one in node.keywords)]
            yield from (one.id for one in given if isinstance(one, ast.Name))


def _compared(operator: ast.cmpop, left: Any, right: Any) -> bool | None:
    if left is UNKNOWN or right is UNKNOWN:
        return None
    if isinstance(operator, (ast.Is, ast.IsNot)):
        return (left is right) == isinstance(operator, ast.Is)
    if isinstance(operator, (ast.Eq, ast.NotEq)):
        return bool(left == right) == isinstance(operator, ast.Eq)
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    return bool(_NUMBERS[type(operator)](float(left), float(right))) if numbers and type(operator) in _NUMBERS else None
