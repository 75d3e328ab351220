"""Asks `omni_checkers.diffusers.runs.experiment` what only a run can tell, in a process of its own."""

import importlib.util
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omni_checkers.diffusers.facts.model import model_facts
from omni_checkers.diffusers.facts.sources import home_of
from omni_checkers.diffusers.runs.experiment import LIMIT
from omni_checkers.engine.apart import answer_of
from omni_checkers.engine.rule import NotApplicable
from omni_kit.errors import MissingRequirement
from omni_kit.pysource.classes import ClassRef
from omni_kit.targets.diffusers.model_dir import toy_name
from omni_kit.targets.registry import get_target
from omni_kit.upstream.diffusers.package import package_root
from omni_kit.upstream.repositories.recorded import SIGNED

FACT, SHARED = "constructed", "shared"
_STARTING = 120.0
"""Seconds for what all models of a run share: the imports of torch and diffusers."""
_MODULE, _SHARING = "omni_checkers.diffusers.runs.experiment", "omni_checkers.diffusers.runs.sharing"
SHARING_LIMIT = 180.0
"""Seconds in which the plan of one model is found and proven."""


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
        request = {"integrations": group}
        limit = _STARTING + LIMIT * sum(len(one["models"]) for one in group)
        answer = answer_of(_MODULE, level, request, Path(root) if root else None, limit) if group else {}
        for path in paths:
            if str(path) in answer:
                found[path][FACT] = answer[str(path)]
    if level == "toy":
        _share(found, described)
    return found


def _share(found: dict[Path, dict[str, Any]], described: Mapping[Path, Mapping[str, Any]]) -> None:
    """Adds the plans of models that say of which class of their authors they are."""
    wanted = [path for path, one in described.items() if SIGNED in one["toy"] and one["models"]]
    for path in wanted:
        root = described[path]["root"]
        request = {"paths": [str(path)]}
        answer = answer_of(_SHARING, "toy", request, Path(root) if root else None, _STARTING + SHARING_LIMIT)
        plan, reason = answer[str(path)]
        found[path][SHARED] = {"plan": plan, "reason": reason}


def describe(path: Path) -> dict[str, Any]:
    """What the run has to know: where the models are, and what they are configured by."""
    facts, _ = model_facts(path)
    try:
        models: list[ClassRef] = facts.get("models")
    except NotApplicable:
        models = []
    root, home = package_root(path.resolve()), home_of(path)
    toy = home / toy_name(root is not None)
    return {
        "path": str(path),
        "root": str(root.parent) if root is not None else "",
        "folder": "" if root is not None else str(home.parent),
        "models": [[cls.source.module, cls.node.name] for cls in models if cls.node.name[0] != "_"],
        "toy": json.loads(toy.read_text(encoding="utf-8")) if toy.is_file() else {},
    }
