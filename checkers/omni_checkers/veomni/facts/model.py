"""Facts about one model directory: each function is a fact, named as rules request it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omni_checkers.engine.facts import Facts, fact, facts_in, given
from omni_checkers.engine.files import File, read_file
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.symbolic import Program
from omni_checkers.veomni.facts.constants import constant, veomni_package
from omni_checkers.veomni.facts.diffusion import speaks_of_diffusion
from omni_checkers.veomni.facts.registry import MODELING, Registration
from omni_checkers.veomni.facts.upstream import upstream_class
from omni_kit.errors import BadInput
from omni_kit.files import files_matching
from omni_kit.pysource.library import Library, find_library
from omni_kit.targets.provenance import other_version
from omni_kit.targets.veomni.model_dir import ModelDir, find_model_dir
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.transformers.configs import config_class
from omni_kit.upstream.transformers.defaults import default_config
from omni_kit.upstream.transformers.models import upstream_model
from omni_kit.upstream.transformers.traits import kind_of

Files = dict[Path, File]


def model_facts(path: Path) -> tuple[Facts, list[File]]:
    """Return the facts about the model directory at `path`, and its files."""
    files = {file: read_file(file) for file in files_matching(path, "**/*.py")}
    facts = Facts({"path": path, "files": files}, facts_in(__package__))
    return facts, list(files.values())


@given
def path() -> Path:
    """Return the directory of the model."""
    raise NotImplementedError


@given
def files() -> Files:
    """Return the Python files of the model."""
    raise NotImplementedError


@given
def imported() -> Mapping[str, Any]:
    """Return the results of `--level import`."""
    raise NotImplementedError


@given
def loaded() -> Sequence[Sequence[str]]:
    """Return the faults that `--level toy` found: register function and message."""
    raise NotImplementedError


@given
def typed() -> Sequence[Any]:
    """Return the type checker's diagnostics: path, line and message, after whether it ran."""
    raise NotImplementedError


@fact
def model_dir(path: Path) -> ModelDir:
    """Return the directory with its style, import name and registered keys."""
    try:
        return find_model_dir(path)
    except BadInput as error:
        raise NotApplicable(error.message) from error


@fact
def program(model_dir: ModelDir, files: Files) -> Program:
    """Return the directory as a package that can be executed symbolically."""
    package = veomni_package(model_dir)
    return Program(
        model_dir.path,
        model_dir.import_name,
        lambda path: files[path].tree if path in files else None,
        lambda name: constant(package, name) if package is not None and name.startswith("veomni.") else None,
    )


@fact
def transformers(model_dir: ModelDir) -> Library:
    """Return the transformers that the model is for.

    Raises:
        NotApplicable: the model was made from another version than the installed one.
    """
    library = find_library("transformers")
    if why := other_version(model_dir.path, library):
        raise NotApplicable(why)
    return library


@fact
def kinds(
    registrations: list[Registration], transformers: Library, model_dir: ModelDir, files: Files
) -> frozenset[Kind]:
    """Return the kinds of model that the directory registers; empty if they are unknown."""
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
