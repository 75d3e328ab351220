"""Run pipelines in processes of their own, for what only `omni_checkers.sglang_diffusion.runs.experiment` can tell."""

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omni_checkers.engine.rule import NotApplicable
from omni_checkers.sglang_diffusion.facts.model import constructed, model_facts, serving
from omni_checkers.sglang_diffusion.facts.serving import Serving
from omni_checkers.sglang_diffusion.runs.experiment import NOTHING
from omni_kit.errors import MissingRequirement
from omni_kit.isolation.requests import run_workers
from omni_kit.isolation.worker import StepError
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.targets.registry import get_target
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.pipelines import Pipeline
from omni_kit.upstream.diffusers.signatures import arguments

FACT = constructed.__name__
LIMIT = 420.0
"""Seconds in which a pipeline is imported, constructed and called; imports of torch and SGLang included."""
MODULE = "omni_checkers.sglang_diffusion.runs.experiment"
IMPORTS = ("torch", MODULE, "omni_kit.targets.sglang_diffusion.runtime.preloaded")


def experiments(paths: Sequence[Path], level: str) -> dict[Path, dict[str, Any]]:
    """Path -> what importing it, constructing its configs and calling its callbacks gave.

    Raises:
        MissingRequirement: torch or SGLang is not installed.
    """
    for need in get_target("sglang-diffusion").requirements:
        if importlib.util.find_spec(need.name) is None:
            raise MissingRequirement(f"--level {level} needs {need.name}, which is not installed", need.install)
    described = {path: _told(path) for path in paths}
    found: dict[Path, dict[str, Any]] = {path: {} for path in paths}
    for root in dict.fromkeys(one["root"] for one in described.values()):
        group = [one for one in described.values() if one["root"] == root]
        answers = run_workers(
            f"{MODULE}:look_at", group, timeout=LIMIT, modules=IMPORTS, path=[Path(root)] if root else []
        )
        for one, facts in zip(group, answers, strict=True):
            failed = isinstance(facts, StepError)
            found[Path(one["path"])][FACT] = {**NOTHING, "error": str(facts)} if failed else facts
    return found


def _told(path: Path) -> dict[str, Any]:
    try:
        return describe(model_facts(path)[0].value(serving), path)
    except NotApplicable:
        return {"path": str(path), "root": "", "package": "", "classes": {}}


def describe(serving: Serving, path: Path) -> dict[str, Any]:
    """Return the inputs of the run: the places of the classes, and the configs of diffusers' components."""
    classes = {"pipeline": serving.cls, "config": serving.config, "sampling": serving.sampling}
    package = serving.sources.diffusion if serving.in_tree else None
    return {
        "path": str(path),
        "root": str(package.parent.parent) if package is not None else "",
        "package": "" if serving.in_tree else path.resolve().name,
        "folder": str(path.resolve().parent),
        "name": serving.name,
        "classes": {name: _place(serving, cls) for name, cls in classes.items() if cls is not None},
        "upstream": serving.upstream_denoiser,
        "values": _values(serving.upstream, serving.upstream_denoiser),
        "vae": _values(serving.upstream, _autoencoder(serving.upstream)),
    }


def _place(serving: Serving, cls: ClassRef) -> list[str]:
    return [serving.sources.module_name(cls.source.path), cls.node.name]


def _values(pipeline: Pipeline | None, class_name: str) -> dict[str, Any]:
    """Return a config of a class of diffusers: its defaults, as far as JSON has them."""
    upstream = find_class(pipeline.library, class_name) if pipeline is not None and class_name else None
    given = {name: one.default for name, one in arguments(upstream).items()} if upstream is not None else {}
    return {name: value for name, value in given.items() if value is not UNKNOWN and not isinstance(value, bytes)}


def _autoencoder(pipeline: Pipeline | None) -> str:
    """Return the class of the pipeline's autoencoder; empty without one."""
    components = pipeline.components if pipeline is not None else ()
    return next((one.class_name for one in components if one.role == "autoencoder"), "")
