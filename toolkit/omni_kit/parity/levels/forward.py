"""The level `forward`."""

from typing import TYPE_CHECKING

from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.parity.places import Places

if TYPE_CHECKING:
    from omni_kit.parity.case import Case


class Forward(Level):
    """Outputs within rounding, and attention called as upstream calls it, which the outputs of a CPU may not show."""

    name = "forward"
    says = "its outputs and its attention calls equal upstream's"
    default = True

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        found = case.outputs
        if not found.ok:
            case.locate()
        attention = case.attention_differences()
        reasons = [*filter(None, [found.reason("output")]), *attention[:1]]
        if len(attention) > 1:
            reasons[-1] += f", and {len(attention) - 1} more"
        said = f"{found.compared} outputs, and how attention is called"
        place = "" if found.ok else Places(case).of_divergence(case.divergence)
        return LevelVerdict(found, "; ".join(reasons), found.tolerance, said, place=place)
