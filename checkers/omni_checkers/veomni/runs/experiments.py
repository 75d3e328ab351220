"""Run models in processes of their own, for what only `omni_checkers.veomni.runs.experiment` can tell."""

import importlib.util
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omni_checkers.engine.facts import Facts
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.veomni.facts.diffusion import diffusion
from omni_checkers.veomni.facts.generated import architectures, generated
from omni_checkers.veomni.facts.model import imported, loaded, model_facts, typed
from omni_checkers.veomni.runs.experiment import NOTHING
from omni_checkers.veomni.runs.type_checks import typed_facts
from omni_kit.errors import MissingRequirement, OmniKitError
from omni_kit.isolation.requests import prepare, run_workers
from omni_kit.isolation.worker import StepError
from omni_kit.targets.registry import get_target
from omni_kit.targets.veomni.model_dir import ModelDir, find_model_dir

FACT = {"import": imported.__name__, "toy": loaded.__name__}
TYPED = typed.__name__
"""Diagnostics of a type checker, which need no run of the model."""
_STARTING = 300.0
"""Seconds for what all models of a run share: the imports of torch and VeOmni."""
_IMPORT_LIMIT, _TOY_LIMIT = 120.0, 600.0
"""Seconds that each model of a run may take."""
_LOADING = ("import", "keys", "roundtrip")
_MODULE = "omni_checkers.veomni.runs.experiment"
_IMPORTS = (
    "torch", _MODULE, "veomni.models.transformers", "veomni.distributed.parallel_plan", "omni_kit.layout.expected",
    "omni_kit.targets.veomni.runtime.hooks", "omni_kit.targets.veomni.runtime.side", "omni_kit.toys.configs.language",
    "omni_kit.upstream.transformers.models",
)  # fmt: skip


def experiments(paths: Sequence[Path], level: str) -> dict[Path, dict[str, Any]]:
    """Path -> facts that runs give, for a level and those before it.

    Raises:
        MissingRequirement: torch, VeOmni or another package that every run needs is not installed.
    """
    models = [find_model_dir(path) for path in paths]
    outside = any(model.style == "plugin" for model in models)
    for need in get_target("veomni").requirements:
        if need.apart or (need.name == "veomni" and not outside):
            continue
        if importlib.util.find_spec(need.name) is None:
            raise MissingRequirement(f"--level {level} needs {need.name}, which is not installed", need.install)
    found: dict[Path, dict[str, Any]] = {path: {} for path in paths}
    for one in ("import", "toy")[: 2 if level == "toy" else 1]:
        for root in dict.fromkeys(_root(model) for model in models):
            group = [model for model in models if _root(model) == root]
            for model, facts in zip(group, _run(one, root, group), strict=True):
                found[model.path][FACT[one]] = facts
    types = typed_facts([model.path for model in models])
    return {path: {**facts, TYPED: types.get(path, [])} for path, facts in found.items()}


def begin(paths: Sequence[Path]) -> None:
    """Begin to import what `experiments` needs."""
    for root in dict.fromkeys(_root(find_model_dir(path)) for path in paths):
        prepare(_IMPORTS, [root] if root is not None else [])


def _root(model: ModelDir) -> Path | None:
    """Return the checkout that has to come first on the path; None for plugins, which share the installed VeOmni."""
    return model.sys_path if model.style == "in-tree" else None


def _run(level: str, root: Path | None, models: Sequence[ModelDir]) -> Iterator[Any]:
    """Yield the facts of each model."""
    requests = [_described(model) for model in models]
    path = [root] if root is not None else []
    if level == "import":
        limit = _STARTING + _IMPORT_LIMIT
        for facts in run_workers(f"{_MODULE}:import_facts", requests, timeout=limit, modules=_IMPORTS, path=path):
            yield {**NOTHING, "error": str(facts)} if isinstance(facts, StepError) else facts
        return
    yield from _toy_facts(models, path)


def _toy_facts(models: Sequence[ModelDir], path: Sequence[Path]) -> Iterator[list[list[str]]]:
    """Yield of each model the levels of parity that load a toy by VeOmni's own loader: level, status, reason."""
    from omni_kit.parity import run_parity  # which loads torch
    from omni_kit.parity.processes.workers import Sides

    with (
        tempfile.TemporaryDirectory(prefix="omni-kit-check-") as logs,
        Sides(Path(logs), timeout=_TOY_LIMIT, path=path) as sides,
    ):
        for model in models:
            try:
                levels = run_parity(model.path, _LOADING, sides=sides).levels
                yield [[one.level, one.status, one.reason] for one in levels]
            except OmniKitError as error:
                yield [["import", "error", error.message]]
            if model.style == "plugin":  # the next one may register the same keys
                sides.worker("candidate").close()


def _described(model: ModelDir) -> dict[str, Any]:
    fields = asdict(model) | {"path": str(model.path), "sys_path": str(model.sys_path)}
    facts, _ = model_facts(model.path)
    try:
        files = facts.value(generated)
    except NotApplicable:
        files = []
    named = {key: sorted(architectures(files, key)) for key in model.registered}
    return fields | {"registered": list(model.registered), "architectures": named, "sides": _sides(facts)}


def _sides(facts: Facts) -> dict[str, str]:
    """Return the keys of the two sides of a diffusion model, and the class of diffusers; nothing for other models."""
    try:
        found = facts.value(diffusion)
    except NotApplicable:
        return {}
    return {
        "transformer": found.transformer.key if found.transformer is not None else "",
        "condition": found.condition.key if found.condition is not None else "",
        "upstream": found.upstream.node.name if found.upstream is not None else "",
    }
