"""The rule about the order of rows in a batch: DFU221."""

import ast
import re
from collections.abc import Iterator, Sequence

from omni_checkers.diffusers.examples import LUMEN, PIPELINE, changed
from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import last_name, methods

_COUNT = re.compile(r"num_\w+_per_prompt")
_INTERLEAVED = "prompt_embeds.repeat_interleave(num_images_per_prompt, dim=0)"


class RowsStayWithTheirPrompt(Rule):
    """Repeat rows for each prompt in the order p0 p0 p1 p1, never p0 p1 p0 p1.

    `repeat(n, 1, ...)`, `tile` and `cat([x] * n)` repeat the whole batch. `repeat_interleave`, or a `repeat` along
    another axis that a `view` folds into the rows, repeats each row in place.

    Why: one prompt hides the mistake. With two prompts, embeddings in one order meet masks, images or latents in the
    other: every second image follows the wrong prompt, without an error.

    Fine when: there is only one row for any number of prompts, or everything else uses the same order.
    """

    id = "DFU221"
    name = "rows-stay-with-their-prompt"
    target = "diffusers"
    failure_modes = ("batch-expansion",)
    BAD = (
        changed(PIPELINE, (_INTERLEAVED, "prompt_embeds.repeat(num_images_per_prompt, 1, 1)")),
        changed(PIPELINE, (_INTERLEAVED, "torch.cat([prompt_embeds] * num_images_per_prompt)")),
    )
    GOOD = (
        {PIPELINE: LUMEN[PIPELINE]},
        changed(
            PIPELINE,
            (_INTERLEAVED, "prompt_embeds.repeat(1, num_images_per_prompt, 1).view(\n"
                           "            len(prompt) * num_images_per_prompt, -1, prompt_embeds.shape[-1]\n        )"),
        ),
    )  # fmt: skip

    def check(self, classes: list[ClassRef]) -> Findings:
        for cls in classes:
            if cls.derives("DiffusionPipeline", "ModularPipelineBlocks"):
                for function in methods(cls.node):
                    for node, what in _tiled(function):
                        yield at(cls.source, node, f"{what} alternates different prompts: use repeat_interleave")


def _tiled(function: ast.FunctionDef) -> Iterator[tuple[ast.Call, str]]:
    """Yield whole tensors that are repeated per prompt, with the name of the repeating function."""
    for call in (node for node in walked(function) if isinstance(node, ast.Call)):
        name = last_name(call.func)
        if name in ("repeat", "tile") and isinstance(call.func, ast.Attribute):
            what, sizes = call.func.value, call.args
            if last_name(what) in ("torch", "np") and len(sizes) > 1:
                what, sizes = sizes[0], sizes[1:]
            first, *rest = _listed(sizes) or [ast.Constant(None)]
            if rest and _per_prompt(first) and all(map(_one, rest)) and not _single(what, function, call):
                yield call, name
        elif name in ("cat", "concat", "concatenate") and call.args:
            many = _many_times(call.args[0])
            if many is not None and _first_axis(call) and not _single(many, function, call):
                yield call, f"{name} of one and the same"


def _many_times(node: ast.expr) -> ast.expr | None:
    """Return the element repeated per prompt: `[x] * n` or `[x for _ in range(n)]`; None for another list."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List):
        return node.left.elts[0] if len(node.left.elts) == 1 and _per_prompt(node.right) else None
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)) and len(node.generators) == 1:
        over = node.generators[0].iter
        counted = isinstance(over, ast.Call) and last_name(over.func) == "range" and len(over.args) == 1
        fixed = not {one.id for one in _names(node.generators[0].target)} & {one.id for one in _names(node.elt)}
        return node.elt if counted and fixed and isinstance(over, ast.Call) and _per_prompt(over.args[0]) else None
    return None


def _listed(sizes: Sequence[ast.expr]) -> list[ast.expr]:
    """Return sizes as they are given: one by one, or in a tuple."""
    given = sizes[0] if len(sizes) == 1 else None
    found = list(given.elts) if isinstance(given, (ast.Tuple, ast.List)) else list(sizes)
    rest = found[1] if len(found) == 2 else None
    if isinstance(rest, ast.Starred) and isinstance(rest.value, ast.BinOp):  # repeat(n, *[1] * k)
        inner = [one for one in (rest.value.left, rest.value.right) if isinstance(one, (ast.List, ast.Tuple))]
        return [found[0], *inner[0].elts] if inner else found
    return found


def _per_prompt(node: ast.expr) -> bool:
    """Return whether a number is how often each prompt is repeated: `num_images_per_prompt` and the like."""
    return isinstance(node, (ast.Name, ast.Attribute)) and _COUNT.fullmatch(last_name(node)) is not None


def _one(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 1


def _first_axis(call: ast.Call) -> bool:
    given = next((word.value for word in call.keywords if word.arg in ("dim", "axis")), None)
    axis = given if given is not None else call.args[1] if len(call.args) > 1 else None
    return axis is None or (isinstance(axis, ast.Constant) and axis.value == 0)


def _single(node: ast.expr, function: ast.FunctionDef, call: ast.Call, depth: int = 3) -> bool:
    """Return whether something has one row: an axis was put before it, or it is one item of a loop."""
    if isinstance(node, ast.Subscript):
        put = any(isinstance(one, ast.Constant) and one.value is None for one in walked(node.slice))
        return put or _cut(node.slice) or bool(_turning(function, call) & {one.id for one in _names(node.slice)})
    if isinstance(node, ast.Call):
        if last_name(node.func) == "unsqueeze" and node.args and getattr(node.args[0], "value", None) == 0:
            return True
        inner = node.func.value if isinstance(node.func, ast.Attribute) else None
        return inner is not None and last_name(node.func) in ("to", "type") and _single(inner, function, call, depth)
    if isinstance(node, ast.Name) and depth:
        if node.id in _turning(function, call):
            return True
        values = list(_values(function, node.id, call.lineno))
        return bool(values) and _single(values[-1], function, call, depth - 1)
    return False


def _turning(function: ast.FunctionDef, call: ast.Call) -> set[str]:
    """Return the variables of the loops that a call stands in."""
    return {
        one.id
        for loop in walked(function)
        if isinstance(loop, ast.For) and loop.lineno < call.lineno <= (loop.end_lineno or 0)
        for one in _names(loop.target)
    }


def _names(node: ast.AST) -> list[ast.Name]:
    return [one for one in walked(node) if isinstance(one, ast.Name)]


def _cut(node: ast.expr) -> bool:
    """`[:1]`."""
    first = node.elts[0] if isinstance(node, ast.Tuple) and node.elts else node
    return isinstance(first, ast.Slice) and first.lower is None and getattr(first.upper, "value", None) == 1


def _values(function: ast.FunctionDef, name: str, before: int) -> Iterator[ast.expr]:
    """Yield the values assigned to a variable before a line, in order."""
    found = [
        (node.lineno, node.value)
        for node in walked(function)
        if isinstance(node, ast.Assign)
        and node.lineno < before
        and any(isinstance(target, ast.Name) and target.id == name for target in node.targets)
    ]
    yield from (value for _, value in sorted(found, key=lambda item: item[0]))
