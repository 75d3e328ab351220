"""The rules about what stages leave on the request: SGD201, SGD202 and SGD204."""

import ast
import re
from collections.abc import Iterator
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path

from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule
from omni_checkers.sglang_diffusion.examples import CONFIG, QWEN, STAGE, changed
from omni_checkers.sglang_diffusion.facts.requests import Use, request_parameter, uses_of
from omni_checkers.sglang_diffusion.facts.serving import Serving, own_methods
from omni_checkers.sglang_diffusion.facts.stages import StageUse
from omni_checkers.sglang_diffusion.facts.static_types import Sort, sort_of
from omni_kit.files import files_matching
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import returns
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.signatures import arguments

_NEEDED = {
    "latents": "the noise that it starts from",
    "timesteps": "the timesteps of its loop",
    "scheduler": "it asserts that it is set",
    "prompt_embeds": "it rejects an empty list",
    "generator": "its check rejects None",
    "raw_latent_shape": "it reads the first axis of it after the last step",
}
_NEGATIVE = "negative_prompt_embeds"
_METHODS = ("forward",)
_WORD = re.compile(r"""(?:\.|["'])([A-Za-z_]\w*)\b""")


class StagesFillTheRequest(Rule):
    """Set every field that DenoisingStage reads in an earlier stage.

    The fields are latents, timesteps, scheduler, prompt_embeds, generator, raw_latent_shape and, if diffusers' pipeline
    takes a negative prompt, negative_prompt_embeds. SGLang's own stages and helpers that receive the request count.

    Why: DenoisingStage raises AssertionError without a scheduler, and TypeError without raw_latent_shape after the last
    step. Its input checks reject other missing fields.

    Fine when: the pipeline has its own denoising stage; the rule then does not apply.
    """

    id = "SGD201"
    name = "stages-fill-the-request"
    target = "sglang-diffusion"
    obligations = ("SGL-03", "SGL-32", "SGL-35", "SGL-36")
    BAD = (
        changed(STAGE, ("        batch.scheduler = self.scheduler\n", "")),
        changed(STAGE, ("        batch.raw_latent_shape = latents.shape\n", "")),
    )
    GOOD = ({STAGE: QWEN[STAGE]},)

    def check(self, serving: Serving, before: list[StageUse], own_stages: list[StageUse]) -> Findings:
        mine = [one for one in before if one in own_stages]
        if not mine:
            raise NotApplicable("the stages before denoising are SGLang's own")
        uses = [(one, uses_of(one.cls, _METHODS, serving.config)) for one in before]
        if any(found.unseen for one, found in uses if one in mine):
            raise NotApplicable("a stage passes the request to code that cannot be followed")
        known = {name for _, found in uses for name in found.names}
        stage = mine[-1].cls
        method = stage.method("forward")
        home, node = (method[0].source, method[1]) if method is not None else (stage.source, stage.node)
        for name, why in _needed(serving).items():
            if name not in known:
                yield at(home, node, f"no stage sets '{name}', which DenoisingStage reads: {why}")


def _needed(serving: Serving) -> dict[str, str]:
    takes = serving.upstream is not None and "negative_prompt" in arguments(serving.upstream.cls, "__call__")
    return {**_NEEDED, **({_NEGATIVE: "guidance needs it"} if takes else {})}


class RequestKnowsWhatIsAsked(Rule):
    """Set and read only attributes that the request has.

    The rule compares names with the fields of Req and of the pipeline's SamplingParams. It reports a name that the
    integration sets and never reads, and a name that it reads and nobody sets.

    Why: Req silently accepts any attribute. A misspelled name leaves the field at its default: no negative embeds, a
    random seed or no mask. Reading it raises AttributeError in the middle of a request.

    Fine when: a later stage outside these files reads it; use `batch.extra` for that.
    """

    id = "SGD202"
    name = "request-knows-what-is-asked"
    target = "sglang-diffusion"
    obligations = ("SGL-32", "SGL-33")
    BAD = (
        changed(STAGE, ("batch.negative_prompt_embeds = [negative]", "batch.neg_prompt_embeds = [negative]")),
        changed(STAGE, ("batch.num_inference_steps\n", "batch.inference_steps\n")),
    )
    GOOD = ({STAGE: QWEN[STAGE]},)

    def check(self, serving: Serving, own_stages: list[StageUse], known_to_requests: set[str]) -> Findings:
        spoken = _spoken(serving)
        seen: set[int] = set()
        for use, stored in _uses(serving, own_stages):
            if use.name in known_to_requests or use.optional or id(use.node) in seen or use.name.startswith("__"):
                continue
            if use.source.path not in serving.own:
                continue
            seen.add(id(use.node))
            if (use.name, not stored) in spoken or _spoken_elsewhere(serving, use.name):
                continue
            close = get_close_matches(use.name, known_to_requests, 1)
            hint = f": did you mean '{close[0]}'?" if close else ""
            what = "reads" if stored else "sets"
            yield at(use.source, use.node, f"Req has no '{use.name}', and nothing {what} it{hint}")


def _uses(serving: Serving, own_stages: list[StageUse]) -> Iterator[tuple[Use, bool]]:
    """Yield every use of a request in stages and callbacks, and whether it is stored."""
    found = [uses_of(one.cls, _METHODS, serving.config) for one in own_stages]
    if serving.config is not None:
        for _, function in own_methods(serving, serving.config):
            if request_parameter(function):
                found.append(uses_of(serving.config, (function.name,), serving.config))
    for uses in found:
        yield from ((use, True) for use in uses.sets)
        yield from ((use, False) for use in uses.reads)


def _spoken(serving: Serving) -> set[tuple[str, bool]]:
    """Return names of attributes in the integration's files, and whether they are stored; strings count as both."""
    found: set[tuple[str, bool]] = set()
    for file in serving.own:
        source = serving.sources.read(file)
        for node in walked(source.tree) if source is not None else ():
            if isinstance(node, ast.Attribute):
                found.add((node.attr, isinstance(node.ctx, ast.Store)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                found |= {(node.value, False), (node.value, True)}
    return found


def _spoken_elsewhere(serving: Serving, name: str) -> bool:
    """Return whether a file of SGLang speaks of an attribute of that name."""
    root = serving.sources.diffusion
    return root is not None and name in _words(root, frozenset(serving.own))


@lru_cache(maxsize=16)
def _words(root: Path, apart: frozenset[Path]) -> frozenset[str]:
    files = (file for file in files_matching(root / "runtime/pipelines_core", "**/*.py") if file not in apart)
    return frozenset(word for file in files for word in _WORD.findall(file.read_text(encoding="utf-8")))


class EmbedsAreLists(Rule):
    """Set prompt embeds to lists with a tensor for each encoder, and pass the denoiser the type that it expects.

    Stages set prompt_embeds and negative_prompt_embeds to lists. A denoiser that expects encoder_hidden_states as a
    tensor needs `get_pos_prompt_embeds` and `get_neg_prompt_embeds`, because SGLang's own methods pass the whole list.

    Why: DenoisingStage rejects a bare tensor. A list instead of a tensor raises AttributeError inside the denoiser.

    Fine when: the pipeline has its own denoising stage.
    """

    id = "SGD204"
    name = "embeds-are-lists"
    target = "sglang-diffusion"
    obligations = ("SGL-34",)
    failure_modes = ("text-encoder-prep",)
    BAD = (
        changed(STAGE, ("batch.prompt_embeds = [embeds]", "batch.prompt_embeds = embeds")),
        changed(CONFIG, ("        return batch.prompt_embeds[0]", "        return batch.prompt_embeds")),
    )
    GOOD = ({STAGE: QWEN[STAGE], CONFIG: QWEN[CONFIG]},)

    def check(self, serving: Serving, before: list[StageUse]) -> Findings:
        seen: set[int] = set()
        for one in before:
            for use in uses_of(one.cls, _METHODS, serving.config).sets if serving.is_own(one.cls) else ():
                if (
                    use.name in ("prompt_embeds", _NEGATIVE)
                    and sort_of(use) is Sort.tensor
                    and id(use.node) not in seen
                ):
                    seen.add(id(use.node))
                    yield at(use.source, use.node, f"'{use.name}' is a tensor: DenoisingStage takes a list of them")
        if serving.config is not None and serving.denoiser is not None:
            yield from _handed(serving, serving.config, serving.denoiser)


def _handed(serving: Serving, config: ClassRef, denoiser: ClassRef) -> Iterator[Finding]:
    forward = denoiser.method("forward")
    if forward is None or not _takes_tensor(forward[1]):
        return
    for name, attribute in (("get_pos_prompt_embeds", "prompt_embeds"), ("get_neg_prompt_embeds", _NEGATIVE)):
        method = config.method(name)
        if method is None or not all(_is_whole(value, attribute) for value in returns(method[1])):
            continue
        home, node = method if serving.is_own(method[0]) else (config, config.node)
        message = (
            f"{name} returns the whole list, but {denoiser.node.name}.forward expects a tensor as encoder_hidden_states"
        )
        yield at(home.source, node, message)


def _is_whole(value: ast.expr, attribute: str) -> bool:
    return isinstance(value, ast.Attribute) and value.attr == attribute


def _takes_tensor(forward: ast.FunctionDef) -> bool:
    """Return whether a forward asks encoder_hidden_states for what only tensors have, and never treats it as a list."""
    name, tensor = "encoder_hidden_states", False
    for node in walked(forward):
        if isinstance(node, ast.Attribute) and dotted(node.value) == name:
            tensor = True
        elif isinstance(node, ast.Subscript) and dotted(node.value) == name and isinstance(node.slice, ast.Constant):
            return False
        elif isinstance(node, ast.Call) and dotted(node.func) in ("isinstance", "len", "list", "type", "zip"):
            if any(dotted(one) == name for one in node.args):
                return False
        elif isinstance(node, (ast.For, ast.comprehension)) and dotted(node.iter) == name:
            return False
        elif isinstance(node, ast.Assign) and any(dotted(target) == name for target in node.targets):
            return False if not isinstance(node.value, ast.Call) else tensor and _takes_tensor_first(node.value, name)
    return tensor


def _takes_tensor_first(call: ast.Call, name: str) -> bool:
    return any(isinstance(node, ast.Attribute) and dotted(node.value) == name for node in walked(call))
