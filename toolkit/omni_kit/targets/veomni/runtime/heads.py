"""Whether every class that an integration registers can be trained: one step of each, with labels of its task."""

import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from omni_kit.errors import in_short
from omni_kit.targets.veomni.runtime.branches import known_tasks

_ROWS, _LENGTH, _IGNORED = 1, 8, -100  # samples are packed into one row
# What the name of a class ends with -> its labels, for ids [rows, tokens]. VeOmni labels the last token of a sample
# with its class.
_LABELS: Mapping[str, Callable[[torch.Tensor], dict[str, torch.Tensor]]] = {
    "ForSequenceClassification": lambda ids: {"labels": _last_alone(ids)},
    "ForTokenClassification": lambda ids: {"labels": ids % 2},
    "ForQuestionAnswering": lambda ids: {"start_positions": ids[:, 0] % 2, "end_positions": ids[:, 1] % 2 + 2},
}


def head_faults(model: Any, checkpoint: Path, build: Callable[[Path], Any]) -> Iterator[str]:
    """The registered classes whose training step raises, or has no loss that can be differentiated.

    Args:
        model: built by VeOmni, of any of the classes.
        build: makes a model of a directory's config.json, with weights as they begin.
    """
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    for name in known_tasks(model):
        labels = next((made for ending, made in _LABELS.items() if name.endswith(ending)), None)
        if labels is not None:
            with tempfile.TemporaryDirectory() as place:
                made = {**config, "architectures": [name]}
                Path(place, "config.json").write_text(json.dumps(made), encoding="utf-8")
                if said := _step(lambda folder=Path(place): build(folder), labels):  # type: ignore[misc]
                    yield f"a training step of {name} {said}"


def _step(build: Callable[[], Any], labels: Callable[[torch.Tensor], dict[str, torch.Tensor]]) -> str:
    try:
        model = build().train()
        ids = torch.arange(3, 3 + _ROWS * _LENGTH, device=next(model.parameters()).device).view(_ROWS, _LENGTH)
        loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False, **labels(ids)).loss
        if not isinstance(loss, torch.Tensor) or loss.dim() or not loss.requires_grad:
            return f"gives {type(loss).__name__} as its loss, not a differentiable scalar"
        torch.autograd.backward(loss)
    except Exception as error:  # the integration's own
        return f"ends in {in_short(error, 160)}"
    return ""


def _last_alone(ids: torch.Tensor) -> torch.Tensor:
    labels = torch.full_like(ids, _IGNORED)
    labels[:, -1] = ids[:, 0] % 2
    return labels
