"""Both sides of one comparison, and the steps that they have taken, each at most once."""

import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from omni_kit.parity.compare.attention import load_calls
from omni_kit.parity.compare.files import config_difference, load_tensors
from omni_kit.parity.compare.pairing import pair_calls
from omni_kit.parity.compare.trace import Recording
from omni_kit.parity.processes.builder import made_feed
from omni_kit.parity.processes.side import Pairs
from omni_kit.parity.processes.steps import (
    Adapt,
    Answer,
    AnswerOn,
    AnswerWrongly,
    Branches,
    CallHooks,
    CompletePlanted,
    Derive,
    Drop,
    Initialise,
    Load,
    MakeBatches,
    MakeToy,
    Mistakes,
    Open,
    OpenCheckpoint,
    Places,
    Reload,
    Replay,
    Run,
    RunAs,
    RunMistaken,
    RunNudged,
    RunPlanted,
    RunWith,
    Save,
    SaveToy,
    Shapes,
    Slots,
    TakeSteps,
    Trace,
    Variants,
    Ways,
)
from omni_kit.parity.processes.training import Trained, Training
from omni_kit.parity.processes.workers import StepError, Worker
from omni_kit.targets.sides import Ability, AttentionCalls, Candidate, Slot, StageFault
from omni_kit.toys.configs.noise import write_with_noise
from omni_kit.toys.tensors import Tensors

_T = TypeVar("_T")
REFERENCE, CANDIDATE = "reference", "candidate"
NUDGED = "reference/nudged"


def _once(method: Callable[["Pair"], _T]) -> Callable[["Pair"], _T]:
    """Takes a step the first time; later calls get the same result or the same error."""

    @wraps(method)
    def remembered(pair: "Pair") -> _T:
        name = method.__name__
        if name not in pair.taken:
            try:
                pair.taken[name] = method(pair)
            except StepError as error:
                pair.taken[name] = error
        outcome = pair.taken[name]
        if isinstance(outcome, StepError):
            raise outcome
        return cast(_T, outcome)

    return remembered


@dataclass(frozen=True)
class Called:
    """One way in which both sides have been called.

    Attributes:
        folder: where their answers lie.
        refused: why upstream itself cannot be called so; empty where it can.
        failed: why the candidate cannot.
        wants: why it cannot where it need not: its framework prepares what this way leaves out, or a machine lacks it.
    """

    name: str
    folder: str
    refused: str
    failed: str
    wants: str = ""


def _called(refused: Sequence[str], told: Sequence[dict[str, str]]) -> list[Called]:
    """What upstream said of each way, and the candidate."""
    both = enumerate(zip(refused, told, strict=True))
    return [Called(one["name"], f"{number:03d}", why, one["error"], one["wants"]) for number, (why, one) in both]


@dataclass(frozen=True)
class Stepped:
    """What an optimizer made of both sides.

    Attributes:
        reference, candidate, nudged: loss.N, gradient_norm.N, delta.NAME; of upstream, the integration, and upstream
            with every weight moved to the next float32 number.
        lost_upstream, lost: what is another one step after resuming than without it.
    """

    reference: Tensors
    candidate: Tensors
    nudged: Tensors
    lost_upstream: list[str]
    lost: list[str]


class Pair:
    """The reference and the candidate; what is learned of the candidate here is the `Evidence` of a comparison.

    Args:
        candidate: the integration.
        where: the directory for tensors and checkpoints.
        hidden: that of the reference's results, which the candidate's process is not told.
        workers: the reference's and the candidate's process.
        launcher: the process that starts several, where a level needs them.
        checkpoint: an upstream checkpoint to compare on; None makes a toy.
        layout: how the toy's checkpoint is written.
        device: "cpu" or "cuda", for both sides.
        note: is told what the report must say.
    """

    def __init__(
        self,
        candidate: Candidate,
        where: Path,
        hidden: Path,
        workers: tuple[Worker, Worker],
        *,
        launcher: Worker | None = None,
        checkpoint: Path | None = None,
        layout: str = "hub",
        device: str = "cpu",
        note: Callable[[str], None] = lambda line: None,
    ) -> None:
        made_feed(candidate.feed)  # what it lacks is said before anything runs
        self.candidate = candidate
        self.where = where
        self.checkpoint = checkpoint or where / "checkpoint"
        self.given = checkpoint
        self.taken: dict[str, Any] = {}
        self._note = note
        self._layout = layout
        self._device = device
        self._reference, self._other = workers
        self._inputs = where / "inputs.safetensors"
        self._hidden = hidden
        # All are asked at once, so that they import their libraries at the same time.
        self._training = Training(launcher, candidate, device)
        gradient, placed = Ability.gradient in candidate.offers, {"device": device}
        options = {**candidate.options, **placed}
        self._opened_other = Open(candidate.builder, options, forbidden=candidate.independent_of, gradient=gradient)
        self._other.send(self._opened_other)
        self._opened_reference = Open(
            candidate.reference, {**candidate.told, **placed}, candidate.feed, candidate.forbidden, gradient
        )
        self._reference.send(self._opened_reference)

    @_once
    def described(self) -> dict[str, str]:
        """Upstream's model is built; its checkpoint, state and batch are on disk. Says what it is."""
        self._reference.receive(self._opened_reference)
        if self.given is not None:
            return self._reference.ask(OpenCheckpoint(self.given, self.where))
        return self._reference.ask(MakeToy(self.candidate.source, self.where, self._layout))

    @_once
    def imported(self) -> dict[str, Any]:
        """The integration is imported and registered; says with which library."""
        return self._other.receive(self._opened_other)

    def derived(self, function: str, seconds: float) -> dict[str, Any]:
        """Which of upstream's weights the integration's model is made of; see `Derive`.

        Args:
            function: what the function that converts is called.
            seconds: how long is looked.
        """
        self.imported()
        self.described()
        out = self.folder(REFERENCE)
        self._reference.ask(Run(self._inputs, out))
        self._reference.ask(Trace(self._inputs, out / "trace"))
        state, outputs = self.where / "state.safetensors", out / "outputs.safetensors"
        return self._other.ask(Derive(self.checkpoint, state, self._inputs, out / "trace", outputs, function, seconds))

    @_once
    def shapes(self) -> dict[str, list[int]]:
        """Name -> shape of what the integration's model holds."""
        self.imported()
        self.described()
        return self._other.ask(Shapes(self.checkpoint))

    @_once
    def hooked(self) -> tuple[list[str], list[tuple[str, str]]]:
        """The hooks of the candidate's framework have been called: which ones, and what is wrong with which."""
        self.imported()
        self.described()
        called, wrong = self._other.ask(CallHooks(self.checkpoint))
        return called, [(hook, said) for hook, said in wrong]

    @_once
    def adapted(self) -> tuple[list[str], list[str]]:
        """The candidate's framework has trained adapters on it: what was done, and what is wrong."""
        self.imported()
        self.described()
        said, wrong = self._other.ask(Adapt(self.checkpoint, self._inputs, self.where / CANDIDATE / "adapters"))
        return said, wrong

    @_once
    def loaded(self) -> Tensors:
        """What the integration's model holds after its own loader has read the checkpoint."""
        self.imported()
        self.described()
        file = self.where / CANDIDATE / "loaded.safetensors"
        self._other.ask(Load(self.checkpoint, file))
        return load_tensors(file)

    @_once
    def exported(self) -> Tensors:
        """What upstream holds after it has loaded what the integration exports."""
        self.loaded()
        out, file = self.where / CANDIDATE / "export", self.folder(REFERENCE) / "reloaded.safetensors"
        self._other.ask(Save(self.checkpoint, out))
        try:
            self._reference.ask(Reload(out, file))
        except StepError as error:
            raise StepError(f"upstream cannot load what was exported: {error}", blames_candidate=True) from error
        return load_tensors(file)

    def exported_config(self) -> str:
        """How the exported config.json differs from the checkpoint's; empty where it does not."""
        self.exported()
        return config_difference(self.checkpoint, self.where / CANDIDATE / "export")

    @_once
    def ran(self) -> list[str]:
        """Both sides have run; answers the names of the reference's parameters."""
        self.loaded()
        steps = [Run(self._inputs, self.folder(side)) for side in (REFERENCE, CANDIDATE)]
        self._reference.send(steps[0])
        self._other.send(steps[1])
        reference, other = self._reference.receive(steps[0]), self._other.receive(steps[1])
        self._reference.ask(RunNudged(self._inputs, self.folder(NUDGED)))
        for line in (*reference["notes"], *other["notes"]):
            self._note(line)
        return reference["parameters"]

    @_once
    def recordings(self) -> tuple[Recording, Recording]:
        """What went in and out of every module of the reference and of the candidate, each running freely."""
        self.loaded()
        steps = [Trace(self._inputs, self.folder(side) / "trace") for side in (REFERENCE, CANDIDATE)]
        self._reference.send(steps[0])
        self._other.send(steps[1])
        self._reference.receive(steps[0])
        self._other.receive(steps[1])
        return Recording.load(steps[0].out), Recording.load(steps[1].out)

    def recording(self) -> Recording:
        """What went in and out of every module of the candidate, running freely."""
        return self.recordings()[1]

    @_once
    def replayed(self) -> Recording:
        """What the candidate's modules do when each is fed what the reference's was."""
        out = self.where / CANDIDATE / "replay"
        self._other.ask(Replay(self._inputs, self._script(CANDIDATE), out, self._pairs(CANDIDATE)))
        return Recording.load(out)

    @_once
    def completed(self) -> Recording:
        """As `replayed`, with each module also given what upstream's was and it is not handed."""
        out = self.where / CANDIDATE / "completed"
        self._other.ask(Replay(self._inputs, self._script(CANDIDATE), out, self._pairs(CANDIDATE), complete=True))
        return Recording.load(out)

    def runs_upstream(self, dtypes: Sequence[str]) -> list[str]:
        """Runs both sides in each dtype; answers those in which upstream itself can run, and notes the others.

        Raises:
            StepError: the candidate cannot run in a dtype in which upstream can, or upstream can in none.
        """
        self.ran()
        self.recordings()
        found, failed = [], None
        for dtype in dtypes:
            if (error := self._run_as(dtype)) is None:
                found.append(dtype)
                continue
            failed = error
            self._note(f"upstream itself does not run in {dtype}: {error}")
        if failed and not found:
            raise failed
        return found

    def _run_as(self, dtype: str) -> StepError | None:
        """Both sides load the checkpoint in another dtype, run it, and replay upstream's float32 recording.

        Returns:
            Why upstream itself cannot; None where both can.
        """
        steps = [
            RunAs(
                self.checkpoint, dtype, self._inputs, self._script(side), self.folder(side) / dtype, self._pairs(side)
            )
            for side in (REFERENCE, CANDIDATE)
        ]
        self._reference.send(steps[0])
        self._other.send(steps[1])
        try:
            said = self._reference.receive(steps[0])
        except StepError as error:
            if not self._reference.alive:
                raise
            return error
        for line in (*said, *self._other.receive(steps[1])):
            self._note(line)
        return None

    def replayed_as(self, side: str, dtype: str) -> Recording:
        """What a side's modules do in another dtype when each is fed what upstream's was in float32."""
        return Recording.load(self.folder(side) / dtype / "replay")

    @_once
    def slots(self) -> list[Slot]:
        """The kernel slots that the integration declares."""
        self.loaded()
        return [Slot(**slot) for slot in self._other.ask(Slots(self.checkpoint))]

    def ran_with(self, slot: str, kernel: str, dtype: str) -> list[str]:
        """The candidate has run with a kernel in a slot; answers the slot's calls.

        Its results are those of the side "candidate/SLOT/KERNEL".
        """
        out = self.where / CANDIDATE / slot / kernel
        return self._other.ask(RunWith(self.checkpoint, slot, kernel, dtype, self._inputs, out))

    def trained(self, level: str) -> list[Trained] | str:
        """One step on each mesh of a level of several processes, or why the level makes no sense here."""
        if f"trained {level}" not in self.taken:
            self.loaded()
            places = (self.checkpoint, self.where / "ranks" / level)
            self.taken[f"trained {level}"] = self._training.on(level, *places, self._batches, self._note)
        return cast(list[Trained] | str, self.taken[f"trained {level}"])

    def trained_with(self, level: str, fault: str) -> tuple[list[Trained] | str, bool]:
        """As `trained`, with a fault between the processes; and whether that changed anything."""
        where = self.where / "ranks" / f"{level} with {fault}"
        found = self._training.on(level, self.checkpoint, where, self._batches, lambda line: None, fault)
        return found, any(where.glob("*/planted"))

    def _batches(self, parts: int, place: Path) -> list[str]:
        """Batches for several processes, made by upstream's side: what each is about."""
        return self._reference.ask(MakeBatches(self._inputs, parts, place))

    def places(self) -> list[dict[str, Any]]:
        """Where faults can be planted in the candidate."""
        self.loaded()
        return self._other.ask(Places(self._inputs))

    def run_planted(self, number: int, out: Path) -> dict[str, bool]:
        """The candidate has run with a fault in that place, and once more fed as upstream was; says what came of it."""
        return self._other.ask(RunPlanted(number, self._inputs, self._script(CANDIDATE), out, self._pairs(CANDIDATE)))

    def completed_planted(self, number: int, out: Path) -> Recording:
        """As `completed`, with a fault in that place."""
        self._other.ask(CompletePlanted(number, self._inputs, self._script(CANDIDATE), out, self._pairs(CANDIDATE)))
        return Recording.load(out)

    @_once
    def called(self) -> list[Called]:
        """Both sides have been called in every way that upstream can be; says how it went."""
        self.loaded()
        place = self.where / "ways"
        outs = [self.folder(f"{side}/ways") for side in (REFERENCE, NUDGED, CANDIDATE)]
        asked = self._reference.ask(Ways(place, outs[0], outs[1]))
        told = self._other.ask(Answer(place, outs[2]))
        refused = [one["error"] or one["wants"] for one in asked]
        return _called(refused, told)

    def branches(self) -> dict[str, str]:
        """What the integration's code for devices that are not here assumes, and what this machine lacks for it."""
        self.loaded()
        return self._other.ask(Branches(self.checkpoint))

    def called_on(self, branch: str, place: str) -> list[Called]:
        """As `called`, of the code for another device; the candidate's answers lie in the folder `place`."""
        refused = [one.refused for one in self.called()]
        told = self._other.ask(AnswerOn(branch, self.checkpoint, self.where / "ways", self.folder(place)))
        return _called(refused, told)

    def begun(self) -> tuple[Tensors, Tensors, list[str]]:
        """What upstream's model and the integration's begin with, and the names of upstream's buffers."""
        self.loaded()
        outs = [self.folder(f"{side}/beginning") for side in (REFERENCE, CANDIDATE)]
        buffers = self._reference.ask(Initialise(self.checkpoint, outs[0]))
        self._other.ask(Initialise(self.checkpoint, outs[1]))
        reference, candidate = (load_tensors(out / "beginning.safetensors") for out in outs)
        return reference, candidate, buffers

    def dropped(self) -> tuple[dict[str, dict[str, list[float]]], dict[str, dict[str, list[float]]]]:
        """What both sides drop by chance, by mode and module, with every share of dropout switched on."""
        self.loaded()
        config = self.where / "noise"
        if not write_with_noise(self.checkpoint, config):
            return {}, {}
        step = Drop(config, self._inputs)
        return self._reference.ask(step), self._other.ask(step)

    @_once
    def stepped(self) -> Stepped:
        """Both sides have taken steps with an optimizer, from the checkpoint."""
        self.loaded()
        places = [self.folder(f"{side}/steps") for side in (REFERENCE, CANDIDATE)]
        steps = [TakeSteps(self.checkpoint, self._inputs, place) for place in places]
        self._reference.send(steps[0])
        self._other.send(steps[1])
        lost_upstream, lost = self._reference.receive(steps[0]), self._other.receive(steps[1])
        nudged = self.folder(f"{NUDGED}/steps")
        self._reference.ask(TakeSteps(self.checkpoint, self._inputs, nudged, nudged=True))
        taken = [load_tensors(place / "outputs.safetensors") for place in (*places, nudged)]
        return Stepped(taken[0], taken[1], taken[2], lost_upstream, lost)

    def variants(self) -> Iterator[tuple[str, "Pair | StepError"]]:
        """Both sides with another toy, one after the other, or why upstream has none; then they have their own again.

        Each is there only while it is looked at. Upstream loads its own toy from disk, too: some configs change each
        time that they are read.
        """
        self.loaded()
        place = self.where / "variants"
        names = self._reference.ask(Variants(place))
        for number, name in enumerate(names):
            where, hidden = place / f"{number:03d}", self._hidden / "variants" / f"{number:03d}"
            yield name, self._varied(where, hidden)
            for used in (where, hidden):
                shutil.rmtree(used, ignore_errors=True)
        self._reference.ask(OpenCheckpoint(self.checkpoint, place / "again"))
        self._other.ask(Load(self.checkpoint, place / "again" / "loaded.safetensors"))

    def _varied(self, where: Path, hidden: Path) -> "Pair | StepError":
        made = where / "checkpoint"
        try:
            self._reference.ask(SaveToy(str(where / "toy_config.json"), made, self._layout))
        except StepError as error:
            return error
        workers = (self._reference, self._other)
        return Pair(self.candidate, where, hidden, workers, checkpoint=made, device=self._device, note=self._note)

    def called_wrongly(self, fault: str, place: str) -> dict[str, str]:
        """The candidate has been called in every way while it made a mistake: why it failed, where it did."""
        told = self._other.ask(AnswerWrongly(self.where / "ways", self.folder(place), fault))
        return {one["name"]: one["error"] for one in told}

    def answers_of(self, folder: str, way: str) -> Tensors:
        """What was answered to a way of calling, below a folder such as "reference/ways"."""
        return load_tensors(self.folder(folder) / way / "outputs.safetensors")

    def mistakes(self) -> list[StageFault]:
        """The mistakes that the candidate's stages can make on purpose."""
        self.loaded()
        said = self._other.ask(Mistakes(self._inputs))
        return [StageFault(fault["kind"], fault["what"], tuple(fault["stages"])) for fault in said]

    def run_mistaken(self, kind: str, out: Path) -> None:
        """The candidate has run while its stages made a mistake."""
        self._other.ask(RunMistaken(kind, self._inputs, out))

    def folder(self, side: str) -> Path:
        """Where the results of a side lie: "reference", "candidate", or a run of one, as "reference/nudged"."""
        first, _, rest = side.partition("/")
        return (self._hidden if first == REFERENCE else self.where / first) / rest

    def _script(self, side: str) -> Path:
        """What upstream's modules did, for a side that is fed so; the candidate gets it once it has run freely."""
        self.recordings()
        own = self.folder(REFERENCE) / "trace"
        if side == REFERENCE:
            return own
        lent = self.folder(CANDIDATE) / "script"
        if not lent.is_dir():
            shutil.copytree(own, lent)
        return lent

    def _pairs(self, side: str) -> Pairs:
        """The calls of a side that are replayed: those that both sides have.

        Where the candidate does in one module what upstream does in several, upstream is replayed so, too: otherwise
        upstream's errors would be put right at more places, and the candidate's would look larger.
        """
        reference, candidate = self.recordings()
        shared = pair_calls(reference, candidate)
        both = set(shared.values())
        pairs = shared if side == CANDIDATE else pair_calls(reference, reference)
        return [(module, occurrence, number) for (module, occurrence), number in pairs.items() if number in both]

    def inputs(self) -> Tensors:
        """The batch that both sides are fed."""
        self.described()
        return load_tensors(self._inputs)

    def state(self) -> Tensors:
        """What upstream's model holds."""
        self.described()
        return load_tensors(self.where / "state.safetensors")

    def toy(self) -> dict[str, Any] | None:
        """The config of the toy that was made; None where a checkpoint was given, or none could be made."""
        file = self.checkpoint / "config.json"
        return None if self.given or not file.is_file() else dict(json.loads(file.read_text(encoding="utf-8")))

    def model_type(self) -> str:
        """What is compared; empty while the reference could not say."""
        described = self.taken.get("described")
        return str(described["model_type"]) if isinstance(described, dict) else ""

    def results_of(self, side: str, what: str) -> Tensors:
        """The "outputs" or "gradients" of a run: "reference", "candidate", "reference/nudged", "candidate/bfloat16"."""
        self.ran()
        return load_tensors(self.folder(side) / f"{what}.safetensors")

    def results(self, what: str) -> Tensors:
        """The "outputs" or "gradients" of the candidate."""
        return self.results_of(CANDIDATE, what)

    def attention_of(self, side: str) -> AttentionCalls:
        """How attention was called in a run."""
        self.ran()
        return load_calls(self.folder(side))

    def attention(self) -> AttentionCalls:
        """How attention was called in the candidate's run."""
        return self.attention_of(CANDIDATE)
