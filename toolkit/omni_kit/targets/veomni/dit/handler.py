"""Handler of VeOmni for diffusion transformers: wrappers over classes of diffusers, with their condition models."""

from dataclasses import replace
from pathlib import Path

from omni_kit.targets.protocol import IntegrationPlan, Request
from omni_kit.targets.sides import DENOISER, DIFFUSERS, Ability, Candidate
from omni_kit.targets.veomni.comparing import candidate, trains
from omni_kit.targets.veomni.dit.directories import denoiser_class, find_transformer
from omni_kit.upstream.subject import Subject

_SIDE = "omni_kit.targets.veomni.dit.side:VeOmniDiffusionBuilder"


class DitHandler:
    """Scaffolds wrappers over classes of diffusers, and compares them with these."""

    templates = "dit"
    training_file = "train.yaml.jinja"

    def plan(self, subject: Subject, request: Request) -> IntegrationPlan:
        """Return two packages, the transformer and the model of its conditions, with configs, toy and test."""
        from omni_kit.targets.veomni.dit.plan import make_plan  # whoever only checks need not wait for it

        return make_plan(subject, request)

    def candidate(self, path: Path) -> Candidate:
        """Return a wrapper's directory next to the class of diffusers that it registers a model for."""
        model = find_transformer(path)
        found = candidate(model, denoiser_class, builder=_SIDE, reference=DIFFUSERS, batch_builder=DENOISER)
        own = {Ability.scenarios, Ability.hooks, Ability.adapters, Ability.kernels}
        return replace(found, offers=found.offers | own | ({Ability.train} if trains(model) else set()))
