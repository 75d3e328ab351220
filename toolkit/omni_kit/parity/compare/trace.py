"""Records what goes in and out of every module of a model, forward and backward; and replays one recording in another.

Replaying answers who is to blame. Each module is given the inputs that the recorded model's module had, and whatever
it returns is replaced by what that module returned. So an error in its own output is its own, and an error in what it
receives comes from the code of the module that calls it, because everything else was put right before.
"""

import inspect
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from omni_kit.parity.compare.files import load_json, load_tensors, reading_results, save_tensors
from omni_kit.parity.compare.operations import Operations
from omni_kit.toys.tensors import Tensors


@dataclass
class ModuleCall:
    """One call of one module.

    Attributes:
        module: its qualified name; empty for the model itself.
        kind: its class.
        occurrence: how many calls of the same module came before.
        parent: number of the call from within which it was made; -1 for the model.
        source: file:line of its forward.
        weights: the shapes of its parameters, those of its parts included; what pairs renamed modules.
        inputs, outputs: names of the tensors that went in and out.
        differentiable: "in.NAME" and "out.NAME" of those through which a gradient can come back.
        operations: how often it computed, and cast, in which dtype, its parts left out; where they were counted.
    """

    number: int
    module: str
    occurrence: int
    parent: int
    kind: str
    source: str
    weights: str
    inputs: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    differentiable: list[str] = field(default_factory=list)
    operations: dict[str, int] = field(default_factory=dict)


@dataclass
class Recording:
    """All calls of one run in order, and their tensors.

    Attributes:
        events: ("in" | "out", call number) as they happened.
        tensors: "NUMBER.in.NAME", ".out.", ".grad_in.", ".grad_out." -> tensor.
    """

    calls: list[ModuleCall] = field(default_factory=list)
    events: list[tuple[str, int]] = field(default_factory=list)
    tensors: Tensors = field(default_factory=dict)

    def save(self, directory: Path) -> None:
        """Write the calls as JSON and the tensors as safetensors into a directory."""
        directory.mkdir(parents=True, exist_ok=True)
        save_tensors(self.tensors, directory / "trace.safetensors")
        index = {"calls": [asdict(call) for call in self.calls], "events": self.events}
        (directory / "trace.json").write_text(json.dumps(index), encoding="utf-8")

    @classmethod
    def load(cls, directory: Path) -> "Recording":
        """Read the recording that `save` wrote into a directory.

        Raises:
            StepError: as `load_tensors`; or its calls are not numbered as `save` numbers them.
        """
        with reading_results(directory / "trace.json") as file:
            index = load_json(file)
            calls = [ModuleCall(**call) for call in index["calls"]]
            events = [(kind, number) for kind, number in index["events"]]
            if any(call.number != at or not -1 <= call.parent < at for at, call in enumerate(calls)):
                raise ValueError("its calls are not numbered in order")
        return cls(calls, events, load_tensors(directory / "trace.safetensors"))


@contextmanager
def recorded(
    model: nn.Module, script: "Script | None" = None, *, counted: bool = False, always: bool = False
) -> Iterator[Recording]:
    """Record every module call below `model` while gradients are enabled.

    Args:
        script: a recording to replay; None lets the model run freely.
        counted: also counts the operations of each.
        always: also while they are not.
    """
    recorder = _Recorder(script, always)
    handles = [handle for name, module in model.named_modules() for handle in recorder.attach(name, module)]
    try:
        with Operations(recorder.count) if counted else nullcontext():
            yield recorder.recording
    finally:
        for handle in handles:
            handle.remove()


@dataclass(frozen=True)
class Script:
    """Input of a replay: another model's recording, and which of its calls belongs to which module call here.

    Attributes:
        pairs: (module, occurrence) -> number of the call in `recording`.
        complete: also gives a module what it was not passed, or in another size, although the recorded one was.
    """

    recording: Recording
    pairs: Mapping[tuple[str, int], int]
    complete: bool = False

    def completed(self, call: ModuleCall, module: nn.Module, given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call with those recorded ones added that it lacks and that its forward takes."""
        number = self.pairs.get((call.module, call.occurrence))
        if not self.complete or number is None or call.parent < 0:
            return given
        taken = inspect.signature(module.forward).parameters
        anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
        device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
        for name in self.recording.calls[number].inputs:
            first, *rest = name.split(".")
            if first in taken or anything:
                tensor = self.recording.tensors[f"{number}.in.{name}"].to(device)
                given = {**given, first: _with(given.get(first), rest, tensor)}
        return given

    def replace(self, call: ModuleCall, side: str, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """Return the recorded tensor instead of `tensor`, or `tensor` if there is none of its size."""
        number = self.pairs.get((call.module, call.occurrence))
        recorded = self.recording.tensors.get(f"{number}.{side}.{name}")
        if recorded is None or not fits(recorded.shape, tensor.shape):
            return tensor
        return _in_dtype(recorded, tensor.dtype).to(tensor.device).reshape(tensor.shape)


def _with(value: Any, path: list[str], tensor: torch.Tensor) -> Any:
    """`value` with a tensor at a path of keys, where there is nothing or a tensor of another size."""
    if not path:
        fitting = isinstance(value, torch.Tensor) and fits(value.shape, tensor.shape)
        return tensor if value is None or (isinstance(value, torch.Tensor) and not fitting) else value
    if value is None or isinstance(value, dict):
        held = value or {}
        return {**held, path[0]: _with(held.get(path[0]), path[1:], tensor)}
    return value


def _in_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return another dtype, in which what was finite stays finite: a mask holds the lowest number of its own dtype."""
    if not dtype.is_floating_point or tensor.dtype == dtype:
        return tensor.to(dtype)
    limits = torch.finfo(dtype)
    return torch.where(tensor.isfinite(), tensor.clamp(limits.min, limits.max), tensor).to(dtype)


class _Recorder:
    def __init__(self, script: Script | None, always: bool) -> None:
        self._always = always
        self.recording = Recording()
        self._script = script
        self._open: list[ModuleCall] = []
        self._calls: dict[str, int] = {}
        self._noting = False  # what the recorder computes is no module's

    def attach(self, name: str, module: nn.Module) -> list[Any]:
        """Hooks `module`; a module that is reachable under several names is recorded under the first."""
        facts = (type(module).__name__, _source(module), _weights(module))

        def before(module: nn.Module, args: Any, kwargs: Any) -> Any:
            return self._enter(name, facts, module, args, kwargs) if self._on() else None

        def after(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            return self._leave(name, output) if self._on() else None

        return [
            module.register_forward_pre_hook(before, with_kwargs=True),
            module.register_forward_hook(after, with_kwargs=True),
        ]

    def count(self, what: str) -> None:
        """Notes an operation of the module that runs."""
        if self._open and not self._noting:
            operations = self._open[-1].operations
            operations[what] = operations.get(what, 0) + 1

    def _on(self) -> bool:
        return self._always or torch.is_grad_enabled()

    def _enter(self, name: str, facts: tuple[str, str, str], module: nn.Module, args: Any, kwargs: Any) -> Any:
        occurrence = self._calls.get(name, 0)
        self._calls[name] = occurrence + 1
        parent = self._open[-1].number if self._open else -1
        call = ModuleCall(len(self.recording.calls), name, occurrence, parent, *facts)
        self.recording.calls.append(call)
        self.recording.events.append(("in", call.number))
        self._open.append(call)
        names = _argument_names(module, args)
        given = {**dict(zip(names, args, strict=True)), **kwargs}
        changed = _map_tensors(given, lambda path, tensor: self._note(call, "in", path, tensor))
        if self._script is not None:
            changed = self._script.completed(call, module, changed)
        return tuple(changed[name] for name in names), {name: changed[name] for name in changed if name not in names}

    def _leave(self, name: str, output: Any) -> Any:
        call = self._open.pop()
        self.recording.events.append(("out", call.number))
        wrapped = _map_tensors({"": output}, lambda path, tensor: self._note(call, "out", path, tensor))
        return wrapped[""]

    def _note(self, call: ModuleCall, side: str, path: str, tensor: torch.Tensor) -> torch.Tensor:
        """Write a tensor down; return what continues in its place."""
        self._noting = True
        try:
            return self._noted(call, side, path, tensor)
        finally:
            self._noting = False

    def _noted(self, call: ModuleCall, side: str, path: str, tensor: torch.Tensor) -> torch.Tensor:
        (call.inputs if side == "in" else call.outputs).append(path)
        key = f"{call.number}.{{}}.{path}"
        self.recording.tensors[key.format(side)] = tensor.detach().clone()
        if self._script is not None:
            return self._script.replace(call, side, path, tensor)
        if not (tensor.requires_grad and tensor.is_floating_point()):
            return tensor
        call.differentiable.append(f"{side}.{path}")
        # A view of its own, so that the gradient that is noted is the one that passes through this call.
        own = tensor.view_as(tensor)
        listen: Any = own.register_hook
        listen(lambda gradient: self._note_gradient(key.format(f"grad_{side}"), gradient))
        return own

    def _note_gradient(self, key: str, gradient: torch.Tensor) -> None:
        self.recording.tensors[key] = gradient.detach().clone()


def fits(shape: Sequence[int], other: Sequence[int]) -> bool:
    """Return whether two tensors hold the same things in the same order: equal shapes, up to flattened leading axes."""
    return math.prod(shape) == math.prod(other) and tuple(shape[-1:]) == tuple(other[-1:])


def _argument_names(module: nn.Module, args: tuple[Any, ...]) -> list[str]:
    """Return forward's names of its positional arguments, so that calls by position and by name are the same."""
    parameters = [
        name
        for name, parameter in inspect.signature(module.forward).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    return [parameters[index] if index < len(parameters) else f"*{index}" for index in range(len(args))]


def _map_tensors(value: Any, change: Any, path: str = "") -> Any:
    """Return a copy of nested tuples, lists and dicts with every tensor changed; other objects stay as they are."""
    if isinstance(value, torch.Tensor):
        return change(path, value)
    if isinstance(value, dict):
        changed = {key: _map_tensors(item, change, _join(path, key)) for key, item in value.items()}
        return changed if type(value) is dict else _refilled(value, changed)
    if isinstance(value, (tuple, list)):
        items = [_map_tensors(item, change, _join(path, index)) for index, item in enumerate(value)]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _refilled(value: Any, items: dict[str, Any]) -> Any:
    """Return a model output with other tensors in it; fields that are None are no items and stay."""
    for key, item in items.items():
        value[key] = item
    return value


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _weights(module: nn.Module) -> str:
    return " ".join(sorted(str(list(parameter.shape)) for parameter in module.parameters()))


def _source(module: nn.Module) -> str:
    """file:line of the forward that runs."""
    function = inspect.unwrap(type(module).forward)
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else ""
