"""Faults between processes: what is exchanged arrives in another order, or is not summed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import distributed

from omni_kit.parity.faults.fault_injection import Outcome

_Collective = Callable[..., Any]


def _reversed_list(outcome: Outcome, real: _Collective) -> _Collective:
    """Parts that arrive as a list are in reverse."""

    def wrong(*args: Any, **named: Any) -> Any:
        work = _done(real(*args, **named))
        received = _given(args, named, 0, "tensor_list", "output_tensor_list")
        if received and received[0].is_floating_point() and len({part.shape for part in received}) == 1:
            kept = [part.clone() for part in reversed(received)]
            outcome.changed |= any(not torch.equal(part, other) for part, other in zip(received, kept, strict=True))
            for part, other in zip(received, kept, strict=True):
                part.copy_(other)
        return work

    return wrong


def _reversed_parts(outcome: Outcome, real: _Collective) -> _Collective:
    """Parts that arrive in one tensor are in reverse."""

    def wrong(*args: Any, **named: Any) -> Any:
        work = _done(real(*args, **named))
        received = _given(args, named, 0, "output", "output_tensor")
        parts = distributed.get_world_size(named.get("group"))
        if received.is_floating_point() and received.dim() and received.shape[0] % parts == 0:
            other = torch.cat(list(received.chunk(parts))[::-1])
            outcome.changed |= not torch.equal(received, other)
            received.copy_(other)
        return work

    return wrong


def _not_summed(outcome: Outcome, real: _Collective) -> _Collective:
    """Each process keeps its own."""

    def wrong(*args: Any, **named: Any) -> Any:
        tensor = _given(args, named, 0, "tensor")
        if not tensor.is_floating_point():
            return real(*args, **named)
        own = tensor.clone()
        work = _done(real(*args, **named))
        outcome.changed |= not torch.equal(tensor, own)
        tensor.copy_(own)
        return work

    return wrong


def _own_part(outcome: Outcome, real: _Collective) -> _Collective:
    """Each process keeps its own share of its own."""

    def wrong(*args: Any, **named: Any) -> Any:
        group = named.get("group")
        output, given = _given(args, named, 0, "output"), _given(args, named, 1, "input")
        own = given.chunk(distributed.get_world_size(group))[distributed.get_rank(group)].clone()
        work = _done(real(*args, **named))
        outcome.changed |= not torch.equal(output, own.reshape(output.shape))
        output.copy_(own.reshape(output.shape))
        return work

    return wrong


def _given(args: tuple[Any, ...], named: Mapping[str, Any], place: int, *names: str) -> Any:
    """Return an argument, however it was given."""
    return args[place] if len(args) > place else next(named[name] for name in names if name in named)


def _done(work: Any) -> Any:
    if work is not None:
        work.wait()
    return work


# Kind -> the collectives that go wrong, and how.
PROCESS_FAULTS: dict[str, dict[str, Callable[[Outcome, _Collective], _Collective]]] = {
    "parts-joined-in-another-order": {
        "all_gather": _reversed_list,
        "all_to_all": _reversed_list,
        "all_gather_into_tensor": _reversed_parts,
        "all_gather_single": _reversed_parts,
        "all_to_all_single": _reversed_parts,
    },
    "sum-over-processes-missing": {"all_reduce": _not_summed},
    "gradients-of-processes-not-summed": {"reduce_scatter_tensor": _own_part, "reduce_scatter_single": _own_part},
}


@contextmanager
def process_fault(kind: str) -> Iterator[Outcome]:
    """This process has the fault; none if `kind` is empty."""
    outcome = Outcome()
    wrong = PROCESS_FAULTS.get(kind, {})
    # Which of them there are, and which of them a framework calls, depends on the version of torch.
    real = {name: getattr(distributed, name) for name in wrong if hasattr(distributed, name)}
    for name, collective in real.items():
        setattr(distributed, name, wrong[name](outcome, collective))
    try:
        yield outcome
    finally:
        for name, collective in real.items():
            setattr(distributed, name, collective)
