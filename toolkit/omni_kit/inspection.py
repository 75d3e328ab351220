"""inspect: the profile of a model, and what an integration of it would take in each target."""

from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.resources import resource_dir
from omni_kit.targets import Plan, Request, targets
from omni_kit.upstream.library import find_library
from omni_kit.upstream.model import UpstreamModel, upstream_model
from omni_kit.upstream.profile import ModelProfile, profile
from omni_kit.upstream.sources import model_config, read_source_argument


def inspect(source: str, transformers: Path | None = None) -> dict[str, Any]:
    """The JSON object of inspect, with `notes`.

    Raises:
        BadInput: SOURCE is not understood, or has no model that transformers knows.
    """
    library = find_library("transformers", transformers)
    found = read_source_argument(source, library)
    model = upstream_model(library, model_config(found, library))
    facts = profile(model)
    plans, notes = {}, []
    for name, target in targets().items():
        try:
            plan = target.plan(Request(_identifier(facts), source, Path(), "plugin", model, facts, None))
        except BadInput as error:
            notes.append(f"{name}: {error.message}")
            continue
        plans[name] = _summary(plan)
    unresolved = len(model.skeleton.unresolved)
    if unresolved:
        first = model.skeleton.unresolved[0]
        notes.append(f"{unresolved} sub-modules could not be read from source, {first[0]} = {first[1]} first")
    return {
        **facts.as_json(),
        "components": [],
        "nearest_reference": _nearest(model, facts),
        "targets": plans,
        "notes": notes,
    }


def _identifier(facts: ModelProfile) -> str:
    return "".join(c if c.isalnum() else "_" for c in facts.model_type)


def _summary(plan: Plan) -> dict[str, Any]:
    patches = [
        {
            "site": d.what,
            "decision": "skip" if d.choice == "skip" else "patch",
            "reason": d.reason,
            "evidence": d.evidence,
        }
        for d in plan.decisions
        if d.choice in {"patch", "adapt", "skip"}
    ]
    count = sum(1 for patch in patches if patch["decision"] == "patch")
    complexity = "low" if count <= 4 and len(plan.files) <= 6 else "medium"
    return {"complexity": complexity, "files": [file.path for file in plan.files], "patches": patches}


def _nearest(model: UpstreamModel, facts: ModelProfile) -> str | None:
    """The reference model to read first: the model itself, else one of the same kind."""
    for target in targets():
        folder = resource_dir("reference_models") / target
        present = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
        if facts.model_type in present:
            return f"reference_models/{target}/{facts.model_type}"
        if present and facts.kind == "moe":
            return f"reference_models/{target}/{present[0]}"
    return None
