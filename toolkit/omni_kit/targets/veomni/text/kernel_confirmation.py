"""Confirms what was read: upstream's classes run next to the kernels' references, in a process of their own."""

import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from omni_kit.errors import Refusal
from omni_kit.isolation.requests import prepare, run_worker
from omni_kit.isolation.worker import StepError
from omni_kit.targets.protocol import Decision, IntegrationPlan
from omni_kit.targets.veomni.text.sites import Site, find_sites
from omni_kit.toys.modules import small_config
from omni_kit.upstream.transformers.models import UpstreamModel

_WORKER = "omni_kit.targets.veomni.runtime.kernel_trial"
_TIMEOUT = 30.0
_FUNCTIONS = {"rotary": "apply_rotary_pos_emb", "load-balancing-loss": "load_balancing_loss_func"}
_CONTRADICTIONS = {("alike", "differs"), ("different", "agrees")}
_SHOWN = {
    ("agrees", False): "confirmed by running",
    ("differs", False): "confirmed by running: {}",
    ("agrees", True): "running it next to the kernel's reference agrees",
    ("differs", True): "running it next to the kernel's reference: {}",
    ("not run", False): "not confirmed by running: {}",
    ("not run", True): "not confirmed by running: {}",
}


def begin() -> None:
    """Start the process that `confirmed` runs in, if torch is installed, and do not wait for it."""
    if importlib.util.find_spec("torch") is not None:
        prepare(["torch", _WORKER])


def confirmed(model: UpstreamModel, plan: IntegrationPlan) -> IntegrationPlan:
    """Return the plan, its comparisons confirmed where torch and the transformers that was read are installed.

    Raises:
        Refusal: a class does not compute what its source reads as, or computes what its source does not read as.
    """
    sites = [one for one in find_sites(model) if one.read]
    if not sites or not _runs(model):
        return plan
    said = dict(_said(model, sites))
    return replace(plan, decisions=tuple(_cited(one, said) for one in plan.decisions))


def _runs(model: UpstreamModel) -> bool:
    """Return whether torch is installed, and the transformers that was read is the one that Python imports."""
    found = importlib.util.find_spec(model.library.name)
    if found is None or found.origin is None or importlib.util.find_spec("torch") is None:
        return False
    return Path(found.origin).parent.resolve() == model.library.root.resolve()


def _said(model: UpstreamModel, sites: Sequence[Site]) -> Iterator[tuple[str, str]]:
    """Yield the result of running each site: the decision it is about, and a text for its evidence."""
    try:
        config = small_config(model) | {"model_type": model.config.model_type}
        jobs = [{"site": one.site, "owner": _owner(one), "epsilon": one.epsilon} for one in sites]
        job = {"module": model.source.module, "class": model.class_name, "config": config, "sites": jobs}
        results = run_worker(f"{_WORKER}:try_sites", job, timeout=_TIMEOUT, modules=["torch", _WORKER])
    except (StepError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        yield from ((_what(one), f"not confirmed by running: {error}") for one in sites)
        return
    for site, (outcome, detail) in zip(sites, results, strict=True):
        if (site.read, outcome) in _CONTRADICTIONS:
            raise Refusal(
                f"{site.target} ({site.evidence}): reading its source says: {site.reason}; running it next to the "
                f"kernel's reference says: {detail or 'both agree, forward and gradient'}",
                "compare the class with its source; report the difference to omni-kit",
            )
        yield _what(site), _SHOWN[outcome, site.read == "unreadable"].format(detail)


def _owner(site: Site) -> str:
    return _FUNCTIONS.get(site.site) or site.target.partition(".")[0]


def _what(site: Site) -> str:
    return f"{site.site} {site.target}".strip()


def _cited(decision: Decision, said: dict[str, str]) -> Decision:
    if decision.what not in said:
        return decision
    return replace(decision, evidence=f"{decision.evidence}; {said[decision.what]}")
