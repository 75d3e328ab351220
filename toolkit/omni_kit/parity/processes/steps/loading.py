"""Steps that make, load and save models."""

import gc
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from omni_kit.parity.compare.files import load_tensors, save_tensors
from omni_kit.parity.processes.code_places import OwnCode
from omni_kit.parity.processes.executed import Arcs, execution
from omni_kit.parity.processes.loaded import loaded_files
from omni_kit.parity.processes.own_imports import hide
from omni_kit.parity.processes.side import Side
from omni_kit.parity.processes.step import Step
from omni_kit.plurals import counted
from omni_kit.targets.sides import Converting, Naming


@dataclass(frozen=True)
class Open(Step[dict[str, Any]]):
    """Makes the side's builder, and its batch builder where it has to make a batch; answers facts about its library.

    Attributes:
        measured: directories of which it is measured what they execute; without any, the files of models; None leaves
            things as they are.
        own: the directory or file of an integration; empty on upstream's side.
        hidden: directories from which nothing can be imported.
    """

    builder: str
    options: Mapping[str, Any] = field(default_factory=dict)
    batch_builder: str = ""
    forbidden: Sequence[str] = ()
    gradient: bool = True
    measured: Sequence[str] | None = None
    own: str = ""
    hidden: Sequence[str] = ()

    def take(self, side: Side) -> dict[str, Any]:
        """See `Step.take`."""
        side.code = OwnCode(Path(self.own)) if self.own else None
        if self.measured is not None:
            side.measures_models = not self.measured
            execution.begin(self.measured)
        hide([Path(one) for one in self.hidden], Path(self.own))
        facts = side.open(self.builder, self.options, self.batch_builder, self.forbidden, gradient=self.gradient)
        gc.freeze()  # what was imported stays: a collection, and loaders ask for many, need not walk it
        return facts


@dataclass(frozen=True)
class Loaded(Step[list[str]]):
    """Answers which files the process has loaded; see `loaded_files`."""

    def take(self, side: Side) -> list[str]:
        """See `Step.take`."""
        return loaded_files()


@dataclass(frozen=True)
class Executed(Step[Arcs]):
    """Ends the measurement that `Open` began, and answers what was executed; see `Execution`."""

    def take(self, side: Side) -> Arcs:
        """See `Step.take`."""
        side.measures_models = False
        return execution.end()


@dataclass(frozen=True)
class MakeToy(Step[dict[str, str]]):
    """Makes a toy of upstream's own class; writes its checkpoint, its state and its batch below `out`."""

    source: str
    out: Path
    layout: str

    def take(self, side: Side) -> dict[str, str]:
        """See `Step.take`."""
        side.model = side.toy(self.source)
        side.upstream.save_toy(side.model, self.out / "checkpoint", self.layout)
        return side.describe(self.out)


@dataclass(frozen=True)
class SaveToy(Step[None]):
    """Makes a toy of upstream's own class and writes nothing but its checkpoint."""

    source: str
    out: Path
    layout: str

    def take(self, side: Side) -> None:
        """See `Step.take`."""
        side.upstream.save_toy(side.toy(self.source), self.out, self.layout)


@dataclass(frozen=True)
class SaveVariant(Step[None]):
    """Saves a toy's variant as `SaveToy` does; refuses one that upstream itself loads differently."""

    source: str
    out: Path
    layout: str

    def take(self, side: Side) -> None:
        """See `Step.take`.

        Raises:
            ValueError: upstream's loader changes tensors that upstream has saved.
        """
        made = side.toy(self.source)
        side.upstream.save_toy(made, self.out, self.layout)
        held, loaded = made.state_dict(), side.builder.load(self.out).state_dict()
        changed = [name for name in held.keys() & loaded.keys() if not torch.equal(held[name], loaded[name])]
        if changed:
            raise ValueError(
                f"it does not load what it saved: {counted(changed, 'tensor')} not equal, {min(changed)} first"
            )


@dataclass(frozen=True)
class OpenCheckpoint(Step[dict[str, str]]):
    """Loads a checkpoint and writes its state and the batch for it below `out`."""

    checkpoint: Path
    out: Path

    def take(self, side: Side) -> dict[str, str]:
        """See `Step.take`."""
        side.model = side.builder.load(self.checkpoint)
        return side.describe(self.out)


@dataclass(frozen=True)
class Shapes(Step[dict[str, list[int]]]):
    """Name -> shape of the state that the side would load."""

    config_dir: Path

    def take(self, side: Side) -> dict[str, list[int]]:
        """See `Step.take`."""
        return side.builder.shapes(self.config_dir)


@dataclass(frozen=True)
class Enlarge(Step[dict[str, Any]]):
    """Writes configs of larger models below `out`; answers, for each, the names as the fields of a `Named`."""

    checkpoint: Path
    out: Path

    def take(self, side: Side) -> dict[str, Any]:
        """See `Step.take`."""
        found = side.builder.enlarged(self.checkpoint, self.out) if isinstance(side.builder, Naming) else {}
        return {what: asdict(one) for what, one in found.items()}


@dataclass(frozen=True)
class Convert(Step[dict[str, list[int]]]):
    """Name -> shape of what the side's framework makes of a checkpoint of a config; see `Converting.converted`."""

    config_dir: Path
    published: Mapping[str, Sequence[int]]

    def take(self, side: Side) -> dict[str, list[int]]:
        """See `Step.take`."""
        if isinstance(side.builder, Converting):
            return side.builder.converted(self.config_dir, self.published)
        return {name: list(shape) for name, shape in self.published.items()}


@dataclass(frozen=True)
class CallHooks(Step[tuple[list[str], list[tuple[str, str]]]]):
    """Calls the hooks of the side's framework; answers as `Hooked.hooks`."""

    checkpoint: Path
    inputs: Path

    def take(self, side: Side) -> tuple[list[str], list[tuple[str, str]]]:
        """See `Step.take`."""
        return side.hooked.hooks(self.checkpoint, load_tensors(self.inputs))


@dataclass(frozen=True)
class Adapt(Step[tuple[list[str], list[str]]]):
    """Trains adapters on the model; answers as `Adapted.adapters`."""

    checkpoint: Path
    inputs: Path
    folder: Path

    def take(self, side: Side) -> tuple[list[str], list[str]]:
        """See `Step.take`."""
        return side.adapted.adapters(self.checkpoint, load_tensors(self.inputs), self.folder)


@dataclass(frozen=True)
class Load(Step[None]):
    """Loads the checkpoint and writes what the model then holds."""

    checkpoint: Path
    state: Path

    def take(self, side: Side) -> None:
        """See `Step.take`."""
        side.model = side.builder.load(self.checkpoint)
        save_tensors(side.state(side.model), self.state)


@dataclass(frozen=True)
class Save(Step[None]):
    """Exports the loaded model."""

    checkpoint: Path
    out: Path

    def take(self, side: Side) -> None:
        """See `Step.take`."""
        side.builder.save(side.model, self.checkpoint, self.out)


@dataclass(frozen=True)
class Reload(Step[None]):
    """Loads another checkpoint next to the model of this side and writes what it then holds."""

    checkpoint: Path
    state: Path

    def take(self, side: Side) -> None:
        """See `Step.take`."""
        save_tensors(side.state(side.builder.load(self.checkpoint)), self.state)
