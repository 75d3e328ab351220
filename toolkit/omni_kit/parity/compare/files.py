"""Tensors in files: how the two processes hand each other what they computed."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import torch
from safetensors.torch import load_file, save_file

from omni_kit.toys.tensors import Tensors


def save_tensors(tensors: Mapping[str, torch.Tensor], file: Path) -> None:
    """Writes tensors to a file, each with storage of its own, so that ties do not matter."""
    file.parent.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()}, file)


def load_tensors(file: Path) -> Tensors:
    """Every tensor of a file that `save_tensors` wrote."""
    return cast(Tensors, load_file(file))


def state_of(model: torch.nn.Module) -> Tensors:
    """Parameters and persistent buffers, tied ones under each of their names."""
    return {name: tensor for name, tensor in model.state_dict().items() if isinstance(tensor, torch.Tensor)}
