"""The level `modules`."""

from typing import TYPE_CHECKING

from omni_kit.parity.compare.comparison import Comparison
from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.parity.places import Places
from omni_kit.plurals import counted
from omni_kit.targets.sides import Ability

if TYPE_CHECKING:
    from omni_kit.parity.case import Case


class Modules(Level):
    """No module adds error of its own; where one does but no output or gradient shows it, that is only said."""

    name = "modules"
    says = "no module adds visible error of its own; the first that does is named"
    needs = frozenset({Ability.trace})

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        from omni_kit.parity.compare.tensors import FLOAT32_TOLERANCE

        right = case.right()
        blame = case.blame()
        found = Comparison(compared=len(case.evidence.recording().calls), max_rel=blame.added if blame else 0.0)
        said = f"{counted(found.compared, 'call')} of modules"
        if blame is None:
            return LevelVerdict(found, "", FLOAT32_TOLERANCE, said)
        where = f"{blame.call.module or blame.call.kind} adds {blame.added:.1e} to {blame.what}"
        if right:
            case.note(f"{where}; no output and no gradient of the model shows it")
            return LevelVerdict(found, "", FLOAT32_TOLERANCE, said)
        case.locate()
        return LevelVerdict(found, where, FLOAT32_TOLERANCE, place=Places(case).of_divergence(case.divergence))
