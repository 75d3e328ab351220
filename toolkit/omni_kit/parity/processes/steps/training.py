"""Steps about a framework's own trainer, and upstream's plain loop over the samples that it took."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from omni_kit.errors import MissingRequirement
from omni_kit.parity.compare.files import reading_results, save_tensors, state_of
from omni_kit.parity.processes.chance import seeded
from omni_kit.parity.processes.side import Side
from omni_kit.parity.processes.step import Step
from omni_kit.targets.sides import Mesh, TrainingRun

_OF_OPTIMIZER = frozenset({"lr", "betas", "eps", "weight_decay"})


@dataclass(frozen=True)
class PlanTraining(Step[dict[str, Any]]):
    """Makes models and data for the runs of a trainer; `runs` as the fields of `TrainingRun`, and what is `wrong`."""

    checkpoint: Path
    where: Path

    def take(self, side: Side) -> dict[str, Any]:
        """See `Step.take`."""
        runs, wrong = side.trains.training_runs(self.checkpoint, self.where)
        return {"runs": [asdict(run) for run in runs], "wrong": wrong}


@dataclass(frozen=True)
class RunTrainer(Step[list[str]]):
    """Runs a trainer in as many processes as it requires, which write their records below `out`; what is to be said.

    Attributes:
        timeout: seconds after which every process writes its stack and ends.
    """

    run: Mapping[str, Any]
    device: str
    checkpoint: Path
    out: Path
    timeout: float

    def take(self, side: Side) -> list[str]:
        """See `Step.take`."""
        from omni_kit.parity.processes.ranks import Job, launch

        run = TrainingRun(**self.run)
        mesh = Mesh(f"the trainer's run '{run.name}'", run.processes, {})
        job = Job(
            side.builder_name, side.options, self.device, self.checkpoint, self.out, mesh, self.out, self.timeout,
            run=run,
        )  # fmt: skip
        launch(job, side.trains)
        return list(side.trains.notes())


@dataclass(frozen=True)
class TrainPlainly(Step[list[dict[str, float]]]):
    """Trains upstream's model on the samples of records, by their optimizer: `loss` and `norm` of each step.

    Attributes:
        records: of all processes of a run.
        steps: how many steps are taken.
        adapter: a saved adapter, of which the config is taken where adapters are trained; empty if all weights are.
    """

    checkpoint: Path
    records: Sequence[str]
    steps: int
    adapter: str = ""

    def take(self, side: Side) -> list[dict[str, float]]:
        """See `Step.take`; of adapters that upstream cannot have, the first step alone, in which they add nothing."""
        seeded()
        model, steps = side.trains_plainly.load(self.checkpoint), self.steps
        records = [read_record(Path(record)) for record in self.records]
        if self.adapter and not side.trains_plainly.adapt_anew(model, Path(self.adapter), records[0]["adapters"]):
            model, steps = side.trains_plainly.load(self.checkpoint), 1
        taken = [record["steps"] for record in records]
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        optimizer = torch.optim.AdamW(trained, **taken[0][0]["optimizer"])
        return [_step(side, model, optimizer, [record[number] for record in taken]) for number in range(steps)]


def _step(
    side: Side, model: Any, optimizer: torch.optim.Optimizer, told: Sequence[Mapping[str, Any]]
) -> dict[str, float]:
    """Return one step over the micro-batches of all processes."""
    for group in optimizer.param_groups:
        group |= told[0]["optimizer"]
    optimizer.zero_grad(set_to_none=True)
    losses = [side.trains_plainly.batch_loss(model, samples) for one in told for samples in one["batches"] if samples]
    whole = sum(weight for _, weight in losses)
    loss = torch.stack([value * weight / whole for value, weight in losses]).sum()
    torch.autograd.backward(loss)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), told[0]["max_norm"])
    optimizer.step()
    return {"loss": float(loss.detach()), "norm": float(norm)}


@dataclass(frozen=True)
class LoadExport(Step[dict[str, Any]]):
    """Loads an exported directory as it is, and lets the model do what it is for; writes what it holds to `out`.

    Answers as `said` why it cannot do that, empty if it can, and as `own` why the model that training began with
    cannot, either; and as `kept` what upstream keeps in float32.
    """

    export: Path
    checkpoint: Path
    out: Path

    def take(self, side: Side) -> dict[str, Any]:
        """See `Step.take`."""
        model = side.trains_plainly.load(self.export)
        save_tensors(state_of(model), self.out)
        said = side.trains_plainly.use(model, self.checkpoint)
        own = side.trains_plainly.use(side.trains_plainly.load(self.checkpoint), self.checkpoint) if said else ""
        return {"said": said, "own": own, "kept": _kept(model)}


def _kept(model: torch.nn.Module) -> list[str]:
    """Return the tensors that upstream keeps in float32 in every dtype: those of modules, or with parts of names, it
    lists.
    """
    listed: list[str] = []
    for part in model.modules():
        for name in ("_keep_in_fp32_modules", "_keep_in_fp32_modules_strict"):
            listed += getattr(part, name, None) or ()
    return [name for name in state_of(model) if any(f".{one}." in f".{name}." for one in listed)]


@dataclass(frozen=True)
class LoadAdapter(Step[int | str]):
    """Puts a saved adapter on upstream's model; answers how many of its tensors the model took, or what it lacks."""

    checkpoint: Path
    adapter: Path

    def take(self, side: Side) -> int | str:
        """See `Step.take`."""
        try:
            return side.trains_plainly.adapt(side.trains_plainly.load(self.checkpoint), self.adapter, self.checkpoint)
        except MissingRequirement as error:
            return error.message


def read_record(file: Path) -> dict[str, Any]:
    """Return what a process of a trainer recorded; see `Trains.run_trainer`.

    Raises:
        StepError: it is missing, damaged, not a file or reached by a link.
    """
    with reading_results(file) as opened:
        record = dict(torch.load(opened, weights_only=True))
        _check(record)
        return record


def _check(record: Mapping[str, Any]) -> None:
    """Raise TypeError or KeyError for what no trainer records: the integration's process wrote it."""
    for name, tensor in (*record["adapters"].items(), *record["final"].items()):
        _are((str,), name)
        _are((torch.Tensor,), tensor)
    for step in record["steps"]:
        _are((int,), step["step"])
        _are((int, float), *(step[name] for name in ("loss", "mean", "norm", "max_norm")))
        if unknown := step["optimizer"].keys() - _OF_OPTIMIZER:
            raise KeyError(f"the optimizer has {min(map(str, unknown))}")
        _are((int, float, tuple, list), *step["optimizer"].values())
        _are((list,), step["batches"], *step["batches"])
        _are((dict,), *(sample for batch in step["batches"] for sample in batch))


def _are(kinds: tuple[type, ...], *values: object) -> None:
    """Raise TypeError for a value of another type."""
    if strange := [value for value in values if not isinstance(value, kinds) or isinstance(value, bool)]:
        raise TypeError(f"a {type(strange[0]).__name__} instead of a {kinds[0].__name__}")
