"""What VeOmni does with diffusion transformers: its wrappers are compared with the classes that they wrap."""

from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.targets.protocol import IntegrationPlan, Request
from omni_kit.targets.sides import DENOISER, DIFFUSERS, Candidate
from omni_kit.targets.veomni.dit.directories import denoiser_class, find_transformer
from omni_kit.targets.veomni.finding import side_options
from omni_kit.targets.veomni.installing import INSTALL_VEOMNI
from omni_kit.upstream.subject import Subject

TOY_CONFIG = "toy_config.json"
_SIDE = "omni_kit.targets.veomni.dit.side:VeOmniDiffusionBuilder"


class DitHandler:
    """Compares wrappers over classes of diffusers."""

    templates = ""

    def plan(self, subject: Subject, request: Request) -> IntegrationPlan:
        """Nothing: there are no templates for wrappers."""
        raise BadInput(f"VeOmni integrations of kind '{subject.kind}' are compared and checked, and not scaffolded yet")

    def candidate(self, path: Path) -> Candidate:
        """A wrapper's directory beside the class of diffusers that it registers a model for."""
        found = find_transformer(path)
        toy = found.path / TOY_CONFIG
        return Candidate(
            path=found.path,
            source=str(toy) if toy.is_file() else denoiser_class(found),
            builder=_SIDE,
            options=side_options(found),
            forbidden=("veomni",),
            reference=DIFFUSERS,
            feed=DENOISER,
            requires={} if found.style == "in-tree" else {"veomni": INSTALL_VEOMNI},
            editable=found.style == "plugin",
        )
