"""Faults in how processes share a model: of no exchange between them, and shown by no process alone."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import distributed, nn

from omni_kit.parity.faults.fault_injection import Outcome, Place, planted
from omni_kit.parity.faults.kinds import CodeFault, calls
from omni_kit.parity.faults.processes import PROCESS_FAULTS, process_fault
from omni_kit.parity.faults.source import sites
from omni_kit.targets.replacing import replaced

Arguments = dict[str, Any]
# Is called before each call of the whole model, with it and its named arguments.
_Before = Callable[[nn.Module, Arguments], None]


def _positions_after_cutting(outcome: Outcome, stack: ExitStack) -> _Before:
    """Positions count from the begin of each process's part of the tokens, and not from that of the sequence."""

    def before(model: nn.Module, called: Arguments) -> None:
        positions, tokens = called.get("position_ids"), called.get("input_ids")
        if not (isinstance(positions, torch.Tensor) and isinstance(tokens, torch.Tensor)):
            return
        whole = positions.shape[-1] > tokens.shape[-1]
        if not whole and not distributed.get_rank():
            return
        parts = torch.split(positions, tokens.shape[-1], dim=-1)
        cut = torch.cat([part - part[..., :1] for part in parts], dim=-1)
        outcome.changed |= not torch.equal(cut, positions)
        called["position_ids"] = cut

    return before


_NO_DUMMY = CodeFault("dummy-left-out", "call", calls("needs_dummy"), lambda right, *given: False)


def _dummy_left_out(outcome: Outcome, stack: ExitStack) -> _Before:
    """A process without media runs no tower for the others."""
    seen: set[int] = set()

    def before(model: nn.Module, called: Arguments) -> None:
        if id(model) in seen:
            return
        seen.add(id(model))
        for name, module in model.named_modules():
            for site in sites(name, module):
                if site.form == _NO_DUMMY.form and _NO_DUMMY.fits(site):
                    found = stack.enter_context(planted(model, Place(_NO_DUMMY, name, (name,), site.text, site)))
                    stack.callback(_note, outcome, found)
                    return  # one code for one module: a second place in it would replace the first

    return before


def _note(whole: Outcome, one: Outcome) -> None:
    whole.changed |= one.changed


SHARING_FAULTS: Mapping[str, Callable[[Outcome, ExitStack], _Before]] = {
    "positions-made-after-cutting": _positions_after_cutting,
    "dummy-left-out": _dummy_left_out,
}
# Where each can show: processes that share a sequence have the same media, and others cut none.
_SHOWN_BY = {"positions-made-after-cutting": "sp", "dummy-left-out": "fsdp"}


def kinds_between(level: str) -> list[str]:
    """Return the kinds of faults that show only where several processes share a model as a level has them do."""
    return [*PROCESS_FAULTS, *(kind for kind, shown_by in _SHOWN_BY.items() if shown_by == level)]


@contextmanager
def fault_between(kind: str) -> Iterator[Outcome]:
    """This process has the fault; none if `kind` is empty."""
    if kind not in SHARING_FAULTS:
        with process_fault(kind) as outcome:
            yield outcome
        return
    outcome, depth = Outcome(), 0
    own = nn.Module.__call__
    with ExitStack() as stack:
        before = SHARING_FAULTS[kind](outcome, stack)

        def call(module: nn.Module, *args: Any, **named: Any) -> Any:
            nonlocal depth
            if depth == 0:
                before(module, named)
            depth += 1
            try:
                return own(module, *args, **named)
            finally:
                depth -= 1

        stack.enter_context(replaced(nn.Module, "__call__", call))
        yield outcome
