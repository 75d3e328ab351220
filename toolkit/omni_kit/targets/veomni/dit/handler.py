"""What VeOmni does with diffusion transformers: its wrappers are compared with the classes that they wrap."""

from pathlib import Path

from omni_kit.errors import Refusal
from omni_kit.targets.protocol import IntegrationPlan, Request
from omni_kit.targets.sides import DENOISER, DIFFUSERS, Candidate
from omni_kit.targets.veomni.comparing import candidate
from omni_kit.targets.veomni.dit.directories import denoiser_class, find_transformer
from omni_kit.upstream.subject import Subject

_SIDE = "omni_kit.targets.veomni.dit.side:VeOmniDiffusionBuilder"


class DitHandler:
    """Compares wrappers over classes of diffusers."""

    templates = ""

    def plan(self, subject: Subject, request: Request) -> IntegrationPlan:
        """Nothing: there are no templates for wrappers."""
        raise Refusal(f"VeOmni integrations of kind '{subject.kind}' are compared and checked, and not scaffolded yet")

    def candidate(self, path: Path) -> Candidate:
        """A wrapper's directory beside the class of diffusers that it registers a model for."""
        return candidate(find_transformer(path), denoiser_class, builder=_SIDE, reference=DIFFUSERS, feed=DENOISER)
