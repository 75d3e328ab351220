"""torchdiffeq's `odeint`, for solvers with a fixed grid: the steps are those between the points that are passed."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import torch

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _euler(func: Function, t0: torch.Tensor, dt: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return dt * func(t0, y)


def _midpoint(func: Function, t0: torch.Tensor, dt: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    half = 0.5 * dt
    return dt * func(t0 + half, y + func(t0, y) * half)


def _heun2(func: Function, t0: torch.Tensor, dt: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    first = func(t0, y)
    return dt * 0.5 * (first + func(t0 + dt, y + dt * first))


_STEPS = {"euler": _euler, "midpoint": _midpoint, "heun2": _heun2}


def odeint(
    func: Function, y0: torch.Tensor, t: torch.Tensor, *, method: str = "dopri5", **settings: Any
) -> torch.Tensor:
    """Return the solution at each point of `t`, [points, ...].

    Raises:
        NotImplementedError: the solver adapts its steps, or has another formula.
    """
    if method not in _STEPS:
        raise NotImplementedError(f"the stand-in for torchdiffeq has no method '{method}': pip install torchdiffeq")
    found = [y0]
    for now, after in pairwise(t):
        found.append(found[-1] + _STEPS[method](func, now, after - now, found[-1]))
    return torch.stack(found)
