"""What the condition model makes of latents: its two methods, executed with mixtures in place of tensors."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from omni_checkers.symbolic import Call, Evaluator, Opaque, Oracle, library
from omni_checkers.symbolic.paths import TooManyPaths, explore
from omni_checkers.symbolic.signals import Raised
from omni_checkers.symbolic.values import Function, Partial, Symbol, Value
from omni_checkers.veomni.facts.diffusion.mixtures import Level, Mixture, combined, noised
from omni_checkers.veomni.facts.diffusion.sides import Diffusion, Method
from omni_kit.pysource.signatures import positional, required, signature

_PATHS = 48
_NOISE = frozenset({"randn", "randn_like", "randn_tensor", "normal"})
_PLAIN = frozenset({"shape", "device", "dtype", "ndim"})
_LATENTS = ("latents", "input_latents", "vae_latents")


class NoisingEvaluator(Evaluator):
    """Follows latents and noise through a training step."""

    def call(self, function: Value, args: list[Value], kwargs: dict[str, Value], node: ast.AST | None) -> Value:
        """Knows some functions of libraries, and goes on with the others."""
        name = _name(function)
        leaf = name.rpartition(".")[2]
        if leaf in _NOISE and (isinstance(function, Symbol) or leaf == "randn_tensor"):
            return Mixture(0.0, 1.0)
        if leaf == "encode" and "vae" in name.lower():
            return Mixture(1.0, 0.0)
        if leaf in {"scale_noise", "add_noise"} and not isinstance(function, Function):
            found = _scheduled(leaf, args, kwargs)
            if found is not None:
                return found
        mixed = [item for item in (*args, *kwargs.values()) if isinstance(item, Mixture)]
        if len(mixed) == 1 and (isinstance(function, Symbol) or leaf in {"mode", "sample"}):
            return mixed[0] if not name.startswith("builtins.") else super().call(function, args, kwargs, node)
        return super().call(function, args, kwargs, node)

    def method(self, owner: Value, name: str, args: list[Value], kwargs: dict[str, Value], line: int) -> Value:
        """Knows what methods do with these values."""
        words = {"sub": "Sub", "mul": "Mult", "add": "Add", "div": "Div"}
        if isinstance(owner, (Mixture, Level)) and name.rstrip("_") in words and args:
            found = combined(words[name.rstrip("_")], owner, args[0])
            return found if found is not None else Opaque(f"{owner}.{name}")
        if isinstance(owner, (Mixture, Level)):
            return owner
        return super().method(owner, name, args, kwargs, line)

    def attribute(self, owner: Value, name: str, line: int) -> Value:
        """Knows what attributes of these values are."""
        if isinstance(owner, (Mixture, Level)):
            if name in _PLAIN:
                return Opaque(f"{owner}.{name}")
            return owner if name in {"latent_dist", "parameters", "mean"} else Partial(library.METHOD, (owner, name))
        return super().attribute(owner, name, line)

    def binary(self, operator: ast.operator, left: Value, right: Value) -> Value:
        """Computes with these values."""
        found = combined(type(operator).__name__, left, right)
        return found if found is not None else super().binary(operator, left, right)

    def item(self, container: Value, key: Value, line: int) -> Value:
        """A part of such a value is like the whole."""
        return container if isinstance(container, (Mixture, Level)) else super().item(container, key, line)

    def _of_unaryop(self, node: ast.UnaryOp) -> Value:
        value = self.value(node.operand)
        if isinstance(node.op, ast.USub) and isinstance(value, Mixture):
            return Mixture(-value.clean, -value.noise, value.steps)
        return super()._of_unaryop(node)


@dataclass(frozen=True)
class Step:
    """What one path through both methods gave.

    Attributes:
        returned: key -> the value for the first sample.
    """

    returned: Mapping[str, Value]


def steps(diffusion: Diffusion, get: Method | None, process: Method) -> Iterator[Step]:
    """What process_condition returns for one sample, on every path that can be followed."""
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
    except (TooManyPaths, RecursionError):
        return


def on_every_path(paths: Iterable[Iterable[str]]) -> set[str] | None:
    """What is wrong on every path, of what is wrong on each; None where there is no path.

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
    """The sample with noise, by the scheduler of diffusers."""
    names = ("sample", "timestep", "noise") if leaf == "scale_noise" else ("original_samples", "noise", "timesteps")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return noised(given.get(names[0]), given.get("noise"))


def _first(value: Value) -> list[Value]:
    return value[:1] if isinstance(value, list) else [value] if value is not None else []


def _name(function: Value) -> str:
    if isinstance(function, Partial) and len(function.args) > 1:
        return f"{function.args[0]}.{function.args[1]}"
    return str(function)
