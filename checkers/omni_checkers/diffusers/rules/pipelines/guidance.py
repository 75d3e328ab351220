"""Rules about the two outputs of guidance: DFU223 and DFU224."""

import ast
import re
from collections.abc import Iterator

from omni_checkers.diffusers.examples import LUMEN, PIPELINE, changed
from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls, last_name, methods
from omni_kit.pysource.signatures import parameters

_AGAINST = re.compile(r"(^|_)(neg|negative|uncond|unconditional|uncond\w*)(_|$)|negative")
_SCALE = re.compile(r"guidance|cfg|(^|_)scale$")
_JOINS = ("cat", "concat", "concatenate", "stack")
_STEP = "noise_pred = self.transformer(latents, t.expand(len(latents)), prompt_embeds, return_dict=False)[0]"
_INDENT = "\n                "
_TWO = (
    _STEP.replace("noise_pred =", "noise_text ="),
    _STEP.replace("noise_pred =", "noise_uncond =").replace("prompt_embeds", "negative_prompt_embeds"),
)
_RIGHT = "noise_pred = noise_uncond + self.guidance_scale * (noise_text - noise_uncond)"


def _guided(formula: str) -> dict[str, str]:
    return changed(PIPELINE, (_STEP, _INDENT.join([*_TWO, formula])))


class GuidanceGoesFromTheNegativeAnswer(Rule):
    """Start guidance at the negative prediction and add the scaled difference to the positive one.

    The rule checks every `a + s * (b - c)` whose factor is a guidance scale: b must not be the negative prediction, and
    the two must not be added. A batch with both halves is joined and split in one order: for `torch.cat([negative,
    positive])` the first half of `chunk(2)` is the negative one.

    Why: images still look plausible, but follow the prompt too strongly or too weakly, or show what the negative prompt
    excludes. Only a comparison with the authors' images reveals it.

    Fine when: the model uses another formula on purpose.
    """

    id = "DFU223"
    name = "guidance-goes-from-the-negative-answer"
    target = "diffusers"
    failure_modes = ("cfg-conditioning",)
    BAD = (
        _guided("noise_pred = noise_uncond + self.guidance_scale * (noise_text + noise_uncond)"),
        _guided("noise_pred = noise_text + self.guidance_scale * (noise_uncond - noise_text)"),
        changed(
            PIPELINE,
            (
                _STEP,
                "both = torch.cat([negative_prompt_embeds, prompt_embeds])\n                "
                + _STEP.replace("prompt_embeds", "both")
                + "\n                "
                "noise_text, noise_uncond = noise_pred.chunk(2)",
            ),
        ),
    )
    GOOD = ({PIPELINE: LUMEN[PIPELINE]}, _guided(_RIGHT))  # fmt: skip

    def check(self, classes: list[ClassRef]) -> Findings:
        for cls in classes:
            if not cls.derives("DiffusionPipeline", "ModularPipelineBlocks"):
                continue
            for function in methods(cls.node):
                for node, what in (*_formulas(function), *_orders(function)):
                    yield at(cls.source, node, what)


def _formulas(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    for node in walked(function):
        if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Add | ast.Sub):
            continue
        for start, scaled in ((node.left, node.right), (node.right, node.left)):
            between = _scaled(scaled)
            if between is None or not isinstance(start, ast.Name):
                continue
            to, of = last_name(between.left), last_name(between.right)
            if not to or not of or start.id not in (to, of):
                continue
            if isinstance(node.op, ast.Sub):
                if _against(of) and start.id == of and isinstance(between.op, ast.Sub):
                    yield node, f"guidance starts at {to}, the prediction for the prompt"
            elif isinstance(between.op, ast.Sub) and _against(to) and not _against(of):
                yield node, f"guidance moves towards {to}, the negative prediction"
            elif isinstance(between.op, ast.Add) and _against(of) != _against(to):
                yield node, f"guidance adds {to} and {of} instead of their difference"


def _scaled(node: ast.expr) -> ast.BinOp | None:
    """Return the sum or difference that a scale of guidance is multiplied with."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Mult):
        return None
    for scale, between in ((node.left, node.right), (node.right, node.left)):
        if _SCALE.search(last_name(scale)) and isinstance(between, ast.BinOp):
            return between
    return None


def _against(name: str) -> bool:
    return _AGAINST.search(name) is not None


def _orders(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    """Yield joins and splits in another order than the first join."""
    joined = [(call, first) for call in calls(function, *_JOINS) if (first := _negative_first(call)) is not None]
    found = sorted(joined, key=lambda one: one[0].lineno)
    if not found:
        return
    for call, first in found[1:]:
        if first != found[0][1]:
            yield call, "the halves of this batch are in another order than in the batch joined before"
    for node in walked(function):
        if isinstance(node, ast.Assign) and _halves(node.value) and len(node.targets) == 1:
            names = [last_name(one) for one in getattr(node.targets[0], "elts", [])]
            if len(names) == 2 and _against(names[0]) != _against(names[1]) and _against(names[0]) != found[0][1]:
                yield node, f"the first half is {names[0]} here, but the batch was joined in the other order"


def _negative_first(call: ast.Call) -> bool | None:
    """Return whether of two things that are joined along the batch the one against the prompt is the first."""
    parts = getattr(call.args[0], "elts", []) if call.args else []
    names = [last_name(one) for one in parts]
    axis = [*(word.value for word in call.keywords if word.arg in ("dim", "axis")), *call.args[1:]]
    rows = not axis or getattr(axis[0], "value", None) == 0
    if len(names) != 2 or not rows or _against(names[0]) == _against(names[1]):
        return None
    return _against(names[0])


def _halves(node: ast.expr) -> bool:
    """`chunk(2)`."""
    count = node.args[0] if isinstance(node, ast.Call) and last_name(node) == "chunk" and node.args else None
    return isinstance(count, ast.Constant) and count.value == 2


class EachHalfHasItsOwnConditions(Rule):
    """Pass the negative call of the denoiser negative conditions only.

    The rule compares two calls of one denoiser in one function, one of which receives negative conditions. A condition
    that both receive, and that has a negative counterpart in the function, is wrong in the negative call.

    Why: the negative text arrives with the prompt's mask, length or pooled embedding. Wherever the two texts differ in
    length, the denoiser attends to padding or loses words.

    Fine when: the model was trained this way.
    """

    id = "DFU224"
    name = "each-half-has-its-own-conditions"
    target = "diffusers"
    failure_modes = ("cfg-conditioning",)
    _CALL = "self.transformer(latents, encoder_hidden_states={0}prompt_embeds, mask={1}prompt_mask)[0]"
    _KNOWN = "prompt_mask, negative_prompt_mask, negative_prompt_embeds = self.masks(prompt_embeds)"
    BAD = (
        changed(
            PIPELINE,
            (_STEP, _INDENT.join([_KNOWN, "a = " + _CALL.format("", ""), "b = " + _CALL.format("negative_", "")])),
        ),
    )
    GOOD = (
        {PIPELINE: LUMEN[PIPELINE]},
        changed(
            PIPELINE,
            (_STEP, _INDENT.join([_KNOWN, "a = " + _CALL.format("", ""),
                                  "b = " + _CALL.format("negative_", "negative_")])),
        ),
    )  # fmt: skip

    def check(self, classes: list[ClassRef]) -> Findings:
        for cls in classes:
            if cls.derives("DiffusionPipeline", "ModularPipelineBlocks"):
                for function in methods(cls.node):
                    for word, name in _borrowed(function):
                        what = f"'{word.arg}' of the negative call is {name}, although a negative counterpart exists"
                        yield at(cls.source, word.value, what)


def _borrowed(function: ast.FunctionDef) -> Iterator[tuple[ast.keyword, str]]:
    asked: dict[str, list[ast.Call]] = {}
    for call in calls(function):
        if call.keywords and isinstance(call.func, ast.Attribute):
            asked.setdefault(ast.unparse(call.func), []).append(call)
    known = {*parameters(function), *(one.id for one in walked(function) if isinstance(one, ast.Name))}
    for several in asked.values():
        if len(several) < 2:
            continue
        against = [call for call in several if _says(call, True)]
        plain = [call for call in several if not _says(call, True)]
        given = {(word.arg, last_name(word.value)) for call in plain for word in call.keywords}
        for call in against if plain else ():
            for word in call.keywords:
                name = last_name(word.value)
                if (
                    name
                    and (word.arg, name) in given
                    and isinstance(word.value, ast.Name)
                    and f"negative_{name}" in known
                ):
                    yield word, name


def _says(call: ast.Call, negative: bool) -> bool:
    return any(last_name(word.value).startswith("negative_") == negative for word in call.keywords)
