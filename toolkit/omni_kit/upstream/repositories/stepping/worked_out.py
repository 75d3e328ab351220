"""A loop worked out with one number as its latents: where it goes with a stand-in for its model. Nothing is run."""

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omni_kit.upstream.repositories.numbers import Worker
from omni_kit.upstream.repositories.sampling import STEPS
from omni_kit.upstream.repositories.stepping.divided import Divided
from omni_kit.upstream.repositories.stepping.flow import Asked
from omni_kit.upstream.repositories.stepping.outline import DEVICE
from omni_kit.upstream.repositories.vectors import BUILTIN, Untold

DRAWN = 0.37
"""What every draw of noise is."""
StandIn = Callable[[float, float], float]
_LONG = 50
_SAME = frozenset({"view", "reshape", "expand", "repeat", "unsqueeze", "squeeze", "flatten"})


@dataclass(frozen=True)
class Way:
    """Where a loop went.

    Attributes:
        begun: what noise is multiplied by.
        asked: at each place what the model was handed, and told.
        ended: the latents.
        levels: what was gone along.
        tables: long lists of numbers that were made on the way, as those of a noise for every step of training.
    """

    begun: float
    asked: tuple[tuple[float, float], ...]
    ended: float
    levels: tuple[float, ...]
    tables: tuple[tuple[float, ...], ...] = ()


def way_of(loop: Divided, steps: int, noise: float, model: StandIn, settings: Mapping[str, Any]) -> Way | None:
    """Where the loop goes; None where its statements are not followed.

    Args:
        settings: of the loop's function.
    """
    worker = _Walker(loop, model, {**settings, loop.sampling.roles[STEPS]: steps, DEVICE: None})
    try:
        return worker.walk(noise)
    except (Untold, KeyError, ArithmeticError, TypeError, ValueError):
        return None


class _Walker(Worker):
    """One run."""

    def __init__(self, loop: Divided, model: StandIn, scope: dict[str, Any]) -> None:
        super().__init__(loop.sampling.source, scope, 0)
        self.loop = loop
        self.model = model
        self.asked: list[tuple[float, float]] = []

    def walk(self, noise: float) -> Way:
        """From noise to latents."""
        loop, scope = self.loop, self.scope
        self.run(loop.start)
        factor = self.value(loop.factor) if loop.factor is not None else 1.0
        scope |= {name: self.value(loop.begins(name)) for name in loop.carried}
        scope[loop.latents_name] = noise * factor
        levels = scope.get(loop.levels) if loop.levels else None
        for head in self.value(loop.along):
            self._bind(loop.target, head)
            self.run(loop.body)
        tables = tuple(tuple(one) for one in scope.values() if _is_vector(one) and len(one) >= _LONG)
        told = tuple(levels) if _is_vector(levels) and isinstance(levels, list) else ()
        return Way(factor, tuple(self.asked), scope[loop.latents_name], told, tables)

    def run(self, body: Sequence[ast.stmt]) -> tuple[bool, Any]:
        """As its base; the model is asked where the loop asks it."""
        for node in body:
            if isinstance(node, Asked):
                time = self.value(node.time)
                self.asked.append((self.value(node.sample), float(time) if node.real else time))
                self.scope[node.answer] = self.model(*self.asked[-1])
            elif isinstance(node, ast.If):
                self.run(node.body if self.value(node.test) else node.orelse)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                self._bind(node.targets[0], self.value(node.value))
            elif isinstance(node, ast.Expr):
                raise Untold(ast.unparse(node))
            else:
                super().run([node])
        return False, None

    def _bind(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.scope[target.id] = value
            return
        if not isinstance(target, ast.Tuple):
            raise Untold(ast.unparse(target))
        for one, inner in zip(target.elts, value, strict=True):
            self._bind(one, inner)

    def get_call(self, node: ast.Call) -> Any:
        """As its base, and what loops do with numbers besides."""
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if "randn" in name:
            return DRAWN
        if isinstance(node.func, ast.Name) and name in BUILTIN:
            return BUILTIN[name](*map(self.value, node.args))
        if isinstance(node.func, ast.Attribute) and name in _SAME and not _is_torch(node.func.value):
            return self.value(node.func.value)
        if name == "new_zeros":
            return [0.0]
        if name in ("new_ones", "new_full", "full_like"):
            return 1.0 if name == "new_ones" else self.value(node.args[1])
        if name in ("ones", "ones_like", "zeros", "zeros_like") and not _is_count(node):
            return float(name.startswith("ones"))
        if name == "full" and len(node.args) > 1:
            return self.value(node.args[1])
        return super().get_call(node)


def _is_vector(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, int | float) for one in value)


def _is_torch(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in ("torch", "np", "numpy", "math")


def _is_count(node: ast.Call) -> bool:
    return bool(node.args) and not isinstance(node.args[0], ast.Tuple | ast.List | ast.Name | ast.Attribute)
