"""The native way: a pipeline's call in parts, in the words of SGLang's stages."""

import ast
from typing import Any

from omni_kit.errors import Refusal
from omni_kit.targets.sglang_diffusion.context import ASKED, SIZED, Text
from omni_kit.targets.sglang_diffusion.facts import PipelineFacts
from omni_kit.targets.sglang_diffusion.variants import against_decoding
from omni_kit.upstream.diffusers.call_parts import PREPARE
from omni_kit.upstream.diffusers.calling import call_arguments
from omni_kit.upstream.diffusers.guidance import Formula
from omni_kit.upstream.diffusers.signatures import IS_POSITIONS

_COUNT = "step_index"  # where a loop does not count its steps
_EXCHANGED = "attn_processor"  # attention that reads its batch as several answers


def native_context(facts: PipelineFacts) -> dict[str, Any]:
    """Return the variables for the templates of the native variant.

    Raises:
        Refusal: the call cannot be divided.
    """
    found = facts.divided
    if isinstance(found, Refusal):
        raise found
    unfit = against_decoding(facts)
    unpacking = [Text(name, _of_state(text, "state", "steps")) for name, text in facts.decoding.arguments.items()]
    guidance = facts.guidance
    together = guidance.together and guidance.formula not in (Formula.unread, Formula.none)
    return {
        "parts": found.parts, "kept": found.kept, "signature": found.signature, "step_imports": found.imports,
        "index": found.index or _COUNT, "time": found.time, "times": _of_state(found.times, "state", "steps"),
        "latents": found.latents, "frames": found.frames, "called_where": found.where, "loop_where": found.loop_where,
        "end_fits": not unfit, "unfit_end": unfit, "own_vae": bool(unfit or facts.images), "unpacking": unpacking,
        "positions": [name for name in facts.taken if IS_POSITIONS.search(name)],
        **image_context(facts), "first": facts.denoising.latents,
        "halves": together and _EXCHANGED not in found.parts[PREPARE].text,
    }  # fmt: skip


def image_context(facts: PipelineFacts) -> dict[str, Any]:
    """Return the variables for a stage that passes images to the pipeline's own code: sizes then follow them."""
    if not facts.images:
        return {}
    words = {**ASKED, **SIZED}
    return {"asked": [Text(name, words[name]) for name in call_arguments(facts.pipeline) if name in words]}


def _of_state(text: str, state: str, pipeline: str) -> str:
    """Return an expression of `__call__` in terms of its state and of the pipeline."""
    return ast.unparse(_Words(state, pipeline).visit(ast.parse(text, mode="eval").body))


class _Words(ast.NodeTransformer):
    def __init__(self, state: str, pipeline: str) -> None:
        self.state, self.pipeline = state, pipeline

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """`self` is the pipeline; a variable is an attribute of the state."""
        if node.id == "self":
            return ast.Name(self.pipeline)
        return ast.Attribute(ast.Name(self.state), node.id)
