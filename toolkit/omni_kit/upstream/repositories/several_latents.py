"""Arguments of a forward that are several like its latents, along an axis of their own: earlier frames, views."""

import ast
import re

from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import dotted

_PATTERNS = ("rearrange", "reduce", "repeat")  # of einops


def several_in(tree: ast.FunctionDef, name: str) -> set[str]:
    """Return the arguments that go, several as one batch, through a layer that an argument goes through:
    `self.embed(frames.flatten(0, 1))`.
    """
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and one.args]
    layers = {ast.unparse(one.func) for one in calls if getattr(one.args[0], "id", "") == name}
    return {_joins_first(one.args[0]) for one in calls if ast.unparse(one.func) in layers} - {"", name}


def _joins_first(node: ast.expr) -> str:
    """Return the variable whose first two axes an expression joins; empty for another one."""
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=owner), attr="flatten"), args=axes):
            return owner if [literal(one) for one in axes] == [0, 1] else ""
        case ast.Call(func=called, args=[ast.Name(id=owner), ast.Constant(value=str(pattern)), *_]):
            joins = re.match(r"\s*(\w+) (\w+)[^()]*->\s*\(\1 \2\)", pattern)
            return owner if joins and (dotted(called) or "").rpartition(".")[2] in _PATTERNS else ""
    return ""
