"""One comparison under way: both sides, and what each was already made to do."""

import json
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from omni_kit.parity.attention import Calls, load_calls
from omni_kit.parity.candidate import Layout
from omni_kit.parity.compare import Comparison
from omni_kit.parity.pairing import pair_calls
from omni_kit.parity.process import StepError, Worker
from omni_kit.parity.report import Divergence
from omni_kit.parity.tensors import load_tensors
from omni_kit.parity.trace import Recording
from omni_kit.parity.training import Trained, Training
from omni_kit.targets.builder import Candidate, Slot, Tensors

_T = TypeVar("_T")


def _once(method: Callable[["Case"], _T]) -> Callable[["Case"], _T]:
    """Takes a step the first time; later calls get the same result or the same error."""

    @wraps(method)
    def remembered(case: "Case") -> _T:
        if method.__name__ not in case.taken:
            try:
                case.taken[method.__name__] = method(case)
            except StepError as error:
                case.taken[method.__name__] = error
        outcome = case.taken[method.__name__]
        if isinstance(outcome, StepError):
            raise outcome
        return outcome  # type: ignore[no-any-return]

    return remembered


class Case:
    """The steps of one comparison, each taken at most once, whichever level asks first.

    Args:
        candidate: the integration.
        where: the directory for tensors and checkpoints.
        workers: the reference's and the candidate's process.
        launcher: the process that starts several, where a level needs them.
        checkpoint: an upstream checkpoint to compare on; None makes a toy.
        layout: how the toy's checkpoint is written.
        device: "cpu" or "cuda", for both sides.
    """

    def __init__(
        self,
        candidate: Candidate,
        where: Path,
        workers: tuple[Worker, Worker],
        *,
        launcher: Worker | None = None,
        checkpoint: Path | None = None,
        layout: Layout = "hub",
        device: str = "cpu",
    ) -> None:
        self.candidate = candidate
        self.where = where
        self.checkpoint = checkpoint or where / "checkpoint"
        self.taken: dict[str, Any] = {}
        self.notes: list[str] = []
        self.divergence: Divergence | None = None
        self._reference, self._other = workers
        self._given = checkpoint
        self._layout = layout
        # Both are asked at once, so that they import their libraries at the same time.
        self._training = Training(launcher, candidate, device)
        options = {**candidate.options, "device": device}
        self._other.send("open", builder=candidate.builder, options=options, forbidden=[])
        self._reference.send(
            "open", builder=candidate.reference, options={"device": device}, forbidden=[candidate.framework]
        )

    @_once
    def reference(self) -> dict[str, Any]:
        """Upstream's model is built; its checkpoint, state and inputs are on disk."""
        self._reference.receive("open")
        if self._given:
            described = self._reference.ask("open_checkpoint", checkpoint=str(self._given), out=str(self.where))
        else:
            described = self._reference.ask(
                "make_toy", source=self.candidate.source, out=str(self.where), layout=self._layout
            )
        return dict(described)

    @_once
    def imported(self) -> dict[str, Any]:
        """The integration is imported and registered."""
        return dict(self._other.receive("open"))

    @_once
    def shapes(self) -> dict[str, Sequence[int]]:
        """Name -> shape of what the integration's model holds."""
        self.imported()
        self.reference()
        return dict(self._other.ask("shapes", config_dir=str(self.checkpoint)))

    @_once
    def loaded(self) -> Tensors:
        """What the integration's model holds after its own loader has read the checkpoint."""
        self.imported()
        self.reference()
        file = self.where / "candidate" / "loaded.safetensors"
        self._other.ask("load", checkpoint=str(self.checkpoint), state=str(file))
        return load_tensors(file)

    @_once
    def exported(self) -> Tensors:
        """What upstream holds after it has loaded what the integration exports."""
        self.loaded()
        out, file = self.where / "candidate" / "export", self.where / "reference" / "reloaded.safetensors"
        self._other.ask("save", checkpoint=str(self.checkpoint), out=str(out))
        try:
            self._reference.ask("reload", checkpoint=str(out), state=str(file))
        except StepError as error:
            raise StepError(f"upstream cannot load what was exported: {error}", blames_candidate=True) from error
        return load_tensors(file)

    @_once
    def ran(self) -> list[str]:
        """Both sides have run forward and backward; returns the names of the reference's parameters."""
        self.loaded()
        inputs = str(self.where / "inputs.safetensors")
        for worker, name in ((self._reference, "reference"), (self._other, "candidate")):
            worker.send("run", inputs=inputs, out=str(self.where / name))
        reference, other = self._reference.receive("run"), self._other.receive("run")
        self._reference.ask("run_nudged", inputs=inputs, out=str(self.where / "reference" / "nudged"))
        for line in (*reference["notes"], *other["notes"]):
            self.note(line)
        return list(reference["parameters"])

    @_once
    def traced(self) -> tuple[Recording, Recording]:
        """What went in and out of every module of the reference and of the candidate, each running freely."""
        self.loaded()
        inputs = str(self.where / "inputs.safetensors")
        for worker, name in ((self._reference, "reference"), (self._other, "candidate")):
            worker.send("trace", inputs=inputs, out=str(self.where / name / "trace"))
        self._reference.receive("trace")
        self._other.receive("trace")
        return Recording.load(self.where / "reference" / "trace"), Recording.load(self.where / "candidate" / "trace")

    @_once
    def replayed(self) -> Recording:
        """What the candidate's modules do when each is fed what the reference's was."""
        out = self.where / "candidate" / "replay"
        self._other.ask("replay", **self._script(), pairs=self._pairs("candidate"), out=str(out))
        return Recording.load(out)

    @_once
    def completed(self) -> Recording:
        """As `replayed`, with each module also given what upstream's was and it is not handed."""
        out = self.where / "candidate" / "completed"
        self._other.ask("replay", **self._script(), pairs=self._pairs("candidate"), out=str(out), complete=True)
        return Recording.load(out)

    def runs_upstream(self, dtypes: Sequence[str]) -> list[str]:
        """Runs both sides in each dtype; returns those in which upstream itself can run, and notes the others.

        Raises:
            StepError: the candidate cannot run in a dtype in which upstream can, or upstream can in none.
        """
        found, failed = [], None
        for dtype in dtypes:
            try:
                self._run_as(dtype)
                found.append(dtype)
            except StepError as error:
                if error.blames_candidate or not self._reference.alive:
                    raise
                failed = error
                self.note(f"upstream itself does not run in {dtype}: {error}")
        if failed and not found:
            raise failed
        return found

    def _run_as(self, dtype: str) -> None:
        """Both sides load the checkpoint in another dtype, run it, and replay upstream's float32 recording."""
        self.ran()
        self.traced()
        for worker, name in ((self._reference, "reference"), (self._other, "candidate")):
            arguments = {**self._script(), "checkpoint": str(self.checkpoint), "dtype": dtype}
            worker.send("run_as", **arguments, pairs=self._pairs(name), out=str(self.where / name / dtype))
        for line in (*self._reference.receive("run_as"), *self._other.receive("run_as")):
            self.note(line)

    @_once
    def slots(self) -> list[Slot]:
        """The kernel slots that the integration declares."""
        self.loaded()
        return [Slot(**slot) for slot in self._other.ask("slots", config_dir=str(self.checkpoint))]

    def ran_with(self, slot: str, kernel: str, dtype: str) -> list[str]:
        """The candidate has run with a kernel in a slot; returns the slot's calls.

        Its results are those of the side "candidate/SLOT/KERNEL".
        """
        arguments = {"checkpoint": str(self.checkpoint), "inputs": str(self.where / "inputs.safetensors")}
        out = str(self.where / "candidate" / slot / kernel)
        return list(self._other.ask("run_with", slot=slot, kernel=kernel, dtype=dtype, out=out, **arguments))

    def trained(self, level: str) -> list[Trained] | str:
        """One step on each mesh of a level of several processes, or why the level makes no sense here."""
        if f"trained {level}" not in self.taken:
            self.loaded()
            places = (self.checkpoint, self.where / "ranks" / level)
            self.taken[f"trained {level}"] = self._training.on(level, *places, self.inputs(), self.note)
        return cast(list[Trained] | str, self.taken[f"trained {level}"])

    def trained_with(self, level: str, fault: str) -> tuple[list[Trained] | str, bool]:
        """As `trained`, with a fault between the processes; and whether that changed anything."""
        where = self.where / "ranks" / f"{level} with {fault}"
        found = self._training.on(level, self.checkpoint, where, self.inputs(), lambda line: None, fault)
        return found, any(where.glob("*/planted"))

    def places(self) -> list[dict[str, Any]]:
        """Where faults can be planted in the candidate."""
        self.loaded()
        return list(self._other.ask("places", inputs=str(self.where / "inputs.safetensors")))

    def run_planted(self, number: int, out: Path) -> dict[str, bool]:
        """The candidate has run with a fault in that place, and once more fed as upstream was; says what came of it."""
        arguments = {**self._script(), "pairs": self._pairs("candidate"), "out": str(out)}
        return dict(self._other.ask("run_planted", number=number, **arguments))

    def completed_planted(self, number: int, out: Path) -> Recording:
        """As `completed`, with a fault in that place."""
        arguments = {**self._script(), "pairs": self._pairs("candidate"), "out": str(out)}
        self._other.ask("complete_planted", number=number, **arguments)
        return Recording.load(out)

    def replayed_as(self, side: str, dtype: str) -> Recording:
        """What a side's modules do in another dtype when each is fed what upstream's was in float32."""
        return Recording.load(self.where / side / dtype / "replay")

    def _script(self) -> dict[str, str]:
        return {"inputs": str(self.where / "inputs.safetensors"), "script": str(self.where / "reference" / "trace")}

    def _pairs(self, side: str) -> list[tuple[str, int, int]]:
        reference, candidate = self.traced()
        pairs = pair_calls(reference, candidate if side == "candidate" else reference)
        return [(module, occurrence, number) for (module, occurrence), number in pairs.items()]

    def note(self, line: str) -> None:
        """Something that the report must say, once."""
        if line not in self.notes:
            self.notes.append(line)

    def inputs(self) -> Tensors:
        """The batch that both sides are fed."""
        self.reference()
        return load_tensors(self.where / "inputs.safetensors")

    def mask(self) -> torch.Tensor:
        """Which tokens are not padding, [batch, length]; a single one where every element of every tensor counts."""
        return self.inputs().get("attention_mask", torch.ones(1, 1, dtype=torch.long))

    @property
    def given(self) -> Path | None:
        """The checkpoint that was given, in the place of a toy."""
        return self._given

    def toy(self) -> dict[str, Any] | None:
        """The config of the toy that was made; None where a checkpoint was given, or none could be made."""
        file = self.checkpoint / "config.json"
        return None if self._given or not file.is_file() else dict(json.loads(file.read_text(encoding="utf-8")))

    def model_type(self) -> str:
        """What is compared; empty while the reference could not say."""
        described = self.taken.get("reference")
        return str(described["model_type"]) if isinstance(described, dict) else ""

    def state(self) -> Tensors:
        """What upstream's model holds."""
        self.reference()
        return load_tensors(self.where / "state.safetensors")

    def attention(self, side: str) -> Calls:
        """How attention was called in a run."""
        self.ran()
        return load_calls(self.where / side)

    def compared(self, what: str, compare: Callable[[], Comparison]) -> Comparison:
        """The outcome of a comparison that several levels ask for, made once."""
        if f"compared {what}" not in self.taken:
            self.taken[f"compared {what}"] = compare()
        return cast(Comparison, self.taken[f"compared {what}"])

    def results(self, side: str, what: str) -> Tensors:
        """The "outputs" or "gradients" of a run: "reference", "candidate", "reference/nudged", "candidate/bfloat16"."""
        self.ran()
        return load_tensors(self.where / side / f"{what}.safetensors")
