"""The level `fsdp`."""

from omni_kit.parity.levels.mesh import MeshLevel


class Fsdp(MeshLevel):
    """Sharded weights."""

    name = "fsdp"
    says = "2 and 4 FSDP processes give the results of one"
