"""Registrations of an integration: pipelines, their configs and models."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omni_checkers.engine.files import walked
from omni_checkers.sglang_diffusion.facts.sources import class_named
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import SourceFile, dotted

REGISTERS = ("register_configs", "register_pipeline")
MODEL_KEYWORDS = ("sampling_param_cls", "pipeline_config_cls")


@dataclass(frozen=True)
class Registration:
    """One call of `register_configs` or `register_pipeline`.

    Attributes:
        source: the file.
        function: what is called.
        within: the function that the call stands in; None for the top level.
        given: keyword -> what it is given.
    """

    source: SourceFile
    call: ast.Call
    function: str
    within: ast.FunctionDef | None
    given: Mapping[str, ast.expr]

    def cls(self, name: str) -> ClassRef | None:
        """Return the class that a keyword is given."""
        return class_named(self.source, self.given.get(name), self.within)

    @property
    def paths(self) -> list[str]:
        """The checkpoints that it is for, those that are written out."""
        value = self.given.get("hf_model_paths")
        items = walked(value) if value is not None else ()
        return [item.value for item in items if isinstance(item, ast.Constant) and isinstance(item.value, str)]


def registrations(source: SourceFile) -> Iterator[Registration]:
    """The calls in a file, in order."""
    for within in [*source.functions.values(), None]:
        nodes = walked(within) if within is not None else _top(source.tree)
        for node in nodes:
            name = (dotted(node.func) or "").rpartition(".")[2] if isinstance(node, ast.Call) else ""
            if isinstance(node, ast.Call) and name in REGISTERS:
                yield Registration(source, node, name, within, _given(node, name))


def _given(node: ast.Call, name: str) -> dict[str, ast.expr]:
    order = (*MODEL_KEYWORDS, "hf_model_paths", "model_detectors") if name == REGISTERS[0] else ("pipeline_cls",)
    named = {one.arg: one.value for one in node.keywords if one.arg is not None}
    return {**dict(zip(order, node.args, strict=False)), **named}


def _top(tree: ast.Module) -> Iterator[ast.AST]:
    for statement in tree.body:
        if not isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            yield from walked(statement)


def registered_models(source: SourceFile) -> Iterator[tuple[str, ClassRef | None, ast.Call]]:
    """Name and class of `ModelRegistry.register_model(name, class or "module:Class")`."""
    for node in walked(source.tree):
        if isinstance(node, ast.Call) and (dotted(node.func) or "").endswith("register_model") and len(node.args) >= 2:
            name, value = node.args[:2]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield name.value, _model(source, value), node


def _model(source: SourceFile, value: ast.expr) -> ClassRef | None:
    if isinstance(value, ast.Constant) and isinstance(value.value, str):
        module, _, name = value.value.partition(":")
        file = source.library.module_file(module)
        from omni_kit.pysource.source import read_source

        found = read_source(source.library, file).resolve_class(name) if file is not None else None
        return ClassRef(*found) if found is not None else None
    return class_named(source, value)


def calls_of(source: SourceFile, name: str) -> Iterator[ast.Call]:
    """The calls of a function that stand at the top level of a file."""
    for node in _top(source.tree):
        if isinstance(node, ast.Call) and (dotted(node.func) or "").rpartition(".")[2] == name:
            yield node
