"""The rule about what callbacks hand to the denoiser: SGD203."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.sglang_diffusion.examples import CONFIG, DIT, QWEN, changed
from omni_checkers.sglang_diffusion.facts.dict_keys import Keys, keys_of, words_read
from omni_checkers.sglang_diffusion.facts.serving import Serving
from omni_checkers.sglang_diffusion.facts.stages import StageUse
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.signatures import parameters, required, signature
from omni_kit.upstream.diffusers.signatures import arguments

_POSITIVE, _NEGATIVE = "prepare_pos_cond_kwargs", "prepare_neg_cond_kwargs"
_TWICE = ("hidden_states", "timestep")
_OWN = "encoder_hidden_states"
_STANDARD = frozenset(
    {*_TWICE, _OWN, "guidance", "encoder_hidden_states_2", "encoder_attention_mask", "encoder_hidden_states_mask"}
    | {"encoder_hidden_states_image"}
)


class CallbacksFitTheDenoiser(Rule):
    """Return only arguments of the denoiser's forward from prepare_pos_cond_kwargs and prepare_neg_cond_kwargs.

    The forward takes `hidden_states`, `timestep` and `encoder_hidden_states` under these names. The callbacks return
    none of the keys that DenoisingStage passes itself, they cover every other argument without a default, and both
    return the same keys.

    Why: DenoisingStage silently drops a key that forward does not accept. Positions, masks or guidance are missing, and
    the image is merely worse. A key `timestep` or `hidden_states` raises TypeError, and `encoder_hidden_states` is
    overwritten. A key in only one branch biases guidance.

    Fine when: the negative branch deliberately lacks a condition; then suppress the warning with that reason.
    """

    id = "SGD203"
    name = "callbacks-fit-the-denoiser"
    target = "sglang-diffusion"
    obligations = ("SGL-26", "SGL-27")
    failure_modes = ("cfg-conditioning",)
    BAD = (
        changed(CONFIG, ('return {"freqs_cis"', 'return {"rotary_freqs"')),
        changed(CONFIG, ('return {"freqs_cis"', 'return {"timestep": batch.timesteps[0], "freqs_cis"')),
        changed(DIT, ("guidance=None, freqs_cis=None", "guidance=None, freqs_cis=None, *, img_shapes")),
    )
    GOOD = ({CONFIG: QWEN[CONFIG], DIT: QWEN[DIT]},)

    def check(self, serving: Serving, before: list[StageUse], config: ClassRef, denoiser: ClassRef) -> Findings:
        forward = denoiser.method("forward")
        if forward is None or forward[1].args.vararg is not None:
            raise NotApplicable("the denoiser's forward cannot be read")
        yield from _asked(serving, denoiser, *forward)
        positive, negative = keys_of(config, _POSITIVE), keys_of(config, _NEGATIVE)
        seen: set[int] = set()
        for name, keys in ((_POSITIVE, positive), (_NEGATIVE, negative)):
            for finding, node in _judged(name, keys, denoiser, forward[1]):
                if id(node) not in seen and finding.path in serving.own:
                    seen.add(id(node))
                    yield finding
        if positive.complete and serving.is_own(forward[0]):
            for missing in required(signature(forward[1], bound=True)):
                if missing not in positive.found and missing not in _STANDARD:
                    message = f"nothing passes '{missing}', which {denoiser.node.name}.forward requires"
                    yield at(forward[0].source, forward[1], message)
        yield from _onesided(serving, config, positive, negative, set(parameters(forward[1])))


def _asked(serving: Serving, denoiser: ClassRef, home: ClassRef, forward: ast.FunctionDef) -> Iterator[Finding]:
    """Require the arguments that DenoisingStage always passes, by name."""
    read = words_read(forward)
    if read is None or not serving.is_own(home):
        return
    known = {*parameters(forward), *read}
    for name in (*_TWICE, _OWN):
        if name not in known:
            yield at(home.source, forward, f"{denoiser.node.name}.forward does not accept DenoisingStage's '{name}'")


def _judged(name: str, keys: Keys, denoiser: ClassRef, forward: ast.FunctionDef) -> Iterator[tuple[Finding, ast.AST]]:
    taken, read = set(parameters(forward)), words_read(forward)
    read_names = set(read) if read is not None else None
    where = f"{denoiser.node.name}.forward"
    spread = forward.args.kwarg.arg if forward.args.kwarg is not None else ""
    for key, (source, node) in keys.found.items():
        if key in _TWICE or (key == "guidance" and key in taken):
            yield at(source, node, f"{name} returns '{key}', which DenoisingStage passes too: a TypeError"), node
        elif key == _OWN:
            message = f"{name} returns '{key}', which get_pos_prompt_embeds and get_neg_prompt_embeds overwrite"
            yield at(source, node, message), node
        elif key not in taken and forward.args.kwarg is None:
            yield at(source, node, f"{where} does not accept '{key}': DenoisingStage silently drops it"), node
        elif key not in taken and read_names is not None and key not in read_names:
            yield at(source, node, f"{where} accepts '{key}' in **{spread} and never reads it"), node


def _onesided(serving: Serving, config: ClassRef, positive: Keys, negative: Keys, taken: set[str]) -> Iterator[Finding]:
    """Yield keys that only the positive branch has; a branch that is empty on purpose belongs to a model without
    guidance.
    """
    method, given = config.method(_NEGATIVE), config.method(_POSITIVE)
    if not (positive.complete and negative.complete) or method is None or given is None:
        return
    forgotten = serving.is_own(given[0]) and not serving.is_own(method[0]) and _takes_negatives(serving)
    if not (forgotten or (serving.is_own(method[0]) and negative.found)):
        return
    home, node = given if forgotten else method
    for key in positive.found:
        if key in taken and key not in negative.found:
            found = at(home.source, node, f"{_NEGATIVE} does not return '{key}', but {_POSITIVE} does")
            yield Finding(found.message, found.path, found.line, found.column, severity=Severity.warning)


def _takes_negatives(serving: Serving) -> bool:
    return serving.upstream is not None and "negative_prompt" in arguments(serving.upstream.cls, "__call__")
