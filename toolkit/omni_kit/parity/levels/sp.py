"""The level `sp`."""

from omni_kit.parity.levels.mesh import MeshLevel


class Sp(MeshLevel):
    """Sequence parallelism."""

    name = "sp"
    says = "2 and 4 sequence-parallel processes give the results of one"
