"""What is known about one model directory; every function here is a fact, named as rules ask for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from omni_checkers.engine.facts import Facts
from omni_checkers.engine.files import File, read_file
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.symbolic import Program
from omni_checkers.veomni.constants import constant, veomni_package
from omni_checkers.veomni.experts import experts
from omni_checkers.veomni.facts_conversion import converter_classes, factories, rehearsals
from omni_checkers.veomni.facts_generated import generated, patch_configs
from omni_checkers.veomni.facts_plan import plans, skeletons
from omni_checkers.veomni.facts_registry import MODELING, Registration, registrations, returned
from omni_checkers.veomni.regenerate import regenerated
from omni_checkers.veomni.upstream import config_of, default_config, upstream_class
from omni_kit.errors import BadInput
from omni_kit.targets.veomni.model_dir import ModelDir, find_model_dir
from omni_kit.upstream.configs import ModelConfig, config_class
from omni_kit.upstream.library import Library, find_library
from omni_kit.upstream.model import UpstreamModel, upstream_model
from omni_kit.upstream.profile import expert_parameters

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


def kinds(registrations: list[Registration], transformers: Library) -> frozenset[str]:
    """What kinds of model the directory registers; empty where that cannot be told."""
    found = set()
    for key in {item.key for item in registrations if item.registry == MODELING and item.key}:
        try:
            named = upstream_model(transformers, default_config(config_class(transformers, key)))
            found.add(_kind(named.config, _has_experts(named)))
        except (BadInput, RecursionError):
            return frozenset()
    return frozenset(found)


def _has_experts(model: UpstreamModel) -> bool:
    """Whether the model class of transformers for this config has stacked experts: the named one, or the first with it.

    Heads differ in what stands on top of the model, not in its experts.
    """
    names = [model.class_name, *(name for name in model.heads if name != model.class_name)]
    for name in names:
        cls = config_of(model.source, name)
        found = upstream_class(cls, name) if cls is not None and cls.model_type == model.config.model_type else None
        if found is not None:
            return bool(expert_parameters(found.skeleton))
    return False


def _kind(config: ModelConfig, experts: bool) -> str:
    """The kind in the words of the command line."""
    sees = config.has("vision_config") or config.has("thinker_config")
    hears = config.has("audio_config") or config.has("thinker_config")
    base = "omni" if sees and hears else "vlm" if sees or hears else "llm"
    return base if not experts else "moe" if base == "llm" else f"{base}-moe"


PROVIDERS: dict[str, Callable[..., Any]] = {
    "model_dir": model_dir,
    "program": program,
    "transformers": transformers,
    "kinds": kinds,
    "registrations": registrations,
    "returned": returned,
    "generated": generated,
    "patch_configs": patch_configs,
    "regenerated": regenerated,
    "converter_classes": converter_classes,
    "factories": factories,
    "rehearsals": rehearsals,
    "plans": plans,
    "skeletons": skeletons,
    "experts": experts,
}
