"""Both sides of one comparison: what is asked once, and with a level, way, slot or fault."""

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from omni_kit.isolation.worker import StepError
from omni_kit.parity.compare.comparison import Comparison, compare_shapes
from omni_kit.parity.compare.files import load_tensors
from omni_kit.parity.compare.modules import Compared
from omni_kit.parity.compare.pairing import pair_calls
from omni_kit.parity.compare.trace import Recording
from omni_kit.parity.processes.builder import made_batch_builder
from omni_kit.parity.processes.outcomes import CANDIDATE, REFERENCE, ScenarioOutcome, paired
from omni_kit.parity.processes.side_results import SideResults
from omni_kit.parity.processes.steps import (
    Branches,
    CompleteFaults,
    Convert,
    Derive,
    Drop,
    Enlarge,
    Initialise,
    Load,
    LoadAdapter,
    LoadExport,
    LostArguments,
    MakeBatches,
    Mistakes,
    OpenCheckpoint,
    Places,
    Run,
    RunAs,
    RunMistaken,
    RunOnDevice,
    RunWith,
    RunWithCallFault,
    RunWithFault,
    RunWithNoise,
    SaveVariant,
    Step,
    Trace,
    TrainPlainly,
    Variants,
)
from omni_kit.parity.processes.steps.locating import TraceScenario
from omni_kit.parity.processes.training import Trained
from omni_kit.targets.sides import StageFault, TrainingRun
from omni_kit.toys.configs.noise import write_with_noise
from omni_kit.toys.configs.variants import Extent, FieldVaried
from omni_kit.toys.tensors import Tensors


class Pair(SideResults):
    """The reference and the candidate; what is learned of the candidate here is the `Evidence` of a comparison.

    Attributes:
        fields: what is known of each field of the config, once `variants` has begun.
    """

    fields: Sequence[FieldVaried] = ()

    def derived(self, function: str, seconds: float) -> dict[str, Any]:
        """Derive which of upstream's weights the integration's model consists of; see `Derive`.

        Args:
            function: what the function that converts is called.
            seconds: how long is looked.
        """
        self.imported()
        self.described()
        out = self.folder(REFERENCE)
        self._reference.ask(Run(self.inputs_file, out))
        self._reference.ask(Trace(self.inputs_file, out / "trace"))
        state, outputs = self.where / "state.safetensors", out / "outputs.safetensors"
        return self._other.ask(
            Derive(self.checkpoint, state, self.inputs_file, out / "trace", outputs, function, seconds)
        )

    def runs_upstream(self, dtypes: Sequence[str]) -> list[str]:
        """Run both sides in each dtype; answers those in which upstream itself can run, and notes the others.

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
            Why upstream itself cannot; None if both can.
        """
        steps = [
            RunAs(
                self.checkpoint,
                dtype,
                self.inputs_file,
                self._script(side),
                self.folder(side) / dtype,
                self._pairs(side),
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
        """Return a side's recording in another dtype, with each module fed upstream's float32 inputs."""
        return Recording.load(self.folder(side) / dtype / "replay")

    def ran_with(self, slot: str, kernel: str, dtype: str) -> list[str]:
        """The candidate has run with a kernel in a slot; answers the slot's calls.

        Its results are those of the side "candidate/SLOT/KERNEL".
        """
        out = self.where / CANDIDATE / slot / kernel
        return self._other.ask(RunWith(self.checkpoint, slot, kernel, dtype, self.inputs_file, out))

    def enlarged(self) -> Iterator[tuple[str, Comparison]]:
        """Models of more layers and experts, by their names alone: what comes of a published checkpoint."""
        self.imported()
        place = self.where / "enlarged"
        found = self._reference.ask(Enlarge(self.checkpoint, place))
        for number, (what, names) in enumerate(found.items()):
            config, published = place / str(number), names["published" if self._layout == "hub" else "held"]
            yield what, compare_shapes(names["held"], self._other.ask(Convert(config, published)))

    def lost_arguments(self) -> list[str]:
        """Return the arguments of a training step that do not arrive where the candidate needs them."""
        self.loaded()
        return self._other.ask(LostArguments(self.checkpoint, self.inputs_file))

    def trained(self, level: str) -> list[Trained] | str:
        """Return one step on each mesh of a level of several processes, or why the level makes no sense here."""
        if f"trained {level}" not in self.taken:
            self.loaded()
            places = (self.checkpoint, self.where / "ranks" / level)
            self.taken[f"trained {level}"] = self._training.on(level, *places, self._batches, self._note)
        return cast(list[Trained] | str, self.taken[f"trained {level}"])

    def trained_wrongly(self, level: str, one: Trained, first: Trained, fault: str) -> tuple[Trained, bool]:
        """Return a mesh of `trained` with a fault between its processes, and whether that changed anything.

        Args:
            first: that of one process.
        """
        return self._training.wrongly(one, self.checkpoint, self.where / "ranks" / level, first, fault)

    def _batches(self, parts: int, place: Path) -> list[str]:
        """Batches for several processes, made by upstream's side: what each is about."""
        return self._reference.ask(MakeBatches(self.inputs_file, parts, place))

    def training_runs(self) -> tuple[list[TrainingRun], list[str]]:
        """The runs of the framework's own trainer on the integration's training files, and what is wrong with those."""
        self.described()
        return self._training.plan(self.checkpoint, self.where / "training")

    def run_trainer(self, run: TrainingRun) -> list[Path]:
        """Return the records of a run's processes."""
        records, said = self._training.run(run, self.where / "training" / "records" / run.name)
        for line in said:
            self._note(line)
        return records

    def trained_plainly(self, run: TrainingRun, records: Sequence[Path], steps: int) -> list[dict[str, float]]:
        """Return the loss and the norm of gradients of upstream's steps on the samples of a run."""
        return self._reference.ask(
            TrainPlainly(Path(run.checkpoint), [str(record) for record in records], steps, run.adapter)
        )

    def opened_export(self, run: TrainingRun) -> tuple[Tensors, str, str, list[str]]:
        """Return upstream's tensors after loading an export; its error with it and with the first model; float32 names.

        The third is why upstream cannot use the model that the run began with, either. The last are the names of
        tensors that upstream keeps in float32 whatever the dtype of the others.

        Raises:
            StepError: it cannot load it.
        """
        file = self.folder(REFERENCE) / "training" / "export.safetensors"
        try:
            found = self._reference.ask(LoadExport(Path(run.export), Path(run.checkpoint), file))
        except StepError as error:
            raise StepError(f"upstream cannot load the export: {error}", blames_candidate=True) from error
        return load_tensors(file), found["said"], found["own"], found["kept"]

    def opened_adapter(self, checkpoint: Path, adapter: Path) -> int | str:
        """Return how many tensors of a saved adapter upstream's model loads, or the library missing for that.

        Raises:
            StepError: it does not fit.
        """
        try:
            return self._reference.ask(LoadAdapter(checkpoint, adapter))
        except StepError as error:
            raise StepError(f"upstream cannot load the adapter: {error}", blames_candidate=True) from error

    def located(self, step: Step[str]) -> str:
        """Return the candidate process's answer about a place in its own code."""
        return self._other.ask(step)

    def traced_way(self, folder: str) -> tuple[Compared, Compared]:
        """Both sides' modules while they are called in one way: running freely, and the candidate's fed as upstream's.

        Raises:
            StepError: a side cannot be called so, or not while it is recorded.
        """
        way, own = self.where / "ways" / folder, self.where / CANDIDATE / "located" / folder
        theirs = self.folder(REFERENCE) / "located" / folder
        self._reference.ask(TraceScenario(way, theirs))
        self._other.ask(TraceScenario(way, own / "trace"))
        reference, candidate = Recording.load(theirs), Recording.load(own / "trace")
        pairs = [(*key, number) for key, number in pair_calls(reference, candidate).items()]
        script = own / "script"
        shutil.copytree(theirs, script, dirs_exist_ok=True)
        self._other.ask(TraceScenario(way, own / "replay", str(script), pairs))
        mask = made_batch_builder(self.candidate.batch_builder).mask(load_tensors(way / "inputs.safetensors")).bool()
        return Compared(reference, candidate, mask), Compared(reference, Recording.load(own / "replay"), mask)

    def places(self) -> list[dict[str, Any]]:
        """Return the places for faults in the candidate."""
        self.loaded()
        return self._other.ask(Places(self.inputs_file))

    def run_planted(self, number: int, out: Path) -> dict[str, bool]:
        """The candidate has run with a fault in that place, and once more fed as upstream was; says what came of it."""
        return self._other.ask(
            RunWithFault(number, self.inputs_file, self._script(CANDIDATE), out, self._pairs(CANDIDATE))
        )

    def run_noisy(self, number: int, out: Path) -> bool:
        """The candidate has run with noise in that place; returns whether the place has values that noise changes."""
        return self._other.ask(RunWithNoise(number, self.inputs_file, out))

    def completed_planted(self, number: int, out: Path) -> Recording:
        """Return the recording of `completed` with a fault in that place."""
        self._other.ask(CompleteFaults(number, self.inputs_file, self._script(CANDIDATE), out, self._pairs(CANDIDATE)))
        return Recording.load(out)

    def branches(self) -> dict[str, str]:
        """Return the assumptions of code for absent devices, each with the package that this machine lacks for it."""
        self.loaded()
        return self._other.ask(Branches(self.checkpoint))

    def outcomes_on(self, branch: str, place: str) -> list[ScenarioOutcome]:
        """Return the outcomes of `called` for another device's code; the outputs are in the folder `place`."""
        refused = [one.refused for one in self.called()]
        told = self._other.ask(RunOnDevice(branch, self.checkpoint, self.where / "ways", self.folder(place)))
        return paired(refused, told)

    def begun(self) -> tuple[Tensors, Tensors, list[str]]:
        """Return the initial tensors of upstream's model and the integration's, and the names of upstream's buffers."""
        self.loaded()
        outs = [self.folder(f"{side}/beginning") for side in (REFERENCE, CANDIDATE)]
        buffers = self._reference.ask(Initialise(self.checkpoint, outs[0]))
        self._other.ask(Initialise(self.checkpoint, outs[1]))
        reference, candidate = (load_tensors(out / "beginning.safetensors") for out in outs)
        return reference, candidate, buffers

    def dropped(self) -> tuple[dict[str, dict[str, list[float]]], dict[str, dict[str, list[float]]]]:
        """Return the dropout of both sides, by mode and module, with every dropout rate switched on."""
        self.loaded()
        config = self.where / "noise"
        if not write_with_noise(self.checkpoint, config):
            return {}, {}
        step = Drop(config, self.inputs_file)
        return self._reference.ask(step), self._other.ask(step)

    def variants(self, extent: Extent = Extent.apart) -> Iterator[tuple[str, "Pair | StepError"]]:
        """Both sides with another toy, one after the other, or why upstream has none; then they have their own again.

        Each is there only while it is looked at. Upstream loads its own toy from disk, too: some configs change each
        time that they are read.
        """
        self.loaded()
        place = self.where / "variants"
        found = self._reference.ask(Variants(place, extent))
        if extent in (Extent.apart, Extent.together):
            self.fields = [FieldVaried(**one) for one in found["fields"]]
        for name, why in found["refused"].items() if extent is Extent.apart else ():
            yield name, StepError(why)
        for number, name in enumerate(found["names"]):
            where, hidden = place / f"{number:03d}", self._hidden / "variants" / f"{number:03d}"
            yield name, self._varied(where, hidden)
            for used in (where, hidden):
                shutil.rmtree(used, ignore_errors=True)
        self._reference.ask(OpenCheckpoint(self.checkpoint, place / "again"))
        self._other.ask(Load(self.checkpoint, place / "again" / "loaded.safetensors"))

    def _varied(self, where: Path, hidden: Path) -> "Pair | StepError":
        made = where / "checkpoint"
        try:
            self._reference.ask(SaveVariant(str(where / "toy_config.json"), made, self._layout))
        except StepError as error:
            return error
        workers = (self._reference, self._other)
        return Pair(self.candidate, where, hidden, workers, checkpoint=made, device=self.device, note=self._note)

    def called_wrongly(self, fault: str, place: str) -> dict[str, str]:
        """The candidate has been called in every way while it made a mistake: why it failed, empty if it did not.

        Ways in which there was nothing to do wrong are left out.
        """
        told = self._other.ask(RunWithCallFault(self.where / "ways", self.folder(place), fault))
        return {one["name"]: one["error"] for one in told if one["changed"]}

    def answers_of(self, folder: str, way: str) -> Tensors:
        """Return the outputs of one scenario, below a folder such as "reference/ways"."""
        return load_tensors(self.folder(folder) / way / "outputs.safetensors")

    def mistakes(self) -> list[StageFault]:
        """Return the mistakes that the candidate's stages can make on purpose."""
        self.loaded()
        said = self._other.ask(Mistakes(self.inputs_file))
        return [StageFault(fault["kind"], fault["what"], tuple(fault["stages"])) for fault in said]

    def run_mistaken(self, kind: str, out: Path) -> None:
        """The candidate has run while its stages made a mistake."""
        self._other.ask(RunMistaken(kind, self.inputs_file, out))
