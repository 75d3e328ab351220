"""Adapters of a model, wrapped, trained, saved and loaded by VeOmni's own LoRA, and what is wrong with them."""

import copy
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import torch
from torch import nn

from omni_kit.errors import in_short
from omni_kit.plurals import counted

_RANK, _ALPHA = 4, 8
# What the fused experts of every model are called in a training configuration.
_EXPERT_TARGETS = ("gate_proj", "up_proj", "down_proj")
_ROLES = ("lora_A", "lora_B", "base_layer")
_SHOWN = 3
# Adapters that add nothing: what a sum over them in another order can change, relative to the loss.
_NOTHING = 1e-5


@dataclass(frozen=True)
class Adapters:
    """A model, and how its adapters are tried.

    Attributes:
        load: the model with the weights of a checkpoint, in training mode; a new one at each call.
        loss: of one batch, [].
        folder: where adapters are saved.
        stored: the names of the checkpoint's tensors.
    """

    load: Callable[[], Any]
    loss: Callable[[nn.Module], torch.Tensor]
    folder: Path
    stored: Sequence[str] = ()

    def tried(self) -> tuple[list[str], list[str]]:
        """Train and reload each kind of adapters; return what was tried, and the faults."""
        stacks = _stacks(self._first)
        ways: Mapping[str, bool | None] = (
            {"one adapter an expert": False, "one for all experts": True} if stacks else {"linear layers": None}
        )
        said, wrong = [], []
        for way, shared in ways.items():
            try:
                found, count = self._way(shared, stacks, self.folder / way.replace(" ", "_"))
            except Exception as error:  # VeOmni's, or the model's
                found, count = [f"{in_short(error, 300)} {_raised(error)}"], 0
            said.append(f"{way}: {counted(count, 'adapter')}")
            wrong += [one for one in found if one not in wrong]
        chosen = [] if wrong else _few(self._first, stacks)  # a fault of all of them need not be said for each
        for names in chosen:
            try:
                found = [*self._only(names, stacks)]
            except Exception as error:
                found = [f"{in_short(error, 300)} {_raised(error)}"]
            wrong += [f"{' and '.join(names)} alone: {one}" for one in found]
        said += [f"{counted(chosen, 'choice')} of one projection or two"] if chosen else []
        if own := _with_own_forward(self._first):
            said.append(f"without {_listed(own)}: VeOmni adds adapters to the output of a plain linear layer")
        return said, wrong

    def _only(self, names: Sequence[str], stacks: list[str]) -> Iterator[str]:
        """Yield the faults of adapters that are requested for these projections and no others."""
        from veomni.lora import VeOmniLoraConfig, VeOmniLoraModel, resolve_fused_moe_lora_targets

        model = copy.deepcopy(self._first)
        resolved = resolve_fused_moe_lora_targets(model, {"rank": _RANK, "alpha": _ALPHA, "lora_modules": [*names]})
        wrapped = VeOmniLoraModel(model, VeOmniLoraConfig.from_yaml(resolved))
        base = wrapped.get_base_model()
        yield from _left_alone(base, resolved["lora_modules"])
        if resolved.get("target_parameters"):
            yield from _not_wrapped(base, stacks)
        trained = {name: p for name, p in wrapped.named_parameters() if p.requires_grad}
        places = {_adapted(name) for name in trained}
        stacked = set(_EXPERT_TARGETS) if resolved.get("target_parameters") else set()
        if others := sorted(place for place in places if place.rpartition(".")[2] not in {*names, *stacked}):
            yield f"{_listed(others)} get adapters, too"
        if not trained:
            yield "nothing would be trained"
        elif abs(float(self.loss(base).detach()) - self._plain) > _NOTHING * abs(self._plain):
            yield "adapters that add nothing change the output"
        else:
            yield from self._stepped(wrapped, trained, self._unused)

    @cached_property
    def _unused(self) -> list[str]:
        model = self._fresh()
        return _without_gradient(model, self.loss(model))

    @cached_property
    def _plain(self) -> float:
        return float(self.loss(self._first).detach())

    @cached_property
    def _first(self) -> Any:
        return self.load().eval()

    def _fresh(self) -> Any:
        """Return a new model with the weights of the first: what a loader leaves to chance is another level's
        finding.
        """
        model = self.load().eval()
        model.load_state_dict(self._first.state_dict())
        return model

    def _way(self, shared: bool | None, stacks: list[str], folder: Path) -> tuple[list[str], int]:
        from veomni.lora import VeOmniLoraConfig, VeOmniLoraModel, resolve_fused_moe_lora_targets

        model = self._fresh()
        asked = {"rank": _RANK, "alpha": _ALPHA, "lora_modules": _targets(model, bool(stacks))}
        resolved = resolve_fused_moe_lora_targets(
            model, asked | ({} if shared is None else {"share_expert_lora": shared})
        )
        if stacks and not resolved.get("target_parameters"):
            return [f"{_listed(stacks)}: no name for experts is translated, so they get no adapter"], 0
        missed = _missed(model, stacks, resolved["target_parameters"]) if stacks else []
        plain = float(self.loss(model).detach())
        wrapped = VeOmniLoraModel(model, VeOmniLoraConfig.from_yaml(resolved))
        base = wrapped.get_base_model()
        wrong = [*missed, *_left_alone(base, resolved["lora_modules"]), *_not_wrapped(base, stacks)]
        wrong += _not_converted(wrapped, self._first, self.stored)
        trained = {name: p for name, p in wrapped.named_parameters() if p.requires_grad}
        wrong += [f"{_listed(strange)} would be trained, too"] if (strange := _strange(trained)) else []
        if not trained:
            return [*wrong, "nothing would be trained"], 0
        if abs(float(self.loss(base).detach()) - plain) > _NOTHING * abs(plain):
            wrong.append("adapters that add nothing change the output")
        wrong += self._stepped(wrapped, trained, self._unused)
        wrong += self._resumed(wrapped, folder)
        return wrong, len(trained)

    def _stepped(self, wrapped: Any, trained: Mapping[str, nn.Parameter], unused: Sequence[str]) -> Iterator[str]:
        """Yield a step on adapters that are no longer zero moves all of them, and nothing else.

        Args:
            unused: linear layers that the loss does not depend on without adapters either.
        """
        draws = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in trained.values():
                parameter.copy_(torch.randn(parameter.shape, generator=draws) * 0.1)
        before = {name: tensor.detach().clone() for name, tensor in wrapped.state_dict().items()}
        torch.autograd.backward(self.loss(wrapped.get_base_model()))
        idle = [name for name, p in trained.items() if p.grad is None or not p.grad.count_nonzero()]
        if idle := [name for name in idle if not any(f".{layer}.lora_" in f".{name}" for layer in unused)]:
            yield f"{_listed(idle)} get no gradient: their base layers are not called, or read directly"
        torch.optim.SGD(trained.values(), lr=0.5).step()
        moved = [name for name, tensor in wrapped.state_dict().items() if not torch.equal(tensor, before[name])]
        if others := [name for name in moved if name not in trained]:
            yield f"the step changes {_listed(others)}, which are not adapters"

    def _resumed(self, wrapped: Any, folder: Path) -> Iterator[str]:
        """Yield the faults of saving adapters and loading them onto a new model: other outputs, or unused keys."""
        from veomni.lora import VeOmniLoraModel
        from veomni.lora.weight_loading import load_lora_weights

        folder.mkdir(parents=True)
        wrapped.save_pretrained(str(folder))
        again = VeOmniLoraModel.from_pretrained(self._fresh(), str(folder))
        waiting = {name for name, parameter in again.named_parameters() if parameter.requires_grad}
        load_lora_weights(again, str(folder), init_device="cpu", parameter_names_to_load=waiting)
        if waiting:
            yield f"{_listed(sorted(waiting))} were not saved"
        first, second = (float(self.loss(one.get_base_model()).detach()) for one in (wrapped, again))
        if first != second:
            yield f"saved and loaded, the loss is {second:.6g}, and was {first:.6g}"


def _few(model: nn.Module, stacks: list[str]) -> list[tuple[str, ...]]:
    """Return each projection alone, and each two that one module holds."""
    heads = {id(model.get_output_embeddings())} if hasattr(model, "get_output_embeddings") else set()  # type: ignore[operator]
    together: set[tuple[str, ...]] = {_EXPERT_TARGETS} if stacks else set()
    for module in model.modules():
        held = module.named_children()
        own = tuple(name for name, part in held if isinstance(part, nn.Linear) and id(part) not in heads)
        together.add(tuple(name for name in own if not name.isdecimal()))
    routers = {*_with_own_forward(model)}
    together = {tuple(name for name in names if name not in routers) for names in together}
    alone = {(name,) for names in together for name in names}
    return sorted(alone) + sorted({pair for names in together for pair in combinations(names, 2)})


def _adapted(name: str) -> str:
    """Return the layer that an adapter's parameter belongs to."""
    parts = name.split(".")
    return ".".join(parts[: next(i for i, part in enumerate(parts) if part in _ROLES)])


def _stacks(model: nn.Module) -> list[str]:
    """Return the modules that hold experts as stacked parameters."""
    named = model.named_parameters()
    return sorted({name.rpartition(".")[0] for name, p in named if p.dim() == 3 and ".experts." in name})


def _targets(model: Any, stacked: bool) -> list[str]:
    """Return the last names of all linear layers but the head, and those of fused experts."""
    heads = {id(model.get_output_embeddings())} if hasattr(model, "get_output_embeddings") else set()
    linear = (name for name, one in model.named_modules() if isinstance(one, nn.Linear) and id(one) not in heads)
    found = {_last(name) for name in linear}
    found -= {*_with_own_forward(model)}
    return sorted(found | (set(_EXPERT_TARGETS) if stacked else set()))


def _last(name: str) -> str:
    """Return the last name of a module that is not a number, with the numbers behind it."""
    first, _, last = name.rpartition(".")
    return f"{_last(first)}.{last}" if first and last.isdecimal() else last


def _without_gradient(model: nn.Module, loss: torch.Tensor) -> list[str]:
    """Return the linear layers that a loss does not depend on, as those of a stream that the last block leaves."""
    torch.autograd.backward(loss)
    linear = {name: one.weight for name, one in model.named_modules() if isinstance(one, nn.Linear)}
    left = [name for name, weight in linear.items() if weight.grad is None or not weight.grad.count_nonzero()]
    model.zero_grad(set_to_none=True)
    return left


def _with_own_forward(model: nn.Module) -> list[str]:
    """Return the last names of linear layers whose class has a forward of its own, as routers that answer several
    tensors.
    """
    linear = {name: type(one) for name, one in model.named_modules() if isinstance(one, nn.Linear)}
    own = (_last(name) for name, cls in linear.items() if cls.forward is not nn.Linear.forward)
    return sorted({*own})


def _missed(model: nn.Module, stacks: list[str], patterns: Sequence[str]) -> list[str]:
    """Stacked parameters of experts that no pattern names: asked for alone, such a projection gets no adapter."""
    left = [
        name
        for name, parameter in model.named_parameters()
        if parameter.dim() == 3 and name.rpartition(".")[0] in stacks
        if not any(fnmatch(name, pattern) or name.endswith(f".{pattern}") for pattern in patterns)
    ]
    return [f"{_listed(left)} get no adapter: names of experts are translated to {', '.join(patterns)}"] if left else []


def _left_alone(base: nn.Module, targets: list[str]) -> list[str]:
    """Linear layers that were asked for and got no adapter."""
    left = [
        name
        for name, module in base.named_modules()
        if isinstance(module, nn.Linear) and _last(name) in targets and not set(_ROLES) & {*name.split(".")}
    ]
    return [f"{_listed(left)} get no adapter"] if left else []


def _not_converted(wrapped: nn.Module, plain: nn.Module, stored: Sequence[str]) -> Iterator[str]:
    """Of the tensors that the plain model's converter takes, those that it leaves when adapters are there.

    VeOmni's loader makes the converter of the model that it fills, whose modules then have a prefix.
    """
    from veomni.models.checkpoint_tensor_loading import get_checkpoint_tensor_converter

    converter, of_adapted = (get_checkpoint_tensor_converter(model) for model in (plain, wrapped))
    if converter is None:
        return
    left = [name for name in stored if converter.can_handle(name)
            and not (of_adapted is not None and of_adapted.can_handle(name))]  # fmt: skip
    if left:
        yield f"the converter of the model with adapters leaves out {_listed(left)}: experts stay as initialised"


def _not_wrapped(base: nn.Module, stacks: list[str]) -> list[str]:
    """Experts that got no adapter."""
    from veomni.lora.moe_layers import is_lora_moe_experts

    modules = dict(base.named_modules())
    left = [name for name in stacks if name not in modules or not is_lora_moe_experts(modules[name])]
    return [f"{_listed(left)} get no adapter"] if left else []


def _raised(error: Exception) -> str:
    """Return the last frame of an error in the model's own code, or VeOmni's."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/torch/" not in frame.filename]
    return f"({frames[-1].filename}:{frames[-1].lineno})"


def _strange(trained: Mapping[str, nn.Parameter]) -> list[str]:
    return [name for name in trained if not {"lora_A", "lora_B"} & {*name.split(".")}]


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
