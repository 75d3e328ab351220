"""Values of the conditions in a pipeline's `__call__` when it is called by default."""

import ast
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from omni_kit.pysource.eval import UNKNOWN, Frame, Native, OpenDomain, Scope, Unknown
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.calling import call_arguments, images_of, media_of
from omni_kit.upstream.diffusers.pipelines import SCHEDULER, Pipeline

_KNOWN = {"XLA_AVAILABLE": False, "use_resolution_binning": False}  # sizes are taken as they are asked for
_OF_MEDIA = ("image", "video", "mask")
_NOT_USING = ("postprocess", "resize_and_crop", "validate")
"""Calls on what is made of an answer, which may have the name of what was given; and checks, which None passes."""
_STEPS_BY = Unknown(f"self.{SCHEDULER}")


@dataclass(frozen=True)
class Defaults:
    """A pipeline that is called with a prompt and nothing else.

    Attributes:
        scheduler: the class that steps.
        absent: arguments that are None at the places that are looked at, whatever is assigned to them later.
    """

    pipeline: Pipeline
    scheduler: str
    absent: frozenset[str] = frozenset()

    @cached_property
    def _assigned(self) -> frozenset[str]:
        """The variables that `__call__` assigns: their values depend on more than defaults."""
        found = self.pipeline.cls.method("__call__")
        nodes = ast.walk(found[1]) if found is not None else ()
        targets = (node.targets[0] for node in nodes if isinstance(node, ast.Assign))
        return frozenset(target.id for target in targets if isinstance(target, ast.Name)) - self.absent

    @cached_property
    def _known(self) -> dict[str, Any]:
        """Dotted names and their values: of the argument x, also `self.x` and `self._x`."""
        given = call_arguments(self.pipeline)
        known = {name: UNKNOWN if name in self._assigned else one.default for name, one in given.items()} | _KNOWN
        return {f"{owner}{name}": value for name, value in known.items() for owner in ("", "self.", "self._")}

    def told(self, test: ast.expr) -> bool | None:
        """Return the value of a condition; None if it depends on more."""
        return Frame(_Values(self._known, self.scheduler), Path(), "", Scope({})).decided(test)


class _Values(OpenDomain):
    def __init__(self, known: dict[str, Any], scheduler: str) -> None:
        super().__init__(known)
        self.scheduler = scheduler

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], frame: Frame, node: ast.expr) -> Any:
        """See `Domain`: the class of the scheduler is known."""
        if isinstance(function, Native) and function.function is isinstance and arguments[0] == _STEPS_BY:
            return arguments[1] == Unknown(self.scheduler)
        return super().call(function, arguments, keywords, frame, node)


def media_needed(defaults: Defaults) -> list[str]:
    """Return the pictures, films and sounds that a pipeline cannot be called without: required, or worked on by
    default.
    """
    given = call_arguments(defaults.pipeline)
    named = list(dict.fromkeys([*media_of(defaults.pipeline), *images_of(defaults.pipeline)]))
    found = defaults.pipeline.cls.method("__call__")
    if found is None:
        return [name for name in named if given[name].required]
    made = {name for node in ast.walk(found[1]) for name in _made_where_absent(node)}
    without = replace(defaults, absent=frozenset(name for name in named if given[name].default is None))
    taken = list(_taken(without, found[1].body))
    used = {name for node in taken for name in _worked_on(node) if node.lineno <= _assigned_at(taken, name)}  # type: ignore[attr-defined]
    return [name for name in named if given[name].required or name in used - made]


def images_needed(pipeline: Pipeline) -> list[str]:
    """Return the pictures that a pipeline cannot be called without, in the order of its call."""
    scheduler = next((one.class_name for one in pipeline.components if one.name == SCHEDULER), "")
    needed = media_needed(Defaults(pipeline, scheduler))
    return [name for name in images_of(pipeline) if name in needed]


def _assigned_at(taken: Iterable[ast.AST], name: str) -> float:
    """Return the first line that assigns a variable by default."""
    found = [node for node in taken if isinstance(node, ast.Assign)]
    targets = ((node, one) for node in found for target in node.targets for one in ast.walk(target))
    return min((node.lineno for node, one in targets if isinstance(one, ast.Name) and one.id == name), default=math.inf)


def _made_where_absent(node: ast.AST) -> Iterator[str]:
    """Yield the variable that `if x is None: x = ...` fills in: a call that leaves it out has it, too."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Compare) and isinstance(node.test.ops[0], ast.Is):
        name = dotted(node.test.left) or ""
        stored = {one.id for inner in node.body for one in ast.walk(inner)
                  if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}  # fmt: skip
        yield from {name} & stored


def _taken(defaults: Defaults, nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield the code that runs by default."""
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
    """Yield the variables that are asked for an attribute or an item, or given to what prepares media."""
    if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.value, ast.Name):
        yield node.value.id
    elif isinstance(node, ast.Call):
        name = dotted(node.func) or ""
        if any(word in name for word in _NOT_USING):
            return
        if name.count(".") > 1 or any(word in name for word in _OF_MEDIA):
            given = [*node.args, *(one.value for one in node.keywords)]
            yield from (one.id for one in given if isinstance(one, ast.Name))
