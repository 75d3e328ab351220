"""Check whether each class that an integration registers can be trained, and gives the outputs of upstream's class."""

import copy
import inspect
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
import transformers

from omni_kit.errors import in_short
from omni_kit.targets.veomni.runtime.attention import packed_attention_used, takes_flash, window_in_dispute
from omni_kit.targets.veomni.runtime.branches import known_tasks
from omni_kit.targets.veomni.runtime.loss_arguments import loss_bound
from omni_kit.toys.batches.language import without_router_loss

_CLOSE = 1e-4
_ALL = {"output_hidden_states": True}
_ROWS, _LENGTH, _IGNORED = 1, 8, -100  # samples are packed into one row
_PACKED = (5, 3)  # lengths of the samples of a packed row
_ITEMS = "num_items_in_batch"
# What the name of a class ends with -> its labels, for ids [rows, tokens]. VeOmni labels the last token of a sample
# with its class.
_LABELS: Mapping[str, Callable[[torch.Tensor], dict[str, torch.Tensor]]] = {
    "ForSequenceClassification": lambda ids: {"labels": _last_alone(ids)},
    "ForTokenClassification": lambda ids: {"labels": ids % 2},
    "ForQuestionAnswering": lambda ids: {"start_positions": ids[:, 0] % 2, "end_positions": ids[:, 1] % 2 + 2},
}
# Labels of packed rows, for the heads that VeOmni's trainers train; the first token of a sample is not predicted.
_OF_PACKED: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "ForCausalLM": lambda ids: torch.cat([torch.full_like(ids[:, :1], _IGNORED), ids[:, 1:]], 1),
    "ForSequenceClassification": lambda ids: _last_alone(ids),
}


def head_faults(model: Any, checkpoint: Path, build: Callable[[Path], Any]) -> Iterator[str]:
    """The registered classes whose training step raises, has no loss that can be differentiated or loses what the loss
    function divides by, or whose outputs without labels differ from those of upstream's class.

    Args:
        model: built by VeOmni, of any of the classes.
        build: makes a model of a directory's config.json, with weights as they begin.
    """
    config = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    for name in known_tasks(model):
        labels = next((made for ending, made in _LABELS.items() if name.endswith(ending)), None)
        packed = next((made for ending, made in _OF_PACKED.items() if name.endswith(ending)), None)
        if labels is not None or packed is not None:
            with tempfile.TemporaryDirectory() as place:
                made = {**config, "architectures": [name]}
                Path(place, "config.json").write_text(json.dumps(made), encoding="utf-8")
                if said := _called(lambda folder=Path(place): build(folder), name, labels, packed):  # type: ignore[misc]
                    yield said


def _called(
    build: Callable[[], Any],
    name: str,
    labels: Callable[[torch.Tensor], dict[str, torch.Tensor]] | None,
    packed: Callable[[torch.Tensor], torch.Tensor] | None,
) -> str:
    """Return what is wrong with a training step, with the outputs, or with a packed row."""
    try:
        model = build()
    except Exception as error:  # the integration's own
        return f"{name} cannot be built: {in_short(error, 160)}"
    ids = torch.arange(3, 3 + _ROWS * _LENGTH, device=next(model.parameters()).device).view(_ROWS, _LENGTH)
    given = {"attention_mask": torch.ones_like(ids), "use_cache": False}
    embedded = {"inputs_embeds": model.get_input_embeddings()(ids).detach(), **given}
    if labels is not None:
        for what, inputs in (("", {"input_ids": ids, **given}), (" on inputs_embeds", embedded)):
            if said := _step(model.train(), {**inputs, **labels(ids)}):
                return f"a training step of {name}{what} {said}"
        if packed is not None and not _heard(model, {"input_ids": ids, **given, **labels(ids)}):
            return f"{name}.forward does not pass {_ITEMS} to its loss function"
        calls = [{"input_ids": ids, **given, **_ALL}, embedded]
        if said := next(filter(None, (_off_upstream(model.eval(), name, one) for one in calls)), ""):
            return said
    if packed is None or not getattr(model, "_supports_flash_attn", False) or window_in_dispute(model):
        return ""
    with packed_attention_used(model) if takes_flash(model) else nullcontext(), without_router_loss(model):
        return next(filter(None, (_off_alone(model, name, ids, packed, embeds) for embeds in (False, True))), "")


@torch.no_grad()
def _off_alone(
    model: Any, name: str, ids: torch.Tensor, labels: Callable[[torch.Tensor], torch.Tensor], embeds: bool
) -> str:
    """Return how the loss of a packed row differs from those of its samples; empty if it does not."""
    samples = [{"input_ids": one, "labels": labels(one)} for one in torch.split(ids, [*_PACKED], dim=1)]
    counts = torch.tensor([int((one["labels"] != _IGNORED).sum()) for one in samples])

    def loss(rows: Sequence[Mapping[str, torch.Tensor]]) -> torch.Tensor:
        fed = {key: torch.cat([one[key] for one in rows], 1) for key in rows[0]}
        lengths = [one["input_ids"].shape[1] for one in rows]
        if embeds:
            fed["inputs_embeds"] = model.get_input_embeddings()(fed.pop("input_ids"))
        fed["position_ids"] = torch.cat([torch.arange(length, device=ids.device) for length in lengths])[None]
        fed["attention_mask"] = torch.ones_like(fed["position_ids"])
        if len(rows) > 1:
            bounds = torch.tensor([0, *accumulate(lengths)], dtype=torch.int32, device=ids.device)
            fed |= dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k"), bounds)
        longest = dict.fromkeys(("max_length_q", "max_length_k"), max(lengths)) if len(rows) > 1 else {}
        found: torch.Tensor = model(**fed, **longest, use_cache=False).loss
        return found

    called = f"a packed row of {name}{' on inputs_embeds' if embeds else ''}"
    try:
        alone = [loss([one]) for one in samples]
    except Exception:  # said of a training step
        return ""
    try:
        together = loss(samples)
        expected = sum(one * (count / counts.sum()) for one, count in zip(alone, counts, strict=True))
        same = torch.allclose(together, torch.as_tensor(expected), _CLOSE, _CLOSE)
    except Exception as error:  # the integration's own
        return f"{called} ends in {in_short(error, 160)}"
    return "" if same else f"{called} has the loss {float(together):.6g}, and its samples {float(expected):.6g}"


@torch.no_grad()
def _off_upstream(model: Any, name: str, inputs: Mapping[str, Any]) -> str:
    """Return how the outputs differ from upstream's class with the same weights; empty if it has others."""
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


@torch.no_grad()
def _heard(model: Any, inputs: Mapping[str, Any]) -> bool:
    """Return whether the number that the loss function divides by reaches each of its calls."""
    own, heard = model.loss_function, []

    def listen(*args: Any, **kwargs: Any) -> Any:
        heard.append(inspect.signature(own).bind_partial(*args, **kwargs).arguments.get(_ITEMS))
        return own(*args, **kwargs)

    with loss_bound(model, None, listen):
        model(**inputs, **{_ITEMS: _ROWS})
    return None not in heard


def _last_alone(ids: torch.Tensor) -> torch.Tensor:
    labels = torch.full_like(ids, _IGNORED)
    labels[:, -1] = ids[:, 0] % 2
    return labels
