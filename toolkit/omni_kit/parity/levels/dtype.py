"""The level `dtype`."""

from typing import TYPE_CHECKING

from omni_kit.parity.compare.comparison import Comparison
from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.targets.sides import Ability

if TYPE_CHECKING:
    from omni_kit.parity.case import Case
    from omni_kit.parity.compare.precision import Loss


class Dtype(Level):
    """In each low dtype, the candidate is hardly further from float32 than upstream: as a whole, and by module."""

    name = "dtype"
    says = "in bfloat16 and float16 it loses hardly more than upstream does"
    needs = frozenset({Ability.cast})

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        from omni_kit.parity.compare.precision import DTYPES, RATIO

        found = Comparison(tolerance=RATIO)
        reasons = []
        for dtype in case.pair.runs_upstream(DTYPES):
            losses = _losses(case, dtype)
            found.compared += len(losses)
            found.max_rel = max(found.max_rel, RATIO * max(loss.excess for loss in losses))
            if excessive := next((loss for loss in losses if loss.excess > 1), None):
                figures = f"{excessive.candidate:.1e}, upstream {excessive.reference:.1e}"
                reasons.append(f"{dtype}: {excessive.name or 'the model'} is too far from float32 ({figures})")
        return LevelVerdict(found, "; ".join(reasons), RATIO, f"{found.compared} figures in {', '.join(DTYPES)}")


def _losses(case: "Case", dtype: str) -> "list[Loss]":
    """Modules first, in their order; then answers and gradients."""
    from omni_kit.parity.compare.precision import Replays, judged_losses

    side = f"candidate/{dtype}"
    reference, candidate = (case.pair.replayed_as(one, dtype) for one in ("reference", "candidate"))
    modules = Replays(case.pair.recordings()[0], reference, candidate, case.mask).losses(dtype)
    return [*modules, *judged_losses(case.pair.results_of, case.feed, dtype, side, case.offers)]
