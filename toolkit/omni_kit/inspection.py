"""inspect: the profile of a model, and what an integration of it would take in each target."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.layout import refuse_original
from omni_kit.nearest_references import nearest
from omni_kit.targets.protocol import Decision, IntegrationPlan, ReportsSites, ReportsSupport, Request, handler_of
from omni_kit.targets.registry import targets
from omni_kit.upstream.profile import ModelProfile
from omni_kit.upstream.subject import Subject, open_source


def inspect(source: str, transformers: Path | None = None, diffusers: Path | None = None) -> dict[str, Any]:
    """Return the JSON object of inspect, with `notes`.

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
            notes.append(f"{name} is not shown: it reads models of {' and '.join(target.reads)}")
            continue
        has = target.has(subject) if isinstance(target, ReportsSupport) else ()
        notes += [f"{name}: it has {one.choice} itself ({one.evidence})" for one in has]
        try:
            kind = next((one for one in subject.kinds if one in target.kinds), facts.kind)
            handler = handler_of(target, kind)
        except BadInput as error:
            notes.append(f"{name}: {error.message}")
            continue
        try:
            plan = handler.plan(subject, Request(_identifier(facts), Path()))
        except BadInput as error:
            notes.append(f"{name}: {error.message}")
            if isinstance(handler, ReportsSites) and (sites := handler.sites(subject)):
                plans[name] = {"complexity": "refused", "files": [], "patches": _patches(sites)}
            continue
        plans[name] = {**_summary(plan), "has": [{"what": one.choice, "evidence": one.evidence} for one in has]}
    alike = nearest(subject)
    return {
        **facts.as_json(),
        "nearest_reference": alike[0].path if alike else None,
        "nearest": [one.to_json() for one in alike],
        "targets": plans,
        "notes": [*subject.notes, *notes, *_unread(subject)],
    }


def _unread(subject: Subject) -> list[str]:
    """Return the submodules that could not be read from source."""
    model = subject.loaded
    unresolved = model.skeleton.unresolved if model is not None else ()
    if not unresolved:
        return []
    path, expression = unresolved[0]
    return [f"{len(unresolved)} submodules could not be read from source, {path} = {expression} first"]


def _identifier(facts: ModelProfile) -> str:
    return "".join(c if c.isalnum() else "_" for c in facts.model_type)


def _patches(decisions: Iterable[Decision]) -> list[dict[str, Any]]:
    return [
        {"site": one.what, "decision": one.choice, "reason": one.reason, "evidence": one.evidence}
        for one in decisions
        if one.choice in {"patch", "skip"}
    ]


def _summary(plan: IntegrationPlan) -> dict[str, Any]:
    patches = _patches(plan.decisions)
    count = sum(1 for patch in patches if patch["decision"] == "patch")
    complexity = "low" if count <= 4 and len(plan.files) <= 6 else "medium"
    return {"complexity": complexity, "files": [file.path for file in plan.files], "patches": patches}
