"""Handler of diffusers for a diffusion transformer from its authors' repository."""

from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.targets.diffusers.installing import INSTALL_DIFFUSERS, imported_in_any_case, shared_unless
from omni_kit.targets.diffusers.model_dir import find_model_dir
from omni_kit.targets.protocol import IntegrationPlan, Request
from omni_kit.targets.sides import DENOISER, OF_MODELS, REPOSITORIES, Ability, Candidate
from omni_kit.upstream.repositories.recorded import recorded_reference
from omni_kit.upstream.repositories.reference import BETWEEN, Reference
from omni_kit.upstream.repositories.traits import foreign
from omni_kit.upstream.subject import Subject

LIBRARY = "diffusers"
_SIDE = "omni_kit.targets.diffusers.runtime.side:ConvertedBuilder"


def forbidden_to(reference: Reference) -> tuple[str, ...]:
    """Return the packages that the authors' process must not import: diffusers, where they do not build on it
    themselves.
    """
    return () if LIBRARY in foreign(reference) else (LIBRARY,)


class TransformerHandler:
    """Ports the transformer, and makes what stands around it: pipeline, conversion, tests and pages."""

    templates = "transformer"
    reads = ("repository",)
    variants = ("standard", "both")
    names_class = True

    def plan(self, subject: Subject, request: Request) -> IntegrationPlan:
        """Return the model's file, rewritten from the authors' code, and all that diffusers has next to it."""
        from omni_kit.targets.diffusers.transformer.plan import make_plan  # whoever only checks need not wait for it

        return make_plan(subject, request)

    def prepare(self) -> None:
        """Import torch while the plan is made, where it is installed."""
        from omni_kit.targets.diffusers.trials import begin

        begin()

    def candidate(self, path: Path) -> Candidate:
        """Return the model with freshly converted weights, next to the authors' own class.

        Raises:
            BadInput: it does not say of which class it is.
        """
        found = find_model_dir(path)
        toy = found.toy
        if not toy.is_file():
            raise BadInput(
                f"{path} has no {toy.name}: nothing to compare it with",
                'write one: {"_reference": "PATH::Class", and the arguments of a small model}',
            )
        reference = recorded_reference(toy)
        forbidden = forbidden_to(reference)
        return Candidate(
            path=found.path,
            source=str(toy),
            builder=_SIDE,
            options={
                "path": str(found.path), "sys_path": str(found.sys_path), "in_tree": found.in_tree,
                "model_file": str(found.model_file), "class_name": found.class_name,
            },
            reference=REPOSITORIES,
            batch_builder=DENOISER,
            told={"reference": f"{reference.cls.source.path}{BETWEEN}{reference.class_name}"},
            forbidden=forbidden,
            hidden=(str(reference.repository.root),),
            offers=(OF_MODELS - {Ability.slots, Ability.mesh}) | {Ability.hooks},
            requires={"diffusers": INSTALL_DIFFUSERS},
            preloaded=imported_in_any_case(_SIDE, found.sys_path),
            shared=shared_unless(forbidden),
            editable=not found.in_tree,
        )  # fmt: skip
