"""The rule about what tokenizers and processors give: SGD501."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.sglang_diffusion.examples import QWEN, STAGE, changed
from omni_checkers.sglang_diffusion.facts.serving import Serving
from omni_checkers.sglang_diffusion.facts.stages import StageUse
from omni_kit.errors import BadInput
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import assigned, calls, constant, keyword, last_name, returns
from omni_kit.pysource.source import SourceFile, dotted

_HOW = frozenset({"output_hidden_states", "return_dict", "use_cache", "output_attentions", "input_ids"})
_MASK = "attention_mask"
_METHOD = "get_text_encoder_attention_mask"


@dataclass(frozen=True)
class EncoderCall:
    """A call of an encoder.

    Attributes:
        encoder: the component's name.
        given: what it is given by name; positions count by what they hold, as far as that is seen.
        spread: it takes further arguments from a dict.
    """

    encoder: str
    call: ast.Call
    source: SourceFile
    given: frozenset[str]
    spread: bool


class EncodersGetEverything(Rule):
    """Pass encoders every argument that diffusers' pipeline passes, above all the attention mask.

    The rule compares the encoder calls in stages with those in diffusers' pipeline of that name. For SGLang's own
    TextEncodingStage it checks whether `get_text_encoder_attention_mask` returns the mask.

    Why: without a mask the encoder attends to padding. Nothing fails, but the embeds differ, and the image follows
    short prompts less.

    Fine when: prompts are never padded; then suppress the finding with that reason.
    """

    id = "SGD501"
    name = "encoders-get-everything"
    target = "sglang-diffusion"
    obligations = ("SGL-30", "SGL-45")
    failure_modes = ("text-encoder-prep",)
    BAD = (
        changed(STAGE, ("            attention_mask=tokens.attention_mask,\n", "")),
    )  # fmt: skip
    GOOD = ({STAGE: QWEN[STAGE]},)

    def check(self, serving: Serving, stages: list[StageUse]) -> Findings:
        mine = [one for one in stages if serving.is_own(one.cls)]
        wanted = _upstreams(serving)
        found = [one for stage in mine for one in _calls(serving, stage.cls)]
        modular = any(one.cls.node.name == "TextEncodingStage" for one in stages)
        if not found and not modular:
            raise NotApplicable("no stage of the integration calls an encoder")
        seen: set[int] = set()
        for one in found:
            if id(one.call) not in seen and not one.spread:
                seen.add(id(one.call))
                yield from _compared(one, wanted, serving)
        if modular and serving.config is not None:
            yield from _standard(serving, serving.config, wanted)


def _compared(one: EncoderCall, wanted: dict[str, frozenset[str]], serving: Serving) -> Iterator[Finding]:
    if one.encoder in wanted:
        for name in sorted(wanted[one.encoder] - one.given - _HOW):
            yield at(one.source, one.call, f"{serving.name} passes '{name}' to its {one.encoder}, but this does not")
    elif not wanted and _MASK not in one.given and "input_ids" in one.given and _pads(one.source):
        found = at(one.source, one.call, f"prompts are padded, but the {one.encoder} receives no {_MASK}")
        yield Finding(found.message, found.path, found.line, found.column, severity=Severity.warning)


def _pads(source: SourceFile) -> bool:
    """Return whether a file asks a tokenizer to pad."""
    for node in walked(source.tree):
        if isinstance(node, ast.Call):
            value = constant(keyword(node, "padding"))
            if value is True or value in ("max_length", "longest"):
                return True
    return False


def _calls(serving: Serving, cls: ClassRef) -> Iterator[EncoderCall]:
    """The calls of encoders in a class and its bases that belong to the integration."""
    for entry in cls.mro:
        if isinstance(entry, ClassRef) and serving.is_own(entry):
            yield from _in(entry.node, entry.source)
            for name in {last_name(call.func) for call in calls(entry.node)}:
                helper = entry.source.functions.get(name)
                if helper is not None:
                    yield from _in(helper, entry.source)


def _in(node: ast.AST, source: SourceFile) -> Iterator[EncoderCall]:
    for call in calls(node):
        name = last_name(call.func)
        encodes = name.startswith("text_encoder") or name == "text_model"
        if encodes and (isinstance(call.func, ast.Name) or (dotted(call.func) or "").startswith("self.")):
            given = {word.arg for word in call.keywords if word.arg is not None}
            given |= {part for one in call.args for part in _held(one, node)}
            spread = any(word.arg is None for word in call.keywords) or any(
                isinstance(a, ast.Starred) for a in call.args
            )
            yield EncoderCall(name, call, source, frozenset(given), spread)


def _held(node: ast.expr, around: ast.AST) -> Iterator[str]:
    """Yield the content of a positional argument, by its name or the attribute that it comes from."""
    text = (
        last_name(node.func.value)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        else last_name(node)
    )
    values = assigned(around, text) if isinstance(node, ast.Name) else []
    for one in (text, *(last_name(value) for value in values)):
        if "mask" in one:
            yield _MASK
        elif "ids" in one or "input" in one:
            yield "input_ids"


def _upstreams(serving: Serving) -> dict[str, frozenset[str]]:
    """Encoder -> what every call in diffusers' pipeline gives it."""
    if serving.upstream is None:
        return {}
    found: dict[str, frozenset[str]] = {}
    try:
        roles = {one.name for one in serving.upstream.components if one.role == "encoder"}
    except BadInput:
        return {}
    for entry in serving.upstream.cls.mro:
        if isinstance(entry, ClassRef) and entry.source.path == serving.upstream.cls.source.path:
            for one in _in(entry.node, entry.source):
                if one.encoder in roles:
                    found[one.encoder] = found.get(one.encoder, one.given) & one.given
    return found


def _speaks(serving: Serving, config: ClassRef) -> bool:
    """Return whether a config of the integration does something with masks where prompts are made tokens."""
    entries = (one for one in config.mro if isinstance(one, ClassRef) and serving.is_own(one))
    return any(
        isinstance(node, ast.Constant) and node.value == _MASK for one in entries for node in walked(one.source.tree)
    )


def _standard(serving: Serving, config: ClassRef, wanted: dict[str, frozenset[str]]) -> Iterator[Finding]:
    method = config.method(_METHOD)
    if method is None or not wanted:
        return
    nothing = all(constant(value) is None and isinstance(value, ast.Constant) for value in returns(method[1]))
    masked = {name for name, given in wanted.items() if _MASK in given}
    if nothing and masked and serving.is_own(method[0]):
        message = f"{_METHOD} returns nothing, but {serving.name} passes a mask to its {sorted(masked)[0]}"
        yield at(method[0].source, method[1], message)
    elif not masked and method[0].node.name == "PipelineConfig" and not _speaks(serving, config):
        message = f"{serving.name} passes its encoders no {_MASK}, but SGLang does unless {_METHOD} is overridden"
        found = at(config.source, config.node, message)
        yield Finding(found.message, found.path, found.line, found.column, severity=Severity.warning)
