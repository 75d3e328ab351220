"""The level `steps`: a few updates by an optimizer, and resuming from what was saved."""

from typing import TYPE_CHECKING

from omni_kit.parity.compare.comparison import listed
from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.targets.sides import Ability

if TYPE_CHECKING:
    from omni_kit.parity.case import Case


class Steps(Level):
    """Losses, gradient norms and how far each parameter moved; then the next step of a run that was resumed."""

    name = "steps"
    says = "three optimizer steps update every parameter as upstream's do, and a resumed run continues equally"
    needs = frozenset({Ability.gradient})

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        from omni_kit.parity.compare.tensors import compare_up_to_rounding, without_lone_zeros
        from omni_kit.parity.processes.outcomes import UPDATES

        stepped = case.pair.stepped()
        reference, candidate = stepped.reference, stepped.candidate
        one, other = without_lone_zeros(reference, candidate), without_lone_zeros(candidate, reference)
        found = compare_up_to_rounding(one, other, stepped.nudged, case.pair.stepped_again, UPDATES)
        lost = [name for name in stepped.lost if name not in stepped.lost_upstream]
        reasons = [*filter(None, [found.reason("training figure")])]
        reasons += [f"one step after resuming {listed(lost)} are others than without it"] if lost else []
        if stepped.lost_upstream:
            case.note(f"upstream itself does not resume exactly: {listed(stepped.lost_upstream)}")
        return LevelVerdict(found, "; ".join(reasons), found.tolerance, "three steps, and a fourth after resuming")
