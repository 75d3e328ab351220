"""Steps that call the loaded model in every way that real runs call it."""

import json
import re
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omni_kit.errors import MissingRequirement
from omni_kit.isolation.failures import lacks_package, one_line, refuses_device
from omni_kit.parity.compare.files import load_tensors, save_tensors
from omni_kit.parity.faults.calling import CALL_FAULTS, mistaken
from omni_kit.parity.processes.builder import TargetFault
from omni_kit.parity.processes.chance import seeded
from omni_kit.parity.processes.side import Side, placed
from omni_kit.parity.processes.step import Step
from omni_kit.parity.processes.steps.running import nudging
from omni_kit.targets.sides import Branching, Varying
from omni_kit.toys.batches.protocol import CallScenario, HasScenarios
from omni_kit.toys.configs.variants import Extent

_OF_EVERY_BRANCH = frozenset({"is", "available", "not", "torch", "on", "has"})
_WAY, _INPUTS, _OUTPUTS = "way.json", "inputs.safetensors", "outputs.safetensors"


@dataclass(frozen=True)
class WriteScenarios(Step[list[dict[str, str]]]):
    """Writes the ways of calling the model below `place`, and what it answers to each below `out`.

    Answers, for each way, its `name`, and as `error` why upstream itself refuses it; as `wants`, where a framework may,
    because it prepares what this way leaves out, or this machine lacks something.
    """

    place: Path
    out: Path

    def take(self, side: Side) -> list[dict[str, str]]:
        """See `Step.take`."""
        if not isinstance(side.batch_builder, HasScenarios):
            raise TargetFault(f"{type(side.batch_builder).__name__} declares call scenarios, but has none")
        for number, way in enumerate(side.batch_builder.scenarios(side.model)):
            _write(way, self.place / f"{number:03d}")
        return [_told(side, way, self.out / name) for name, way in _read(self.place)]


@dataclass(frozen=True)
class Variants(Step[dict[str, Any]]):
    """Writes a toy_config.json for each variant of the model's config, below `place`.

    Answers the `names` of what is different, what upstream `refused` with its words, and the `fields` that it reads.
    """

    place: Path
    extent: Extent = Extent.apart

    def take(self, side: Side) -> dict[str, Any]:
        """See `Step.take`."""
        if not isinstance(side.builder, Varying):
            return {"names": [], "refused": {}, "fields": []}
        found = side.builder.variants(side.model, side.batch_builder, Extent(self.extent))
        for number, config in enumerate(found.configs.values()):
            folder = self.place / f"{number:03d}"
            folder.mkdir(parents=True)
            (folder / "toy_config.json").write_text(json.dumps(config), encoding="utf-8")
        return {"names": [*found.configs], "refused": found.refused, "fields": [asdict(one) for one in found.fields]}


@dataclass(frozen=True)
class RunScenarios(Step[list[dict[str, str]]]):
    """Calls the model in the ways that were written below `place`; answers as `WriteScenarios`.

    With `nudged` every weight is the next float32 number meanwhile.
    """

    place: Path
    out: Path
    nudged: bool = False

    def take(self, side: Side) -> list[dict[str, str]]:
        """See `Step.take`."""
        with nudging(side.model) if self.nudged else nullcontext():
            return [_told(side, way, self.out / name) for name, way in _read(self.place)]


@dataclass(frozen=True)
class Branches(Step[dict[str, str]]):
    """Reads the integration's code for absent devices; answers as `Branching.branches`."""

    checkpoint: Path

    def take(self, side: Side) -> dict[str, str]:
        """See `Step.take`."""
        return dict(side.builder.branches(self.checkpoint)) if isinstance(side.builder, Branching) else {}


@dataclass(frozen=True)
class RunOnDevice(Step[list[dict[str, str]]]):
    """Runs scenarios as `RunScenarios` does, on the checkpoint reloaded by another device's code."""

    branch: str
    checkpoint: Path
    place: Path
    out: Path

    def take(self, side: Side) -> list[dict[str, str]]:
        """See `Step.take`."""
        if not isinstance(side.builder, Branching):
            raise TargetFault(f"{side.builder_name} has branches, but cannot load one")
        ways = list(_read(self.place))
        try:
            here, side.model = side.model, side.builder.load_on(self.branch, self.checkpoint)
        except NotImplementedError as error:
            if not _refuses(error, self.branch):
                raise
            return [{"name": way.name, "error": "", "wants": one_line(error)} for _, way in ways]
        try:
            return [_told(side, way, self.out / name, self.branch) for name, way in ways]
        finally:
            side.model = here


@dataclass(frozen=True)
class RunWithCallFault(Step[list[dict[str, str]]]):
    """Runs scenarios as `RunScenarios` does, while the model makes a mistake named in `CALL_FAULTS`.

    Of each, it also answers what the mistake `changed`; empty if there was nothing to do wrong.
    """

    place: Path
    out: Path
    fault: str

    def take(self, side: Side) -> list[dict[str, str]]:
        """See `Step.take`."""
        found = []
        with mistaken(side.model, CALL_FAULTS[self.fault]) as changed:
            for name, way in _read(self.place):
                changed.clear()
                told = _told(side, way, self.out / name)
                found.append({**told, "changed": ", ".join(dict.fromkeys(changed))})
        return found


def _refuses(error: Exception, branch: str) -> bool:
    """Return whether an integration says that it is not written for a device, and names the device."""
    words = {*re.findall(r"[a-z]+", str(error).lower())}
    return isinstance(error, NotImplementedError) and bool(words & {*branch.lower().split("_")} - _OF_EVERY_BRANCH)


def _told(side: Side, way: CallScenario, out: Path, branch: str = "") -> dict[str, str]:
    seeded()
    silent = {"name": way.name, "error": "", "wants": "", "place": ""}
    try:
        answers = side.runner.answer(side.model, _placed(side, way))
    except MissingRequirement as error:
        return {**silent, "wants": str(error)}
    except Exception as error:  # upstream's refusal leaves the way out; the candidate's is a finding
        why = one_line(error)
        refused = _refuses(error, branch) if branch else refuses_device(why, _device(side.model))
        if lacks_package(error) or refused:
            return {**silent, "wants": why}
        if way.bare:
            return {**silent, "wants": f"it needs prepared inputs: {why}"}
        return {**silent, "error": why, "place": side.code.of_error(error) if side.code else ""}
    save_tensors(answers, out / _OUTPUTS)
    return silent


def _device(model: Any) -> str:
    return str(next(model.parameters()).device.type)


def opened_way(side: Side, folder: Path) -> CallScenario:
    """Return the way of calling that was written into a folder, its inputs on the model's device."""
    said = json.loads((folder / _WAY).read_text(encoding="utf-8"))
    return _placed(side, CallScenario(**{**said, "inputs": load_tensors(folder / _INPUTS)}))


def _placed(side: Side, way: CallScenario) -> CallScenario:
    return CallScenario(**{**vars(way), "inputs": placed(side.model, way.inputs)})


def _write(way: CallScenario, place: Path) -> None:
    save_tensors(way.inputs, place / _INPUTS)
    rest: dict[str, Any] = {**asdict(way), "inputs": {}}
    (place / _WAY).write_text(json.dumps(rest), encoding="utf-8")


def _read(place: Path) -> Iterator[tuple[str, CallScenario]]:
    for folder in sorted(path for path in place.iterdir() if path.is_dir()):
        said = json.loads((folder / _WAY).read_text(encoding="utf-8"))
        yield folder.name, CallScenario(**{**said, "inputs": load_tensors(folder / _INPUTS)})
