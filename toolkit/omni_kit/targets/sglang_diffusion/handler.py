"""Handler of SGLang-diffusion for pipelines: their own code up to the denoiser, then SGLang's stages."""

from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.targets.protocol import IntegrationPlan, Request
from omni_kit.targets.provenance import recorded_source
from omni_kit.targets.sglang_diffusion.installing import INSTALL_SGLANG
from omni_kit.targets.sglang_diffusion.pipeline_dir import find_pipeline_dir
from omni_kit.targets.sides import PIPELINE, PIPELINES, Ability, Candidate
from omni_kit.upstream.subject import Subject

_SIDE = "omni_kit.targets.sglang_diffusion.runtime.side:SGLangPipelineBuilder"


class PipelineHandler:
    """Scaffolds pipelines: SGLang's stages do what they can, and stages of the pipeline's own the rest."""

    templates = "pipeline"
    variants = ("modular", "native", "hybrid", "whole")

    def plan(self, subject: Subject, request: Request) -> IntegrationPlan:
        """Return a pipeline, its configs, its denoiser on BaseDiT and the stage before it."""
        from omni_kit.targets.sglang_diffusion.plan import make_plan  # whoever only checks need not wait for it

        return make_plan(subject, request)

    def candidate(self, path: Path) -> Candidate:
        """Return a plugin next to diffusers' pipeline of its name, on the checkpoint that it was made from.

        Raises:
            BadInput: it is in a checkout.
        """
        found = find_pipeline_dir(path)
        if found.in_tree:
            raise BadInput(f"{path} is in a checkout: parity runs plugins", "generate it with --style plugin")
        return Candidate(
            path=found.path,
            source=recorded_source(found.path),
            builder=_SIDE,
            options={"path": str(found.path), "pipeline_name": found.pipeline_name},
            reference=PIPELINES,
            batch_builder=PIPELINE,
            forbidden=("sglang",),
            offers=frozenset({Ability.stages, Ability.mesh}),
            requires={"sglang": INSTALL_SGLANG},
        )
