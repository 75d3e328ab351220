"""The level `lora`: adapters are put on, trained, saved and loaded as the framework does it."""

from typing import TYPE_CHECKING

from omni_kit.parity.compare.comparison import Comparison
from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.targets.sides import Ability

if TYPE_CHECKING:
    from omni_kit.parity.case import Case


class Lora(Level):
    """Checks which layers adapters wrap, which weights train, what a step changes, and what reloads from disk."""

    name = "lora"
    says = "adapters reach every linear layer and expert, only adapters train, and they reload from disk"
    needs = frozenset({Ability.adapters})

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        said, wrong = case.pair.adapted()
        return LevelVerdict(Comparison(), "; ".join(wrong), said="; ".join(said))
