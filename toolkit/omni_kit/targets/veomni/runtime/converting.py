"""A model's converter, run over a checkpoint as VeOmni's loader runs it: what it keeps, and what nobody takes."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

_NUMBERED = re.compile(r"^(.*?\blayers\.)(\d+)(\..*)$")
_PREDICTION = re.compile(r"nextn|mtp")
_AT_LAYER = re.compile(r"layers\\?\.\d")


def converter_faults(model: Any, made: Any, checkpoint: Path) -> Iterator[str]:
    """Yield the faults of a converter: tensors that it keeps, and keys of prediction layers that it changes.

    Args:
        model: built by VeOmni, on the meta device.
        made: the converter of the model, unused.
        checkpoint: in upstream's layout.
    """
    given = dict(stored_tensors(checkpoint))
    for name, tensor in given.items():
        _converted(model, made, name, tensor)
    given.clear()
    held = _held(made)
    returned = sum(_size(one.tensor) for one in made.finalize())
    if (kept := sum(map(_size, held)) - returned) > 0:
        yield f"it keeps {kept} bytes of what it has given out ({len(held)} tensors): a process holds experts twice"


def prediction_faults(model: Any, made: Any, checkpoint: Path) -> Iterator[str]:
    """Yield the faults of a converter with the keys of layers that predict further tokens, which fill no parameter.

    Args:
        made: another converter, unused.
    """
    names, known = _prediction_keys(model, checkpoint), set(model.state_dict())
    for name, shape in names.items():
        stored = torch.empty(tuple(shape), device="meta")
        one = _converted(model, made, name, stored)
        if one is not None and one.tensor is not stored and one.name not in known:  # a mere renaming costs nothing
            yield f"it makes {one.name} of a prediction layer, which fill no parameter"
            return
    if names and any(_size(tensor) or tensor.is_meta for tensor in _held(made)):
        yield f"it collects {next(iter(names))} and others of a prediction layer, which fill no parameter"


def _prediction_keys(model: Any, checkpoint: Path) -> Mapping[str, list[int]]:
    """Return keys of a layer after the last, as checkpoints name those that predict; none if nothing announces them."""
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    announced = any(
        _PREDICTION.search(name) and isinstance(value, int) and value for name, value in vars(config).items()
    )
    ignored = [
        text for part in model.modules() for text in getattr(part, "_keys_to_ignore_on_load_unexpected", None) or ()
    ]
    shapes = {name: list(tensor.shape) for name, tensor in stored_tensors(checkpoint)}
    found = {name: match for name in shapes if (match := _NUMBERED.match(name))}
    last = max((int(match[2]) for match in found.values()), default=0)
    layer = {name: match for name, match in found.items() if int(match[2]) == last}
    keys: dict[str, list[int]] = {}
    if announced or any(_AT_LAYER.search(text) for text in ignored):
        keys |= {f"{match[1]}{last + 1}{match[3]}": shapes[name] for name, match in layer.items()}
    if any("mtp" in text for text in ignored):
        keys |= {f"mtp.layers.0{match[3]}": shapes[name] for name, match in layer.items()}
    return keys


def _converted(model: Any, made: Any, name: str, tensor: torch.Tensor) -> Any:
    from veomni.models.checkpoint_tensor_loading import maybe_convert_checkpoint_tensor
    from veomni.models.module_utils import _convert_weight_key

    return maybe_convert_checkpoint_tensor(_convert_weight_key(name, model), tensor, made)


def stored_tensors(checkpoint: Path) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a checkpoint, with their names."""
    for file in sorted(checkpoint.glob("*.safetensors")):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118  an opened file is no mapping
                yield name, opened.get_tensor(name)


def _held(made: Any) -> list[torch.Tensor]:
    """Return the tensors that an object holds, in whatever it keeps them."""
    found: dict[int, torch.Tensor] = {}
    seen: set[int] = set()
    waiting: list[Any] = [vars(made)] if hasattr(made, "__dict__") else []
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, torch.Tensor):
            found[one.untyped_storage().data_ptr() or id(one)] = one
        elif isinstance(one, Mapping):
            waiting += one.values()
        elif isinstance(one, list | tuple | set | frozenset):
            waiting += one
        elif hasattr(one, "tensor"):
            waiting.append(one.tensor)
    return list(found.values())


def _size(tensor: torch.Tensor) -> int:
    return 0 if tensor.is_meta else tensor.untyped_storage().nbytes()
