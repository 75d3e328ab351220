"""The level `train`: the framework's own trainer runs the integration, saves, resumes and exports."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omni_kit.isolation.worker import StepError
from omni_kit.parity.compare.comparison import Comparison
from omni_kit.parity.levels.level import Level, LevelVerdict
from omni_kit.parity.report.report import Worst
from omni_kit.plurals import counted
from omni_kit.targets.sides import ALONE, EMBEDDED, OFFLINE, WHOLE, Ability, TrainingRun

if TYPE_CHECKING:
    from omni_kit.parity.case import Case
    from omni_kit.toys.tensors import Tensors

_STEPS = 4
# Of the loss, and of the gradients' norm: Adam divides by the size of gradients, and rounding grows with each step.
_LOSS, _NORM = 1e-4, 1e-3

_DRAWN = 3  # of what a denoiser is fed: noisy latents, their time, and the target

Steps = Sequence[Mapping[str, Any]]


class Train(Level):
    """Losses next to upstream's plain loop, resuming bit for bit, and exports that upstream loads as they are."""

    name = "train"
    says = "the framework's trainer runs its training files: upstream's losses, exact resume, loadable export"
    needs = frozenset({Ability.train})

    def judge(self, case: "Case") -> LevelVerdict:
        """See `Level.judge`."""
        return _Training(case).verdict()


class _Training:
    """Results of the trainer's runs so far."""

    def __init__(self, case: "Case") -> None:
        self._case = case
        self._found = Comparison(tolerance=_LOSS)
        self._wrong: list[str] = []
        self._tried: list[str] = []
        self._untested: list[str] = []
        self._steps: dict[str, Steps] = {}
        self._plain: dict[str, Sequence[Mapping[str, float]]] = {}
        self._told: dict[str, list[dict[str, Any]]] = {}

    def verdict(self) -> LevelVerdict:
        runs, wrong = self._case.pair.training_runs()
        self._wrong += wrong
        for run in runs if not wrong else ():
            before = run.resumes or (WHOLE if run.name in (ALONE, OFFLINE) else "")
            if before and before not in self._told:
                self._untested.append(f"{run.name}: it follows the run '{before}', which did not end")
                continue
            try:
                self._wrong += self._judged(run)
            except StepError as error:
                if error.blames_candidate or error.blames_reference or not self._tried:
                    raise
                self._untested.append(f"{run.name}: {error}")
        return LevelVerdict(
            self._found,
            "; ".join(self._wrong),
            _LOSS,
            ", ".join(self._tried),
            untested="; ".join(dict.fromkeys(self._untested)),
        )

    def _judged(self, run: TrainingRun) -> Iterator[str]:
        from omni_kit.parity.processes.steps.training import read_record

        records = self._case.pair.run_trainer(run)
        told = [read_record(record) for record in records]
        if run.name == EMBEDDED:
            self._tried.append("conditions stored")
            return
        steps = self._steps[run.name] = told[0]["steps"]
        self._tried.append(f"{run.name}: {counted(steps, 'step')} in {counted(run.processes, 'process')}")
        expected = list(range(run.first, _STEPS + 1))
        if [step.get("step") for step in steps] != expected:
            yield f"{run.name}: the trainer ran steps {[step.get('step') for step in steps]}, not {expected}"
            return
        self._told[run.name] = told
        if run.resumes:
            yield from self._resumed(run, told)
        else:
            yield from self._beside_upstream(run, records)
        if run.name == ALONE:
            yield from self._alone(run, steps)
        if run.name == OFFLINE:
            yield from self._stored(told)
        if run.export:
            yield from self._exported(run, told[0]["final"])
        if run.adapter:
            yield from self._adapter(run, told[0]["final"])

    def _beside_upstream(self, run: TrainingRun, records: Sequence[Path]) -> Iterator[str]:
        """Yield every loss and norm of a training; of adapters that upstream cannot have, the first loss alone."""
        steps = self._steps[run.name]
        plain = self._plain[run.name] = self._case.pair.trained_plainly(run, records, _STEPS)
        alone = len(plain) < _STEPS
        if alone:
            self._case.note(f"train: of the run '{run.name}' upstream's loop gives the first loss alone")
        for number, (mine, theirs) in enumerate(zip(steps, plain, strict=False), 1):
            asked = [("loss", mine["mean"], theirs["loss"], _LOSS)]
            asked += [] if alone else [("norm of the gradients", mine["norm"], theirs["norm"], _NORM)]
            for what, one, other, allowed in asked:
                off = abs(one - other) / max(abs(other), 1e-12)
                self._note(f"{run.name}, step {number}: {what}", abs(one - other), off * _LOSS / allowed)
                if not off <= allowed:
                    yield f"{run.name}, step {number}: the {what} is {one:.7g}, upstream's {other:.7g}"
                    return

    def _alone(self, run: TrainingRun, steps: Steps) -> Iterator[str]:
        """Yield a batch that repeats is learned; others are those of several processes, and so are their losses."""
        first, last = steps[0]["mean"], steps[-1]["mean"]
        if not _other_batch(steps[0], steps[-1]):
            plain = [step["loss"] for step in self._plain[run.name]]
            if not last < first and plain[-1] < plain[0]:
                yield f"{run.name}: the loss of one repeated batch does not fall ({first} to {last})"
            elif not last < first:
                self._case.note(f"the loss of one repeated batch rises in upstream's own loop, too ({first} to {last})")
            return
        for mine, several in zip(steps, self._told[WHOLE][0]["steps"], strict=True):
            if not abs(mine["mean"] - several["mean"]) <= _LOSS * abs(several["mean"]):  # also where one is no number
                yield (
                    f"{run.name}, step {mine['step']}: the loss is {mine['mean']:.7g} in one process, and "
                    f"{several['mean']:.7g} in several"
                )
                return

    def _stored(self, told: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Stored conditions are those that are computed while training."""
        online, offline = (
            [sample for record in records for step in record["steps"] for batch in step["batches"] for sample in batch]
            for records in (self._told[WHOLE], told)
        )
        for sample in offline:
            same = [other for other in online if _equal(sample["latents"], other["latents"])]
            if not same:
                yield f"{OFFLINE}: stored latents differ from all latents computed while training"
                return
            drawn = min(
                ([name for name in sample if not _equal(sample[name], other.get(name))] for other in same), key=len
            )
            if len(drawn) > _DRAWN:
                yield f"{OFFLINE}: stored conditions differ from those computed while training: {', '.join(drawn)}"
                return
        self._tried.append(f"{len(offline)} stored samples as computed while training")

    def _note(self, name: str, absolute: float, relative: float) -> None:
        wrong = relative > _LOSS
        self._found.absorb(
            Comparison(
                compared=1,
                max_abs=absolute,
                max_rel=relative,
                worst=[Worst(name, absolute, relative)] if wrong else [],
                tolerance=_LOSS,
            )
        )

    def _resumed(self, run: TrainingRun, told: Sequence[Mapping[str, Any]]) -> Iterator[str]:
        """Bit for bit what the run did that it resumes."""
        for rank, (mine, whole) in enumerate(zip(told, self._told[run.resumes], strict=True)):
            known = {step["step"]: step for step in whole["steps"]}
            for step in mine["steps"]:
                before = known[step["step"]]
                if differs := [what for what in ("loss", "norm") if step[what] != before[what]]:
                    what, number = differs[0], step["step"]
                    yield (
                        f"{run.name}, step {number}, rank {rank}: {what} {step[what]!r}, and {before[what]!r} without "
                        f"a stop{_other_batch(step, before)}"
                    )
                    return

    def _exported(self, run: TrainingRun, final: "Tensors") -> Iterator[str]:
        """Upstream loads it as it is, holds what was trained, and can use it."""
        from omni_kit.parity.compare.files import NAMING, config_difference, stored_dtypes

        if not Path(run.export).is_dir():
            yield f"{run.name}: no export at {Path(run.export).name}"
            return
        if named := config_difference(Path(run.checkpoint), Path(run.export), NAMING):
            yield f"{run.name}: the export names another class: {named}"
        try:
            loaded, said, own, kept = self._case.pair.opened_export(run)
        except StepError as error:
            yield f"{run.name}: {error}"
            return
        self._tried.append("export loaded" + ("" if said else " and used"))
        if own:
            self._case.note(f"upstream cannot run the model before it is trained, either: {own}")
        elif said:
            yield f"{run.name}: upstream loads the export but cannot run it: {said}"
        dtypes = stored_dtypes(Path(run.export))
        rounded = sorted({str(dtype).removeprefix("torch.") for dtype in dtypes.values()} - {"float32"})
        usual = next(iter(set(dtypes.values()))) if len(set(dtypes.values())) == 1 else None  # of what is tied
        for name, trained in final.items():
            if name not in loaded:
                continue
            expected = trained.to(dtypes.get(name, usual or trained.dtype)).to(loaded[name].dtype)
            if not expected.equal(loaded[name]):
                yield f"{run.name}: the export has another {name} than was trained"
                return
        if lost := [name for name in final if name not in loaded and name in dtypes]:
            yield f"{run.name}: upstream does not load {lost[0]} of the export"
        if rounded:
            self._case.note(f"the trainer exports weights in {', '.join(rounded)}")
        if cast := [name for name in kept if str(dtypes.get(name, "float32")).removeprefix("torch.") != "float32"]:
            self._case.note(f"upstream keeps in float32 what the trainer exports in {rounded[0]}: {', '.join(cast)}")

    def _adapter(self, run: TrainingRun, final: "Tensors") -> Iterator[str]:
        """Every adapter that was trained is among what was saved."""
        from omni_kit.parity.compare.files import stored_dtypes

        place = Path(run.adapter)
        if not (place / "adapter_config.json").is_file():
            yield f"{run.name}: no adapter_config.json was saved"
            return
        trained = [name for name in final if "lora_" in name]
        saved = stored_dtypes(place)
        if len(saved) != len(trained) or not trained:
            yield f"{run.name}: trained {counted(trained, 'adapter')} and saved {len(saved)}"
            return
        try:
            taken = self._case.pair.opened_adapter(Path(run.checkpoint), place)
        except StepError as error:
            yield f"{run.name}: {error}"
            return
        if isinstance(taken, str):
            self._untested.append(f"loading the adapter: {taken}")
        elif taken != len(trained):
            yield f"{run.name}: trained {counted(trained, 'adapter')}, and upstream loads {taken} of those saved"
        else:
            self._tried.append("adapter loaded")


def _other_batch(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return whether the difference is in what the model was fed."""
    same = _equal(one["batches"], other["batches"])
    return "" if same else ": the batch differs, so the state of the data or the noise is lost"


def _equal(one: Any, other: Any) -> bool:
    """Return whether two values are the same bit for bit, tensors within lists and dicts included."""
    import torch

    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.shape == other.shape and bool(one.equal(other))
    if isinstance(one, Mapping):
        return (
            isinstance(other, Mapping) and one.keys() == other.keys() and all(map(_equal, one.values(), other.values()))
        )
    if isinstance(one, list | tuple):
        return isinstance(other, list | tuple) and len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)
