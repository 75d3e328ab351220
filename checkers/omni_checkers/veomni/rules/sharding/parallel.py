"""Rules about expert parallelism: VEO3xx."""

import ast
import re
from collections.abc import Iterator

from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.symbolic import Class
from omni_checkers.veomni.examples import GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.experts import Experts, StackedExperts
from omni_checkers.veomni.facts.generated import Generated
from omni_checkers.veomni.facts.plan import METHOD, ShardingPlan, Skeletons
from omni_checkers.veomni.facts.registry import Returned
from omni_kit.pysource.source import dotted
from omni_kit.targets.veomni.text.sites import takes_experts
from omni_kit.upstream.kinds import WITH_EXPERTS
from omni_kit.upstream.skeleton import Skeleton
from omni_kit.upstream.transformers.traits import expert_parameters, stacked_parameters

_BASE = """\
from torch.distributed.tensor import Shard
from veomni.distributed.parallel_plan import ParallelPlan


def get_parallel_plan():
    return ParallelPlan(
        extra_parallel_plan={
            "ep": {
"""
_END = """\
            }
        }
    )
"""


def _plan_source(*keys: str) -> str:
    return _BASE + "".join(f'                "{key}": Shard(0),\n' for key in keys) + _END


_GATE_UP = "model.layers.*.mlp.experts.gate_up_proj"
_DOWN = "model.layers.*.mlp.experts.down_proj"


class PlanKeysAreParameters(Rule):
    """Name in each key of a parallel plan parameters that the class has.

    Why: a key that matches nothing shards nothing. The intended tensor stays whole on every rank, and the fused kernel
    fails with `len(cumsum_M) == b.shape[0]`, or every rank trains all experts.

    Fine when: never; delete keys without a parameter.
    """

    id = "VEO301"
    name = "parallel-plan-keys-match-parameters"
    target = "veomni"
    kinds = WITH_EXPERTS
    obligations = ("VEO-MOE-06", "VEO-MOE-05", "VEO-MOE-08")
    failure_modes = ("ep-plan-stale",)
    BAD = (
        {"parallel_plan.py": _plan_source(_GATE_UP, _DOWN, "model.layers.*.mlp.experts.gate_proj")},
        {"parallel_plan.py": _plan_source(_GATE_UP, _DOWN, f"language_{_DOWN}")},
    )
    GOOD = ({"parallel_plan.py": _plan_source(_GATE_UP, _DOWN)},)

    def check(self, plans: list[ShardingPlan], skeletons: Skeletons) -> Findings:
        for plan, skeleton in _readable(plans, skeletons):
            if skeleton.unresolved:
                continue
            for name, keys in plan.keys.items():
                for key in keys:
                    if not any(matches(key, parameter.name) for parameter in skeleton.parameters):
                        close = _closest(key, skeleton)
                        hint = f"; did you mean '{close}'?" if close else ""
                        message = f"{name} key '{key}' matches no parameter of {plan.class_name}{hint}"
                        yield Finding(message, plan.path, _key_line(plan, key))


class PlanCoversExperts(Rule):
    """Name every stacked expert parameter in the parallel plan.

    Why: a parameter without a key stays whole on every rank while the others are sharded: shapes inside the experts
    disagree, or every rank holds all experts and memory does not shrink.

    Fine when: some experts stay whole on purpose; state that in the ignore comment.
    """

    id = "VEO302"
    name = "parallel-plan-covers-stacked-experts"
    target = "veomni"
    kinds = WITH_EXPERTS
    obligations = ("VEO-MOE-06", "VEO-MOE-05")
    failure_modes = ("ep-plan-stale",)
    BAD = ({"parallel_plan.py": _plan_source(_GATE_UP)}, {"parallel_plan.py": _plan_source(_DOWN)})
    GOOD = (
        {"parallel_plan.py": _plan_source(_GATE_UP, _DOWN)},
        {"parallel_plan.py": _plan_source("model.layers.*.mlp.experts.*")},
    )

    def check(self, plans: list[ShardingPlan], skeletons: Skeletons) -> Findings:
        for plan, skeleton in _readable(plans, skeletons):
            keys = [key for patterns in plan.keys.values() for key in patterns]
            stacked = [p for p in stacked_parameters(skeleton) if p.certain and _same_tower(p.name, keys)]
            for parameter in stacked:
                if not any(matches(key, parameter.name) for key in keys):
                    message = f"no key of the plan covers {parameter.pattern} of {plan.class_name}"
                    yield Finding(message, plan.path, plan.line)


class PlanCutsBetweenExperts(Rule):
    """Shard stacked experts along the expert dimension.

    Why: along another dimension every rank has a slice of each expert, while the dispatch sends it whole tokens for a
    few experts: the grouped matmul raises a shape error, or computes on slices.

    Fine when: never; expert parallelism requires it.
    """

    id = "VEO304"
    name = "parallel-plan-cuts-between-experts"
    target = "veomni"
    kinds = WITH_EXPERTS
    obligations = ("VEO-MOE-06",)
    failure_modes = ("ep-plan-stale",)
    BAD = ({"parallel_plan.py": _plan_source(_GATE_UP, _DOWN).replace(f'{_DOWN}": Shard(0)', f'{_DOWN}": Shard(1)')},)
    GOOD = ({"parallel_plan.py": _plan_source(_GATE_UP, _DOWN)},)

    def check(self, plans: list[ShardingPlan], skeletons: Skeletons) -> Findings:
        for plan, skeleton in _readable(plans, skeletons):
            for parameter in stacked_parameters(skeleton):
                rank = len(parameter.shape or ())
                for key, dims in plan.dims.items():
                    wrong = sorted(dim for dim in dims if dim % rank) if matches(key, parameter.name) else []
                    if wrong:
                        message = f"'{key}' is sharded along dimension {wrong[0]}; experts are dimension 0"
                        yield Finding(message, plan.path, _key_line(plan, key))


class PlanWhereExperts(Rule):
    """Give the language model of a model with stacked experts a parallel plan.

    Why: without `get_parallel_plan` VeOmni cannot shard the experts. A run with expert parallelism fails, and one
    without it holds all experts on every rank.

    Fine when: nobody trains the model with expert parallelism. The rule does not apply if no kernel can replace
    upstream's loop over the experts, which needs all of them in one process.
    """

    id = "VEO303"
    name = "parallel-plan-where-experts-are-stacked"
    severity = Severity.warning
    target = "veomni"
    kinds = WITH_EXPERTS
    obligations = ("VEO-MOE-07",)
    failure_modes = ("ep-plan-stale",)
    BAD = ({GPU_CONFIG: patch_config().partition("\n\n@config")[0]},)
    GOOD = ({GPU_CONFIG: patch_config()},)

    def check(self, returned: list[Returned], experts: Experts, generated: list[Generated]) -> Findings:
        judged = 0
        bound = {item.file.path for item in generated if _has_slot(item)}
        for item in {str(item.value): item for item in returned}.values():
            head = item.name.endswith(("ForCausalLM", "ForConditionalGeneration"))
            if not head or not isinstance(item.value, Class) or not _stacks(item, experts):
                continue
            if item.value.module.path not in bound and not _fits_kernel(experts.of(item.value)):
                continue
            judged += 1
            if item.attached(METHOD) is None:
                yield Finding(f"{item.name} has stacked experts but no {METHOD}", *item.place)
        if not judged:
            raise NotApplicable("no returned language model has stacked experts that can be sharded")


def _has_slot(item: Generated) -> bool:
    """Return whether a kernel can take the place of its experts."""
    slots = (call for call in item.file.nodes(ast.Call) if (dotted(call.func) or "").endswith("OpSlot"))
    return any("expert" in ast.unparse(call) for call in slots)


def _fits_kernel(stacked: StackedExperts) -> bool:
    """Return whether upstream's loop over them is what VeOmni's kernel computes; one that is not known may be."""
    return stacked.model is None or takes_experts(stacked.model)


def _stacks(item: Returned, experts: Experts) -> bool:
    try:
        return bool(experts.of(item.value).parameter)
    except NotApplicable:
        return False


def matches(key: str, name: str) -> bool:
    """Return whether a plan key means this parameter, as VeOmni decides it: `*` stands for anything."""
    return re.fullmatch(re.escape(key).replace(r"\*", ".*"), name) is not None


def _readable(plans: list[ShardingPlan], skeletons: Skeletons) -> Iterator[tuple[ShardingPlan, Skeleton]]:
    """Plans that could be read, with the parameters of their class.

    Raises:
        NotApplicable: there is none; why.
    """
    reasons = []
    found = 0
    for plan in plans:
        if plan.unread:
            reasons.append(f"the plan of {plan.class_name} cannot be read: {plan.unread}")
            continue
        try:
            skeleton = skeletons.of(plan.generated, plan.class_name)
        except NotApplicable as why:
            reasons.append(str(why))
            continue
        found += 1
        yield plan, skeleton
    if not found:
        raise NotApplicable(reasons[0] if reasons else "the model has no plan")


def _same_tower(name: str, keys: list[str]) -> bool:
    """Return whether a plan speaks of the part of the model that a parameter belongs to: up to its layers."""
    tower = name.partition(".layers.")[0]
    return any(key.partition(".layers.")[0] == tower or key.startswith("*") for key in keys) or not keys


def _closest(key: str, skeleton: Skeleton) -> str | None:
    import difflib

    names = [parameter.pattern for parameter in expert_parameters(skeleton)]
    return next(iter(difflib.get_close_matches(key, names, n=1, cutoff=0.5)), None)


def _key_line(plan: ShardingPlan, key: str) -> int:
    """Return the line of the file that spells the key, or of the plan."""
    try:
        lines = plan.path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return plan.line
    return next((number for number, text in enumerate(lines, 1) if f'"{key}"' in text or f"'{key}'" in text), plan.line)
