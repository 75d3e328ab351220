"""The level `sp`."""

from omni_kit.parity.levels.mesh import MeshLevel


class Sp(MeshLevel):
    """Sequence parallelism."""

    name = "sp"
    says = "2 and 4 processes that share each sequence do as one does"
