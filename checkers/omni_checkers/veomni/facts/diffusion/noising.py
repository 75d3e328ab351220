"""The condition model's two methods, executed with mixtures instead of tensors."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from omni_checkers.symbolic import Call, Evaluator, Exhausted, Function, Opaque, Oracle, Raised, Symbol, Value, explore
from omni_checkers.veomni.facts.diffusion.mixtures import Mixture, combined, noised
from omni_checkers.veomni.facts.diffusion.sides import Diffusion, Method
from omni_kit.pysource.eval import Frame
from omni_kit.pysource.signatures import positional, required, signature

_PATHS = 48
_NOISE = frozenset({"randn", "randn_like", "randn_tensor", "normal"})
_LATENTS = ("latents", "input_latents", "vae_latents")


class NoisingEvaluator(Evaluator):
    """Follows latents and noise through a training step."""

    def call(
        self, function: Value, arguments: list[Value], keywords: dict[str, Value], frame: Frame, node: ast.expr | None
    ) -> Value:
        """Knows some functions of libraries, and continues with the others."""
        name = str(function)
        leaf = name.rpartition(".")[2]
        if leaf in _NOISE and (isinstance(function, Symbol) or leaf == "randn_tensor"):
            return Mixture(0.0, 1.0)
        if leaf == "encode" and "vae" in name.lower():
            return Mixture(1.0, 0.0)
        if leaf in {"scale_noise", "add_noise"} and not isinstance(function, Function):
            found = _scheduled(leaf, arguments, keywords)
            if found is not None:
                return found
        mixed = [item for item in (*arguments, *keywords.values()) if isinstance(item, Mixture)]
        passed = isinstance(function, Symbol) or leaf in {"mode", "sample"}
        if len(mixed) == 1 and passed and not name.startswith("builtins."):
            return mixed[0]
        return super().call(function, arguments, keywords, frame, node)

    def operation(self, name: str, operands: list[Value], frame: Frame) -> Value:
        """Sigmas and timesteps are levels, whatever they come from."""
        found = combined(name, *operands) if len(operands) == 2 else None
        return found if found is not None else super().operation(name, operands, frame)


@dataclass(frozen=True)
class Step:
    """The result of one path through both methods.

    Attributes:
        returned: key -> the value for the first sample.
    """

    returned: Mapping[str, Value]


def steps(diffusion: Diffusion, get: Method | None, process: Method) -> Iterator[Step]:
    """Return process_condition's results for one sample, on every path that can be followed."""
    model = diffusion.condition.model if diffusion.condition is not None else process.owner

    def run(oracle: Oracle) -> Step | None:
        evaluator = NoisingEvaluator(diffusion.program, oracle)
        this = Call(model, (), {})
        made = _called(evaluator, this, get, {}) if get is not None else None
        taken = signature(process.node, bound=True)
        names = positional(taken)
        given: dict[str, Value] = {name: [Opaque(f"<{name}>")] for name in names if name in required(taken)}
        given |= {name: [Mixture(1.0, 0.0)] for name in names if name in _LATENTS}
        told = made if isinstance(made, dict) else {}
        given |= {str(name): _first(value) for name, value in told.items() if name in names}
        value = _called(evaluator, this, process, given)
        if not isinstance(value, dict):
            return None
        return Step({str(key): _first(item)[0] for key, item in value.items() if _first(item)})

    try:
        yield from (found for found in explore(run, _PATHS) if found is not None)
    except (Exhausted, RecursionError):
        return


def on_every_path(paths: Iterable[Iterable[str]]) -> set[str] | None:
    """Return the faults common to all paths; None without a path.

    Paths are followed one by one: the first one that is right ends it.
    """
    wrong: set[str] | None = None
    for path in paths:
        wrong = set(path) if wrong is None else wrong.intersection(path)
        if not wrong:
            break
    return wrong


def _called(evaluator: Evaluator, this: Call, method: Method, given: dict[str, Value]) -> Value:
    try:
        function = evaluator.class_attribute(method.owner, method.node.name)
    except Raised:
        return None
    if not isinstance(function, Function):
        return None
    outcome = evaluator.call_function(function, [this], given)
    return None if outcome.raised else outcome.value


def _scheduled(leaf: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    """Return the sample with noise, by the scheduler of diffusers."""
    names = ("sample", "timestep", "noise") if leaf == "scale_noise" else ("original_samples", "noise", "timesteps")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return noised(given.get(names[0]), given.get("noise"))


def _first(value: Value) -> list[Value]:
    return value[:1] if isinstance(value, list) else [value] if value is not None else []
