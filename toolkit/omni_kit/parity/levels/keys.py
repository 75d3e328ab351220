"""The level `keys`."""

from typing import TYPE_CHECKING

from omni_kit.parity.compare.comparison import compare_shapes
from omni_kit.parity.levels.level import Level, LevelVerdict

if TYPE_CHECKING:
    from omni_kit.parity.case import Case


class Keys(Level):
    """Names and shapes of what the model would load, before anything is loaded."""

    name = "keys"
    says = "its model has upstream's tensors, in names and shapes"
    default = True

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        expected = {name: list(tensor.shape) for name, tensor in case.pair.state().items()}
        found = compare_shapes(expected, case.pair.shapes())
        return LevelVerdict(found, found.reason("tensors"), said=f"{found.compared} tensors")
