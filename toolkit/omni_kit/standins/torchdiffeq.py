"""torchdiffeq's `odeint`, for solvers with a fixed grid: that of the points that are passed, or of steps of a size."""

from collections.abc import Callable, Mapping
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
    func: Function,
    y0: torch.Tensor,
    t: torch.Tensor,
    *,
    method: str = "dopri5",
    options: Mapping[str, Any] | None = None,
    **settings: Any,
) -> torch.Tensor:
    """Return the solution at each point of `t`, [points, ...].

    Raises:
        NotImplementedError: the solver adapts its steps, or has another formula; or `t` has more than two points, and
            steps a size.
    """
    size = (options or {}).get("step_size")
    if size is not None and len(t) > 2:
        raise NotImplementedError("the stand-in for torchdiffeq has two points for steps of a size")
    if method not in _STEPS:
        raise NotImplementedError(f"the stand-in for torchdiffeq has no method '{method}': pip install torchdiffeq")
    found = [y0]
    for now, after in pairwise(t if size is None else _grid(t, size)):
        found.append(found[-1] + _STEPS[method](func, now, after - now, found[-1]))
    return torch.stack(found if size is None else [y0, found[-1]])


odeint_adjoint = odeint


def _grid(t: torch.Tensor, size: float) -> torch.Tensor:
    """Return points with this distance from the first to the last."""
    count = int(torch.ceil((t[-1] - t[0]).abs() / size + 1).item())
    points = t[0] + torch.arange(count, dtype=t.dtype, device=t.device) * size * torch.sign(t[-1] - t[0])
    points[-1] = t[-1]
    return points
