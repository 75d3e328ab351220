"""Whether each class that an integration registers can be trained, and gives the outputs of upstream's class."""

import copy
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from omni_kit.errors import in_short
from omni_kit.targets.veomni.runtime.branches import known_tasks

_CLOSE = 1e-4
_ALL = {"output_hidden_states": True}
_ROWS, _LENGTH, _IGNORED = 1, 8, -100  # samples are packed into one row
# What the name of a class ends with -> its labels, for ids [rows, tokens]. VeOmni labels the last token of a sample
# with its class.
_LABELS: Mapping[str, Callable[[torch.Tensor], dict[str, torch.Tensor]]] = {
    "ForSequenceClassification": lambda ids: {"labels": _last_alone(ids)},
    "ForTokenClassification": lambda ids: {"labels": ids % 2},
    "ForQuestionAnswering": lambda ids: {"start_positions": ids[:, 0] % 2, "end_positions": ids[:, 1] % 2 + 2},
}


def head_faults(model: Any, checkpoint: Path, build: Callable[[Path], Any]) -> Iterator[str]:
    """The registered classes whose training step raises or has no loss that can be differentiated, or whose outputs
    without labels differ from those of upstream's class.

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
                if said := _called(lambda folder=Path(place): build(folder), name, labels):  # type: ignore[misc]
                    yield said


def _called(build: Callable[[], Any], name: str, labels: Callable[[torch.Tensor], dict[str, torch.Tensor]]) -> str:
    """Return what is wrong with a training step, or then with the outputs."""
    try:
        model = build()
    except Exception as error:  # the integration's own
        return f"{name} cannot be built: {in_short(error, 160)}"
    ids = torch.arange(3, 3 + _ROWS * _LENGTH, device=next(model.parameters()).device).view(_ROWS, _LENGTH)
    given = {"attention_mask": torch.ones_like(ids), "use_cache": False}
    embedded = {"inputs_embeds": model.get_input_embeddings()(ids).detach(), **given}
    for what, inputs in (("", {"input_ids": ids, **given}), (" on inputs_embeds", embedded)):
        if said := _step(model.train(), {**inputs, **labels(ids)}):
            return f"a training step of {name}{what} {said}"
    calls = [{"input_ids": ids, **given, **_ALL}, embedded]
    return next(filter(None, (_off_upstream(model.eval(), name, one) for one in calls)), "")


@torch.no_grad()
def _off_upstream(model: Any, name: str, inputs: Mapping[str, Any]) -> str:
    """Return how the outputs differ from upstream's class with the same weights; empty where it has others."""
    try:
        upstream = getattr(transformers, name)._from_config(copy.deepcopy(model.config), attn_implementation="eager")
        upstream.load_state_dict(model.state_dict())
        expected = upstream.to(inputs["attention_mask"].device).eval()(**inputs)
    except Exception:  # upstream's own
        return ""
    called = f"{name}, called with {', '.join(inputs)},"
    try:
        found = model(**inputs)
    except Exception as error:  # the integration's own
        return f"{called} ends in {in_short(error, 160)}"
    if lost := [key for key in expected if found.get(key) is None]:
        return f"{called} returns no {', '.join(lost)}, and upstream does"
    off = [
        key
        for key, value in expected.items()
        if isinstance(value, torch.Tensor)
        and not torch.allclose(found[key], value, _CLOSE, _CLOSE * float(value.abs().max()))
    ]
    return f"{called} has other {', '.join(off)} than upstream" if off else ""


def _step(model: Any, inputs: Mapping[str, Any]) -> str:
    try:
        loss = model(**inputs).loss
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
