"""The authors' methods and functions that step with a scheduler, the nearest first."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_names import is_named
from omni_kit.upstream.repositories.sampler_step.members import of_self
from omni_kit.upstream.repositories.sources import distance, sources_of

_STEP = "step"
_MOST = 6
_OTHERS = ("train", "loss", "backward", "invert", "inversion", "test")


@dataclass(frozen=True)
class ScheduledMethod:
    """A method, or a function.

    Attributes:
        source, made: its file and its node.
        owner: the class whose method it is; empty for a function.
        scheduler: the scheduler, as it is written.
    """

    source: SourceFile
    made: ast.FunctionDef
    owner: str
    scheduler: str

    @property
    def where(self) -> str:
        """File and line."""
        return self.source.where(self.made)

    @property
    def name(self) -> str:
        """Its name, behind that of its class."""
        return f"{self.owner}.{self.made.name}" if self.owner else self.made.name

    @property
    def full_name(self) -> str:
        """Its module, its class and its name."""
        return f"{self.source.module}.{self.name}"


def scheduled_methods(reference: Reference) -> list[ScheduledMethod]:
    """Return the methods nearest to a class; if the reference names one, that one."""
    found = [one for source in sources_of(reference) for one in _methods(source)]
    if reference.loop:
        return [one for one in found if is_named(one.full_name, reference.loop)][:1]
    own = reference.class_name
    return sorted(found, key=lambda one: (own not in one.source.text, distance(reference, one.source.path)))[:_MOST]


def _methods(source: SourceFile) -> Iterator[ScheduledMethod]:
    if f".{_STEP}(" not in source.text or "scheduler" not in source.text:
        return
    tops = [(node, "") for node in source.tree.body if isinstance(node, ast.FunctionDef)]
    tops += [(one, cls.name) for cls in source.classes.values() for one in cls.body if isinstance(one, ast.FunctionDef)]
    tops = [(function, owner) for function, owner in tops if not any(word in function.name for word in _OTHERS)]
    helpers = {(owner, function.name): call for function, owner in tops if (call := _stepped([function])) is not None}
    for function, owner in tops:
        loops = [node for node in ast.walk(function) if isinstance(node, ast.For | ast.While)]
        asked = [node for loop in loops for node in ast.walk(loop) if isinstance(node, ast.Call)]
        helped = (helpers[key] for one in asked if (key := (owner, of_self(one.func))) in helpers)
        call = _stepped(loops) or next(helped, None)
        trains = any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in ast.walk(function))
        if call is not None and not trains and isinstance(func := call.func, ast.Attribute):
            yield ScheduledMethod(source, function, owner, ast.unparse(func.value))


def _stepped(nodes: Iterable[ast.AST]) -> ast.Call | None:
    """Return the first call in nodes that asks a scheduler for the next latents."""
    every = (one for node in nodes for one in ast.walk(node))
    return next((one for one in every if isinstance(one, ast.Call) and _steps(one)), None)


def _steps(call: ast.Call) -> bool:
    """Return whether a call asks a scheduler for the next latents, as that of a learning rate does not."""
    func, given = call.func, len(call.args) + len(call.keywords)
    return (
        isinstance(func, ast.Attribute) and func.attr == _STEP and "scheduler" in ast.unparse(func.value) and given > 2
    )
