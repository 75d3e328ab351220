"""Mistakes in how a model takes what it is called with: only a call of that kind can show them."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch

from omni_kit.parity.faults.media import MEDIA_FAULTS, several_packed, shown

_IGNORED = -100
_LONG = 256
Arguments = dict[str, Any]


@dataclass(frozen=True)
class CallFault:
    """A mistake of the whole model.

    Attributes:
        shown_by: how the names of the ways of calling begin that can show it.
        before: changes what the model is called with, in place; is given the model, too.
        after: changes what it answers, in place; is given the model and what it was called with.
    """

    shown_by: tuple[str, ...]
    before: Callable[[Any, Arguments], object] | None = None
    after: Callable[[Any, Arguments, Any], object] | None = None


@contextmanager
def mistaken(model: Any, fault: CallFault) -> Iterator[list[str]]:
    """The model makes the mistake while this is entered; the names of what that changed are added to the list."""
    own, changed = model.forward, list[str]()

    @wraps(own)
    def forward(*args: Any, **called: Any) -> Any:
        if fault.before is not None:
            right = {name: dict(value) if isinstance(value, dict) else value for name, value in called.items()}
            fault.before(model, called)
            changed.extend(name for name in right if not _alike(right[name], called.get(name)))
            changed.extend(called.keys() - right.keys())
        answer = own(*args, **called)
        if fault.after is not None:
            fault.after(model, called, answer)
            changed.append("outputs")
        return answer

    model.forward = forward
    try:
        yield changed
    finally:
        del model.forward


def _alike(one: Any, other: Any) -> bool:
    """Return whether an argument is what it was."""
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one is other or one.equal(other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(value, other[name]) for name, value in one.items())
    return one is other or (isinstance(one, int) and one == other)


def _dropped(name: str) -> Callable[[Any, Arguments], object]:
    return lambda model, called: called.pop(name, None)


def _length(called: Arguments) -> int:
    given = called.get("input_ids")
    return int(given.shape[1]) if given is not None else 0


def _past(called: Arguments) -> int:
    cache: Any = called.get("past_key_values")
    return int(cache.get_seq_length()) if hasattr(cache, "get_seq_length") else 0


def _embeddings_moved(model: Any, called: Arguments) -> None:
    if called.get("inputs_embeds") is not None:
        called["inputs_embeds"] = called["inputs_embeds"].roll(1, dims=1)


def _positions_anew(model: Any, called: Arguments) -> None:
    if _past(called):
        called["position_ids"] = torch.arange(_length(called), device=called["input_ids"].device)[None]


def _first_unseen(model: Any, called: Arguments) -> None:
    if _length(called) > _LONG:
        called["attention_mask"] = called["attention_mask"].clone()
        called["attention_mask"][:, 0] = 0


def _ignored_counted(model: Any, called: Arguments) -> None:
    if called.get("labels") is not None:
        called["labels"] = called["labels"].clamp(min=0)


def _larger(right: Any) -> Any:
    """Return a tensor, or all of them by name or in a row, a hundredth larger."""
    if isinstance(right, Mapping):
        return {name: _larger(one) for name, one in right.items()}
    return [_larger(one) for one in right] if isinstance(right, (list, tuple)) else right * 1.01


def _scaled(names: Sequence[str], when: Callable[[Any, Arguments], bool]) -> Callable[[Any, Arguments, Any], object]:
    def scale(model: Any, called: Arguments, answer: Any) -> None:
        for name in names if when(model, called) else ():
            if (right := getattr(answer, name, None)) is not None:
                answer[name] = _larger(right)

    return scale


CALL_FAULTS: Mapping[str, CallFault] = {
    "padding is read as text": CallFault(("padding", "padded"), _dropped("attention_mask")),
    "logits_to_keep is dropped": CallFault(("logits_to_keep",), _dropped("logits_to_keep")),
    "return_dict is dropped": CallFault(("return_dict",), _dropped("return_dict")),
    "output_hidden_states is dropped": CallFault(("output_hidden_states",), _dropped("output_hidden_states")),
    "output_attentions is dropped": CallFault(("output_attentions",), _dropped("output_attentions")),
    "output_router_logits is dropped": CallFault(
        ("output_router_logits", "cache", "generate"), _dropped("output_router_logits")
    ),
    "embeddings are shifted by one position": CallFault(("inputs_embeds",), _embeddings_moved),
    "positions restart despite a cache": CallFault(("cache", "generate"), _positions_anew),
    "the first token is masked": CallFault(("300",), _first_unseen),
    "ignored labels are counted": CallFault(
        ("labels ignored", "a single label", "padded sdpa", *several_packed(), *shown("IVS")), _ignored_counted
    ),
    "outputs differ in evaluation mode": CallFault(
        ("evaluation", "cache", "generate"),
        after=_scaled(("logits", "predictions"), lambda model, called: not model.training),
    ),
    "a single token has other logits": CallFault(
        ("1 token",), after=_scaled(("logits",), lambda model, called: _length(called) == 1 and not _past(called))
    ),
    "checkpointing changes the loss": CallFault(
        ("gradient checkpointing",), after=_scaled(("loss",), lambda model, called: model.is_gradient_checkpointing)
    ),
    **{name: CallFault(shown_by, before) for name, (shown_by, before) in MEDIA_FAULTS.items()},
}
