"""The level `sp`."""

from omni_kit.parity.levels.mesh import MeshLevel
from omni_kit.targets.sides import Ability


class Sp(MeshLevel):
    """Sequence parallelism; of a pipeline that serves, pictures are compared, and shared guidance, too."""

    needs = frozenset({Ability.mesh})

    name = "sp"
    says = "2 and 4 sequence-parallel processes give the results of one"
