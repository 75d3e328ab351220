"""Steps that find the line of an integration that a failure comes from. They are slow: only failures ask."""

from dataclasses import dataclass, field
from pathlib import Path

from omni_kit.parity.compare.files import load_tensors
from omni_kit.parity.compare.trace import Recording, Script, recorded
from omni_kit.parity.processes.chance import seeded
from omni_kit.parity.processes.code_places import OwnCode, making, returns_of
from omni_kit.parity.processes.side import Pairs, Side
from omni_kit.parity.processes.step import Step
from omni_kit.parity.processes.steps.calling import opened_way


def _code(side: Side) -> OwnCode:
    if side.code is None:
        raise RuntimeError("upstream has no code of an integration")
    return side.code


@dataclass(frozen=True)
class PlaceOfHook(Step[str]):
    """Calls the hooks again; answers where the wrong one raised, made what is wrong, or is defined."""

    checkpoint: Path
    inputs: Path
    hook: str
    said: str

    def take(self, side: Side) -> str:
        """See `Step.take`."""
        with returns_of(_code(side)) as returns:
            side.hooked.hooks(self.checkpoint, load_tensors(self.inputs))
        return returns.raising(self.said) or returns.mentioned(self.said) or _code(side).of_definition(self.hook)


@dataclass(frozen=True)
class PlaceOfTensor(Step[str]):
    """Builds the model again without storage; answers which line made a tensor or module, or should have made it."""

    config_dir: Path
    name: str

    def take(self, side: Side) -> str:
        """See `Step.take`."""
        with making(_code(side)) as made:
            side.builder.shapes(self.config_dir)
        return made.of(self.name)


@dataclass(frozen=True)
class PlaceOfLoading(Step[str]):
    """Loads the checkpoint again; answers which line made a tensor of this name, or did not.

    Without a name, for a load that raises in code of others: the last line that made a tensor of any name.
    """

    checkpoint: Path
    name: str = ""

    def take(self, side: Side) -> str:
        """See `Step.take`."""
        with returns_of(_code(side)) as returns:
            try:
                side.builder.load(self.checkpoint)
            except Exception:
                if self.name:
                    raise
        return returns.naming(self.name) if self.name else returns.last_named()


@dataclass(frozen=True)
class PlaceOfSaving(Step[str]):
    """Exports the loaded model again; answers as `PlaceOfLoading`."""

    checkpoint: Path
    out: Path
    name: str

    def take(self, side: Side) -> str:
        """See `Step.take`."""
        with returns_of(_code(side)) as returns:
            side.builder.save(side.model, self.checkpoint, self.out)
        return returns.naming(self.name)


@dataclass(frozen=True)
class TraceScenario(Step[None]):
    """Records everything that goes in and out of every module while the model is called in one way.

    With `script`, every paired module is fed, and its answer replaced, as in `Replay`.
    """

    way: Path
    out: Path
    script: str = ""
    pairs: Pairs = field(default_factory=list)

    def take(self, side: Side) -> None:
        """See `Step.take`."""
        known = {(module, occurrence): number for module, occurrence, number in self.pairs}
        script = Script(Recording.load(Path(self.script)), known) if self.script else None
        seeded()
        way = opened_way(side, self.way)
        with recorded(side.model, script, always=not way.backward) as recording:
            side.runner.answer(side.model, way)
        recording.save(self.out)
