"""The rule about the two branches of guidance: SGD205."""

import ast

from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule
from omni_checkers.sglang_diffusion.examples import CONFIG, QWEN, changed
from omni_checkers.sglang_diffusion.facts.requests import Use, request_parameter, uses_of
from omni_checkers.sglang_diffusion.facts.serving import Serving, own_methods
from omni_kit.pysource.classes import ClassRef

_PAIRS = {
    "prompt_embeds": "negative_prompt_embeds",
    "prompt_embeds_mask": "negative_prompt_embeds_mask",
    "prompt_attention_mask": "negative_attention_mask",
    "prompt_seq_lens": "negative_prompt_seq_lens",
    "pooled_embeds": "neg_pooled_embeds",
    "clip_embedding_pos": "clip_embedding_neg",
    "audio_prompt_embeds": "negative_audio_prompt_embeds",
}
_POSITIVE = ("get_pos_prompt_embeds", "prepare_pos_cond_kwargs")
_NEGATIVE = ("get_neg_prompt_embeds", "prepare_neg_cond_kwargs")


class BranchesAreNotExchanged(Rule):
    """Read negative request fields in callbacks for the negative branch, and positive fields in the others.

    The rule does not check helpers that receive the whole request: both branches may call them.

    Why: with the same embeds in both branches, guidance has no effect at any scale. With one mask or length for both,
    the shorter prompt includes the padding of the other. Exchanged branches draw what the negative prompt excludes.

    Fine when: both branches share a condition, such as an image; positive fields next to the negative field of the same
    kind are not reported.
    """

    id = "SGD205"
    name = "branches-are-not-exchanged"
    target = "sglang-diffusion"
    obligations = ("SGL-26",)
    failure_modes = ("cfg-conditioning",)
    BAD = (
        changed(CONFIG, ("return batch.negative_prompt_embeds[0]", "return batch.prompt_embeds[0]")),
        changed(CONFIG, ("return batch.prompt_embeds[0]", "return batch.negative_prompt_embeds[0]")),
    )
    GOOD = ({CONFIG: QWEN[CONFIG]},)

    def check(self, serving: Serving, config: ClassRef) -> Findings:
        backwards = {negative: positive for positive, negative in _PAIRS.items()}
        own = {function.name: (home, function) for home, function in own_methods(serving, config)}
        for names, wrong, branch in ((_NEGATIVE, _PAIRS, "negative"), (_POSITIVE, backwards, "positive")):
            for name in names:
                if name not in own:
                    continue
                home, function = own[name]
                reads = _reads(home, function)
                for use in reads:
                    if use.name in wrong and not any(one.name == wrong[use.name] for one in reads):
                        message = f"{name} reads '{use.name}' for the {branch} branch instead of '{wrong[use.name]}'"
                        yield at(use.source, use.node, message)


def _reads(home: ClassRef, function: ast.FunctionDef) -> list[Use]:
    """Return a callback's own reads of its request, except for sizes."""
    if not request_parameter(function):
        return []
    uses = uses_of(home, (function.name,))
    shapes = {
        id(inner)
        for node in walked(function)
        if isinstance(node, ast.Attribute) and node.attr in ("shape", "device", "dtype", "ndim")
        for inner in walked(node)
    }
    return [use for use in uses.reads if use.function is function and id(use.node) not in shapes]
