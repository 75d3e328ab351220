"""Handler of VeOmni for transformers models with text output: scaffolds, compares and checks them."""

from dataclasses import replace
from pathlib import Path

from omni_kit.targets.protocol import Decision, IntegrationPlan, Request
from omni_kit.targets.sides import LANGUAGE, TRANSFORMERS, Ability, Candidate
from omni_kit.targets.veomni.comparing import candidate, trains
from omni_kit.targets.veomni.model_dir import ModelDir, find_model_dir
from omni_kit.toys.modules import with_experts
from omni_kit.upstream.subject import Subject

_SIDE = "omni_kit.targets.veomni.runtime.side:VeOmniBuilder"


class TextHandler:
    """Scaffolds and compares models that answer in text, with experts and without, with media and without."""

    templates = "text"
    training_file = "train.yaml.jinja"

    def plan(self, subject: Subject, request: Request) -> IntegrationPlan:
        """Return a package with a patch config, registration, plan, converter, toy and test.

        The classes that get a kernel run next to its reference, where torch is installed.
        """
        from omni_kit.targets.veomni.text.kernel_confirmation import confirmed
        from omni_kit.targets.veomni.text.plan import make_plan  # whoever only checks need not wait for it

        plan = make_plan(subject, request)
        return replace(plan, confirm=lambda: confirmed(with_experts(subject.model), plan))

    def candidate(self, path: Path) -> Candidate:
        """Return a model directory next to transformers' own classes, in the same language."""
        model = find_model_dir(path)
        found = candidate(model, _first_key, builder=_SIDE, reference=TRANSFORMERS, batch_builder=LANGUAGE)
        own = {Ability.scenarios, Ability.hooks, Ability.adapters, Ability.kernels}
        return replace(found, offers=found.offers | own | ({Ability.train} if trains(model) else set()))

    def sites(self, subject: Subject) -> tuple[Decision, ...]:
        """Return where VeOmni's kernels fit, even if no integration can be written; empty without a head for text."""
        from omni_kit.targets.veomni.text.plan import site_decisions
        from omni_kit.targets.veomni.text.sites import causal_head, find_sites

        model = with_experts(subject.model)
        return tuple(site_decisions(find_sites(model))) if causal_head(model) else ()

    def prepare(self) -> None:
        """Import torch and transformers' models while the plan is made, where torch is installed."""
        from omni_kit.targets.veomni.text.kernel_confirmation import begin

        begin()


def _first_key(found: ModelDir) -> str:
    """Return the model_type that a directory registers first."""
    return next(iter(found.registered))
