"""The faults that a proof plants, and how they are injected in a model that is already built."""

from omni_kit.parity.faults.attention import ATTENTION
from omni_kit.parity.faults.experts import EXPERTS, ROUTER
from omni_kit.parity.faults.kinds import CodeFault, Fault, StateFault
from omni_kit.parity.faults.merging import MERGING
from omni_kit.parity.faults.surroundings import GRADIENTS, INPUTS, NORMS, OUTPUTS

FAULTS: tuple[Fault, ...] = (*ATTENTION, *EXPERTS, *ROUTER, *NORMS, *INPUTS, *MERGING, *OUTPUTS, *GRADIENTS)

__all__ = ["FAULTS", "CodeFault", "Fault", "StateFault"]
