"""Pipelines whose call raises for every argument: their code names what their own parts do not have."""

import ast
import re
from collections.abc import Iterator, Sequence

from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.pipelines import Pipeline
from omni_kit.upstream.diffusers.signatures import arguments

_GUARD = re.compile(r"\bis_(\w+)_available\(\)")


def always_raised(pipeline: Pipeline) -> Iterator[str]:
    """Yield why a pipeline's call always raises, each in one line with its place; nothing for one that can run."""
    found = pipeline.cls.method("__call__")
    if found is None:
        return
    source, nodes = found[0].source, [*_reached(found[1].body)]
    yield from (f"{what} ({source.where(node)})" for node in nodes for what in _unknown_arguments(pipeline, node))
    yield from (f"{what} ({source.where(node)})" for node in nodes for what in _unknown_fields(pipeline, node))


def packages_built_with(pipeline: Pipeline) -> list[str]:
    """Return the packages without which a pipeline's constructor raises: it builds a class that only they have."""
    found = pipeline.cls.method("__init__")
    if found is None:
        return []
    built = {dotted(node.func) for node in ast.walk(found[1]) if isinstance(node, ast.Call)}
    tests = [node for node in found[0].source.tree.body if isinstance(node, ast.If)]
    stubs = ((node, one) for node in tests for one in node.orelse if isinstance(one, ast.ClassDef))
    guards = (_GUARD.search(ast.unparse(node.test)) for node, one in stubs if one.name in built)
    return [match[1] for match in guards if match]


def _reached(body: Sequence[ast.stmt]) -> Iterator[ast.AST]:
    """Yield what runs in every call: expressions outside of branches and of loops, and the tests of branches."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _evaluated(node.test)
        elif isinstance(node, ast.With):
            yield from _reached(node.body)
        elif isinstance(node, ast.Assign | ast.Expr):
            yield from _evaluated(node.value)


def _evaluated(node: ast.AST) -> Iterator[ast.AST]:
    """Yield an expression and what it always evaluates: of `x or y`, x alone."""
    yield node
    parts = [*ast.iter_child_nodes(node)]
    if isinstance(node, ast.BoolOp | ast.IfExp):
        parts = [node.values[0] if isinstance(node, ast.BoolOp) else node.test]
    for part in parts if not isinstance(node, ast.Lambda) else ():
        yield from _evaluated(part)


def _unknown_arguments(pipeline: Pipeline, node: ast.AST) -> Iterator[str]:
    """Yield the keywords of a call of a method of its own that this method does not take."""
    name = dotted(node.func) or "" if isinstance(node, ast.Call) else ""
    method = pipeline.cls.method(name.removeprefix("self.")) if name.startswith("self.") else None
    if method is None or method[1].args.kwarg is not None or not isinstance(node, ast.Call):
        return
    taken = {one.arg for one in (*method[1].args.posonlyargs, *method[1].args.args, *method[1].args.kwonlyargs)}
    for given in (one.arg for one in node.keywords if one.arg is not None and one.arg not in taken):
        yield f"passes {given} to {name.removeprefix('self.')}, which does not take it"


def _unknown_fields(pipeline: Pipeline, node: ast.AST) -> Iterator[str]:
    """Yield the field of its denoiser's config that is read, where the denoiser's class declares no such argument."""
    part = pipeline.denoiser
    holder, _, field = (dotted(node) or "" if isinstance(node, ast.Attribute) else "").rpartition(".")
    cls = find_class(pipeline.library, part.class_name)
    if holder == f"self.{part.name}.config" and cls is not None and field not in {*arguments(cls), *dir(dict)}:
        yield f"reads {field} of its {part.name}'s config, which {part.class_name} does not have"
