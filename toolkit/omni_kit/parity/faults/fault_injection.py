"""Finds the places where a fault fits, plants one, and takes it out again."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

import torch
from torch import nn

from omni_kit.parity.faults.kinds import CodeFault, Fault, InapplicableFault, StateFault, operation
from omni_kit.parity.faults.source import AGENT, CodeSite, functions_of, rewritten, sites


@dataclass(frozen=True)
class Place:
    """Place of one fault.

    Attributes:
        module: the module's qualified name; empty for the model.
        holders: the modules that the fault is in: parts of `module`, or itself.
        what: the line of code, or the parts, that it changes.
    """

    fault: Fault
    module: str
    holders: tuple[str, ...]
    what: str
    site: CodeSite | None = None

    def described(self) -> dict[str, Any]:
        """For the other process."""
        where = {"kind": self.fault.name, "module": self.module, "what": self.what, "holders": self.holders}
        return {**where, "stored": isinstance(self.fault, StateFault) and self.fault.stored, "method": self._method()}

    def _method(self) -> tuple[str, int, int] | None:
        """Return the file's name, and the first and the last line of the method whose code is changed."""
        if self.site is None:
            return None
        code = self.site.function.__code__
        lines = [line for _, _, line in code.co_lines() if line is not None]
        return code.co_filename.rpartition("/")[2], min(lines), max(lines)


@dataclass
class Outcome:
    """Outcome of an injected fault while the model ran.

    Attributes:
        reached: the changed place was run.
        changed: some value there was another than the right one.
        unfit: the fault makes no sense for the values that were there.
    """

    reached: bool = False
    changed: bool = False
    unfit: bool = False


def find_places(model: nn.Module, faults: Sequence[Fault], run: Callable[[], object]) -> list[Place]:
    """Return one place for each fault in each piece of code, and in each class of module, in which it fits.

    Where several modules share the code, the next fault goes to the next of them, so that all depths have their turn.

    Args:
        run: runs the model once; code that this does not reach is no place.
    """
    lines = lines_run(model, run)
    groups: dict[Any, list[Place]] = {}
    for name, module in model.named_modules():
        for fault in faults:
            if isinstance(fault, StateFault) and not fault.everywhere and fault.fits(module):
                groups.setdefault((fault.name, type(module)), []).append(_state_place(fault, name, module))
        for site in sites(name, module):
            if not site.covers(lines.get(site.function.__code__.co_filename, set())):
                continue
            for fault in faults:
                if isinstance(fault, CodeFault) and fault.form == site.form and fault.fits(site):
                    key = (fault.name, type(module), site.function, site.index)
                    groups.setdefault(key, []).append(_code_place(fault, site))
    groups |= {fault.name: [place] for fault in faults if (place := _place_everywhere(fault, model)) is not None}
    order = {fault.name: number for number, fault in enumerate(faults)}
    spread = [places[turn % len(places)] for turn, places in enumerate(groups.values())]
    return sorted(spread, key=lambda place: order[place.fault.name])


def _state_place(fault: StateFault, name: str, module: nn.Module) -> Place:
    parts = fault.holders(module)
    holders = tuple(f"{name}.{part}" if name else part for part in parts) or (name,)
    return Place(fault, name, holders, ", ".join(parts) or "what it holds")


def _place_everywhere(fault: Fault, model: nn.Module) -> Place | None:
    if not (isinstance(fault, StateFault) and fault.everywhere):
        return None
    holders = tuple(name for name, module in model.named_modules() if fault.fits(module))
    return Place(fault, "", holders, f"all {len(holders)} modules that have it") if holders else None


def _code_place(fault: CodeFault, site: CodeSite) -> Place:
    file = site.function.__code__.co_filename.rpartition("/")[2]
    text = site.text if len(site.text) < 80 else f"{site.text[:77]}..."
    return Place(fault, site.name, (site.name,), f"{file}:{site.line} {text}", site)


def lines_run(model: nn.Module, run: Callable[[], object]) -> dict[str, set[int]]:
    """File -> the lines of the modules' own code that one run goes through."""
    codes = {function.__code__ for module in model.modules() for function in functions_of(module)}
    seen: dict[str, set[int]] = {}

    def line(frame: FrameType, event: str, _: Any) -> Any:
        seen.setdefault(frame.f_code.co_filename, set()).add(frame.f_lineno)
        return line

    before = sys.gettrace()
    sys.settrace(lambda frame, event, _: line if frame.f_code in codes else None)
    try:
        run()
    finally:
        sys.settrace(before)
    return seen


@contextmanager
def planted(model: nn.Module, place: Place, noise: bool = False) -> Iterator[Outcome]:
    """The model has the fault; afterwards it is as it was.

    Args:
        noise: instead of the wrong value, code gets the right one with noise; what a module holds stays as it is.
    """
    module = model.get_submodule(place.module)
    if isinstance(place.fault, StateFault) and noise:
        yield Outcome()
        return
    if isinstance(place.fault, StateFault):
        holders = [model.get_submodule(name) for name in place.holders] if place.fault.everywhere else [module]
        undos = [place.fault.plant(holder) for holder in holders]
        try:
            yield Outcome(reached=True, changed=True)
        finally:
            for undo in undos:
                undo()
        return
    assert place.site is not None
    agent = _Agent(place.fault, place.site, noise)
    code = rewritten(place.site, place.fault.other)
    if code is None:
        yield agent.outcome
        return
    handles = _swapped_while_it_runs(module, place.site, code)
    place.site.function.__globals__[AGENT] = agent
    try:
        yield agent.outcome
    finally:
        del place.site.function.__globals__[AGENT]
        for handle in handles:
            handle.remove()


def _swapped_while_it_runs(module: nn.Module, site: CodeSite, code: CodeType) -> list[Any]:
    """Return other modules of the class run the same function: it has the other code only while this one does."""
    own = site.function.__code__

    def before(*_: Any) -> None:
        site.function.__code__ = code

    def after(*_: Any) -> None:
        site.function.__code__ = own

    return [module.register_forward_pre_hook(before), module.register_forward_hook(after, always_call=True)]


@dataclass
class _Agent:
    """Answers instead of a line of code: wrongly."""

    fault: CodeFault
    site: CodeSite
    noise: bool = False
    outcome: Outcome = field(default_factory=Outcome)

    def __call__(self, *parts: Any, **named: Any) -> Any:
        self.outcome.reached = True
        right = self._right(parts, named)
        wrong = _noisy(right) if self.noise else self._wrong(right, parts, named)
        if isinstance(wrong, InapplicableFault):
            self.outcome.unfit = True
            return right
        self.outcome.changed |= _differ(right, wrong)
        return wrong

    def _right(self, parts: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self.fault.form == "call":
            return parts[0](*parts[1:], **named)
        if self.fault.form == "binary":
            compute = operation(self.site)
            assert compute is not None
            return compute(*parts)
        return parts[0]

    def _wrong(self, right: Any, parts: tuple[Any, ...], named: dict[str, Any]) -> Any:
        if self.fault.form in ("call", "binary"):
            return self.fault.wrong(right, *parts, **named)
        return self.fault.wrong(*parts)


def _noisy(right: Any) -> Any:
    """Return a value with noise as large as itself; what is not a tensor of floats stays."""
    if isinstance(right, tuple):
        return tuple(map(_noisy, right))
    if not (isinstance(right, torch.Tensor) and right.is_floating_point()):
        return right
    drawn = torch.rand(right.shape, generator=torch.Generator().manual_seed(0))
    return right + (right.detach().abs() + 1) * drawn.to(right)


def _differ(right: Any, wrong: Any) -> bool:
    if isinstance(right, tuple) and isinstance(wrong, tuple):
        return len(right) != len(wrong) or any(map(_differ, right, wrong))
    if isinstance(right, torch.Tensor) and isinstance(wrong, torch.Tensor):
        return right.requires_grad != wrong.requires_grad or not torch.equal(right, wrong)
    return right is not wrong
