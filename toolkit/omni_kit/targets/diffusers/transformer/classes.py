"""The pipeline of a model that is told class labels."""

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from omni_kit.targets.diffusers.porting.forward import LATENTS
from omni_kit.targets.diffusers.porting.labels import Guided, Labels
from omni_kit.targets.diffusers.porting.model_name import axes_of
from omni_kit.targets.diffusers.scheduling.choice import Stepping
from omni_kit.targets.diffusers.scheduling.library_scheduler import FIRST, Installed
from omni_kit.targets.diffusers.scheduling.own_schedulers import OWN, written
from omni_kit.upstream.repositories.processes.process import Process
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_step.members import of_self

SIZE = re.compile(r"^(input|sample|img|image|latent|resolution)_?(size|resolution)?$")
_FRAMES = re.compile(r"^(num_?frames|frames|video_length|temporal_size)$")
_LINEAR = ("nn.Linear(", "torch.nn.Linear(", "Linear(")
_VARIANCE = re.compile(r"learn(ed)?_(sigma|variance)|pred_sigma")


@dataclass(frozen=True)
class ClassFacts:
    """Facts about a pipeline with class labels.

    Attributes:
        size, frames: the arguments of the transformer for the size of latents and the number of frames; else empty.
        video: latents have frames.
        axis: of channels in latents.
        learned: the argument that says whether a variance is learned; empty without one, and where forward drops it.
    """

    labels: Labels
    guided: Guided | None
    size: str
    frames: str
    video: bool
    axis: int
    learned: str

    def context(self, values: Mapping[str, object], draws: bool, keeps_variance: bool) -> dict[str, object]:
        """Return the variables of the templates.

        Args:
            values: of a small model.
            draws: the scheduler draws noise.
            keeps_variance: it reads a variance in the second half of the channels.
        """
        guided = self.guided
        return {
            "labels": self.labels, "guided": guided, "size": self.size, "video": self.video, "axis": self.axis,
            "guided_imports": [one for one in guided.imports if one != "import torch"] if guided is not None else [],
            "frames": values.get(self.frames), "frames_first": self.axis == 2, "draws": draws,
            "halved": "" if keeps_variance else self.learned,
            "null": self.labels.null_of(values),
        }  # fmt: skip


def class_facts(reference: Reference, labels: Labels, guided: Guided | None, names: Mapping[str, str]) -> ClassFacts:
    """Collect the facts for the pipeline of a model with class labels."""

    def argument(pattern: re.Pattern[str]) -> str:
        return next((name for name in reference.arguments if pattern.match(name)), "")

    axes = axes_of(reference, next((old for old, new in names.items() if new == LATENTS), ""))
    channels = next((at for at, name in enumerate(axes) if name.lower().startswith("c")), 1)
    axis = channels if len(axes) == 5 else 1
    learned = argument(_VARIANCE)
    learned = learned if _decides(learned, reference) and not _drops_half(reference) else ""
    return ClassFacts(labels, guided, argument(SIZE), argument(_FRAMES), len(axes) == 5, axis, learned)


def _decides(name: str, reference: Reference) -> bool:
    """Return whether the class does more with an argument of its constructor than to keep it."""
    nodes = [*ast.walk(reference.cls.node)]
    kept = [node for node in nodes if isinstance(node, ast.Assign) and ast.unparse(node) == f"self.{name} = {name}"]
    read = [node for node in nodes if isinstance(node, ast.Name) and node.id == name]
    asked = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr == name]
    return len(read) > len(kept) or len(asked) > len(kept)


def _drops_half(reference: Reference) -> bool:
    """Return whether forward keeps the first half of what it has made: `x, _ = x.chunk(2, dim=1)`."""
    found = reference.cls.method("forward")
    nodes = [node for node in ast.walk(found[1]) if isinstance(node, ast.Assign)] if found is not None else []
    halves = [one for one in nodes if isinstance(one.targets[0], ast.Tuple) and ".chunk(2" in ast.unparse(one.value)]
    return any(ast.unparse(one.targets[0]).strip("()").endswith(", _") for one in halves)


def through_linear(reference: Reference, latents: str) -> bool:
    """Return whether forward passes latents first to a linear layer: they are tokens, with channels last."""
    found, init = reference.cls.method("forward"), reference.cls.method("__init__")
    if found is None or init is None:
        return False
    linear = {of_self(node.targets[0]) for node in ast.walk(init[1]) if isinstance(node, ast.Assign)
              and ast.unparse(node.value).startswith(_LINEAR)}  # fmt: skip
    for node in (one for one in ast.walk(found[1]) if isinstance(one, ast.Assign)):
        match node.value:
            case ast.Call(func=ast.Attribute() as layer, args=[ast.Name(id=name)]) if name == latents:
                return of_self(layer) in linear
    return False


def with_first(script: str, lines: Sequence[str]) -> str:
    """Return the text of a file with lines at the beginning of its one function."""
    indented = "".join(f"    {line}\n" for line in lines)
    return re.sub(r"^def .*\):\n", lambda found: found[0] + indented, script, count=1, flags=re.MULTILINE)


def stepping_along(found: Process) -> Stepping:
    """Return the scheduler that goes where an object of the authors goes."""
    whole = found.scheduler != FIRST if found.whole is None else found.whole
    installed = Installed(
        found.scheduler, found.config, whole=whole, real=found.real, scales=found.scales, rises=found.rises,
        by_count=found.scheduler != FIRST, level=found.level, skips=found.skips,
        denoised=found.denoised,
    )  # fmt: skip
    if found.scheduler in OWN:
        own = replace(installed, name="")
        return Stepping(own, reason=found.reason, shift=found.shift, copied=written(found.scheduler))
    return Stepping(installed, reason=found.reason, shift=found.shift)
