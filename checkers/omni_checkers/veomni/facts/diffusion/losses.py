"""The loss that a wrapper returns for two samples, computed with numbers in place of tensors."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from omni_checkers.symbolic import (
    Call,
    Class,
    Evaluator,
    Exhausted,
    Function,
    Opaque,
    Oracle,
    Raised,
    Symbol,
    Value,
    explore,
)
from omni_checkers.veomni.facts.diffusion.numbers import Flat, Joined, together
from omni_checkers.veomni.facts.diffusion.sides import Diffusion, Method
from omni_kit.pysource.eval import Frame
from omni_kit.upstream.diffusers.signatures import arguments

PREDICTED, WANTED, SIZES = (3.0, 7.0), (1.0, 2.0), (10, 30)
CLEAN = (11.0, 17.0)
SAMPLES = [(one - two) ** 2 for one, two in zip(PREDICTED, WANTED, strict=True)]
_PATHS = 96
_TARGETS = ("training_target", "target", "targets")


@dataclass(frozen=True)
class Answer:
    """The return value of forward on one path.

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
    """Evaluates a forward whose transformer outputs are known, with numbers."""

    def __init__(self, diffusion: Diffusion, oracle: Oracle, upstream: str) -> None:
        super().__init__(diffusion.program, oracle)
        self.upstream = upstream
        self.low = False
        self.crossed: set[tuple[str, str]] = set()
        cls = diffusion.upstream
        self.taken = ["self", *arguments(cls, "forward")] if cls is not None else []

    def call(
        self, function: Value, arguments: list[Value], keywords: dict[str, Value], frame: Frame, node: ast.expr | None
    ) -> Value:
        """Knows some functions of libraries, and continues with the others."""
        name = function.name if isinstance(function, Symbol) else ""
        if name.startswith("diffusers.") and name.endswith(f"{self.upstream}.forward"):
            self._wired({**dict(zip(self.taken, arguments, strict=False)), **keywords})
            return self._predicted([*arguments, *keywords.values()])
        match name.rpartition(".")[2], arguments:
            case "isinstance", [list() | tuple() | Flat() | None as value, kinds] if name.startswith("builtins."):
                return _isinstance(value, kinds)
            case "mse_loss", [Flat() as one, Flat() as two, *_]:
                return self._squared(one, two, keywords.get("reduction", "mean"))
            case "stack" | "cat" | "concat" | "tensor" as leaf, [[Flat(), *_] as items, *_] if _flat(items):
                return Joined(tuple(items), leaf.startswith("c"))
            case "mean" | "sum" as leaf, [Flat() | Joined() as value, *rest]:
                return self.method(value, leaf, rest, keywords, frame, node)
            case "sum", [list() as items, *_] if name.startswith("builtins.") and _flat(items):
                return together(items, False, "sum")
        return super().call(function, arguments, keywords, frame, node)

    def operation(self, name: str, operands: list[Value], frame: Frame) -> Value:
        """Notes differences that are taken in the dtype of the model."""
        self.low |= name == "sub" and all(isinstance(one, Flat) and one.low for one in operands)
        return super().operation(name, operands, frame)

    def _squared(self, one: Flat, two: Flat, reduction: Value) -> Flat:
        self.low |= one.low and two.low
        value = (one.value - two.value) ** 2
        count = max(one.count, two.count)
        made = Flat(value, count, one.low and two.low, one.trained or two.trained)
        return made.method(reduction, [], {}) if reduction in {"mean", "sum"} else made

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


def _flat(items: list[Value]) -> bool:
    return all(isinstance(one, Flat) for one in items)


def _isinstance(value: Value, kinds: Value) -> Value:
    names = {str(kind).rpartition(".")[2] for kind in (kinds if isinstance(kinds, tuple) else (kinds,))}
    own = "Tensor" if isinstance(value, Flat) else type(value).__name__
    return own in names


def answers(diffusion: Diffusion, forward: Method, upstream: str, fed: Sequence[str]) -> Iterator[Answer]:
    """Return forward's outputs for two samples, on every path that can be followed.

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
    except (Exhausted, RecursionError):
        return


def _fed(name: str) -> list[Value]:
    if name in _TARGETS or name == "latents":
        values = WANTED if name in _TARGETS else CLEAN
        return [Flat(value, count) for value, count in zip(values, SIZES, strict=True)]
    return [Opaque(f"sample {number} of {name}") for number in (0, 1)]
