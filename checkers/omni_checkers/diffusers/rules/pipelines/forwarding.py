"""The rule about encoder outputs that no denoiser receives: DFU222."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from omni_checkers.codediff.fingerprint import unpacks
from omni_checkers.diffusers.examples import LUMEN, PIPELINE, TRANSFORMER, changed
from omni_checkers.diffusers.facts.flowing import going_into, going_on, variables
from omni_checkers.diffusers.facts.pipelines import call_of
from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls, last_name, methods
from omni_kit.pysource.signatures import parameters
from omni_kit.pysource.source import dotted

_ENCODES = re.compile(r"_*encode")
_SORTS = ("mask", "pooled")
_ROWS = "return prompt_embeds.repeat_interleave(num_images_per_prompt, dim=0)"
_BOTH = (_ROWS, f"{_ROWS}, tokens.attention_mask.repeat_interleave(num_images_per_prompt, dim=0)")
_BOUND = "prompt_embeds = self.encode_prompt("
_TYPED = (
    ("import torch\n", "import torch\nfrom .transformer_lumen import LumenTransformer2DModel\n"),
    ("self, transformer, ", "self, transformer: LumenTransformer2DModel, "),
)
_ARGUMENTS = "timestep, encoder_hidden_states, return_dict"
_MEAN = "encoder_hidden_states.mean(dim=1, keepdim=True)"
_TAKES = changed(
    TRANSFORMER,
    (_ARGUMENTS, "timestep, encoder_hidden_states, encoder_attention_mask=None, return_dict"),
    (_MEAN, "(encoder_attention_mask[..., None] * encoder_hidden_states).mean(dim=1, keepdim=True)"),
)
_MASKED = (*_TYPED, _BOTH)
_HANDED = ("prompt_embeds, return_dict=False)", "prompt_embeds, mask, return_dict=False)")
_MAYBE = ("        prompt_embeds=None,\n", "        prompt_embeds=None,\n        mask=None,\n")


@dataclass(frozen=True)
class _Encoded:
    """Prompt embeddings that a pipeline's own function returns.

    Attributes:
        node: the assignment of what it gives.
        names: the variables that take it, in its order.
        given: what the function itself calls each; empty if it has no name.
    """

    node: ast.Assign
    function: str
    names: list[str]
    given: list[str]


class WhatIsEncodedIsForwarded(Rule):
    """Use every output of a pipeline's encoding, and pass it to each denoiser that accepts it.

    Encoding methods have names that start with `encode`. A denoiser is a component whose `forward` takes a timestep. It
    accepts an output if a parameter has the same name, or if both are masks or both pooled embeddings.

    Why: without its mask, padding takes part in attention. Without pooled embeddings, the denoiser receives zeros or
    nothing. Images still appear, and only short prompts look worse.

    Fine when: the model was trained without this input and shares the encoding function with a model that was not.
    """

    id = "DFU222"
    name = "what-is-encoded-is-forwarded"
    target = "diffusers"
    failure_modes = ("text-encoder-prep",)
    BAD = (
        changed(PIPELINE, _BOTH, (_BOUND, "prompt_embeds, mask = self.encode_prompt(")),
        {**_TAKES, **changed(PIPELINE, *_MASKED, (_BOUND, "prompt_embeds, _ = self.encode_prompt("))},
    )
    GOOD = (
        {PIPELINE: LUMEN[PIPELINE]},
        {
            **_TAKES,
            **changed(PIPELINE, *_MASKED, _MAYBE, _HANDED, (_BOUND, "prompt_embeds, mask = self.encode_prompt(")),
        },
    )

    def check(self, pipelines: list[ClassRef]) -> Findings:
        for cls in pipelines:
            call = call_of(cls)
            found = list(_encoded(cls, call)) if call is not None else []
            if call is None or not found:
                continue
            read = going_on(call)
            for one in found:
                for name in one.names:
                    if name not in read and not name.startswith("_"):
                        yield at(cls.source, one.node, f"'{name}' of {one.function} is assigned but never used")
            for component, taken in _denoisers(cls).items():
                yield from _withheld(cls, call, component, taken, found)


def _encoded(cls: ClassRef, call: ast.FunctionDef) -> Iterator[_Encoded]:
    for node in walked(call):
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        name = (dotted(node.value.func) or "").removeprefix("self.")
        own = cls.method(name) if _ENCODES.match(name) else None
        names = variables(node.targets)
        if own is not None and names:
            yield _Encoded(node, name, names, _answers(own[1], len(names)))


def _answers(function: ast.FunctionDef, count: int) -> list[str]:
    """Return the names of as many answers as are taken; empty ones where they have none."""
    for node in walked(function):
        if isinstance(node, ast.Return) and node.value is not None:
            one = node.value
            given = one.elts if isinstance(one, ast.Tuple) else [one]
            if len(given) == count:
                return [_named(item) for item in given]
    return [""] * count


def _named(node: ast.expr) -> str:
    """Return the name of what is computed: `mask.to(device)` and `tokens.mask[:, 1:]` are both a mask."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return _named(node.func.value)
    return _named(node.value) if isinstance(node, ast.Subscript) else last_name(node)


def _denoisers(cls: ClassRef) -> Mapping[str, list[str]]:
    """Component -> what its forward takes, of those that take a timestep."""
    init = cls.method("__init__")
    found: dict[str, list[str]] = {}
    for one in init[1].args.args if init is not None else []:
        for name in {last_name(node) for node in walked(one.annotation)} if one.annotation is not None else ():
            known = init[0].source.resolve_class(name) if init is not None and name else None
            forward = ClassRef(*known).method("forward") if known is not None else None
            if forward is not None and "timestep" in (taken := parameters(forward[1])):
                found[one.arg] = [*found.get(one.arg, []), *taken]
    return found


def _withheld(
    cls: ClassRef, call: ast.FunctionDef, component: str, taken: list[str], found: list[_Encoded]
) -> Findings:
    """Yield, for each output, the denoiser input that exists and is never passed."""
    asked = [one for function in methods(cls.node) for one in calls(function, component) if _own(one, component)]
    if not asked or any(map(unpacks, asked)):
        return
    handed = {name for one in asked for name in _handed(one, taken)}
    used = going_into((given for one in asked for given in _arguments(one)), call)
    for one in found:
        for bound, given in zip(one.names, one.given, strict=True):
            wanted = [name for name in dict.fromkeys(taken) if name not in handed and _meant(name, bound, given)]
            if wanted and bound not in used:
                what = " or ".join(f"'{name}'" for name in wanted)
                yield at(cls.source, one.node, f"{component} accepts {what}, and {one.function} returns it: pass it")


def _meant(name: str, bound: str, given: str) -> bool:
    """Return whether a parameter is for an answer: by its name, or because both are of a sort."""
    return name in (bound, given) or any(sort in name and (sort in bound or sort in given) for sort in _SORTS)


def _arguments(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *(word.value for word in call.keywords)]


def _own(call: ast.Call, component: str) -> bool:
    return dotted(call.func) == f"self.{component}"


def _handed(call: ast.Call, taken: list[str]) -> set[str]:
    return {*taken[: len(call.args)], *(word.arg for word in call.keywords if word.arg is not None)}
