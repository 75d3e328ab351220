"""Results of both sides of a comparison, each computed at most once and kept."""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from omni_kit.isolation.worker import StepError, Worker
from omni_kit.parity.compare.attention import load_calls
from omni_kit.parity.compare.files import config_difference, load_json, load_tensors, reading_results
from omni_kit.parity.compare.pairing import named_alike, pair_calls
from omni_kit.parity.compare.trace import Recording
from omni_kit.parity.processes.builder import made_batch_builder
from omni_kit.parity.processes.outcomes import CANDIDATE, NUDGED, REFERENCE, ScenarioOutcome, Stepped, once, paired
from omni_kit.parity.processes.shared import Shared, Watched
from omni_kit.parity.processes.side import Pairs
from omni_kit.parity.processes.steps import (
    Adapt,
    CallHooks,
    Executed,
    Load,
    Loaded,
    MakeToy,
    Open,
    OpenCheckpoint,
    Reload,
    Replay,
    Run,
    RunNudged,
    RunScenarios,
    Save,
    Shapes,
    Slots,
    TakeSteps,
    Trace,
    WriteScenarios,
)
from omni_kit.parity.processes.training import Training
from omni_kit.targets.sides import Ability, AttentionCalls, Candidate, Slot
from omni_kit.toys.tensors import Tensors

_MORE_NUDGES = 7  # where one is not enough to tell what rounding does


class SideResults:
    """The reference and the candidate, with all that is asked of them once and kept.

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
        measured: what both sides execute is measured, as long as `executed` was not asked.
    """

    def __init__(
        self,
        candidate: Candidate,
        where: Path,
        hidden: Path,
        workers: tuple[Worker, Worker | Watched],
        *,
        launcher: Worker | None = None,
        checkpoint: Path | None = None,
        layout: str = "hub",
        device: str = "cpu",
        note: Callable[[str], None] = lambda line: None,
        measured: bool = False,
    ) -> None:
        made_batch_builder(candidate.batch_builder)  # fail on an incomplete one before anything runs
        self.candidate = candidate
        self.where = where
        self.checkpoint = checkpoint or where / "checkpoint"
        self.given = checkpoint
        self.taken: dict[str, Any] = {}
        self._note = note
        self._layout = layout
        self.device = device
        self._shared = Shared()
        self._reference, self._other = workers[0], Watched(workers[1], self._shared, device)
        self.inputs_file = where / "inputs.safetensors"
        self._hidden = hidden
        # All are asked at once, so that they import their libraries at the same time.
        self.measured = measured
        own = [str(candidate.path.resolve())] if measured else None
        self._training = Training(launcher, candidate, device, own)
        gradient, placed = Ability.gradient in candidate.offers, {"device": device}
        options = {**candidate.options, **placed}
        self._opened_other = Open(
            candidate.builder,
            options,
            forbidden=candidate.independent_of,
            gradient=gradient,
            measured=own,
            own=str(candidate.path),
            hidden=candidate.hidden,
        )
        self._other.send(self._opened_other)
        self._opened_reference = Open(
            candidate.reference,
            {**candidate.told, **placed},
            candidate.batch_builder,
            candidate.forbidden,
            gradient,
            [] if measured else None,
        )
        self._reference.send(self._opened_reference)

    @once
    def described(self) -> dict[str, str]:
        """Upstream's model is built; its checkpoint, state and batch are on disk. Says what it is."""
        self._reference.receive(self._opened_reference)
        if self.given is not None:
            said = self._reference.ask(OpenCheckpoint(self.given, self.where))
        else:
            said = self._reference.ask(MakeToy(self.candidate.source, self.where, self._layout))
        self._shared.add(self.checkpoint, self.inputs_file, self.where / "state.safetensors")
        return said

    @once
    def imported(self) -> dict[str, Any]:
        """The integration is imported and registered; says with which library."""
        return self._other.receive(self._opened_other)

    @once
    def shapes(self) -> dict[str, list[int]]:
        """Name -> shape of what the integration's model holds."""
        self.imported()
        self.described()
        return self._other.ask(Shapes(self.checkpoint))

    @once
    def hooked(self) -> tuple[list[str], list[tuple[str, str]]]:
        """The hooks of the candidate's framework have been called: which ones, and what is wrong with which."""
        self.imported()
        self.described()
        called, wrong = self._other.ask(CallHooks(self.checkpoint, self.inputs_file))
        return called, [(hook, said) for hook, said in wrong]

    @once
    def adapted(self) -> tuple[list[str], list[str]]:
        """The candidate's framework has trained adapters on it: what was done, and what is wrong."""
        self.imported()
        self.described()
        said, wrong = self._other.ask(Adapt(self.checkpoint, self.inputs_file, self.where / CANDIDATE / "adapters"))
        return said, wrong

    @once
    def loaded(self) -> Tensors:
        """Return the integration's tensors after its own loader has read the checkpoint."""
        self.imported()
        self.described()
        file = self.where / CANDIDATE / "loaded.safetensors"
        self._other.ask(Load(self.checkpoint, file))
        return load_tensors(file)

    @once
    def exported(self) -> Tensors:
        """Return upstream's tensors after loading the integration's export."""
        self.loaded()
        out, file = self.where / CANDIDATE / "export", self.folder(REFERENCE) / "reloaded.safetensors"
        self._other.ask(Save(self.checkpoint, out))
        try:
            self._reference.ask(Reload(out, file))
        except StepError as error:
            raise StepError(f"upstream cannot load what was exported: {error}", blames_candidate=True) from error
        return load_tensors(file)

    def loaded_files(self) -> set[str]:
        """Return the files that all processes have loaded.

        Raises:
            StepError: a process has ended, and cannot say any more.
        """
        return {*self._reference.ask(Loaded()), *self._other.ask(Loaded()), *self._training.loaded_files()}

    @once
    def executed(self) -> dict[str, set[tuple[int, int]]]:
        """Return the lines of the integration and of upstream's model that all processes ran: file -> pairs of lines.

        Raises:
            StepError: a process has ended, and cannot say any more.
        """
        found: dict[str, set[tuple[int, int]]] = {}
        for arcs in (self._reference.ask(Executed()), self._other.ask(Executed()), self._training.executed()):
            for file, some in arcs.items():
                found.setdefault(file, set()).update((int(here), int(there)) for here, there in some)
        return found

    def exported_config(self) -> str:
        """Return how the exported config.json differs from the checkpoint's; empty if it does not."""
        self.exported()
        return config_difference(self.checkpoint, self.where / CANDIDATE / "export")

    @once
    def ran(self) -> list[str]:
        """Both sides have run; answers the names of the reference's parameters."""
        self.loaded()
        steps = [Run(self.inputs_file, self.folder(side)) for side in (REFERENCE, CANDIDATE)]
        self._reference.send(steps[0])
        self._other.send(steps[1])
        reference, other = self._reference.receive(steps[0]), self._other.receive(steps[1])
        self._reference.ask(RunNudged(self.inputs_file, self.folder(NUDGED)))
        for line in (*reference["notes"], *other["notes"]):
            self._note(line)
        return reference["parameters"]

    @once
    def nudged_again(self) -> list[Path]:
        """The reference has run with its weights moved in other ways; returns the folders of the results."""
        self.ran()
        folders = [self.folder(f"{NUDGED}/{number}") for number in range(1, _MORE_NUDGES + 1)]
        for number, folder in enumerate(folders, start=1):
            self._reference.ask(RunNudged(self.inputs_file, folder, number))
        return folders

    @once
    def recordings(self) -> tuple[Recording, Recording]:
        """Return the inputs and outputs of every module of the reference and of the candidate, each in a free run."""
        self.loaded()
        steps = [Trace(self.inputs_file, self.folder(side) / "trace") for side in (REFERENCE, CANDIDATE)]
        self._reference.send(steps[0])
        self._other.send(steps[1])
        self._reference.receive(steps[0])
        self._other.receive(steps[1])
        return Recording.load(steps[0].out), Recording.load(steps[1].out)

    @once
    def paired_calls(self) -> dict[tuple[str, int], int]:
        """Return `pair_calls` of both free runs."""
        return pair_calls(*self.recordings())

    def recording(self) -> Recording:
        """Return the inputs and outputs of every module of the candidate in a free run."""
        return self.recordings()[1]

    @once
    def replayed(self) -> Recording:
        """Return the recording of the candidate's modules, each fed the reference's inputs."""
        out = self.where / CANDIDATE / "replay"
        self._other.ask(Replay(self.inputs_file, self._script(CANDIDATE), out, self._pairs(CANDIDATE)))
        return Recording.load(out)

    @once
    def completed(self) -> Recording:
        """Return the recording of `replayed`, each module also given upstream's arguments that it was not passed."""
        out = self.where / CANDIDATE / "completed"
        self._other.ask(Replay(self.inputs_file, self._script(CANDIDATE), out, self._pairs(CANDIDATE), complete=True))
        return Recording.load(out)

    @once
    def slots(self) -> list[Slot]:
        """Return the kernel slots that the integration declares."""
        self.loaded()
        return [Slot(**slot) for slot in self._other.ask(Slots(self.checkpoint))]

    @once
    def called(self) -> list[ScenarioOutcome]:
        """Both sides have been called in every way that upstream can be; says how it went."""
        self.loaded()
        place = self.where / "ways"
        outs = [self.folder(f"{side}/ways") for side in (REFERENCE, NUDGED, CANDIDATE)]
        asked = self._reference.ask(WriteScenarios(place, outs[0]))
        self._shared.add(place)
        again, other = RunScenarios(place, outs[1], nudged=True), RunScenarios(place, outs[2])
        self._reference.send(again)
        self._other.send(other)
        repeated, told = self._reference.receive(again), self._other.receive(other)
        # What a model keeps of an earlier call may be in the way of a later one.
        calls = zip(asked, repeated, strict=True)
        refused = [first["error"] or second["error"] or second["wants"] for first, second in calls]
        return paired(refused, told)

    @once
    def stepped(self) -> Stepped:
        """Both sides have taken steps with an optimizer, from the checkpoint."""
        self.loaded()
        places = [self.folder(f"{side}/steps") for side in (REFERENCE, CANDIDATE)]
        steps = [TakeSteps(self.checkpoint, self.inputs_file, place) for place in places]
        self._reference.send(steps[0])
        self._other.send(steps[1])
        lost_upstream, lost = self._reference.receive(steps[0]), self._other.receive(steps[1])
        taken = [load_tensors(place / "outputs.safetensors") for place in places]
        return Stepped(taken[0], taken[1], self._stepped_nudged(0), lost_upstream, lost)

    @once
    def stepped_again(self) -> list[Tensors]:
        """Return the results of `stepped` of the reference with its weights moved in other ways."""
        return [self._stepped_nudged(number) for number in range(1, _MORE_NUDGES + 1)]

    def _stepped_nudged(self, salt: int) -> Tensors:
        place = self.folder(f"{NUDGED}/steps/{salt}")
        self._reference.ask(TakeSteps(self.checkpoint, self.inputs_file, place, salt))
        return load_tensors(place / "outputs.safetensors")

    def folder(self, side: str) -> Path:
        """Return the results folder of a side: "reference", "candidate", or a run of one, as "reference/nudged"."""
        first, _, rest = side.partition("/")
        return (self._hidden if first == REFERENCE else self.where / first) / rest

    def _script(self, side: str) -> Path:
        """Return upstream's trace for a side to replay; the candidate gets it after its free run, in its own names."""
        reference, candidate = self.recordings()
        if side == REFERENCE:
            return self.folder(REFERENCE) / "trace"
        lent = self.folder(CANDIDATE) / "script"
        if not lent.is_dir():
            named_alike(reference, candidate, self.paired_calls()).save(lent)
        return lent

    def _pairs(self, side: str) -> Pairs:
        """The calls of a side that are replayed: those that both sides have.

        Where the candidate does in one module what upstream does in several, upstream is replayed so, too: otherwise
        upstream's errors would be put right at more places, and the candidate's would look larger.
        """
        reference, _ = self.recordings()
        shared = self.paired_calls()
        both = set(shared.values())
        pairs = shared if side == CANDIDATE else pair_calls(reference, reference)
        return [(module, occurrence, number) for (module, occurrence), number in pairs.items() if number in both]

    def inputs(self) -> Tensors:
        """Return the batch that both sides are fed."""
        self.described()
        return load_tensors(self.inputs_file)

    def state(self) -> Tensors:
        """Return the tensors of upstream's model."""
        self.described()
        return load_tensors(self.where / "state.safetensors")

    def toy(self) -> dict[str, Any] | None:
        """Return the config of the toy that was made; None if a checkpoint was given, or none could be made or read."""
        if self.given:
            return None
        with suppress(StepError), reading_results(self.checkpoint / "config.json") as file:
            return dict(load_json(file))
        return None

    def model_type(self) -> str:
        """Return the type of the compared model; empty if the reference could not determine it."""
        described = self.taken.get("described")
        return str(described["model_type"]) if isinstance(described, dict) else ""

    def results_of(self, side: str, what: str) -> Tensors:
        """Return the "outputs" or "gradients" of a run: "reference", "candidate", "reference/nudged",
        "candidate/bfloat16".
        """
        self.ran()
        return load_tensors(self.folder(side) / f"{what}.safetensors")

    def rounded_again(self, what: str) -> list[Tensors]:
        """Return the "outputs" or "gradients" of the reference with its weights moved in other ways."""
        return [load_tensors(folder / f"{what}.safetensors") for folder in self.nudged_again()]

    def results(self, what: str) -> Tensors:
        """Return the "outputs" or "gradients" of the candidate."""
        return self.results_of(CANDIDATE, what)

    def attention_of(self, side: str) -> AttentionCalls:
        """Return the attention calls of a run."""
        self.ran()
        return load_calls(self.folder(side))

    def attention(self) -> AttentionCalls:
        """Return the attention calls of the candidate's run."""
        return self.attention_of(CANDIDATE)
