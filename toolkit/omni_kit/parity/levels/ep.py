"""The level `ep`."""

from omni_kit.parity.levels.mesh import MeshLevel


class Ep(MeshLevel):
    """Expert parallelism."""

    name = "ep"
    says = "2 processes that share the experts do as one does"
