"""Evidence about the candidate that a judge can request. A proof substitutes that of a candidate with a fault."""

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
    """Evidence about the candidate. A `Pair` measures it; `FaultEvidence` reads the files of a run with a fault."""

    def loaded(self) -> Tensors:
        """Return its model's tensors after its own loader has read the checkpoint."""

    def exported(self) -> Tensors:
        """Return upstream's tensors after loading the candidate's export."""

    def exported_config(self) -> str:
        """Return how the exported config.json differs from the one it was loaded with; empty if it does not."""

    def results(self, what: str) -> Tensors:
        """Return its "outputs" or "gradients"."""

    def recording(self) -> Recording:
        """Return the inputs and outputs of every module in a free run."""

    def replayed(self) -> Recording:
        """Return the recording with each module fed upstream's inputs."""

    def completed(self) -> Recording:
        """Return the recording of `replayed`, each module also given the arguments that it was not passed."""

    def attention(self) -> AttentionCalls:
        """Return its attention calls."""


class FaultEvidence:
    """Evidence that a candidate with a fault left on disk.

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
