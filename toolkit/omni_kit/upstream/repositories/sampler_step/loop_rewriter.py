"""Statements of the authors' loop, rewritten for a function of its own: its model, scheduler and guidance scale."""

import ast
import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from omni_kit.pysource.eval import UNKNOWN, Domain, Unsupported, evaluate
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import passed
from omni_kit.upstream.repositories.sampler_step.flow import binds
from omni_kit.upstream.repositories.sampler_step.loop_statements import (
    GUIDED,
    expression,
    halved_variable,
    is_cast,
    is_identity,
    is_named,
)
from omni_kit.upstream.repositories.sampling import MODEL, SCALE, STEPS

SCHEDULER = "scheduler"
TRAINED = 1000
"""Timesteps of a scheduler, where its settings do not say otherwise."""
IS_SCALE = re.compile(r"^_?((text|inference)_)?(guidance|guide|cfg|cond)_(scale|strength|weight|rate)r?$|^cfg$")
IS_AGAINST = re.compile(r"(^|_)(neg|negative|uncond|unconditional|empty|null)(_|$)", re.IGNORECASE)
_IS_GUIDED = re.compile(r"^_?((do|use)_)?(cfg|classifier_free_guidance)$")
_IS_COUNT = re.compile(r"(^|_)(num_)?(inference_|sampling_|sample_|denoising_|infer_|ddim_|n_?)?steps$")
SCALED = 4.0
"""A scale that guides, for tests on it."""


class LoopContext(Protocol):
    """Facts about the loop that a rewriter reads, and marks that it sets.

    Attributes:
        arguments: of the function with the loop.
        before: the statements before the loop.
        model, scheduler: the authors' expressions for them; empty before they are known.
        moved: the variable for latents; empty before it is known.
        halved: half of an answer's channels is dropped.
        scaled: the scheduler scales what the model receives.
    """

    arguments: set[str]
    before: list[ast.stmt]
    model: str
    scheduler: str
    moved: str
    halved: bool
    scaled: bool

    @property
    def known(self) -> Mapping[str, object]:
        """Return the values of arguments that nothing changes."""

    def of_step(self, test: ast.expr) -> bool | None:
        """Return the outcome of a test on a scheduler's timestep; None for others."""

    def fits(self, body: Sequence[ast.stmt]) -> bool | None:
        """Return whether statements call the model as it is; None if they do not call it."""

    def always(self, test: ast.expr, names: Mapping[str, object]) -> bool | None:
        """Return the outcome of a test that is the same in every step; None for others."""


class LoopRewriter(ast.NodeTransformer):
    """Rewrites statements for a function that has its model, its scheduler and its scale as arguments.

    Attributes:
        guided: what is known of whether there is guidance.
    """

    def __init__(self, context: LoopContext, guided: bool | None, known: Mapping[str, object] | None = None) -> None:
        self.context = context
        self.guided = guided
        self.known = context.known if known is None else known

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Statements without those that are never come to, and without contexts."""
        found: list[ast.stmt] = []
        for node in copy.deepcopy([*body]):
            if isinstance(node, ast.With):
                found += self.block(node.body)
            elif isinstance(node, ast.If):
                found += self._branch(node)
            elif is_identity(node) or (self.guided and is_cast(node)):
                continue
            elif halved_variable(node):
                found += self._split(node)
            elif not isinstance(node, ast.Pass | ast.Assert | ast.Delete | ast.Continue | ast.Raise | ast.Return):
                found.append(self.visit(node))
        return found

    def reachable(self, body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        """Yield statements as they are, those of contexts and branches among them, but not of branches never taken."""
        for node in body:
            if isinstance(node, ast.With):
                yield from self.reachable(node.body)
            elif isinstance(node, ast.If):
                outcome = self._value(self._left(self.visit(copy.deepcopy(node.test))))
                yield from self.reachable(node.body) if outcome is not False else ()
                yield from self.reachable(node.orelse) if outcome is not True else ()
            else:
                yield node

    def _branch(self, node: ast.If) -> list[ast.stmt]:
        test = self._left(self.visit(node.test))
        known = self._value(test)
        if known is not None:
            return self.block(node.body if known else node.orelse)
        fits, others = (self.context.fits(body) for body in (node.body, node.orelse))
        if fits and others is False:  # another engine's call, which takes other arguments
            return self.block(node.body)
        then, other = self.block(node.body), self.block(node.orelse)
        if self.guided and all(is_cast(one) or self._is_whole(one) for one in [*then, *other]):
            return []
        if then and not other and all(isinstance(one, ast.If) and halved_variable(one.body[0]) for one in then):
            return then
        return [ast.copy_location(ast.If(test, then or [ast.Pass()], other), node)] if then or other else []

    def _split(self, node: ast.stmt) -> list[ast.stmt]:
        """Return the statement that keeps half of an answer's channels, where it has a variance in the other half."""
        self.context.halved = True
        if self.guided:
            return []
        test = (
            expression(f"{halved_variable(node)}.shape[1] != {self.context.moved}.shape[1]")
            if self.context.moved
            else expression("True")
        )
        return [ast.copy_location(ast.If(test, [self.visit(node)], []), node)]

    def _is_whole(self, node: ast.stmt) -> bool:
        """Return whether a statement keeps as much of an answer as latents have: `x = x[:, : latents.shape[1]]`."""
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Subscript(value=ast.Name(id=own), slice=ast.Tuple(elts=[*_, ast.Slice(lower=None) as part])),
            ) if part.upper is not None:
                return name == own and ast.unparse(part.upper).startswith(f"{self.context.moved}.shape[")
        return False

    def _left(self, test: ast.expr) -> ast.expr:
        """Return a test without those of its parts that decide nothing."""
        if not isinstance(test, ast.BoolOp):
            return test
        idle = isinstance(test.op, ast.And)
        parts = [one for one in test.values if self._value(one) is not idle]
        if len(parts) > 1:
            return ast.copy_location(ast.BoolOp(test.op, parts), test)
        return parts[0] if parts else ast.Constant(idle)

    def _value(self, test: ast.expr) -> bool | None:
        """Return the outcome of a test; None if that is not known."""
        if isinstance(test, ast.BoolOp):
            parts, stops = [self._value(one) for one in test.values], isinstance(test.op, ast.Or)
            return stops if stops in parts else None if None in parts else not stops
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            value = self._value(test.operand)
            return None if value is None else not value
        if (outcome := self.context.of_step(test)) is not None:
            return outcome
        if isinstance(test, ast.Call) and ast.unparse(test.func) == "hasattr":
            return True if self.guided else None
        names = {**self.known, **({GUIDED: True, SCALE: SCALED} if self.guided else {})}
        try:
            found = evaluate(test, Domain(), names)
        except Unsupported:
            return self.context.always(test, names)
        return bool(found) if isinstance(found, bool | int | float | str | None) else None

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Return whether there is something to guide against: `null_cond is not None`."""
        match node:
            case ast.Compare(
                left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(None)]
            ):
                if name in self.context.arguments and IS_AGAINST.search(name):
                    guided = ast.Name(GUIDED, ast.Load())
                    return ast.copy_location(
                        guided if isinstance(op, ast.IsNot) else ast.UnaryOp(ast.Not(), guided), node
                    )
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Return the branch that is taken, where that is known."""
        test = self.visit(node.test)
        known = self._value(test)
        if known is not None:
            return self.visit(node.body if known else node.orelse)  # type: ignore[no-any-return]
        return ast.copy_location(ast.IfExp(test, self.visit(node.body), self.visit(node.orelse)), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Latents are scaled for the model, and moved, by a scheduler."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and is_named(node.func.value, SCHEDULER):
            if node.func.attr == "scale_model_input":
                self.context.scaled = True
                return node.args[0] if self.guided else node
            if node.func.attr == "step":
                return self._step(node)
        return node

    def _step(self, node: ast.Call) -> ast.expr:
        told = passed(node, ("model_output", "timestep", "sample"))
        if not {"model_output", "timestep", "sample"} <= told.keys():
            raise Unsupported(f"steps with {ast.unparse(node)}")
        answer, time, sample = (told[name] for name in ("model_output", "timestep", "sample"))
        if self.guided:  # the arithmetic that stands for a step
            moved = ast.BinOp(sample, ast.Add(), ast.BinOp(answer, ast.Mult(), time))
            return ast.copy_location(ast.List([moved], ast.Load()), node)
        return ast.copy_location(expression(f"{SCHEDULER}.step({ast.unparse(answer)}, {ast.unparse(time)}, "
                                       f"{ast.unparse(sample)}, return_dict=False)"), node)  # fmt: skip

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """See the class."""
        if (name := self._meant(ast.unparse(node))) is not None:
            return ast.copy_location(ast.Name(name, node.ctx), node)
        if self.guided and ast.unparse(node) == f"{self.context.scheduler}.config.num_train_timesteps":
            return ast.copy_location(ast.Constant(TRAINED), node)
        if isinstance(node.value, ast.Name) and node.value.id == "self" and isinstance(node.ctx, ast.Load):
            return self._own(node)
        self.generic_visit(node)
        if node.attr == "prev_sample":  # the first of what a step returns
            return ast.copy_location(ast.Subscript(node.value, ast.Constant(0), ast.Load()), node)
        return node

    def _own(self, node: ast.Attribute) -> ast.expr:
        """Return an attribute of the object: a guidance's, or an argument that it keeps, or a value that it is
        given.
        """
        context, name = self.context, node.attr.lstrip("_")
        if IS_SCALE.search(name) or _IS_GUIDED.search(name):
            return ast.Name(SCALE if IS_SCALE.search(name) else GUIDED, ast.Load())
        if name in context.arguments:
            return ast.Name(name, ast.Load())
        for one in context.before:
            kept = isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) in (f"self.{name}", f"self._{name}")
            if isinstance(one, ast.Assign) and kept and literal(one.value) is not UNKNOWN:
                return one.value
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """See the class."""
        name = self._meant(node.id)
        return (
            node
            if name is None or isinstance(node.ctx, ast.Store)
            else ast.copy_location(ast.Name(name, node.ctx), node)
        )

    def _meant(self, text: str) -> str | None:
        context = self.context
        if text == context.model:
            return MODEL
        if text == context.scheduler:
            return SCHEDULER
        begun = text in context.arguments or any(text in binds(one) for one in context.before)
        if begun and IS_SCALE.search(text):
            return SCALE
        if begun and _IS_GUIDED.search(text):
            return GUIDED
        return STEPS if begun and _IS_COUNT.search(text) and text in context.arguments else None
