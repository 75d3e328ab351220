"""Everything that a process of a comparison can be asked."""

from omni_kit.parity.processes.step import Step, known_steps, step_of
from omni_kit.parity.processes.steps.beginning import Drop, Initialise
from omni_kit.parity.processes.steps.calling import Answer, AnswerOn, AnswerWrongly, Branches, Variants, Ways
from omni_kit.parity.processes.steps.deriving import Derive
from omni_kit.parity.processes.steps.fault_injection import CompletePlanted, Mistakes, Places, RunMistaken, RunPlanted
from omni_kit.parity.processes.steps.loading import (
    Adapt,
    CallHooks,
    Convert,
    Enlarge,
    Executed,
    Load,
    Loaded,
    MakeToy,
    Open,
    OpenCheckpoint,
    Reload,
    Save,
    SaveToy,
    SaveVariant,
    Shapes,
)
from omni_kit.parity.processes.steps.running import Replay, Run, RunAs, RunNudged, Trace
from omni_kit.parity.processes.steps.sharing import Launch, LostArguments, MakeBatches, Meshes, RunWith, Slots
from omni_kit.parity.processes.steps.stepping import TakeSteps
from omni_kit.parity.processes.steps.training import LoadAdapter, LoadExport, PlanTraining, RunTrainer, TrainPlainly

__all__ = [
    "Adapt",
    "Answer",
    "AnswerOn",
    "AnswerWrongly",
    "Branches",
    "CallHooks",
    "CompletePlanted",
    "Convert",
    "Derive",
    "Drop",
    "Enlarge",
    "Executed",
    "Initialise",
    "Launch",
    "Load",
    "LoadAdapter",
    "LoadExport",
    "Loaded",
    "LostArguments",
    "MakeBatches",
    "MakeToy",
    "Meshes",
    "Mistakes",
    "Open",
    "OpenCheckpoint",
    "Places",
    "PlanTraining",
    "Reload",
    "Replay",
    "Run",
    "RunAs",
    "RunMistaken",
    "RunNudged",
    "RunPlanted",
    "RunTrainer",
    "RunWith",
    "Save",
    "SaveToy",
    "SaveVariant",
    "Shapes",
    "Slots",
    "Step",
    "TakeSteps",
    "Trace",
    "TrainPlainly",
    "Variants",
    "Ways",
    "known_steps",
    "step_of",
]
