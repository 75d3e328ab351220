"""The level `backward`."""

from typing import TYPE_CHECKING

from omni_kit.parity.compare.comparison import listed
from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.parity.places import Places
from omni_kit.plurals import counted
from omni_kit.targets.sides import Ability
from omni_kit.toys.reach import unexercised

if TYPE_CHECKING:
    from omni_kit.parity.case import Case


class Backward(Level):
    """Gradients within rounding; parameters that the batch does not reach are named, for they prove nothing."""

    name = "backward"
    says = "every parameter's gradient equals upstream's"
    needs = frozenset({Ability.gradient})
    default = True

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        if idle := unexercised(case.pair.ran(), case.pair.results_of("reference", "gradients")):
            case.note(f"the batch leaves {counted(idle, 'parameter')} without any gradient upstream: {listed(idle)}")
        found = case.gradients
        if not found.ok:
            case.locate()
        place = "" if found.ok else Places(case).of_divergence(case.divergence)
        said = f"{found.compared} gradients"
        return LevelVerdict(found, found.reason("gradient"), found.tolerance, said, place=place)
