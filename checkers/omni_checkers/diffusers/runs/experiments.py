"""Run models in processes of their own, for what only `omni_checkers.diffusers.runs.experiment` can tell."""

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omni_checkers.diffusers.facts.model import constructed, model_facts, models, shared
from omni_checkers.diffusers.facts.sources import home_of
from omni_checkers.engine.rule import NotApplicable
from omni_kit.documents import read_mapping
from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.isolation.requests import run_worker, run_workers
from omni_kit.isolation.worker import StepError
from omni_kit.targets.diffusers.model_dir import toy_name
from omni_kit.targets.registry import get_target
from omni_kit.upstream.diffusers.package import package_root
from omni_kit.upstream.repositories.published import SIGNED

FACT, SHARED = constructed.__name__, shared.__name__
_LIMIT, _SHARING_LIMIT = 240.0, 300.0
"""Seconds in which one model is imported and built, and in which its plan is found and proven."""
_MODULE, _SHARING = "omni_checkers.diffusers.runs.experiment", "omni_checkers.diffusers.runs.sharing"
_IMPORTS = ("torch", _MODULE, "diffusers.models")


def experiments(paths: Sequence[Path], level: str) -> dict[Path, dict[str, Any]]:
    """Path -> what importing the models there and building them gave.

    Raises:
        MissingRequirement: torch or diffusers is not installed.
        BadInput: a run ended without an answer.
    """
    for need in get_target("diffusers").requirements:
        if importlib.util.find_spec(need.name) is None:
            raise MissingRequirement(f"--level {level} needs {need.name}, which is not installed", need.install)
    described = {path: describe(path) for path in paths}
    found: dict[Path, dict[str, Any]] = {path: {FACT: {}} for path in paths}
    for root in dict.fromkeys(one["root"] for one in described.values()):
        group = [one for one in described.values() if one["root"] == root and one["models"]]
        requests = [
            {"folder": one["folder"], "toy": one["toy"], "module": module, "name": name}
            for one in group for module, name in one["models"]
        ]  # fmt: skip
        answers = run_workers(
            f"{_MODULE}:look_at", requests, timeout=_LIMIT, modules=_IMPORTS, path=[Path(root)] if root else []
        )
        for one in group:
            found[Path(one["path"])][FACT] = {name: _facts(next(answers)) for _, name in one["models"]}
    if level == "toy":
        _share(found, described)
    return found


def _share(found: dict[Path, dict[str, Any]], described: Mapping[Path, Mapping[str, Any]]) -> None:
    """Add the plans of models that say of which class of their authors they are."""
    wanted = [path for path, one in described.items() if SIGNED in one["toy"] and one["models"]]
    for path in wanted:
        root = described[path]["root"]
        try:
            plan, reason = run_worker(
                f"{_SHARING}:found", str(path), timeout=_SHARING_LIMIT, modules=("torch", _SHARING),
                path=[Path(root)] if root else [],
            )  # fmt: skip
        except StepError as error:
            raise BadInput(f"the run for --level toy failed: {error}", f"look at what {path} does on import") from error
        found[path][SHARED] = {"plan": plan, "reason": reason}


def _facts(answer: Any) -> Any:
    return {"lacks": "", "wrong": [["built", str(answer)]]} if isinstance(answer, StepError) else answer


def describe(path: Path) -> dict[str, Any]:
    """Return the inputs of the run: the places of the models and their configs."""
    facts, _ = model_facts(path)
    try:
        found = facts.value(models)
    except NotApplicable:
        found = []
    root, home = package_root(path.resolve()), home_of(path)
    toy = home / toy_name(root is not None)
    return {
        "path": str(path),
        "root": str(root.parent) if root is not None else "",
        "folder": "" if root is not None else str(home.parent),
        "models": [[cls.source.module, cls.node.name] for cls in found if cls.node.name[0] != "_"],
        "toy": read_mapping(toy) if toy.is_file() else {},
    }
