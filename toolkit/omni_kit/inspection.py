"""inspect: the profile of a model, and what an integration of it would take in each target."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.examples import FOLDER
from omni_kit.layout import refuse_original
from omni_kit.resources import resource_dir
from omni_kit.scaffold.answers import ANSWERS, load_answers
from omni_kit.targets.protocol import Integration, IntegrationPlan, Request, Target, handler_of, package_of
from omni_kit.targets.registry import targets
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.profile import ModelProfile
from omni_kit.upstream.subject import Subject, open_source


def inspect(source: str, transformers: Path | None = None, diffusers: Path | None = None) -> dict[str, Any]:
    """The JSON object of inspect, with `notes`.

    Args:
        transformers, diffusers: unpacked libraries to read instead of the installed ones.

    Raises:
        BadInput: SOURCE is not understood, has no model that its library knows, or is in the layout of the original
            authors of a model of diffusers.
    """
    subject = open_source(source, transformers=transformers, diffusers=diffusers)
    refuse_original(subject)
    facts = subject.profile
    plans, notes = {}, []
    for name, target in targets().items():
        if subject.library.name not in target.reads:
            notes.append(f"{name}: it takes models of {', '.join(target.reads)}")
            continue
        try:
            kind = next((one for one in subject.kinds if one in target.kinds), facts.kind)
            plan = handler_of(target, kind).plan(subject, Request(_identifier(facts), Path()))
        except BadInput as error:
            notes.append(f"{name}: {error.message}")
            continue
        plans[name] = _summary(plan)
    return {
        **facts.as_json(),
        "nearest_reference": _nearest(facts),
        "targets": plans,
        "notes": [*subject.notes, *notes, *_unread(subject)],
    }


def _unread(subject: Subject) -> list[str]:
    """What of the model could not be read from source."""
    model = subject.loaded
    unresolved = model.skeleton.unresolved if model is not None else ()
    if not unresolved:
        return []
    path, expression = unresolved[0]
    return [f"{len(unresolved)} sub-modules could not be read from source, {path} = {expression} first"]


def _identifier(facts: ModelProfile) -> str:
    return "".join(c if c.isalnum() else "_" for c in facts.model_type)


def _summary(plan: IntegrationPlan) -> dict[str, Any]:
    patches = [
        {
            "site": d.what,
            "decision": d.choice,
            "reason": d.reason,
            "evidence": d.evidence,
        }
        for d in plan.decisions
        if d.choice in {"patch", "skip"}
    ]
    count = sum(1 for patch in patches if patch["decision"] == "patch")
    complexity = "low" if count <= 4 and len(plan.files) <= 6 else "medium"
    return {"complexity": complexity, "files": [file.path for file in plan.files], "patches": patches}


def _nearest(facts: ModelProfile) -> str | None:
    """The reference model to read first: the model itself, else the first one of the same kind."""
    root = resource_dir(FOLDER)
    found = [one for target in targets().values() for one in _references(root, target, facts.kind)]
    own = (one for one in found if facts.model_type in (one.path.name, _made_from(one.path)))
    alike = (one for one in found if one.kind == facts.kind)
    nearest = next(own, None) or next(alike, None)
    return f"{root.name}/{nearest.path.relative_to(root.resolve()).as_posix()}" if nearest is not None else None


def _made_from(path: Path) -> str:
    """The SOURCE that a worked example was made from; empty where that is not recorded."""
    file = path / ANSWERS
    return load_answers(file).answers.get("source", "") if file.is_file() else ""


def _references(root: Path, target: Target, kind: Kind) -> Sequence[Integration]:
    """The worked examples of a target that takes this kind."""
    try:
        return target.find((root / package_of(target)).resolve()) if kind in target.kinds else ()
    except BadInput:  # it has none yet
        return ()
