"""Call of a pipeline's denoiser, read from `__call__`: its inputs and units, its output, and the scaling of latents."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.affine import Affine, evaluate
from omni_kit.upstream.diffusers.models import ComponentModel
from omni_kit.upstream.diffusers.pipelines import Pipeline
from omni_kit.upstream.diffusers.signatures import STEP_NAMES, arguments

_SWITCH = "return_dict"
_MEAN, _DEVIATION, _SHIFT, _SCALE, _NORM = "latents_mean", "latents_std", "shift_factor", "scaling_factor", "bn"


@dataclass(frozen=True)
class LatentScale:
    """Scaling of latents in a pipeline.

    Attributes:
        convention: "batch-norm statistics", "mean and deviation", "shift and scale", "scale"; empty for none.
        mean, deviation: where the pipeline takes them from, after "self." ("vae.config.latents_mean").
        scaled: a factor comes on top of mean and deviation.
        where: file:line.
    """

    convention: str
    mean: str = ""
    deviation: str = ""
    scaled: bool = False
    where: str = ""


@dataclass(frozen=True)
class Denoising:
    """A pipeline's call of its denoiser.

    Attributes:
        pipeline: whose `__call__` is read.
        denoiser: the model that is called.
    """

    pipeline: Pipeline
    denoiser: ComponentModel

    @cached_property
    def _function(self) -> ast.FunctionDef:
        found = self.pipeline.cls.method("__call__")
        return found[1] if found is not None else ast.parse("def __call__(self): ...").body[0]  # type: ignore[return-value]

    @cached_property
    def calls(self) -> list[ast.Call]:
        """Every call of the denoiser, in the order of lines."""
        return denoiser_calls(self._function, self.pipeline.denoiser.name)

    @cached_property
    def call(self) -> ast.Call | None:
        """The call of the denoiser that receives most; None if none is seen."""
        return max(self.calls, key=lambda node: (len(node.keywords) + len(node.args), -node.lineno), default=None)

    @property
    def where(self) -> str:
        """Place of the denoiser's call; empty if it was not found."""
        return self.pipeline.cls.source.where(self.call) if self.call is not None else ""

    @cached_property
    def handed(self) -> Mapping[str, ast.expr]:
        """The arguments of the denoiser's forward that it is called with, and what they are."""
        if self.call is None:
            return {}
        order = list(arguments(self.denoiser.cls, "forward"))
        named = {one.arg: one.value for one in self.call.keywords if one.arg is not None and one.arg != _SWITCH}
        return {**dict(zip(order, self.call.args, strict=False)), **named}

    @property
    def latents(self) -> str:
        """The argument that holds latents: the first of forward."""
        return next(iter(arguments(self.denoiser.cls, "forward")), "")

    @property
    def step(self) -> str:
        """The argument that holds the step; empty if there is none."""
        return next((name for name in arguments(self.denoiser.cls, "forward") if name in STEP_NAMES), "")

    @property
    def conditions(self) -> list[str]:
        """Other arguments of forward."""
        apart = (self.latents, self.step, _SWITCH)
        return [name for name in arguments(self.denoiser.cls, "forward") if name not in apart]

    @cached_property
    def unit(self) -> Affine | None:
        """Value that the denoiser receives for a step of the scheduler; None if it cannot be read."""
        value = self.handed.get(self.step)
        if value is None or self.call is None:
            return None
        step = _steps_variable(self._loop) if self._loop is not None else ""
        config = f"self.{self.pipeline.denoiser.name}.config"
        constants = {f"{config}.{name}": self.denoiser.value(name)[0] for name in self.denoiser.arguments}
        return evaluate(value, step, self._assigned, constants, self.call.lineno)

    @cached_property
    def _loop(self) -> ast.For | None:
        """The loop over steps around the call."""
        loops = (node for node in ast.walk(self._function) if isinstance(node, ast.For))
        return next((node for node in loops if self.call is not None and _holds(node, self.call)), None)

    @cached_property
    def changing(self) -> list[str]:
        """The conditions that the loop computes in each step from its counter or timestep."""
        if self._loop is None:
            return []
        counters = {node.id for node in ast.walk(self._loop.target) if isinstance(node, ast.Name)}
        inside = {node.lineno for node in ast.walk(self._loop) if isinstance(node, ast.Assign)}
        computed = {name for line, name, value in self._assigned if line in inside and _names(value) & counters}
        handed = {name: _names(value) for name, value in self.handed.items()}
        return [name for name in self.conditions if handed.get(name, set()) & (computed | counters)]

    @cached_property
    def _assigned(self) -> Sequence[tuple[int, str, ast.expr]]:
        """Line, name and value of every assignment to a name."""
        found = [
            (node.lineno, node.targets[0].id, node.value)
            for node in ast.walk(self._function)
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        ]
        return sorted(found, key=lambda one: one[0])

    @cached_property
    def sign(self) -> int:
        """-1 where the pipeline negates the output before it steps, else 1."""
        if self.call is None:
            return 1
        held, sign = set(_targets(self._function, self.call)), 1
        for line, name, value in self._assigned:
            if line > self.call.lineno and _names(value) & held:
                held.add(name)
                sign = -sign if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub) else sign
        return sign

    @cached_property
    def scale(self) -> LatentScale:
        """Scaling of latents, by the values that the pipeline reads of its autoencoder."""
        prefix = f"self.{self.autoencoder}."
        read = {name.removeprefix("self."): node for node in self._nodes() if (name := _read(node)).startswith(prefix)}
        last = {name.rpartition(".")[2]: name for name in read}
        where = {name: self.pipeline.cls.source.where(read[last[name]]) for name in last}
        if norm := next((name for name in read if name.startswith(f"{self.autoencoder}.{_NORM}.")), None):
            return LatentScale("batch-norm statistics", where=self.pipeline.cls.source.where(read[norm]))
        if _MEAN in last and _DEVIATION in last:
            return LatentScale("mean and deviation", last[_MEAN], last[_DEVIATION], _SCALE in last, where[_MEAN])
        if _SHIFT in last:
            return LatentScale("shift and scale", where=where[_SHIFT])
        return LatentScale("scale", where=where[_SCALE]) if _SCALE in last else LatentScale("")

    @property
    def autoencoder(self) -> str:
        """The component that makes latents; "vae" where none is declared."""
        found = (one.name for one in self.pipeline.components if one.role == "autoencoder")
        return next(found, "vae")

    @property
    def sees(self) -> bool:
        """Return whether the pipeline has a processor of pictures or videos.

        Without one its media are of another sort.
        """
        kept = (dotted(node) for node in self._nodes() if isinstance(node, ast.Attribute))
        return not {"self.image_processor", "self.video_processor"}.isdisjoint(name for name in kept if name)

    def _nodes(self) -> Iterator[ast.AST]:
        for entry in self.pipeline.cls.mro:
            if isinstance(entry, ClassRef) and entry.source.path == self.pipeline.cls.source.path:
                yield from ast.walk(entry.node)


def _read(node: ast.AST) -> str:
    """Return the dotted name of a read attribute, also of `getattr(self.vae.config, "scaling_factor", 1.0)`."""
    if isinstance(node, ast.Call) and dotted(node.func) == "getattr" and len(node.args) > 1:
        return f"{dotted(node.args[0])}.{literal(node.args[1])}"
    return dotted(node) or ""


def denoiser_calls(function: ast.FunctionDef, denoiser: str) -> list[ast.Call]:
    """The calls of the denoiser, also by a variable that holds it, in the order of their lines."""
    names = {f"self.{denoiser}"}
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and dotted(node.value) in names:
            names.add(node.targets[0].id)
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call) and dotted(node.func) in names)
    return sorted(calls, key=lambda call: call.lineno)


def _names(value: ast.expr) -> set[str]:
    return {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}


def _holds(node: ast.For, call: ast.Call) -> bool:
    """Return whether a loop over steps is around a call."""
    return bool(_steps_variable(node)) and any(one is call for one in ast.walk(node))


def _steps_variable(loop: ast.For) -> str:
    """`t` of `for i, t in enumerate(timesteps)`, and of `for t in timesteps`; empty for another loop."""
    if "timesteps" not in ast.unparse(loop.iter):
        return ""
    names = [node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)]
    return names[-1] if names else ""


def _targets(function: ast.FunctionDef, call: ast.Call) -> Iterator[str]:
    """Yield the names that the result of a call is assigned to."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign) and any(inner is call for inner in ast.walk(node.value)):
            yield from (name.id for target in node.targets for name in ast.walk(target) if isinstance(name, ast.Name))
