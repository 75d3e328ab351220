"""The level `hooks`: what a framework asks of a model other than its forward is asked, and judged."""

from typing import TYPE_CHECKING

from omni_kit.isolation.failures import refuses_device
from omni_kit.parity.compare.comparison import Comparison, NothingToCompare
from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.parity.places import Places
from omni_kit.targets.sides import Ability

if TYPE_CHECKING:
    from omni_kit.parity.case import Case


class Hooks(Level):
    """Every hook that the framework looks up is called as it calls it, on a model without storage."""

    name = "hooks"
    says = "the hooks, attributes and module names that the framework needs exist and match the model"
    needs = frozenset({Ability.hooks})
    default = True
    default_without = frozenset({Ability.adapters})  # hooks of models that have them are called while they are checked

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        called, wrong = case.pair.hooked()
        reason = "; ".join(f"{hook}: {said}" for hook, said in wrong)
        if wrong and all(refuses_device(said, case.pair.device) for _, said in wrong):
            raise NothingToCompare(reason)
        place = Places(case).of_hook(*wrong[0]) if wrong else ""
        return LevelVerdict(Comparison(), reason, said=f"{len(called)} called: {', '.join(called)}", place=place)
