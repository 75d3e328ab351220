"""Assignments of an integration to classes of diffusers."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from omni_checkers.engine.files import File, walked
from omni_checkers.veomni.facts.diffusion.sides import Diffusion
from omni_kit.pysource.nodes import last_name


@dataclass(frozen=True)
class Patch:
    """An assignment to something of diffusers.

    Attributes:
        target: what is assigned to, dotted.
        value: what is assigned.
        function: the function that the assignment stands in; None if it stands outside of all.
    """

    file: File
    node: ast.stmt
    target: str
    value: ast.expr
    function: ast.FunctionDef | None


def patches(files: Sequence[File]) -> Iterator[Patch]:
    """Assignments, and calls of setattr, on what is imported from diffusers."""
    for file in files:
        if "diffusers" not in file.text:
            continue
        owners = {id(inner): node for node in file.nodes(ast.FunctionDef) for inner in walked(node)}
        statements: list[ast.Assign | ast.Expr] = [*file.nodes(ast.Assign), *file.nodes(ast.Expr)]
        for node in statements:
            for target, value in _stored(file, node):
                if target.startswith("diffusers."):
                    yield Patch(file, node, target, value, owners.get(id(node)))


def _stored(file: File, node: ast.Assign | ast.Expr) -> Iterator[tuple[str, ast.expr]]:
    """(dotted target, value) of what a statement assigns to attributes."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Attribute) and file.origin(target.value).startswith("diffusers."):
                yield file.origin(target), node.value
    elif isinstance(node.value, ast.Call) and last_name(node.value) == "setattr" and len(node.value.args) == 3:
        owner, name, value = node.value.args
        text = str(name.value) if isinstance(name, ast.Constant) else ast.unparse(name)
        yield f"{file.origin(owner)}.{text}", value


def patched_forward(diffusion: Diffusion) -> tuple[File, ast.FunctionDef] | None:
    """Return the function that takes the place of forward of the transformer's class; None if that stays diffusers'
    own.
    """
    upstream = diffusion.upstream
    for patch in patches(list(diffusion.files.values())):
        if upstream is not None and patch.target.endswith(f".{upstream.node.name}.forward"):
            return _function(diffusion, patch.file, patch.value)
    return None


def _function(diffusion: Diffusion, file: File, value: ast.expr) -> tuple[File, ast.FunctionDef] | None:
    """Return the function that a name means: of its file, or of another file of the directory."""
    name = value.id if isinstance(value, ast.Name) else ""
    real = file.imports.get(name, name).rpartition(".")[2]
    own = file if name not in file.imports else None
    for other in [own] if own is not None else diffusion.files.values():
        for node in other.tree.body if other.tree is not None else ():
            if isinstance(node, ast.FunctionDef) and node.name == real:
                return other, node
    return None
