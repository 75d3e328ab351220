"""Tensors as mixtures of clean latents and noise, which make a training step readable without torch."""

from dataclasses import dataclass, replace

from omni_checkers.symbolic import UNKNOWN, Call, Modelled, Opaque, Value, show

LEVEL = 0.25
"""Value assumed for any sigma or timestep."""
_LEVELS = ("sigma", "timestep", "alpha")


class _Noisy(Modelled):
    """Shared part of mixtures and levels: only arithmetic changes them."""

    def attribute(self, name: str) -> Value:
        """See `Modelled`."""
        if name in {"shape", "device", "dtype", "ndim"}:
            return Opaque(f"{self}.{name}")
        return self if name in {"latent_dist", "parameters", "mean"} else UNKNOWN

    def method(self, name: str, arguments: list[Value], keywords: dict[str, Value]) -> Value:
        """See `Modelled`."""
        words = {"sub": "sub", "mul": "mul", "add": "add", "div": "truediv"}
        if name.rstrip("_") not in words or not arguments:
            return self
        found = combined(words[name.rstrip("_")], self, arguments[0])
        return found if found is not None else Opaque(f"{self}.{name}")

    def operation(self, name: str, operands: list[Value]) -> Value:
        """See `Modelled`."""
        if name == "neg" and isinstance(self, Mixture):
            return combined("mul", self, -1)
        found = combined(name, *operands) if len(operands) == 2 else None
        return found if found is not None else UNKNOWN

    def item(self, key: Value) -> Value:
        """See `Modelled`: a part is like the whole."""
        return self


@dataclass(frozen=True)
class Mixture(_Noisy):
    """clean * latents + noise * noise.

    Attributes:
        steps: what was done to the latents with values that are not known, in order: (operator, text of the value).
    """

    clean: float
    noise: float
    steps: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"mixture({self.clean}, {self.noise}, {self.steps})"


@dataclass(frozen=True)
class Level(_Noisy):
    """A number that depends on how much noise there is."""

    value: float

    def __str__(self) -> str:
        return f"level({self.value})"


def combined(operator: str, left: Value, right: Value) -> Value:
    """left <operator> right; None if it is not known."""
    if isinstance(left, Mixture) and isinstance(right, Mixture):
        sign = {"add": 1, "sub": -1}.get(operator)
        if sign is None:
            return None
        return Mixture(left.clean + sign * right.clean, left.noise + sign * right.noise, left.steps or right.steps)
    one, two = number(left), number(right)
    if isinstance(left, Mixture) or isinstance(right, Mixture):
        mixture, other = (left, two) if isinstance(left, Mixture) else (right, one)
        if other is None:
            text = show(right if mixture is left else left)
            name = operator if mixture is left else f"{operator} from the left"
            return replace(mixture, steps=(*mixture.steps, (name, text)))
        return _scaled(operator, mixture, other, mixture is left)
    levels = [item for item in (left, right) if is_level(item)]
    if not levels or one is None or two is None or (operator == "truediv" and not two):
        return None
    values = {"add": one + two, "sub": one - two, "mul": one * two, "truediv": one / two if two else 0.0}
    return Level(values[operator]) if operator in values else None


def number(value: Value) -> float | None:
    """Return the number that a value is taken to be."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, Level):
        return value.value
    return LEVEL if is_level(value) else None


def is_level(value: Value) -> bool:
    """Return whether a value is a sigma or a timestep."""
    if isinstance(value, Level):
        return True
    if isinstance(value, Call):  # `.to(...)` of one
        return isinstance(value.function, Opaque) and is_level(Opaque(value.function.text.rpartition(".")[0]))
    text = show(value).lower() if isinstance(value, Opaque) else ""
    named = text.partition("[")[0].partition("(")[0]  # not what it was picked by, or made of
    return any(word in named.rpartition(".")[2] or f".{word}" in named for word in _LEVELS)


def _scaled(operator: str, mixture: Mixture, factor: float, first: bool) -> Value:
    if operator == "mul":
        return replace(mixture, clean=mixture.clean * factor, noise=mixture.noise * factor)
    if operator == "truediv" and first and factor:
        return replace(mixture, clean=mixture.clean / factor, noise=mixture.noise / factor)
    return None


def noised(sample: Value, noise: Value) -> Value:
    """Return the mixture that a flow-matching scheduler computes from a sample and noise."""
    if not isinstance(sample, Mixture) or not isinstance(noise, Mixture):
        return None
    rest = 1 - LEVEL
    clean = rest * sample.clean + LEVEL * noise.clean
    return Mixture(clean, rest * sample.noise + LEVEL * noise.noise, sample.steps or noise.steps)
