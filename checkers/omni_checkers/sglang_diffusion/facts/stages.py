"""The stages that a pipeline adds, on whichever way it comes to add them."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from omni_checkers.sglang_diffusion.facts.sources import class_named
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import SourceFile, dotted

BUILDS = "create_pipeline_stages"
DENOISING, STANDARD = "DenoisingStage", "runtime/pipelines_core/stages/"
_DEEPEST = 6


@dataclass(frozen=True)
class StageUse:
    """One stage of a pipeline.

    Attributes:
        cls: the class of the stage.
        call: what makes it.
        source: the file of that call.
    """

    cls: ClassRef
    call: ast.Call
    source: SourceFile


def stages_of(pipeline: ClassRef) -> list[StageUse]:
    """Return every stage that may be added, in order; those of both branches of a condition count."""
    found = pipeline.method(BUILDS)
    return list(_stages(pipeline, *found, frozenset())) if found is not None else []


def _stages(pipeline: ClassRef, home: ClassRef, function: ast.FunctionDef, seen: frozenset[str]) -> Iterator[StageUse]:
    if function.name in seen or len(seen) > _DEEPEST:
        return
    for call in calls_in_order(function):
        made = list(_made(home.source, call.func, function))
        yield from (StageUse(cls, call, home.source) for cls in made)
        if made:
            continue
        if (method := _own_method(pipeline, home, call)) is not None:
            yield from _stages(pipeline, *method, seen | {function.name})
        for argument in call.keywords:  # a class that is handed on is made by whoever takes it
            handed = class_named(home.source, argument.value, function)
            if handed is not None and handed.is_a("PipelineStage"):
                yield StageUse(handed, call, home.source)


def _made(source: SourceFile, called: ast.expr, function: ast.FunctionDef) -> Iterator[ClassRef]:
    """Yield the stages that a call may make: of its class, or of those that a variable may stand for."""
    names = [called]
    if isinstance(called, ast.Name):
        values = [node.value for node in ast.walk(function) if isinstance(node, ast.Assign) and _is(node, called.id)]
        names += [item for value in values for item in ast.walk(value) if isinstance(item, ast.Name)]
    for name in names:
        if (cls := class_named(source, name, function)) is not None and cls.is_a("PipelineStage"):
            yield cls


def _is(node: ast.Assign, name: str) -> bool:
    return any(isinstance(target, ast.Name) and target.id == name for target in node.targets)


def _own_method(pipeline: ClassRef, home: ClassRef, call: ast.Call) -> tuple[ClassRef, ast.FunctionDef] | None:
    """Return the method that `self.name(...)` or `super().name(...)` calls."""
    if not isinstance(call.func, ast.Attribute):
        return None
    name = call.func.attr
    if dotted(call.func.value) == "self":
        return pipeline.method(name)
    if isinstance(call.func.value, ast.Call) and dotted(call.func.value.func) == "super":
        for entry in pipeline.after(home):
            if isinstance(entry, ClassRef) and (found := entry.defines(name)) is not None:
                return entry, found
    return None


def calls_in_order(node: ast.AST) -> list[ast.Call]:
    """The calls below a node, in the order of the text."""
    calls = [item for item in ast.walk(node) if isinstance(item, ast.Call)]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def is_standard(cls: ClassRef) -> bool:
    """Return whether a stage is SGLang's own, for all models."""
    place = cls.source.path.as_posix()
    return STANDARD in place and "/model_specific_stages/" not in place


def before_denoising(stages: list[StageUse]) -> list[StageUse] | None:
    """Return the stages before SGLang's own DenoisingStage; None if the pipeline denoises otherwise.

    A stage that derives from DenoisingStage may read other things: the pipeline is not judged by what the standard one
    reads.
    """
    places = [number for number, one in enumerate(stages) if one.cls.node.name == DENOISING]
    denoising = [one for one in stages if _denoises(one.cls)]
    if not places or any(one.cls.node.name != DENOISING and not is_standard(one.cls) for one in denoising):
        return None
    return stages[: places[0]]


def _denoises(cls: ClassRef) -> bool:
    return cls.is_a(DENOISING) or (cls.node.name.endswith("DenoisingStage") and "Before" not in cls.node.name)
