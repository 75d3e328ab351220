"""Check whether everything that VeOmni's trainers hand a model for its loss arrives there: in the kernel, and without
one.
"""

import ast
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from omni_kit.errors import in_short
from omni_kit.toys.batches.language import without_router_loss

_OPERATION, _VARIANT = "cross_entropy_loss", "causal"
# What the model itself makes, and what is bound beforehand.
_OF_THE_MODEL = frozenset(
    {"logits", "labels", "vocab_size", "hidden_states", "weights", "ignore_index", "cross_entropy_fn", "kwargs"}
)
_TOP = 3  # tokens that a teacher names
_KEPT = "logits_to_keep"
_CLOSE = 1e-5
_PLAIN, _UNCALLED = "the loss function", "is not called in a training step"


def loss_arguments() -> list[str]:
    """Return the arguments that VeOmni's loss takes beyond what a model makes, read from its signature and source."""
    from veomni.ops.kernels.cross_entropy import ForCausalLMLoss

    tree = ast.parse(textwrap.dedent(inspect.getsource(ForCausalLMLoss)))
    popped = [
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "pop"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ]
    named = [*inspect.signature(ForCausalLMLoss).parameters, *map(str, popped)]
    return [name for name in dict.fromkeys(named) if name not in _OF_THE_MODEL]


def lost_arguments(model: Any, fed: Mapping[str, Any]) -> list[str]:
    """Return the arguments that do not reach the loss, and the bound kernels whose output differs from the plain path.

    Args:
        model: in training mode.
        fed: arguments of its forward, labels among them.
    """
    with without_router_loss(model):  # which has no place beside log probabilities
        return _lost(model, fed)


def _lost(model: Any, fed: Mapping[str, Any]) -> list[str]:
    slots = _slots(model)
    if getattr(model.get_output_embeddings(), "bias", None) is not None:
        with loss_bound(model, None, lambda *_, logits, **__: (logits.mean(), None, None)):
            said = {name: "".join(_unheard(model, fed, name, slot)) for name, slot in slots.items()}
        biased = [name for name, one in said.items() if _UNCALLED not in one]
        wrong = [f"{name} is called for a head with a bias, which it leaves out" for name in biased]
        return [*wrong, *_unheard(model, fed, _PLAIN, None)]
    wrong = [said for name, slot in {**slots, _PLAIN: None}.items() for said in _unheard(model, fed, name, slot)]
    for name, slot in slots.items():
        wrong += [f"{name}: {said}" for said in _differing(model, fed, slot)]
    return [*wrong, *(_without_logits(model, fed) if slots else ())]


def _without_logits(model: Any, fed: Mapping[str, Any]) -> Iterator[str]:
    """Logits that a loss without a kernel leaves, and that the output lacks; evaluation reads them."""
    from veomni.ops.kernels.cross_entropy import ForCausalLMLoss

    with loss_bound(model, None, ForCausalLMLoss), torch.no_grad():
        answer = model(**fed, use_cache=False)
    if getattr(answer, "logits", None) is None and getattr(answer, "fused_linear_aux", None) is None:
        yield "with labels and without a kernel, the output has no logits, which upstream returns"


def _slots(model: Any) -> dict[str, Any]:
    from veomni.ops.dispatch import OpSlot

    named = vars(sys.modules[type(model).__module__]).items()
    found = {name: slot for name, slot in named if isinstance(slot, OpSlot)}
    return {name: slot for name, slot in found.items() if (slot.op_name, slot.variant) == (_OPERATION, _VARIANT)}


def _unheard(model: Any, fed: Mapping[str, Any], name: str, slot: Any) -> Iterator[str]:
    """Yield the arguments that a loss which only listens does not get."""
    heard: dict[str, Any] = {}

    def listen(*args: Any, **kwargs: Any) -> Any:
        from veomni.ops.kernels.cross_entropy import ForCausalLMLoss

        heard.update(inspect.signature(ForCausalLMLoss).bind_partial(*args, **kwargs).arguments)
        heard.update(heard.pop("kwargs", {}))
        return next(heard[one] for one in ("logits", "hidden_states") if heard.get(one) is not None).mean(), None, None

    given = _examples(fed)
    with loss_bound(model, slot, listen), torch.no_grad():
        try:
            model(**fed, **given, use_cache=False)
        except TypeError as error:
            yield f"forward refuses what VeOmni's trainers pass to the loss: {error}"
            return
    if not heard:
        yield f"{name} {_UNCALLED}"
        return
    lost = [one for one, value in given.items() if heard.get(one) is not value]
    if lost:
        yield f"{', '.join(lost)} {'do' if lost[1:] else 'does'} not reach {name}"


def _differing(model: Any, fed: Mapping[str, Any], slot: Any) -> Iterator[str]:
    """Yield the groups of arguments for which a training step differs between the kernel and the plain path."""
    from veomni.ops.kernels.cross_entropy import ForCausalLMLoss

    given = _examples(fed)
    teacher = [one for one in given if one.startswith("teacher")]
    groups = [["num_items_in_batch"], ["shift_labels"], ["return_log_probs", "temperature"]]
    groups += [["return_log_probs", "temperature", *teacher]] if teacher else []
    cases = [(fed, {one: given[one] for one in group if one in given}) for group in groups]
    if _KEPT in inspect.signature(model.forward).parameters:
        # One row: VeOmni's loss views hidden states, which several rows cut at their end do not allow.
        rows = len(fed["labels"])
        row = {name: value[:1] if getattr(value, "shape", ())[:1] == (rows,) else value for name, value in fed.items()}
        cases.append(({**row, "labels": row["labels"][:, -_TOP:]}, {_KEPT: _TOP}))
    for inputs, chosen in cases:
        plain = _answers(model, inputs, chosen, None, ForCausalLMLoss)
        kernel = _answers(model, inputs, chosen, slot, ForCausalLMLoss)
        if isinstance(plain, str):
            continue  # it refuses it without a kernel, too: the loss is not made of hidden states
        if isinstance(kernel, str):
            yield f"with {', '.join(chosen)}: {kernel}"
            continue
        off = [one for one in {*plain, *kernel} if one not in kernel or one not in plain]
        off += [one for one in plain if one in kernel and not torch.allclose(plain[one], kernel[one], atol=_CLOSE)]
        if off:
            yield f"with {', '.join(chosen)} {', '.join(sorted(off))} differ from the plain path's output"


def _answers(
    model: Any, fed: Mapping[str, Any], given: Mapping[str, Any], slot: Any, loss: Callable[..., Any]
) -> dict[str, torch.Tensor] | str:
    with loss_bound(model, slot, loss), torch.no_grad():
        try:
            answer = model(**fed, **given, use_cache=False)
        except Exception as error:  # VeOmni's, or the model's
            return in_short(error)
    auxiliary = getattr(answer, "fused_linear_aux", None)
    found = {"loss": answer.loss, **(vars(auxiliary) if auxiliary is not None else {})}
    return {name: value for name, value in found.items() if isinstance(value, torch.Tensor)}


@contextmanager
def loss_bound(model: Any, slot: Any, loss: Callable[..., Any]) -> Iterator[None]:
    """Bind a loss to a slot, or replace the model's own loss function, while this is entered."""
    if slot is None:
        others = [(one, one._kernel) for one in _slots(model).values()]
        before = model.__dict__.get("_loss_function")
        model.loss_function = loss
    else:
        others, before = [(slot, slot._kernel)], None
    try:
        for one, _ in others:
            one._kernel = None if slot is None else loss
        yield
    finally:
        for one, kernel in others:
            one._kernel = kernel
        if slot is None and before is None:
            model.__dict__.pop("_loss_function", None)  # which the model finds by itself when it is first asked
        elif slot is None:
            model._loss_function = before


def _examples(fed: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value of each argument; what is not known here is a number."""
    labels = fed["labels"]
    shifted = torch.nn.functional.pad(labels, (0, 1), value=-100)[..., 1:].contiguous()
    scores = torch.randn(*labels.shape, _TOP, generator=torch.Generator().manual_seed(0)).to(labels.device)
    known: dict[str, Any] = {
        "num_items_in_batch": 7,
        "shift_labels": shifted.masked_fill(torch.arange(labels.shape[-1], device=labels.device) % 3 == 0, -100),
        "return_log_probs": True,
        "temperature": 0.7,
        "teacher_topk_ids": torch.arange(_TOP, device=labels.device).expand(*labels.shape, _TOP).contiguous(),
        "teacher_topk_log_probs": scores.log_softmax(-1),
        "log_prob_min_clamp": -9.0,
        "chunk_size": 4,
    }
    return {name: known.get(name, 1.0) for name in loss_arguments()}
