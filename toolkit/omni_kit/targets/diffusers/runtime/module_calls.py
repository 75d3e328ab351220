"""Inputs and outputs of a model's modules, in the order in which they are called."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import nn


@dataclass
class Call:
    """One call of a module.

    Attributes:
        module: its path.
        top: the model itself has it.
        given: the tensors that each argument was, by its name in forward; one, or those of a tuple.
        answers: the tensors that it gave.
    """

    module: str
    top: bool
    given: Mapping[str, Sequence[torch.Tensor]]
    answers: Sequence[torch.Tensor] = field(default=())

    def carried(self, following: "Call | None") -> list[str]:
        """Return the arguments in which the next block is given what this one answered."""
        own = {id(one) for one in self.answers}
        given = following.given.items() if following is not None else ()
        return [name for name, tensors in given if len(tensors) == 1 and id(tensors[0]) in own]


@torch.no_grad()
def watched(model: nn.Module, run: Callable[[], Any]) -> list[Call]:
    """The calls of one run, but for those of the model itself."""
    calls: list[Call] = []
    entered: list[Call] = []

    def before(name: str, module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        try:
            bound = inspect.signature(module.forward).bind(*args, **kwargs).arguments
        except TypeError:
            bound = {}
        call = Call(name, "." not in name, {key: found for key, one in bound.items() if (found := _tensors(one))})
        calls.append(call)
        entered.append(call)

    def after(module: nn.Module, args: Any, answer: Any) -> None:
        entered.pop().answers = _tensors(answer)

    handles = []
    for name, module in model.named_modules():
        if name:
            handles.append(module.register_forward_pre_hook(partial(before, name), with_kwargs=True))
            handles.append(module.register_forward_hook(after))
    try:
        run()
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    many = list(value) if isinstance(value, (tuple, list)) else []
    return many if all(isinstance(one, torch.Tensor) for one in many) else []
