"""Construction of the two sides of a comparison: a target's answer, and the abilities of its builders.

A target names the builders of an integration and of its upstream as "package.module:Class", because each is made in
a process of its own; neither parity nor the command line imports them. What is compared need not be a language model:
a component is built from a directory with its config and weights, is fed named tensors, and gives named tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from omni_kit.renamed import old_names
from omni_kit.toys.batches.protocol import Batch, BatchBuilder, CallScenario
from omni_kit.toys.configs.variants import Extent, Variants
from omni_kit.toys.tensors import Tensors

if TYPE_CHECKING:
    import torch


TRANSFORMERS = "omni_kit.targets.references.transformers:TransformersBuilder"
DIFFUSERS = "omni_kit.targets.references.diffusers:DiffusersBuilder"
LANGUAGE = "omni_kit.toys.batches.language:LanguageBatchBuilder"
DENOISER = "omni_kit.toys.batches.denoiser:DenoiserBatchBuilder"
REPOSITORIES = "omni_kit.targets.references.repositories:RepositoryBuilder"
PIPELINES = "omni_kit.targets.references.pipelines:PipelineBuilder"
NOT_COMPARED = "not compared"
"""The beginning of a builder's note on calls for which upstream raises."""
PIPELINE = "omni_kit.toys.batches.pipeline:PipelineBatchBuilder"
# Library -> the builder of upstream's side and the batch builder of its models.
REFERENCES = {"transformers": (TRANSFORMERS, LANGUAGE), "diffusers": (DIFFUSERS, DENOISER)}


class Ability(StrEnum):
    """Something that both sides of a comparison can do; a level says which it needs."""

    export = "export"
    gradient = "gradient"
    trace = "trace"
    cast = "cast"
    slots = "slots"
    mesh = "mesh"
    stages = "stages"
    scenarios = "scenarios"
    hooks = "hooks"
    adapters = "adapters"
    kernels = "kernels"
    train = "train"


# What the sides of one model can do; answers that come stage by stage are those of a pipeline, many ways of being
# called those of a language model, and hooks, adapters and kernels that settings choose are some frameworks' own.
OF_MODELS = frozenset(Ability) - {
    Ability.stages, Ability.scenarios, Ability.hooks, Ability.adapters, Ability.kernels, Ability.train
}  # fmt: skip


@dataclass(frozen=True)
class Candidate:
    """An integration that can be compared with upstream.

    Attributes:
        path: its directory.
        source: what its toy is made from, as the reference's `make_toy` takes it.
        builder: "module:Class" of its side, a `Builder`.
        options: what that builder is opened with.
        reference: "module:Class" of upstream's side, an `Upstream`.
        batch_builder: "module:Class" of the `BatchBuilder` that makes the batch.
        told: what upstream's builder is opened with.
        forbidden: packages that the reference process must never import.
        independent_of: packages that the candidate's own process must never import.
        hidden: directories from which the candidate's own process can import nothing: those of the authors' code.
        offers: what both sides can do; all that models can but for what serves and never trains. `slots` needs a
            `Slotted` side, `mesh` a `Distributed` one; without `export`, `roundtrip` compares loading alone. With
            `stages`, answers are named by `stage_name`; `scenarios` needs `HasScenarios` and `ScenarioRunner`;
            `hooks` a `Hooked` candidate, `adapters` one that is `Adapted`, and `kernels` a `Choosing` one next
            to a `Scaling` upstream.
        requires: package -> the command that installs it.
        preloaded: modules that its process imports in any case, and that need nothing of the integration.
        shared: modules that both processes import in any case, next to the builder of upstream's side.
        editable: lies outside the framework, so that its files may change between two runs in one process.
    """

    path: Path
    source: str
    builder: str
    options: Mapping[str, Any]
    reference: str
    batch_builder: str
    told: Mapping[str, Any] = field(default_factory=dict)
    forbidden: Sequence[str] = ()
    independent_of: Sequence[str] = ()
    hidden: Sequence[str] = ()
    offers: frozenset[Ability] = OF_MODELS
    requires: Mapping[str, str] = field(default_factory=dict)
    preloaded: Sequence[str] = ()
    shared: Sequence[str] = ()
    editable: bool = True


def finds_installed(package: str, place: Path) -> bool:
    """Return whether a process that first searches this directory imports the installed package."""
    spec = find_spec(package)
    if spec is None or not spec.origin:
        return False
    return not (place / package).exists() or (place / package).resolve() == Path(spec.origin).resolve().parent


def stage_name(scenario: str, number: int, stage: str) -> str:
    """Return the name of an answer that comes at a stage: names in alphabetical order are in that of the stages."""
    return f"{scenario}/{number:03d} {stage}"


class Builder(Protocol):
    """One side: the reference (upstream) or the candidate (the integration). Lives in a process of its own.

    It is made without arguments. Modules are compared by the names that both sides give them.
    """

    def open(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Imports what the side needs.

        Returns:
            JSON-ready facts about it: at least `library` and `version`, which the level `import` shows.
        """

    def shapes(self, config_dir: Path) -> dict[str, list[int]]:
        """Name -> shape of every parameter and persistent buffer, without loading weights."""

    def load(self, checkpoint: Path, dtype: str = "float32") -> "torch.nn.Module":
        """Return the model with the weights of a checkpoint in the upstream's layout, in training mode."""

    def save(self, model: "torch.nn.Module", checkpoint: Path, out: Path) -> None:
        """Write the model as this side exports it after training from `checkpoint`."""

    def forward(self, model: "torch.nn.Module", inputs: Tensors, loss_only: bool = False) -> Tensors:
        """Named outputs for these inputs; where there is a gradient, `loss` among them, the scalar that it starts from.

        Args:
            loss_only: leave out what takes a pass of its own.
        """

    def notes(self) -> list[str]:
        """Return how the last forward deviated from normal use, one line each."""


# Module -> the different ways in which it calls attention, each as what decides who attends to whom.
AttentionCalls = dict[str, list[dict[str, Any]]]


@runtime_checkable
class Attending(Protocol):
    """A side whose models call attention in a way that can be watched."""

    def attention(self, model: "torch.nn.Module") -> AbstractContextManager[AttentionCalls]:
        """Notes every call of attention while it is entered."""


@runtime_checkable
class Renaming(Protocol):
    """A side whose model has other names, or other forms, than upstream's."""

    def as_upstream(self, model: "torch.nn.Module", tensors: Tensors) -> Tensors:
        """Return its model's tensors, or their gradients, in the form of upstream's model."""


@runtime_checkable
class Blank(Protocol):
    """A side that can build its model without any weights."""

    def blank(self, checkpoint: Path) -> "torch.nn.Module":
        """Return the model of a checkpoint's config, in training mode; what it holds means nothing."""


class Upstream(Builder, Protocol):
    """The reference side also decides what is compared: the toy."""

    def make_toy(self, source: str, batch_builder: "BatchBuilder") -> "torch.nn.Module":
        """Return a small model with deterministic weights, from a name or a config file.

        Args:
            batch_builder: what will be asked of it, so that the weights can be such that the batch reaches all of them.
        """

    def save_toy(self, model: "torch.nn.Module", out: Path, layout: str) -> None:
        """Write a toy's checkpoint: "hub" as upstream publishes it, "memory" with the names that the model has.

        A config.json has to be there; the form of the weights is the sides' own business.
        """


@runtime_checkable
class Tabulating(Upstream, Protocol):
    """A reference side whose results also depend on precomputed tables, not only on weights."""

    def rounded_tables(self) -> AbstractContextManager[None]:
        """Round the tables to float32 inside the context, to measure the effect of that rounding alone."""


@runtime_checkable
class Varying(Upstream, Protocol):
    """A reference side that knows other toys of what it made."""

    def variants(
        self, model: "torch.nn.Module", batch_builder: "BatchBuilder", extent: Extent = Extent.apart
    ) -> Variants:
        """Return the variants: what differs -> a toy_config.json that `make_toy` takes, and the facts about each field.

        Args:
            batch_builder: what will be asked of them.
        """


@dataclass(frozen=True)
class Named:
    """Names and shapes of a model of another size, without its values.

    Attributes:
        published: name -> shape in a checkpoint as upstream publishes it.
        held: name -> shape in upstream's model.
    """

    published: Mapping[str, Sequence[int]]
    held: Mapping[str, Sequence[int]]


@runtime_checkable
class Naming(Upstream, Protocol):
    """A reference side that knows the names of models that are too large to be made."""

    def enlarged(self, checkpoint: Path, out: Path) -> Mapping[str, Named]:
        """Return the names by enlarged size; each config.json is in the folder of `out` with its number, from 0."""


@runtime_checkable
class Converting(Builder, Protocol):
    """A side whose framework converts checkpoints, name by name, while it loads them."""

    def converted(self, config_dir: Path, published: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
        """Name -> shape of what comes of a checkpoint; no numbers are made.

        Raises:
            BadInput: it converts the names of an index differently from the tensors.
        """


@runtime_checkable
class ScenarioRunner(Builder, Protocol):
    """A side whose models can be called in many ways."""

    def answer(self, model: "torch.nn.Module", way: CallScenario) -> Tensors:
        """Return everything that the model answers when it is called so, gradients included where they are
        asked for.
        """


@runtime_checkable
class Branching(Builder, Protocol):
    """A side whose integrations have other code for devices that are not here."""

    def branches(self, checkpoint: Path) -> Mapping[str, str]:
        """Return the assumption for each branch and the package that this machine lacks for it; empty if it can run."""

    def load_on(self, branch: str, checkpoint: Path) -> "torch.nn.Module":
        """Load a checkpoint with the code that such a device would run."""


@runtime_checkable
class Hooked(Builder, Protocol):
    """A side whose framework asks more of a model than its answers."""

    def hooks(self, checkpoint: Path, inputs: Tensors) -> tuple[list[str], list[tuple[str, str]]]:
        """Return the hooks that were called; and of those that are wrong, which and why.

        Args:
            inputs: the batch of the comparison, for hooks that call the model.
        """


@runtime_checkable
class Adapted(Builder, Protocol):
    """A side whose framework trains small adapters instead of a model's weights."""

    def adapters(self, checkpoint: Path, inputs: Tensors, folder: Path) -> tuple[list[str], list[str]]:
        """Put them on, train, save below `folder` and load them: what was done, and what is wrong."""


@dataclass(frozen=True)
class Slot:
    """A place in an integration at which a kernel may take over from its plain code.

    Attributes:
        name: what the integration calls it.
        operation: what the kernel computes, with the variant.
        source: file:line of the declaration.
        kernels: what can be bound there on this machine; the first one is an independent reference that counts.
        idle: why it cannot be called in the model that was built; empty when it must be.
        missing: kernels for this machine that it cannot load, with the reason.
    """

    name: str
    operation: str
    source: str
    kernels: Sequence[str] = ()
    idle: str = ""
    missing: Sequence[str] = ()


@runtime_checkable
class Slotted(Builder, Protocol):
    """A side whose kernels can be chosen one at a time."""

    def slots(self, config_dir: Path) -> Sequence[Slot]:
        """Return every slot that the integration declares."""

    def load_with(self, checkpoint: Path, slot: str, kernel: str, dtype: str = "float32") -> "torch.nn.Module":
        """Load a checkpoint with a kernel in that slot and plain code in all others."""

    def forward_with(self, model: "torch.nn.Module", slot: str, inputs: Tensors) -> Tensors:
        """Run a model that `load_with` made."""

    def calls(self) -> dict[str, list[str]]:
        """Slot -> the arguments of each of its calls since the last question, in short."""

    def lost_arguments(self, model: "torch.nn.Module", inputs: Tensors) -> list[str]:
        """Return the training-step arguments that do not arrive where they are needed, a line each."""


@dataclass(frozen=True)
class Bindable:
    """A kernel that a framework has for a slot.

    Attributes:
        name: as the framework's settings call it.
        missing: why this machine cannot run it; empty if it can be tried.
        plain: it is upstream's own code, and needs no proof.
        along: setting -> kernel that it needs in other slots.
        training: dotted path -> value in a training file, where that is not the setting at `settings_place`.
    """

    name: str
    missing: str = ""
    plain: bool = False
    along: Mapping[str, str] = field(default_factory=dict)
    training: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelChoice:
    """Kernel setting of a framework for a model, which may serve several slots of one operation.

    Attributes:
        slot: the operation, for people.
        setting: what the framework's settings call it.
        default: the kernel that the framework takes where nothing is said.
        fallback: what runs wherever the model runs at all.
        kernels: everything that the framework has for it, in its own order.
    """

    slot: str
    setting: str
    default: str
    fallback: str
    kernels: Sequence[Bindable]


@dataclass(frozen=True)
class KernelCall:
    """A call of a kernel, caught in a model that ran.

    Attributes:
        told: what it was called with, in short.
        kernel: what was called.
        reference: the independent one; both take `args` and `kwargs`, tensors and modules among them.
        times: how often a step makes such a call.
    """

    told: str
    kernel: Callable[..., Any]
    reference: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    times: int = 1


@runtime_checkable
class Beginning(Protocol):
    """A side that can make a model without a checkpoint."""

    def sized(self, config_dir: Path, dtype: str) -> "torch.nn.Module":
        """Return the model of a config with random weights, in training mode, on the device that it was opened for."""


@runtime_checkable
class Sized(Beginning, Protocol):
    """A side that can train at a real width, where weights may be any."""

    def batch(self, model: "torch.nn.Module", inputs: Tensors) -> Mapping[str, Any]:
        """Return the arguments of the model in a training step.

        Args:
            inputs: as upstream's `Scaling.inputs` makes them, on the model's device.
        """

    def loss(self, model: "torch.nn.Module", batch: Mapping[str, Any]) -> "torch.Tensor":
        """Return the loss of a batch, a scalar."""


@runtime_checkable
class Scaling(Sized, Protocol):
    """An upstream's side that can say what its models look like at a size."""

    def scaled(self, source: str, size: int, out: Path) -> int:
        """Write the config.json of a model of about `size` parameters; how many it has.

        Args:
            source: a config.json to take as it is, where it is a file that is no toy's; else what `make_toy` takes.
            size: 0 takes the config as it is.
        """

    def inputs(self, model: "torch.nn.Module", sequences: int, length: int) -> Tensors:
        """Return inputs of a training step, the same at every call: `sequences` of about `length` tokens each."""


@runtime_checkable
class Choosing(Sized, Protocol):
    """A side whose kernels are chosen by settings."""

    def settings_place(self) -> Sequence[str]:
        """Return the keys that lead to these settings in a training file."""

    def choices(self, config_dir: Path) -> Sequence[KernelChoice]:
        """Return the kernel settings for the model of a config, and which of their kernels this machine can run."""

    def choose(self, model: "torch.nn.Module", chosen: Mapping[str, str]) -> "torch.nn.Module":
        """Return the model with these kernels, setting -> kernel: the same one, or another where it has to be built
        again.
        """

    def kernel_calls(self, model: "torch.nn.Module", setting: str, inputs: Tensors) -> Sequence[KernelCall | str]:
        """Return one call of each form that the chosen kernels of a setting get in a forward pass.

        A text says why a call cannot be judged.
        """


@dataclass(frozen=True)
class StageFault:
    """A mistake that a side can make on purpose.

    Attributes:
        kind: what it is asked for by.
        what: in words.
        stages: how the stage begins at which it can be seen first; one of several.
    """

    kind: str
    what: str
    stages: tuple[str, ...]


@runtime_checkable
class Fallible(Builder, Protocol):
    """A side with stages that can make mistakes on purpose, to see whether they would be noticed."""

    def faults(self, inputs: Tensors) -> Sequence[StageFault]:
        """Return the faults that the loaded objects support."""

    def mistaken(self, kind: str) -> AbstractContextManager[None]:
        """Make one while it is entered."""


@dataclass(frozen=True)
class Mesh:
    """Number of processes that share the work, and the axes they share it along.

    Attributes:
        name: for messages: "ulysses=2".
        processes: how many there are.
        sizes: what the target's own parallel state is made with.
        parts: how many parts of the batch there are, one a data-parallel rank; each is a micro-batch.
        dtype: of the weights. Where it is not float32, another mesh of one process has the same.
    """

    name: str
    processes: int
    sizes: Mapping[str, int]
    parts: int = 1
    dtype: str = "float32"


@runtime_checkable
class Distributed(Builder, Protocol):
    """A side that also trains in several processes."""

    def meshes(self, level: str, config_dir: Path) -> Sequence[Mesh] | str:
        """Return the meshes of the level, or why it does not apply to this model. Uses no process group."""

    def train(self, checkpoint: Path, batches: Sequence[Batch], mesh: Mesh) -> list[tuple[Tensors, Tensors]]:
        """Return a step without an optimizer for each batch, called in every process of a mesh.

        A mesh of one process takes all parts, one after the other.

        Returns:
            For each batch, `loss` [] and `gradient_norm` [] of all of it, and each parameter's whole gradient.
        """


WHOLE, RESUMED, ALONE, ADAPTED, EMBEDDED, OFFLINE = "whole", "resumed", "alone", "adapted", "embedded", "offline"
"""The runs of a framework's trainer: over all steps; resumed in the middle; in one process, over one batch that
repeats; of adapters; the one that stores conditions, and the one that trains on those.
"""


@dataclass(frozen=True)
class TrainingRun:
    """One run of a framework's own trainer, started as a person starts it.

    Attributes:
        name: one of the names above.
        module: the launcher, as `torchrun -m` takes it.
        arguments: of the launcher, the training file first.
        processes: how many there are.
        checkpoint: what it starts from, in upstream's layout.
        export: the directory that upstream must load as it is; empty if there is none.
        adapter: the directory of an adapter.
        first: the first step that it takes.
        resumes: the run that it resumes.
    """

    name: str
    module: str
    arguments: Sequence[str]
    processes: int
    checkpoint: str
    export: str = ""
    adapter: str = ""
    first: int = 1
    resumes: str = ""


@runtime_checkable
class Trains(Builder, Protocol):
    """A side whose framework's own trainer can run the integration."""

    def training_runs(self, checkpoint: Path, where: Path) -> tuple[list[TrainingRun], list[str]]:
        """Make models and data below `where`: the runs, in order; and what is wrong with the training files."""

    def run_trainer(self, run: TrainingRun, out: Path) -> None:
        """Run the trainer in this process, one of the run's; write `rankN.pt` below `out`.

        That is a dict of `steps`, each with `step`, `loss` of this process, `mean` of all, `norm`, `batches` (samples
        by micro-batch), `optimizer` (settings of AdamW) and `max_norm`; and, of process 0, `adapters` before the first
        step and `final`, every weight after the last.
        """


@runtime_checkable
class TrainsPlainly(Upstream, Protocol):
    """An upstream's side that can train on the samples of another trainer."""

    def batch_loss(
        self, model: "torch.nn.Module", samples: Sequence[Mapping[str, Any]]
    ) -> tuple["torch.Tensor", float]:
        """Return the loss of a micro-batch, and its weight in the mean over all of them."""

    def use(self, model: "torch.nn.Module", checkpoint: Path) -> str:
        """Let a loaded model do once what it is for; why it cannot, empty if it can.

        Args:
            checkpoint: what it was trained from, with what it needs around it.
        """

    def adapt_anew(self, model: "torch.nn.Module", adapter: Path, weights: "Tensors") -> bool:
        """Put trainable adapters of a saved one's config and of these weights on a model.

        Whether it could: not where upstream has other adapters than were trained, or they have a dropout.

        Raises:
            MissingRequirement: the library that does it is not installed.
        """

    def adapt(self, model: "torch.nn.Module", adapter: Path, checkpoint: Path) -> int:
        """Put a saved adapter on a loaded model by upstream's own means; how many of its tensors the model took.

        Args:
            checkpoint: what it was trained from, with what it needs around it.

        Raises:
            MissingRequirement: the library that does it is not installed.
            BadInput: it does not fit.
        """


__getattr__ = old_names(__name__, {"Asked": "ScenarioRunner"})
