"""Functions with a change of their text: mistakes that somebody could have written."""

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

_SCALING, _SHIFT = re.compile(r"scaling_factor|latents?_std"), re.compile(r"shift_factor|latents?_mean")
_COUNT = re.compile(r"\bnum_\w+_per_prompt$")


def otherwise(call: Callable[..., Any], change: "Change") -> Callable[..., Any] | None:
    """`__call__` with a change of its text; None if it has no place for it."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(call)))
    ast.fix_missing_locations(change.visit(tree))
    if not change.done:
        return None
    plain, names = inspect.unwrap(call), dict[str, Any]()
    exec(compile(tree, "<planted>", "exec"), plain.__globals__, names)
    made: Callable[..., Any] = names[plain.__name__]
    return made


def anywhere(classes: Iterator[type] | set[type], change: Callable[[], "Change"]) -> Iterator[tuple[Any, str, Any]]:
    """Yield the functions of these classes and of their files that have a place for it: whose attribute would
    be what.
    """
    owners: list[tuple[str, Any]] = [(cls.__module__, cls) for cls in classes]
    owners += [(home, sys.modules[home]) for home in {home for home, _ in owners}]
    for home, owner in owners:
        for name, held in list(vars(owner).items()):
            function = getattr(held, "__func__", held)  # of a static method
            if inspect.isfunction(function) and function.__module__ == home:
                wrong = otherwise(function, change())
                if wrong is not None:
                    yield owner, name, wrong


class Change(ast.NodeTransformer):
    """A change of some places; `done` where there was one."""

    done = False

    def visit(self, node: ast.AST) -> ast.AST:
        """Return a place, after those inside it."""
        self.generic_visit(node)
        changed = self.changed(node)
        self.done = self.done or changed is not None
        return changed or node

    def changed(self, node: ast.AST) -> ast.AST | None:
        """Return the replacement of a node; None if it stays."""
        raise NotImplementedError


class Turned(Change):
    """Guidance continues from the other answer: `b + s * (b - a)` for `a + s * (b - a)`."""

    def changed(self, node: ast.AST) -> ast.AST | None:
        """Return the formula."""
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add):
            return None
        scaled = node.right if isinstance(node.right, ast.BinOp) and isinstance(node.right.op, ast.Mult) else None
        between = scaled.right if scaled is not None and isinstance(scaled.right, ast.BinOp) else None
        if between is None or not isinstance(between.op, ast.Sub):
            return None
        return ast.BinOp(between.left, node.op, node.right) if _alike(between.right, node.left) else None


class Undivided(Change):
    """A step in the scheduler's own unit."""

    def changed(self, node: ast.AST) -> ast.AST | None:
        """Return the division."""
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
            return None
        return node.left if ast.unparse(node.right).endswith("num_train_timesteps") else None


class Tiled(Change):
    """Rows are repeated as a whole for each prompt: p0 p1 p0 p1 for p0 p0 p1 p1."""

    def changed(self, node: ast.AST) -> ast.AST | None:
        """Rewrite repetition: `repeat_interleave`, a `repeat` that is folded into the rows, or a list of both loops."""
        if isinstance(node, ast.ListComp) and len(node.generators) == 2:
            rows, times = node.generators
            counted = isinstance(times.iter, ast.Call) and any(map(_per_prompt, times.iter.args))
            return ast.ListComp(node.elt, [times, rows]) if counted else None
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return None
        if node.func.attr == "repeat" and len(node.args) > 1 and _per_prompt(node.args[1]) and _one(node.args[0]):
            return ast.Call(node.func, [node.args[1], node.args[0], *node.args[2:]], node.keywords)
        return _interleaved(node) if node.func.attr == "repeat_interleave" else None


class Unscaled(Change):
    """Latents go to the autoencoder as they are, but for their shift."""

    def changed(self, node: ast.AST) -> ast.AST | None:
        """Return the division by the scaling, or the multiplication by a deviation."""
        scaled = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div | ast.Mult)
        return node.left if scaled and isinstance(node, ast.BinOp) and _names(node.right, _SCALING) else None


class Multiplied(Change):
    """Latents are scaled the other way round."""

    def changed(self, node: ast.AST) -> ast.AST | None:
        """A division becomes a multiplication, and the other way round."""
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div | ast.Mult):
            return None
        if not _names(node.right, _SCALING) or isinstance(node.left, ast.Constant):
            return None
        return ast.BinOp(node.left, ast.Mult() if isinstance(node.op, ast.Div) else ast.Div(), node.right)


class Unshifted(Change):
    """Latents are scaled, and not shifted."""

    def changed(self, node: ast.AST) -> ast.AST | None:
        """Return the shift that is added or taken away."""
        shifted = isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub)
        return node.left if shifted and isinstance(node, ast.BinOp) and _names(node.right, _SHIFT) else None


LATENTS_SCALES: dict[str, tuple[str, Callable[[], Change]]] = {
    "latents-scaling-left-out": ("latents are not divided by the autoencoder's scaling", Unscaled),
    "latents-scaling-turned": ("latents are multiplied where they should be divided", Multiplied),
    "latents-shift-left-out": ("the autoencoder's shift is not added", Unshifted),
}
"""Mistakes between the last step and the autoencoder: kind -> what goes wrong in words, and in the text."""


def _names(node: ast.AST, pattern: re.Pattern[str]) -> bool:
    return pattern.search(ast.unparse(node)) is not None


def _interleaved(call: ast.Call) -> ast.AST | None:
    """`repeat_interleave` of all rows at once, of a tensor or of torch; None if it is not one of rows per prompt."""
    assert isinstance(call.func, ast.Attribute)
    own = ast.unparse(call.func.value) != "torch"
    what, rest = (call.func.value, call.args) if own else (call.args[0], call.args[1:])
    words = {word.arg: word.value for word in call.keywords}
    times = rest[0] if rest else words.get("repeats")
    axis = rest[1] if len(rest) > 1 else words.get("dim")
    if times is None or not _per_prompt(times) or axis is None or ast.unparse(axis) != "0":
        return None
    text = f"({ast.unparse(what)}).unsqueeze(0).repeat_interleave({ast.unparse(times)}, dim=0).flatten(0, 1)"
    return ast.parse(text, mode="eval").body


def _per_prompt(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and _COUNT.search(ast.unparse(node)) is not None


def _one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _alike(one: ast.AST, other: ast.AST) -> bool:
    return ast.dump(one) == ast.dump(other)
