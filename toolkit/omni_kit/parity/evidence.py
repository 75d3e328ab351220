"""What a judge may ask about the candidate. A proof puts that of a candidate with a fault in its place."""

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from omni_kit.parity.compare.attention import load_calls
from omni_kit.parity.compare.files import load_tensors
from omni_kit.parity.compare.trace import Recording
from omni_kit.targets.sides import AttentionCalls
from omni_kit.toys.tensors import Tensors

if TYPE_CHECKING:
    from omni_kit.parity.processes.pair import Pair


class Evidence(Protocol):
    """What is known of the candidate. A `Pair` measures it; `FaultEvidence` reads what a run with a fault left."""

    def loaded(self) -> Tensors:
        """What its model holds after its own loader has read the checkpoint."""

    def exported(self) -> Tensors:
        """What upstream holds after it has loaded what it exports."""

    def exported_config(self) -> str:
        """How the config.json that it exports differs from the one that it was loaded with; empty where it does not."""

    def results(self, what: str) -> Tensors:
        """Its "outputs" or "gradients"."""

    def recording(self) -> Recording:
        """What went in and out of every module, running freely."""

    def replayed(self) -> Recording:
        """As `recording`, each module fed as upstream's was."""

    def completed(self) -> Recording:
        """As `replayed`, each module also given what it is not passed."""

    def attention(self) -> AttentionCalls:
        """How it called attention."""


class FaultEvidence:
    """What a candidate with a fault left behind.

    Args:
        pair: the comparison without the fault.
        number: of the place where it was injected.
        out: where the candidate left what it computed.
    """

    def __init__(self, pair: "Pair", number: int, out: Path) -> None:
        self._pair = pair
        self._number = number
        self._out = out
        self._recording: Recording | None = None

    def loaded(self) -> Tensors:
        """See `Evidence`."""
        return load_tensors(self._out / "loaded.safetensors")

    def exported(self) -> Tensors:
        """See `Evidence`; a fault in what is loaded is seen before anything is exported."""
        return self._pair.state()

    def exported_config(self) -> str:
        """See `Evidence`; as `exported`."""
        return ""

    def results(self, what: str) -> Tensors:
        """See `Evidence`."""
        return load_tensors(self._out / f"{what}.safetensors")

    def recording(self) -> Recording:
        """See `Evidence`."""
        if self._recording is None:
            self._recording = Recording.load(self._out / "trace")
        return self._recording

    def replayed(self) -> Recording:
        """See `Evidence`."""
        return Recording.load(self._out / "replay")

    def completed(self) -> Recording:
        """See `Evidence`."""
        return self._pair.completed_planted(self._number, self._out / "completed")

    def attention(self) -> AttentionCalls:
        """See `Evidence`."""
        return load_calls(self._out)
