"""Pieces of a scheduler that are not statements of a step: how noise is drawn, what is noted, what is copied along."""

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence

from omni_kit.errors import Refusal
from omni_kit.pysource.eval import Unsupported
from omni_kit.targets.diffusers.porting.parts import collect
from omni_kit.targets.diffusers.porting.syntax import code
from omni_kit.upstream.repositories.closure import Closure
from omni_kit.upstream.repositories.names import Defined
from omni_kit.upstream.repositories.sampler_step.flow import DenoiserCall


class Gathered(ast.NodeTransformer):
    """Notes the step and the place where the model is asked."""

    def all(self, body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        """Yield every statement of a body."""
        for node in body:
            found = self.visit(copy.deepcopy(node))
            yield from found if isinstance(found, list) else [found]

    def visit_DenoiserCall(self, node: DenoiserCall) -> list[ast.stmt]:
        """Two lists are longer by one."""
        note = ast.parse(f"told.append({ast.unparse(ast.fix_missing_locations(ast.Expr(node.time)))})").body
        return [*note, *ast.parse(f"self._places.append((number, {node.number}))").body]


class Drawn(ast.NodeTransformer):
    """Draws noise with the generator that a step is given."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """`torch.randn_like(x)`, and `torch.randn` of the shape of something.

        Raises:
            Unsupported: it is drawn otherwise.
        """
        self.generic_visit(node)
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if "rand" not in name or name == "randn_tensor":
            return node
        shape = _shape(node, name)
        if shape is None:
            raise Unsupported(f"draws noise by {ast.unparse(node)}: write randn_like")
        return ast.parse(
            f"randn_tensor({shape}.shape, generator=generator, device={shape}.device, dtype={shape}.dtype)", mode="eval"
        ).body


def _shape(node: ast.Call, name: str) -> str | None:
    first = node.args[0] if node.args else None
    first = first.value if isinstance(first, ast.Starred) else first
    if name == "randn_like" and first is not None:
        return ast.unparse(first)
    whole = isinstance(first, ast.Attribute) and first.attr == "shape" and name == "randn"
    return ast.unparse(first.value) if whole and isinstance(first, ast.Attribute) else None


def lines_of(root: Defined, used: Mapping[str, str]) -> list[str]:
    """Return the lines that import what is used."""
    found = []
    for head in dict.fromkeys(name.partition(".")[0] for name in used):
        one = root.source.imports[head]
        if one.name is not None:
            found.append(f"from {one.module} import {one.name}" + (f" as {head}" if head != one.name else ""))
        else:
            found.append(f"import {one.module}" + (f" as {head}" if head != one.module.partition(".")[0] else ""))
    return found


def copied(closure: Closure) -> tuple[list[str], str]:
    """Return the import lines and the source text that are needed of the authors' code.

    Raises:
        Unsupported: it cannot be extracted from its file.
    """
    if not closure.definitions:
        return [], ""
    try:
        parts = collect(closure, "", closure.definitions[-1].name)
    except Refusal as error:
        raise Unsupported(str(error)) from error
    return parts.imports, "\n\n\n".join(code(one.node).strip("\n") for one in parts.parts)
