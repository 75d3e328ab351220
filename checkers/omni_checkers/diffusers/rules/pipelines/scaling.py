"""The rule about what an autoencoder receives: DFU225."""

import ast
import re
from collections.abc import Iterator

from omni_checkers.diffusers.examples import LUMEN, PIPELINE, changed
from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls, methods

_SHIFT = re.compile(r"shift_factor$|latents?_mean$")
_SCALING, _DEVIATION = re.compile(r"scaling_factor$"), re.compile(r"^latents?_std$")
_DECODED = "self.vae.decode(latents / self.vae.config.scaling_factor, "
_CONFIG = "self.vae.config."


class LatentsAreScaledBack(Rule):
    """Unscale, then shift, latents before decoding.

    The rule checks functions that decode and do not encode. They divide by the scaling factor first and add the shift
    or mean afterwards. They multiply by a standard deviation, and divide by its reciprocal.

    Why: latents of any scale decode. Colours turn pale, contrast disappears, or edges become noisy.

    Fine when: the autoencoder's config defines the factors inversely.
    """

    id = "DFU225"
    name = "latents-are-scaled-back"
    target = "diffusers"
    failure_modes = ("vae-scale-shift",)
    BAD = (
        changed(PIPELINE, (_DECODED, f"self.vae.decode((latents - {_CONFIG}shift_factor) / {_CONFIG}scaling_factor, ")),
        changed(PIPELINE, (_DECODED, f"self.vae.decode((latents + {_CONFIG}shift_factor) / {_CONFIG}scaling_factor, ")),
        changed(PIPELINE, (_DECODED, "self.vae.decode(latents / latents_std + latents_mean, "),
                ("        if output_type ==", f"        latents_std = torch.tensor({_CONFIG}latents_std)\n"
                 f"        latents_mean = torch.tensor({_CONFIG}latents_mean)\n        if output_type ==")),
    )  # fmt: skip
    GOOD = (
        {PIPELINE: LUMEN[PIPELINE]},
        changed(PIPELINE, (_DECODED, f"self.vae.decode(latents / {_CONFIG}scaling_factor + {_CONFIG}shift_factor, ")),
    )

    def check(self, classes: list[ClassRef]) -> Findings:
        for cls in classes:
            if cls.derives("DiffusionPipeline", "ModularPipelineBlocks"):
                for function in methods(cls.node):
                    if any(_of_autoencoder(call) for call in calls(function, "decode")):
                        for node, what in _turned(function):
                            yield at(cls.source, node, what)


def _of_autoencoder(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and re.search(r"vae|vq|movq", ast.unparse(call.func.value)) is not None


def _turned(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    if any(True for _ in calls(function, "encode", "retrieve_latents")):
        return
    reciprocal = _reciprocals(function)
    for node in (one for one in walked(function) if isinstance(one, ast.BinOp)):
        right, left = _told(node.right), node.left
        if isinstance(node.op, ast.Sub) and _SHIFT.search(right):
            yield node, f"{right} is subtracted both after encoding and before decoding: add it before decoding"
        elif isinstance(node.op, ast.Div) and _SCALING.search(right) and _shifted(left):
            yield node, f"latents are shifted before they are divided by {right}: divide first"
        elif isinstance(node.op, ast.Div) and right in reciprocal and not reciprocal[right]:
            yield node, f"latents are divided by {right}, which is not a reciprocal here: multiply"
        elif isinstance(node.op, ast.Mult) and _SCALING.search(right) and _latents(left):
            yield node, f"latents are multiplied by {right}, as after encoding: divide before decoding"
        elif isinstance(node.op, ast.Mult) and reciprocal.get(right):
            yield node, f"latents are multiplied by {right}, which is a reciprocal here: divide"


def _told(node: ast.expr) -> str:
    """Return an operand's name, under the calls that only move it: `x.to(device)`, `x.view(1, -1, 1, 1)`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        node = node.func.value
    if isinstance(node, ast.BoolOp):
        node = node.values[0]
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _latents(node: ast.expr) -> bool:
    """Return whether these are what is decoded: a mask has latents, too, and they are only encoded."""
    return re.fullmatch(r"latents?|z|samples?", _told(node)) is not None


def _shifted(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Add | ast.Sub)
        and bool(_SHIFT.search(_told(node.right)))
    )


def _reciprocals(function: ast.FunctionDef) -> dict[str, bool]:
    """Standard deviations that are assigned here once -> whether as their reciprocal."""
    found: dict[str, list[bool]] = {}
    for node in (one for one in walked(function) if isinstance(one, ast.Assign)):
        for target in node.targets:
            if isinstance(target, ast.Name) and _DEVIATION.search(target.id):
                text = ast.unparse(node.value)
                if target.id not in text.replace(f".{target.id}", ""):
                    found.setdefault(target.id, []).append(bool(re.match(r"\(?1(\.0)? */", text)))
    return {name: ways[0] for name, ways in found.items() if len({*ways}) == 1}
