"""Steps about a model that has no weights yet: how it is initialised, and what it leaves to chance."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from omni_kit.parity.compare.files import load_tensors, save_tensors
from omni_kit.parity.processes.builder import TargetFault
from omni_kit.parity.processes.side import Side, placed
from omni_kit.parity.processes.step import Step
from omni_kit.targets.sides import Attending, Beginning

Shares = dict[str, list[float]]  # module -> the shares that it drops


@dataclass(frozen=True)
class Initialise(Step[list[str]]):
    """Writes what a model of the config begins with, parameters and all buffers; answers the names of the latter.

    What nobody initialises is not a number: nowhere, and not only where memory happens to hold such a thing.
    """

    config_dir: Path
    out: Path

    def take(self, side: Side) -> list[str]:
        """See `Step.take`."""
        with memory_filled():
            model = _fresh(side, self.config_dir)
        buffers = {name: buffer.detach().clone() for name, buffer in model.named_buffers()}
        parameters = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
        save_tensors({**parameters, **buffers}, self.out / "beginning.safetensors")
        return list(buffers)


@dataclass(frozen=True)
class Drop(Step[dict[str, Shares]]):
    """Measures the dropout of a model of the config, in training and in evaluation; nothing is really dropped."""

    config_dir: Path
    inputs: Path

    def take(self, side: Side) -> dict[str, Shares]:
        """See `Step.take`."""
        model = _fresh(side, self.config_dir)
        batch = placed(model, load_tensors(self.inputs))
        found = {}
        for mode in ("training", "evaluation"):
            model.train(mode == "training")
            watched = side.builder.attention(model) if isinstance(side.builder, Attending) else nullcontext({})
            with torch.no_grad(), _dropping(model) as shares, watched as calls:
                side.builder.forward(model, batch, loss_only=True)
            for module, told in calls.items():
                asked = [call["dropout"] for call in told]
                # Whether a kernel for attention calls dropout or has its own is its own affair.
                shares[module] = [share for share in shares.get(module, []) if share not in asked]
                shares[f"{module} (attention)"] = asked
            found[mode] = {module: sorted({*values}) for module, values in shares.items() if any(values)}
        return found


def _fresh(side: Side, config_dir: Path) -> nn.Module:
    if not isinstance(side.builder, Beginning):
        raise TargetFault(f"{side.builder_name} has call scenarios, but cannot build a model without weights")
    return side.builder.sized(config_dir, "float32")


@contextmanager
def memory_filled() -> Iterator[None]:
    """New memory is filled while this is entered: with what is not a number, or the largest one."""
    before, warns = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)


@contextmanager
def _dropping(model: nn.Module) -> Iterator[Shares]:
    """Notes by module every call of dropout while this is entered, and lets everything through."""
    names = {module: name for name, module in model.named_modules()}
    inside: list[str] = []
    shares: Shares = {}

    def dropped(given: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        shares.setdefault(inside[-1] if inside else "", []).append(float(p) if training else 0.0)
        return given

    def enter(module: nn.Module, _: Any) -> None:
        inside.append(names.get(module, inside[-1] if inside else ""))

    def leave(module: nn.Module, _: Any, __: Any) -> None:
        inside.pop()

    real = nn.functional.dropout
    with ExitStack() as stack:
        for handle in (register_module_forward_pre_hook(enter), register_module_forward_hook(leave)):
            stack.callback(handle.remove)
        nn.functional.dropout = dropped  # type: ignore[assignment]
        try:
            yield shares
        finally:
            nn.functional.dropout = real
