"""Rules on the request that stages hand on: SGL203, SGL204."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import File, walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.sglang_diffusion.facts.classes import STAGE, Classes, Found
from omni_checkers.sglang_diffusion.facts.request import REQUESTS, read_names, request_fields, set_fields
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.python.source import dotted

# What DenoisingStage reads of a request, and nothing but a stage before it sets -> what happens without it.
_READ = {
    "latents": "there is no noise to begin with",
    "timesteps": "its check of the request fails",
    "scheduler": "it ends in an AssertionError",
    "prompt_embeds": "its check of the request fails",
    "raw_latent_shape": "it ends in a TypeError at the first step",
}
# Stages of SGLang that set some of it.
_PREPARING = ("LatentPreparationStage", "TimestepPreparationStage", "TextEncodingStage", "add_standard_")
_NOT_PREPARING = ("add_standard_denoising_stage", "add_standard_decoding_stage")
_STAGE = """from sglang.multimodal_gen.runtime.pipelines_core.stages.base import PipelineStage


class ServedBeforeDenoisingStage(PipelineStage):
    def forward(self, batch, server_args):
        batch.latents = self.noise(batch)
        batch.raw_latent_shape = batch.latents.shape
        batch.timesteps = self.scheduler.timesteps
        batch.scheduler = self.scheduler
        batch.prompt_embeds = [self.encode(batch.prompt)]
        return batch
"""


class DenoisingFindsItsFields(Rule):
    """The stages before the standard DenoisingStage set everything that it reads.

    Why: the published table of fields leaves out `scheduler`; what is missing shows at the first request, in another
    stage than the one that forgot it.

    Fine when: a stage of another pipeline sets it; then say so in a comment that silences the rule.
    """

    id = "SGL203"
    name = "denoising-finds-its-fields"
    target = "sglang-diffusion"
    kinds = frozenset({Kind.pipeline})
    obligations = ("SGL-03", "SGL-32", "SGL-35")
    BAD = (
        {"before_denoising.py": _STAGE.replace("        batch.scheduler = self.scheduler\n", "")},
        {"before_denoising.py": _STAGE.replace("batch.raw_latent_shape", "batch.latent_shape")},
    )
    GOOD = ({"before_denoising.py": _STAGE},)

    def check(self, classes: Classes, files: list[File], standard_denoising: str) -> Findings:
        """See `Rule.check`."""
        stages = list(classes.of(STAGE))
        if not stages:
            raise NotApplicable("it has no stage of its own")
        if others := next(_prepares(files), ""):
            raise NotApplicable(f"{others} of SGLang sets some of the fields")
        named = {name for found in stages for name in _set(found)}
        first = stages[0]
        for name, what in _READ.items():
            if name not in named:
                message = f"no stage sets batch.{name}, which DenoisingStage reads: {what}"
                yield Finding(message, first.file.path, first.node.lineno)


class RequestKnowsItsFields(Rule):
    """What a stage sets on a request is a field of it, or something reads it.

    Why: a request takes any attribute without a word. A misspelled field is lost, and the picture is another one.

    Fine when: code outside the pipeline's files reads it; then say so in a comment that silences the rule.
    """

    id = "SGL204"
    name = "request-knows-its-fields"
    severity = Severity.warning
    target = "sglang-diffusion"
    kinds = frozenset({Kind.pipeline})
    obligations = ("SGL-32",)
    BAD = (
        {"before_denoising.py": _STAGE.replace("return batch", "batch.guidance_scal = 4.0\n        return batch")},
        {"before_denoising.py": _STAGE.replace("return batch", "batch.sigma = []\n        return batch")},
    )
    GOOD = ({"before_denoising.py": _STAGE},)

    def check(self, files: list[File]) -> Findings:
        """See `Rule.check`."""
        known, read = request_fields(), read_names(files)
        for name, file, line in set_fields(files):
            if name not in known and name not in read:
                message = f"batch.{name} is no field of a request, and nothing reads it"
                yield Finding(message, file.path, line)


def _prepares(files: list[File]) -> Iterator[str]:
    """SGLang's own preparing stages that the pipeline adds."""
    for file in files:
        for call in file.nodes(ast.Call):
            name = (dotted(call.func) or "").rpartition(".")[2]
            if name.startswith(_PREPARING) and name not in _NOT_PREPARING:
                yield name


def _set(found: Found) -> Iterator[str]:
    """The fields of a request that a stage sets: of a variable that a method of it takes as `batch`."""
    for node in walked(found.node):
        targets = node.targets if isinstance(node, ast.Assign) else []
        for target in targets:
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            yield from (one.attr for one in parts if isinstance(one, ast.Attribute) and dotted(one.value) in REQUESTS)
        if isinstance(node, ast.Call) and dotted(node.func) == "setattr" and dotted(node.args[0]) in REQUESTS:
            yield from (str(one.value) for one in node.args[1:2] if isinstance(one, ast.Constant))
