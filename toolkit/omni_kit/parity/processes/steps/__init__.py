"""Everything that a process of a comparison can be asked."""

from omni_kit.parity.processes.step import Step, known_steps, step_of
from omni_kit.parity.processes.steps.deriving import Derive
from omni_kit.parity.processes.steps.loading import Load, MakeToy, Open, OpenCheckpoint, Reload, Save, SaveToy, Shapes
from omni_kit.parity.processes.steps.planting import CompletePlanted, Places, RunPlanted
from omni_kit.parity.processes.steps.running import Replay, Run, RunAs, RunNudged, Trace
from omni_kit.parity.processes.steps.sharing import Launch, Meshes, RunWith, Slots

__all__ = [
    "CompletePlanted",
    "Derive",
    "Launch",
    "Load",
    "MakeToy",
    "Meshes",
    "Open",
    "OpenCheckpoint",
    "Places",
    "Reload",
    "Replay",
    "Run",
    "RunAs",
    "RunNudged",
    "RunPlanted",
    "RunWith",
    "Save",
    "SaveToy",
    "Shapes",
    "Slots",
    "Step",
    "Trace",
    "known_steps",
    "step_of",
]
