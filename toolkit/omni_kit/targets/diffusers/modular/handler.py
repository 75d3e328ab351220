"""Handler of diffusers for a pipeline that it has: proposes the blocks of a modular pipeline."""

from pathlib import Path

from omni_kit.targets.diffusers.installing import INSTALL_DIFFUSERS
from omni_kit.targets.diffusers.modular.package import find_package
from omni_kit.targets.protocol import IntegrationPlan, Request
from omni_kit.targets.provenance import recorded_source
from omni_kit.targets.sides import PIPELINES, Ability, Candidate
from omni_kit.upstream.subject import Subject

_SIDE = "omni_kit.targets.diffusers.modular.side:ModularBuilder"
_BATCHES = "omni_kit.toys.batches.pipeline:PromptBatchBuilder"


class ModularHandler:
    """Divides a standard pipeline into blocks, and compares them with it."""

    templates = "modular"
    reads = ("diffusers",)
    variants = ("modular", "both")  # the standard one is there already

    def plan(self, subject: Subject, request: Request) -> IntegrationPlan:
        """Return the blocks, and the pipeline that runs them."""
        from omni_kit.targets.diffusers.modular.plan import make_plan  # whoever only checks need not wait for it

        return make_plan(subject, request)

    def candidate(self, path: Path) -> Candidate:
        """Return the blocks next to the pipeline that they were made of, on the same components.

        Raises:
            BadInput: it is no modular pipeline.
        """
        found = find_package(path)
        return Candidate(
            path=found.path,
            source=recorded_source(found.path),
            builder=_SIDE,
            options={"path": str(found.path), "class_name": found.class_name},
            reference=PIPELINES,
            batch_builder=_BATCHES,
            offers=frozenset({Ability.stages}),
            requires={"diffusers": INSTALL_DIFFUSERS},
            preloaded=(_SIDE.partition(":")[0], "diffusers.modular_pipelines"),
        )
