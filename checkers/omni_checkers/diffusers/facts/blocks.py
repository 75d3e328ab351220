"""Declared inputs, outputs and components of the blocks of modular pipelines."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls, keyword, last_name, methods

_BASE, _PIPELINE = "ModularPipelineBlocks", "ModularPipeline"


def is_leaf(cls: ClassRef) -> bool:
    """Return whether a block does something itself, and is not made of others."""
    made_of_others = any(
        cls.derives(f"{sort}PipelineBlocks") for sort in ("Sequential", "Conditional", "Auto", "LoopSequential")
    )
    return cls.defines("__call__") is not None and not made_of_others


def named(cls: ClassRef, attribute: str, spec: str) -> set[str] | None:
    """Return the names in a property of a block that gives a list of specs; None if they cannot be read.

    Args:
        attribute: such as "inputs".
        spec: the class that names one, such as "InputParam".
    """
    found = cls.method(attribute)
    if found is None or found[0].node.name == _BASE:
        return set() if cls.assigned(attribute) is None else None
    names: set[str] = set()
    body = [node for node in walked(found[1]) if isinstance(node, ast.Return) and node.value is not None]
    if not body or any(not isinstance(node.value, ast.List) for node in body):
        return None
    for node in body:
        for item in getattr(node.value, "elts", []):
            name = _name(item, spec)
            if name is None:
                return None
            names.add(name)
    return names


def _name(item: ast.expr, spec: str) -> str | None:
    """Return the name of `Spec("name", ...)`, `Spec(name="name")` or `Spec.template("name")`."""
    if isinstance(item, ast.Constant) and isinstance(item.value, str):
        return item.value
    if not isinstance(item, ast.Call):
        return None
    template = isinstance(item.func, ast.Attribute) and last_name(item.func.value) == spec
    if not template and last_name(item.func) != spec:
        return None
    given = keyword(item, "name") or (item.args[0] if item.args else None)
    return given.value if isinstance(given, ast.Constant) and isinstance(given.value, str) else None


def state_of(call: ast.FunctionDef) -> str:
    """Return the variable that holds the result of `get_block_state`; empty if it is not called."""
    for node in walked(call):
        asked = isinstance(node, ast.Assign) and last_name(node.value) == "get_block_state"
        if asked and isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            return node.targets[0].id
    return ""


def attributes(node: ast.AST, holder: str) -> Iterator[ast.Attribute]:
    """`holder.name` below a node, in the order of the lines."""
    found = [
        one
        for one in walked(node)
        if isinstance(one, ast.Attribute) and isinstance(one.value, ast.Name) and one.value.id == holder
    ]
    yield from sorted(found, key=lambda one: (one.lineno, one.col_offset))


def asked_for(node: ast.AST, holder: str) -> set[str]:
    """Return the names of which `hasattr(holder, "name")` asks below a node whether they are there."""
    found = (call.args for call in calls(node, "hasattr") if len(call.args) == 2 and last_name(call.args[0]) == holder)
    return {one[1].value for one in found if isinstance(one[1], ast.Constant) and isinstance(one[1].value, str)}


def stored(cls: ClassRef) -> set[str] | None:
    """Return the attributes that methods of a block set on anything; None if some are set by names that are
    computed.
    """
    found: set[str] = set()
    for function in methods(cls.node):
        if any(calls(function, "setattr")):
            return None
        for node in walked(function):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                found.add(node.attr)
    return found


def pipeline_names(cls: ClassRef, call: ast.FunctionDef, holder: ast.arg, classes: list[ClassRef]) -> set[str] | None:
    """Return a modular pipeline's attributes other than components; None if its class cannot be read."""
    annotated = cls.source.resolve_class(last_name(holder.annotation)) if holder.annotation is not None else None
    held = [ClassRef(*annotated)] if annotated is not None else [one for one in classes if one.derives(_PIPELINE)]
    base = cls.source.library.module_file("diffusers.modular_pipelines.modular_pipeline")
    if base is None or (holder.annotation is not None and annotated is None):
        return None
    everything = [*held, *_base_of(cls)]
    return {name for one in everything for entry in one.mro if isinstance(entry, ClassRef) for name in _members(entry)}


def _base_of(cls: ClassRef) -> list[ClassRef]:
    """Return the ModularPipeline of diffusers, which is next to the base of blocks."""
    for entry in cls.mro:
        if isinstance(entry, ClassRef) and entry.node.name == _BASE:
            node = entry.source.classes.get(_PIPELINE)
            return [ClassRef(entry.source, node)] if node is not None else []
    return []


def _members(cls: ClassRef) -> Iterator[str]:
    for item in cls.node.body:
        if isinstance(item, ast.FunctionDef):
            yield item.name
            yield from (one.attr for one in attributes(item, "self") if isinstance(one.ctx, ast.Store))
        elif isinstance(item, (ast.Assign, ast.AnnAssign)):
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            yield from (one.id for one in targets if isinstance(one, ast.Name))
