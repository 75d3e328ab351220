"""Everything that a process of a comparison can be asked."""

from omni_kit.parity.processes.step import Step, known_steps, step_of
from omni_kit.parity.processes.steps.beginning import Drop, Initialise
from omni_kit.parity.processes.steps.calling import (
    Branches,
    RunOnDevice,
    RunScenarios,
    RunWithCallFault,
    Variants,
    WriteScenarios,
)
from omni_kit.parity.processes.steps.deriving import Derive
from omni_kit.parity.processes.steps.fault_injection import CompleteFaults, Mistakes, Places, RunMistaken, RunWithFault
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
from omni_kit.parity.processes.steps.locating import (
    PlaceOfHook,
    PlaceOfLoading,
    PlaceOfSaving,
    PlaceOfTensor,
    TraceScenario,
)
from omni_kit.parity.processes.steps.running import Replay, Run, RunAs, RunNudged, Trace
from omni_kit.parity.processes.steps.sharing import Launch, LostArguments, MakeBatches, Meshes, RunWith, Slots
from omni_kit.parity.processes.steps.stepping import TakeSteps
from omni_kit.parity.processes.steps.training import LoadAdapter, LoadExport, PlanTraining, RunTrainer, TrainPlainly

__all__ = [
    "Adapt",
    "Branches",
    "CallHooks",
    "CompleteFaults",
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
    "PlaceOfHook",
    "PlaceOfLoading",
    "PlaceOfSaving",
    "PlaceOfTensor",
    "Places",
    "PlanTraining",
    "Reload",
    "Replay",
    "Run",
    "RunAs",
    "RunMistaken",
    "RunNudged",
    "RunOnDevice",
    "RunScenarios",
    "RunTrainer",
    "RunWith",
    "RunWithCallFault",
    "RunWithFault",
    "Save",
    "SaveToy",
    "SaveVariant",
    "Shapes",
    "Slots",
    "Step",
    "TakeSteps",
    "Trace",
    "TraceScenario",
    "TrainPlainly",
    "Variants",
    "WriteScenarios",
    "known_steps",
    "step_of",
]
