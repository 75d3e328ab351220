"""What is known about one model directory; every function here is a fact, named as rules ask for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from omni_checkers.engine.facts import Facts
from omni_checkers.engine.files import File, read_file
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.symbolic import Program
from omni_checkers.veomni.facts.code_clones import clone_edits, code_clones, siblings
from omni_checkers.veomni.facts.constants import constant, veomni_package
from omni_checkers.veomni.facts.conversion import converter_classes, factories, rehearsals
from omni_checkers.veomni.facts.diffusion import diffusion, speaks_of_diffusion
from omni_checkers.veomni.facts.experts import experts
from omni_checkers.veomni.facts.generated import generated, patch_configs
from omni_checkers.veomni.facts.handwritten import copies
from omni_checkers.veomni.facts.libraries import libraries
from omni_checkers.veomni.facts.origins import written_at
from omni_checkers.veomni.facts.overrides import overrides
from omni_checkers.veomni.facts.plan import plans, skeletons
from omni_checkers.veomni.facts.regenerate import regenerated
from omni_checkers.veomni.facts.registry import MODELING, Registration, registrations, returned
from omni_checkers.veomni.facts.upstream import upstream_class
from omni_kit.errors import BadInput
from omni_kit.pysource.library import Library, find_library
from omni_kit.targets.veomni.model_dir import ModelDir, find_model_dir
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.transformers.configs import config_class
from omni_kit.upstream.transformers.defaults import default_config
from omni_kit.upstream.transformers.models import upstream_model
from omni_kit.upstream.transformers.traits import kind_of

Files = dict[Path, File]


def model_facts(path: Path) -> tuple[Facts, list[File]]:
    """The facts about the model directory at `path`, and its files."""
    files = {file: read_file(file) for file in sorted(path.rglob("*.py")) if "__pycache__" not in file.parts}
    facts = Facts({"path": path, "files": files}, PROVIDERS)
    return facts, list(files.values())


def model_dir(path: Path) -> ModelDir:
    """The directory with its style, import name and registered keys."""
    try:
        return find_model_dir(path)
    except BadInput as error:
        raise NotApplicable(error.message) from error


def program(model_dir: ModelDir, files: Files) -> Program:
    """The directory as a package that can be executed symbolically."""
    package = veomni_package(model_dir)
    return Program(
        model_dir.path,
        model_dir.import_name,
        lambda path: files[path].tree if path in files else None,
        lambda name: constant(package, name) if package is not None and name.startswith("veomni.") else None,
    )


def transformers() -> Library:
    """The transformers that the model is for."""
    return find_library("transformers")


def kinds(
    registrations: list[Registration], transformers: Library, model_dir: ModelDir, files: Files
) -> frozenset[Kind]:
    """What kinds of model the directory registers; empty where that cannot be told."""
    if speaks_of_diffusion(model_dir, files):
        return frozenset({Kind.dit})
    found = set()
    for key in {item.key for item in registrations if item.registry == MODELING and item.key}:
        try:
            named = upstream_model(transformers, default_config(config_class(transformers, key)))
            shared = upstream_class(named.config.cls, named.class_name)  # whose parameters are read once for all
            found.add(kind_of(shared or named)[0])
        except (BadInput, RecursionError):
            return frozenset()
    return frozenset(found)


PROVIDERS: dict[str, Callable[..., Any]] = {
    "model_dir": model_dir,
    "program": program,
    "transformers": transformers,
    "kinds": kinds,
    "registrations": registrations,
    "returned": returned,
    "generated": generated,
    "patch_configs": patch_configs,
    "overrides": overrides,
    "copies": copies,
    "libraries": libraries,
    "siblings": siblings,
    "code_clones": code_clones,
    "clone_edits": clone_edits,
    "regenerated": regenerated,
    "written_at": written_at,
    "converter_classes": converter_classes,
    "factories": factories,
    "rehearsals": rehearsals,
    "plans": plans,
    "skeletons": skeletons,
    "experts": experts,
    "diffusion": diffusion,
}
