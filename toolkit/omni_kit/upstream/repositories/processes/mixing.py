"""Known values that a sampler puts back into its latents after each step, where a mask says so."""

import ast
from collections.abc import Iterator

from omni_kit.pysource.reads import literal
from omni_kit.upstream.repositories.processes.class_members import plain_arguments
from omni_kit.upstream.repositories.processes.process import Mixed
from omni_kit.upstream.repositories.sampler_step.loop_statements import goes_over_data


def mixed_in(function: ast.FunctionDef) -> Mixed | None:
    """Return the arguments, null by default, that a function mixes with latents in its loop:
    `x = known * (1 - mask) + mask * x`; None if it mixes nothing, or several.
    """
    optional = {one.arg for one, default in plain_arguments(function)
                if default is not None and literal(default) is None}  # fmt: skip
    loops = (one for one in ast.walk(function) if isinstance(one, ast.For) and not goes_over_data(one))
    found = {one for loop in loops for one in _mixed(loop) if {one.known, one.mask} <= optional}
    return found.pop() if len(found) == 1 else None


def _mixed(loop: ast.For) -> Iterator[Mixed]:
    for node in ast.walk(loop):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=latents)],
                value=ast.BinOp(op=ast.Add(), left=ast.BinOp() as left, right=ast.BinOp() as right),
            ):
                pairs = [*_weighted(left), *_weighted(right)]
                kept = [(mask, above) for name, mask, above in pairs if name == latents]
                known = [(name, mask, above) for name, mask, above in pairs if name != latents]
                if len(kept) == len(known) == 1 and (known[0][1], not known[0][2]) == kept[0]:
                    yield Mixed(known[0][0], kept[0][0], kept[0][1])


def _weighted(product: ast.BinOp) -> Iterator[tuple[str, str, bool]]:
    """Yield the variable of `name * mask`, the mask, and True; of `name * (1 - mask)` with False."""
    if not isinstance(product.op, ast.Mult):
        return
    for one, other in ((product.left, product.right), (product.right, product.left)):
        match one, other:
            case ast.Name(id=name), ast.BinOp(op=ast.Sub(), left=whole, right=ast.Name(id=mask)) if literal(whole) == 1:
                yield name, mask, False
            case ast.Name(id=name), ast.Name(id=mask) if "mask" in mask:
                yield name, mask, True
