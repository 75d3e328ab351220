"""Statements that a patch copied from upstream: VEO415 and VEO416."""

from omni_checkers.engine.rule import Detector, Finding, Findings, Rule, Severity
from omni_checkers.veomni.examples import GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.overrides import Override

_ROUTER = """\


@config.override_method("OlmoeTopKRouter.forward", description="the bias of the router")
def olmoe_top_k_router_forward(self, hidden_states):
    hidden_states = hidden_states.reshape(-1, self.hidden_dim)
    router_logits = F.linear(hidden_states, self.weight)
    router_probs = torch.nn.functional.softmax(router_logits, dtype=torch.float, dim={dim})
    router_top_value, router_indices = torch.topk(router_probs, self.top_k, dim=-1)
{scale}    router_top_value = router_top_value.to(router_logits.dtype)
    router_scores = router_top_value
    self.seen = router_indices
    return router_logits, router_scores, router_indices
"""
_SCALE = """\
    if self.norm_topk_prob:
        router_top_value /= router_top_value.sum(dim=-1, keepdim=True)
"""


def _router(dim: str = "-1", scale: str = _SCALE) -> dict[str, str]:
    """Return a router that remembers what it chose."""
    return {GPU_CONFIG: patch_config(_ROUTER.format(dim=dim, scale=scale))}


class CopiesSayTheSame(Rule):
    """Keep the statements that a patch copies from upstream the same.

    The rule compares each statement with the upstream statement that it replaces. It reports a small edit: a number, an
    operator, an attribute of the same object, a dropped argument, cast, factor or index, or arguments in another order.
    It also reports two dependent statements in reversed order, halves instead of every second element, a switch that
    upstream always sets the other way, and a value that upstream computes for another use. It ignores rewritten code.
    Code that replaces a library's is a patch too: a subclass's method, a function assigned to a class, a copy under
    another name.

    Why: a patch repeats dozens of lines that it does not mean to change. One wrong line gives a model that trains, but
    is not the model of its checkpoint.

    Fine when: the difference is intended. Give the reason in an ignore comment: the next upgrade merges by it.
    """

    id = "VEO415"
    name = "copied-statements-say-the-same"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-PG-39", "VEO-LOSS-10")
    failure_modes = ("override-signature-drift",)
    detectors = (
        Detector(1, "altered-statement", "Keep the numbers, operators, arguments and casts of upstream's statement."),
        Detector(2, "misplaced-value", "Use each value where upstream uses it."),
        Detector(3, "other-elements", "Select the same elements as upstream: halves are not every second element."),
        Detector(4, "turned-switch", "Pass switches as upstream passes them."),
        Detector(5, "discarded-result", "Keep the results that upstream keeps."),
        Detector(6, "exchanged-statements", "Keep upstream's order of statements that depend on each other."),
        Detector(7, "reordered-steps", "Apply the operations that compute a value in upstream's order."),
    )
    BAD = (_router(dim="0"),)
    GOOD = (_router(),)

    def check(self, copies: list[Override]) -> Findings:
        for one in copies:
            for change in one.changes():
                message = f"{one.name}: {change.what} (upstream's line {change.original_line})"
                yield Finding(message, one.item.file.path, change.line, detector=change.kind)


class CopiesAreWhole(Rule):
    """Keep every value-changing statement of the upstream code that a patch copies.

    The rule reports a statement, or a few under one condition, that upstream has between two lines that the patch also
    has. The statement changes a value that the patch uses later, or is called for its effect.

    Why: a missing scale, clamp, normalisation or mask does not raise. The loss curve looks plausible.

    Fine when: VeOmni does the same elsewhere; state where in an ignore comment.
    """

    id = "VEO416"
    name = "copies-leave-nothing-out"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-PG-39",)
    failure_modes = ("override-signature-drift",)
    BAD = (_router(scale=""),)
    GOOD = (_router(),)

    def check(self, copies: list[Override]) -> Findings:
        for one in copies:
            for line in one.left_out():
                message = f"{one.name} leaves out upstream's line {line.number}: {line.text[:100]}"
                yield Finding(message, one.item.file.path, one.copy.ours.lineno)
