"""Deterministic weights in which every element differs.

A constant or a tiny weight hides a swapped half, a transposed expert or a dropped bias; a random one cannot be
replayed.
"""

import math
import zlib
from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import nn

_SPREAD = 0.2  # of norms and biases around their initial value
_EMBEDDING_SCALE = 0.5
_SMALL, _LARGE = 2**15, 2**18  # elements of a ramp that is kept among many, and among few


def fill(model: nn.Module, salt: int = 0) -> None:
    """Set every parameter and persistent buffer of floating type in place, each element different.

    Matrices get a shuffled ramp of unit gain for their fan-in, so that activations stay in range at any depth. Vectors
    (norms, biases, decay rates) keep the centre that the model's own initialisation gave them; a second fill keeps it,
    too. Where a router looks its experts up in a table, each row names experts, none twice.
    """
    owners = {name: module for path, module in model.named_modules() for name in _own(path, module)}
    with torch.no_grad():
        for name, tensor in _stored(model):
            tensor.copy_(_values(name, tensor, owners.get(name), salt))
        for name, table, experts in _tables(model):
            order = torch.rand(len(table), experts, generator=generator(f"{name}{salt or ''}")).argsort(dim=1)
            table.copy_(order[:, : table.shape[1]])


def unfreeze(model: nn.Module) -> nn.Module:
    """Let every layer of torch's own have gradients: constructors of authors freeze some of them for a finetuning.

    Parameters that a class of their own holds stay as they are: those may be tables.
    """
    for module in model.modules():
        if type(module).__module__.startswith("torch.nn."):
            for parameter in module.parameters(recurse=False):
                parameter.requires_grad_(parameter.is_floating_point())
    return model


def _own(path: str, module: nn.Module) -> Iterator[str]:
    """Full names of what the module itself holds."""
    for name, _ in (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)):
        yield f"{path}.{name}" if path else name


def _stored(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a checkpoint, ties once."""
    stored = model.state_dict().keys()
    yield from model.named_parameters()
    for name, buffer in model.named_buffers():
        if name in stored and buffer.is_floating_point():
            yield name, buffer


def _tables(model: nn.Module) -> Iterator[tuple[str, torch.Tensor, int]]:
    """Stored whole numbers [N, K] next to a weight [E, H], where K of E are chosen for each of N: name, table, E."""
    stored = model.state_dict().keys()
    for path, module in model.named_modules():
        weight = module._parameters.get("weight")
        for name, buffer in module.named_buffers(path, recurse=False):
            if weight is None or weight.dim() != 2 or buffer.is_floating_point() or buffer.dim() != 2:
                continue
            if name in stored and buffer.shape[1] < weight.shape[0]:
                yield name, buffer, weight.shape[0]


def _values(name: str, tensor: torch.Tensor, owner: nn.Module | None, salt: int) -> torch.Tensor:
    ramp = shuffled_ramp(f"{name}{salt or ''}", tensor.shape).to(tensor.device)
    if tensor.dim() < 2:
        return tensor.float().mean().round() + _SPREAD * ramp
    if isinstance(owner, nn.Embedding):
        return _EMBEDDING_SCALE * ramp
    convolves = any("Conv" in cls.__name__ for cls in type(owner).__mro__)
    fan_in = math.prod(tensor.shape[1:]) if convolves else tensor.shape[-1]
    return ramp * math.sqrt(3.0 / max(fan_in, 1))  # a layer may take nothing


def shuffled_ramp(name: str, shape: torch.Size | tuple[int, ...]) -> torch.Tensor:
    """float32 values from -1 to 1 in equal steps, shuffled by a seed made of `name`.

    Raises:
        ValueError: more elements than float32 can tell apart.
    """
    count = math.prod(shape)
    if count > 2**23:
        raise ValueError(f"{name} has {count} elements, more than float32 has distinct values for")
    shuffled = _many if count <= _SMALL else _few if count <= _LARGE else _shuffled
    return shuffled(name, count).clone().reshape(shape)


def _shuffled(name: str, count: int) -> torch.Tensor:
    order = torch.randperm(count, generator=generator(name))
    return torch.linspace(-1.0, 1.0, count)[order]


# Variants of a toy have most tensors in common.
_many, _few = lru_cache(maxsize=1024)(_shuffled), lru_cache(maxsize=64)(_shuffled)


def nudged(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """Return every element moved to a neighbouring number of its dtype, up or down by a coin that depends on `name`."""
    up = torch.rand(tensor.shape, generator=generator(f"nudge {name}")).to(tensor.device) < 0.5
    target = torch.where(up, torch.inf, -torch.inf).to(tensor.dtype)
    return torch.nextafter(tensor.detach(), target)


def generator(name: str) -> torch.Generator:
    """Random numbers that depend on `name` alone."""
    return torch.Generator().manual_seed(zlib.crc32(name.encode()))
