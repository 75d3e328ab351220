"""The level `fsdp`."""

from omni_kit.parity.levels.mesh import MeshLevel


class Fsdp(MeshLevel):
    """Sharded weights."""

    name = "fsdp"
    says = "2 and 4 processes that share the weights do as one does"
