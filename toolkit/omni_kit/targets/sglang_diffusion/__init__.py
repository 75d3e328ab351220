"""SGLang-diffusion as a target: serving pipelines of diffusers with SGLang's stages."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from omni_kit.targets.protocol import Decision, Integration, KindHandler, Requirement
from omni_kit.targets.sglang_diffusion.finding import at, find
from omni_kit.targets.sglang_diffusion.handler import PipelineHandler
from omni_kit.targets.sglang_diffusion.installing import INSTALL_SGLANG
from omni_kit.targets.sglang_diffusion.loading import SGLangConsumer
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.subject import Subject


class SGLangDiffusion:
    """The framework as omni-kit asks it; see `omni_kit.targets.protocol.Target`."""

    name = "sglang-diffusion"
    reads = ("diffusers",)
    rules = "omni_checkers.sglang_diffusion"
    requirements = (
        Requirement("sglang", "parity", INSTALL_SGLANG, apart=True),
        Requirement("torch", "parity", INSTALL_SGLANG, apart=True),
    )
    consumer = SGLangConsumer()
    kinds: Mapping[Kind, KindHandler] = {Kind.pipeline: PipelineHandler()}

    def has(self, subject: Subject) -> Sequence[Decision]:
        """Return what SGLang already has of a pipeline: the pipeline itself, its denoiser, its autoencoder."""
        from omni_kit.targets.sglang_diffusion.built_in import own  # whoever only checks need not wait for it

        return tuple(own().decisions(subject))

    def at(self, path: Path) -> Integration | None:
        """Return a package that registers a pipeline."""
        return at(path)

    def find(self, path: Path) -> Sequence[Integration]:
        """Integrations at `path`: itself, or those in a folder or a checkout."""
        return find(path)


TARGET = SGLangDiffusion()
