"""The loss that a wrapper returns for two samples, computed with numbers in place of tensors."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from omni_checkers.symbolic import Call, Class, Evaluator, Opaque, Oracle, Symbol
from omni_checkers.symbolic.paths import TooManyPaths, explore
from omni_checkers.symbolic.signals import Raised
from omni_checkers.symbolic.values import Function, Partial, Value
from omni_checkers.veomni.facts.diffusion.numbers import Flat, binary, method, together
from omni_checkers.veomni.facts.diffusion.sides import Diffusion, Method
from omni_kit.upstream.diffusers.signatures import arguments

PREDICTED, WANTED, SIZES = (3.0, 7.0), (1.0, 2.0), (10, 30)
CLEAN = (11.0, 17.0)
SAMPLES = [(one - two) ** 2 for one, two in zip(PREDICTED, WANTED, strict=True)]
_PATHS = 96
_TARGETS = ("training_target", "target", "targets")


@dataclass(frozen=True)
class Joined:
    """Tensors that were stacked, or joined one after another."""

    items: tuple[Flat, ...]
    weighted: bool

    def __str__(self) -> str:
        return f"joined({[str(item) for item in self.items]}, {self.weighted})"


@dataclass(frozen=True)
class Answer:
    """What forward returned on one path.

    Attributes:
        value: the returned value itself.
        loss: its field `loss`, where it is an output with fields.
        low: a difference was taken in the dtype of the model.
        output: it is an object with fields.
        crossed: (argument of diffusers' forward, what the trainer calls that which it is given instead).
    """

    value: Value
    loss: Value
    low: bool
    output: bool
    crossed: frozenset[tuple[str, str]] = frozenset()


class LossEvaluator(Evaluator):
    """Knows what the transformer predicts, and computes with numbers."""

    def __init__(self, diffusion: Diffusion, oracle: Oracle, upstream: str) -> None:
        super().__init__(diffusion.program, oracle)
        self.upstream = upstream
        self.low = False
        self.crossed: set[tuple[str, str]] = set()
        cls = diffusion.upstream
        self.taken = ["self", *arguments(cls, "forward")] if cls is not None else []

    def call(self, function: Value, args: list[Value], kwargs: dict[str, Value], node: ast.AST | None) -> Value:
        """Knows some functions of libraries, and goes on with the others."""
        name = function.name if isinstance(function, Symbol) else ""
        leaf = name.rpartition(".")[2]
        if name.startswith("diffusers.") and name.endswith(f"{self.upstream}.forward"):
            self._wired({**dict(zip(self.taken, args, strict=False)), **kwargs})
            return self._predicted([*args, *kwargs.values()])
        if name == "builtins.isinstance" and len(args) == 2 and isinstance(args[0], (list, tuple, Flat, type(None))):
            return _isinstance(args[0], args[1])
        if leaf == "mse_loss" and len(args) >= 2 and isinstance(args[0], Flat) and isinstance(args[1], Flat):
            return self._squared(args[0], args[1], kwargs.get("reduction", "mean"))
        if (
            leaf in {"stack", "cat", "concat", "tensor"}
            and args
            and isinstance(args[0], list)
            and args[0]
            and all(isinstance(item, Flat) for item in args[0])
        ):
            return Joined(tuple(args[0]), leaf.startswith("c"))
        if leaf in {"mean", "sum"} and args and isinstance(args[0], (Flat, Joined)):
            return self.method(args[0], leaf, args[1:], kwargs, 0)
        if name == "builtins.sum" and args and isinstance(args[0], list) and all(isinstance(i, Flat) for i in args[0]):
            return together(args[0], False, "sum")
        return super().call(function, args, kwargs, node)

    def method(self, owner: Value, name: str, args: list[Value], kwargs: dict[str, Value], line: int) -> Value:
        """Knows what methods do with these values."""
        if isinstance(owner, Joined) and name in {"mean", "sum"}:
            return together(list(owner.items), owner.weighted, name)
        if isinstance(owner, Joined) and name in {"view", "reshape", "flatten", "float", "to", "squeeze"}:
            return owner
        found = method(owner, name, args, kwargs) if isinstance(owner, Flat) else None
        return found if found is not None else super().method(owner, name, args, kwargs, line)

    def attribute(self, owner: Value, name: str, line: int) -> Value:
        """Knows what attributes of these values are."""
        if isinstance(owner, (Flat, Joined)):
            from omni_checkers.symbolic import library

            plain = name in {"shape", "dtype", "device", "ndim"}
            same = owner if name in {"sample", "data"} else Partial(library.METHOD, (owner, name))
            return Opaque(f"{owner}.{name}") if plain else same
        return super().attribute(owner, name, line)

    def binary(self, operator: ast.operator, left: Value, right: Value) -> Value:
        """Computes with these values."""
        self.low |= isinstance(operator, ast.Sub) and all(isinstance(i, Flat) and i.low for i in (left, right))
        found = binary(type(operator).__name__, left, right)
        return found if found is not None else super().binary(operator, left, right)

    def item(self, container: Value, key: Value, line: int) -> Value:
        """A part of such a value is like the whole."""
        return container if isinstance(container, Flat) else super().item(container, key, line)

    def _squared(self, one: Flat, two: Flat, reduction: Value) -> Flat:
        self.low |= one.low and two.low
        value = (one.value - two.value) ** 2
        count = max(one.count, two.count)
        made = Flat(value, count, one.low and two.low, one.trained or two.trained)
        return method(made, reduction, [], {}) if reduction in {"mean", "sum"} else made

    def _wired(self, given: dict[str, Value]) -> None:
        """Notes arguments that get what has the name of another one."""
        for name, value in given.items():
            other = value.text.rpartition(" of ")[2] if isinstance(value, Opaque) else name
            if isinstance(value, Opaque) and value.text.startswith("sample ") and other != name and other in self.taken:
                self.crossed.add((name, other))

    def _predicted(self, given: Sequence[Value]) -> Value:
        text = " ".join(map(str, given))
        which = [number for number in (0, 1) if f"sample {number} of" in text]
        return Flat(PREDICTED[which[0]], SIZES[which[0]], True, True) if len(which) == 1 else Opaque("prediction")


def _isinstance(value: Value, kinds: Value) -> Value:
    names = {str(kind).rpartition(".")[2] for kind in (kinds if isinstance(kinds, tuple) else (kinds,))}
    own = "Tensor" if isinstance(value, Flat) else type(value).__name__
    return own in names


def answers(diffusion: Diffusion, forward: Method, upstream: str, fed: Sequence[str]) -> Iterator[Answer]:
    """What forward returns for two samples, on every path that can be followed.

    Args:
        fed: the parameters that the condition model fills.
    """

    def run(oracle: Oracle) -> Answer | None:
        evaluator = LossEvaluator(diffusion, oracle, upstream)
        given = {name: _fed(name) for name in fed}
        try:
            function = evaluator.class_attribute(forward.owner, forward.node.name)
        except Raised:
            return None
        if not isinstance(function, Function):
            return None
        model = diffusion.transformer.model if diffusion.transformer is not None else forward.owner
        outcome = evaluator.call_function(function, [Call(model, (), {})], given)
        value = outcome.value
        output = isinstance(value, Call) and isinstance(value.function, (Class, Symbol))
        loss = value.argument(0, "loss") if output and isinstance(value, Call) else None
        return None if outcome.raised else Answer(value, loss, evaluator.low, output, frozenset(evaluator.crossed))

    try:
        yield from (found for found in explore(run, _PATHS) if found is not None)
    except (TooManyPaths, RecursionError):
        return


def _fed(name: str) -> list[Value]:
    if name in _TARGETS or name == "latents":
        values = WANTED if name in _TARGETS else CLEAN
        return [Flat(value, count) for value, count in zip(values, SIZES, strict=True)]
    return [Opaque(f"sample {number} of {name}") for number in (0, 1)]
