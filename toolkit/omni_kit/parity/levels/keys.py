"""The level `keys`."""

from typing import TYPE_CHECKING

from omni_kit.parity.compare.comparison import compare_shapes
from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.parity.places import Places
from omni_kit.plurals import counted

if TYPE_CHECKING:
    from omni_kit.parity.case import Case


class Keys(Level):
    """Names and shapes of what the model would load, before anything is loaded.

    Where the level is asked for by name, also of models with over a hundred layers or experts, through the converter.
    """

    name = "keys"
    says = "its tensors have upstream's names and shapes"
    default = True

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        expected = {name: list(tensor.shape) for name, tensor in case.pair.state().items()}
        found = compare_shapes(expected, case.pair.shapes())
        if not found.ok:
            place = Places(case).of_keys(found)
            return LevelVerdict(found, found.reason("tensor"), said=counted(found.compared, "tensor"), place=place)
        if not case.thorough or case.pair.given is not None:
            return LevelVerdict(found, found.reason("tensor"), said=counted(found.compared, "tensor"))
        said = [counted(found.compared, "tensor")]
        for what, one in case.pair.enlarged():
            said.append(f"{what} by name")
            if not one.ok:
                return LevelVerdict(one, f"{what}: {one.reason('converted tensor')}")
        return LevelVerdict(found, said=", ".join(said))
