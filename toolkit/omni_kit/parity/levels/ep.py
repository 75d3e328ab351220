"""The level `ep`."""

from omni_kit.parity.levels.mesh import MeshLevel


class Ep(MeshLevel):
    """Expert parallelism."""

    name = "ep"
    says = "2 expert-parallel processes give the results of one"
