"""Handler of diffusers for the file of a ported pipeline: compares it with the authors' own sampling."""

import ast
from dataclasses import dataclass
from pathlib import Path

from omni_kit.errors import BadInput
from omni_kit.pysource.source import dotted, parse_file, read_source
from omni_kit.targets.diffusers.installing import INSTALL_DIFFUSERS, imported_in_any_case, shared_unless
from omni_kit.targets.diffusers.model_dir import ModelDir, find_model_dir
from omni_kit.targets.diffusers.transformer.handler import LIBRARY, forbidden_to
from omni_kit.targets.diffusers.trials import METHODS
from omni_kit.targets.protocol import IntegrationPlan, Request
from omni_kit.targets.sides import Ability, Candidate
from omni_kit.upstream.repositories.recorded import recorded_reference
from omni_kit.upstream.repositories.reference import BETWEEN, Reference
from omni_kit.upstream.subject import Subject

_SIDE = "omni_kit.targets.diffusers.runtime.drawing:DrawingBuilder"
_REFERENCE = "omni_kit.targets.references.samplers:SamplerBuilder"
_BATCHES = "omni_kit.toys.batches.sampling:SamplingBatchBuilder"
_BASE = "DiffusionPipeline"
_RAISES = "raise NotImplementedError"


@dataclass(frozen=True)
class Drawing:
    """The file of a ported pipeline.

    Attributes:
        found: the integration that it belongs to.
        class_name: the pipeline's.
    """

    file: Path
    found: ModelDir
    class_name: str

    @property
    def module(self) -> str:
        """Import name of the file."""
        package = f"diffusers.pipelines.{self.found.name}" if self.found.in_tree else self.found.name
        return f"{package}.{self.file.stem}"


def find_drawing(path: Path) -> Drawing:
    """Return the pipeline that a file defines, next to a transformer of an integration.

    Raises:
        BadInput: it defines none; what is missing.
    """
    if not path.is_file() or path.suffix != ".py":
        raise BadInput(f"{path} is not a pipeline file", "pass pipeline_<name>.py of a ported model")
    found = find_model_dir(path.parent)
    if not found.sampler.is_file():
        if _RAISES in path.read_text(encoding="utf-8"):
            raise BadInput(
                f"{path} raises NotImplementedError until its denoising steps are written",
                f"write them, and {found.sampler.name}: def sample(model, noise, steps, text, against, scale)",
            )
        raise BadInput(
            f"{found.path} has no {found.sampler.name}, which defines how the authors sample",
            "write one: def sample(model, noise, steps, text, against, scale), which returns latents",
        )
    _, tree = parse_file(path)
    for node in tree.body:
        names = [dotted(base) or "" for base in node.bases] if isinstance(node, ast.ClassDef) else []
        if isinstance(node, ast.ClassDef) and any(name.rpartition(".")[2] == _BASE for name in names):
            return Drawing(path.resolve(), found, node.name)
    raise BadInput(f"{path} defines no pipeline: no class is a {_BASE}", "pass pipeline_<name>.py of a ported model")


def _by_diffusers(sampler: Path, reference: Reference) -> bool:
    """Return whether the authors' loop takes its steps with a scheduler of diffusers, or with one of theirs of that
    kind; a method of theirs that is run with stand-ins always does.
    """
    library = reference.cls.source.library
    for node in ast.walk(ast.parse(sampler.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            if node.module == METHODS:
                return True
            file = library.module_file(node.module)
            imported = [one.module for one in read_source(library, file).imports.values()] if file is not None else []
            if any(one.partition(".")[0] == LIBRARY for one in (node.module, *imported)):
                return True
    return False


class DrawingHandler:
    """Compares; the pipeline is scaffolded with its transformer."""

    templates = ""
    reads = ("repository",)

    def plan(self, subject: Subject, request: Request) -> IntegrationPlan:
        """Nothing is made of a pipeline alone."""
        raise BadInput("a pipeline is scaffolded with its transformer", "pass the transformer's class")

    def candidate(self, path: Path) -> Candidate:
        """Return the pipeline with the converted transformer, next to the authors' own loop.

        Raises:
            BadInput: nothing to compare it with; why.
        """
        one = find_drawing(path)
        found = one.found
        reference = recorded_reference(found.toy)
        forbidden = () if _by_diffusers(found.sampler, reference) else forbidden_to(reference)
        return Candidate(
            path=one.file,
            source=str(found.toy),
            builder=_SIDE,
            options={
                "path": str(found.path), "sys_path": str(found.sys_path), "in_tree": found.in_tree,
                "model_file": str(found.model_file), "class_name": found.class_name,
                "pipeline_module": one.module, "pipeline_class": one.class_name,
            },
            reference=_REFERENCE,
            batch_builder=_BATCHES,
            told={
                "reference": f"{reference.cls.source.path}{BETWEEN}{reference.class_name}",
                "sampler": str(found.sampler),
            },
            forbidden=forbidden,
            hidden=(str(reference.repository.root),),
            offers=frozenset({Ability.stages}),
            requires={"diffusers": INSTALL_DIFFUSERS},
            preloaded=imported_in_any_case(_SIDE, found.sys_path),
            shared=shared_unless(forbidden),
            editable=not found.in_tree,
        )  # fmt: skip
