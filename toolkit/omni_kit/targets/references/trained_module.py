"""A training framework's module where the framework is not installed: a module of torch, and nothing trains it."""

import inspect
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import nn


class namespace(dict[str, Any]):  # noqa: N801
    """Settings: each is an attribute and an entry."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(settings)
        self.__dict__ = self


class TrainedModule(nn.Module):
    """Has of such a module what constructors and samplers ask for; what it logs is lost.

    Attributes:
        hparams: the arguments that the constructor has saved.
    """

    current_epoch = global_step = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        super().__init__()
        self.hparams = namespace()

    @property
    def device(self) -> torch.device:
        """Return where the weights are."""
        return next((one.device for one in self.parameters()), torch.device("cpu"))

    def save_hyperparameters(self, *given: Any, ignore: Collection[str] = (), **_: Any) -> None:
        """Keep arguments of the constructor that calls: those of these names, or the entries of this mapping; all
        without either.
        """
        frame = inspect.currentframe()
        values = _arguments(frame.f_back) if frame is not None and frame.f_back is not None else {}
        for one in given:
            if isinstance(one, Mapping):
                values = {**one}
        names = {one for one in given if isinstance(one, str)} or {*values}
        left = {ignore} if isinstance(ignore, str) else {*ignore}
        self.hparams.update({name: value for name, value in values.items() if name in names - left})

    def log(self, *_: Any, **__: Any) -> None:
        """Do nothing."""

    log_dict = log


def _arguments(frame: Any) -> dict[str, Any]:
    """Return the arguments of a method that runs, by name; those of `**kwargs` among them."""
    names, _, keywords, values = inspect.getargvalues(frame)
    code = frame.f_code
    alone = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    return {**{name: values[name] for name in (*names[1:], *alone)}, **(values[keywords] if keywords else {})}
