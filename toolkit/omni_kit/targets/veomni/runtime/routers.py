"""Determine whether VeOmni's replay of routing and its monitor of experts' load reach the routers of a model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

Decide = Callable[[torch.Tensor, int], torch.Tensor]


class _Watching:
    """Targets of VeOmni's hooks: a manager of replays, and a monitor."""

    _paused = False

    def __init__(self, decide: Decide) -> None:
        self._decide = decide
        self.replayed: list[Any] = []
        self.chosen: list[torch.Tensor] = []
        self.layers: list[Any] = []
        self.recorded: list[Any] = []
        self.given: list[torch.Tensor] = []
        self.counted: list[torch.Tensor] = []

    def on_router_forward(self, module: Any, scores: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        self.replayed.append(module)
        self.chosen.append(indices)
        self.given.append(self._decide(indices, scores.shape[-1]))
        return self.given[-1]

    def _register_layer(self, module: Any) -> None:
        self.layers.append(module)

    def record(self, module: Any, indices: torch.Tensor) -> None:
        self.recorded.append(module)
        self.counted.append(indices)


class _TopK(TorchFunctionMode):
    """The calls of topk while this is entered; those with one of these numbers choose others, with their values."""

    def __init__(self, changed: Sequence[int] = ()) -> None:
        super().__init__()
        self._changed = changed
        self.indices: list[torch.Tensor] = []
        self.usable = True

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """See `TorchFunctionMode`."""
        found = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") != "topk":
            return found
        self.indices.append(found.indices)
        if len(self.indices) - 1 not in self._changed:
            return found
        scores = args[0]
        indices = _others(found.indices, scores.shape[-1])
        values = scores.gather(-1, indices)
        self.usable &= bool((values.isfinite() & (values != 0)).all())  # no router masks what it can choose
        return torch.return_types.topk((values, indices))

    def numbers_of(self, chosen: Sequence[torch.Tensor]) -> list[int]:
        """Return the last call that gave each choice; empty if one choice comes from elsewhere."""
        found = [next((number for number, one in self._latest if _same(one, mine)), -1) for mine in chosen]
        return found if -1 not in found else []

    @property
    def _latest(self) -> Iterator[tuple[int, torch.Tensor]]:
        return reversed([*enumerate(self.indices)])


def router_faults(model: Any, fed: Mapping[str, Any]) -> Iterator[str]:
    """Yield the faults of router replay, if the model's type announces it, and of the monitor that finds its routers.

    Args:
        model: in training mode.
        fed: arguments of its forward, labels among them.
    """
    with suppress(ImportError):
        from veomni.utils import moe_monitor, moe_router_replay

        replay = moe_router_replay.set_active_replay
        if getattr(model.config, "model_type", "") in moe_router_replay.SUPPORTED_MOE_MODEL_TYPES:
            yield from _replaying(model, fed, replay)
        else:
            _during(replay, unasked := _Watching(lambda indices, _: indices), model, fed)
            if unasked.replayed:
                yield "router replay: a router reads a choice, and VeOmni refuses it: the model_type is not announced"
        yield from _recording(model, fed, moe_monitor)
        yield from _counting(model, fed, replay, moe_monitor)


def _counting(model: Any, fed: Mapping[str, Any], replay: Callable[[Any], None], monitor: Any) -> Iterator[str]:
    """Yield that the monitor counts the choice of routers where another one is replayed."""
    watching = _Watching(_others)
    if not monitor.attach_moe_router_monitor(model, watching):
        return
    monitor.set_active_monitor(watching)
    try:
        _during(replay, watching, model, fed)
    finally:
        monitor.set_active_monitor(None)
    pairs = list(zip(watching.given, watching.counted, strict=False))
    if len(watching.given) == len(watching.counted) and not all(_same(one, other) for one, other in pairs):
        yield "load monitor: while experts are replayed, it counts the choice of the routers instead"


def _replaying(model: Any, fed: Mapping[str, Any], install: Callable[[Any], None]) -> Iterator[str]:
    plain, same, other = _loss(model, fed), _Watching(lambda indices, _: indices), _Watching(_others)
    with _TopK() as own:
        replayed = [_during(install, same, model, fed)]
    replayed.append(_during(install, other, model, fed))
    if not same.replayed:
        yield "router replay: the model_type is among those that VeOmni supports, and no router reads a choice"
    elif not torch.equal(plain, replayed[0]):
        yield "router replay: with the same choice of experts the loss is another"
    elif torch.equal(plain, replayed[1]):
        yield "router replay: with another choice of experts the loss stays the same, so the choice is not used"
    elif numbers := own.numbers_of(same.chosen):
        with _TopK(numbers) as forced:
            native = _loss(model, fed)
        if forced.usable and not torch.allclose(native, replayed[1]):
            yield (
                f"router replay: with another choice of experts the loss is {float(replayed[1]):.6g}, and "
                f"{float(native):.6g} where topk itself makes that choice: their weights are not the router's own"
            )


def _recording(model: Any, fed: Mapping[str, Any], monitor: Any) -> Iterator[str]:
    watching = _Watching(lambda indices, _: indices)
    monitor.attach_moe_router_monitor(model, watching)
    _during(monitor.set_active_monitor, watching, model, fed)
    silent = [one for one in watching.layers if one not in watching.recorded]
    unknown = sorted({type(one).__name__ for one in watching.recorded if one not in watching.layers})
    if unknown:
        yield f"load monitor: {', '.join(unknown)} reports its choice, and no router of this class is registered"
    elif silent:
        yield f"load monitor: it finds {len(watching.layers)} routers, and {len(silent)} never report their choice"
    elif len(watching.recorded) > len(watching.layers):
        yield "load monitor: a router reports its choice twice, so its load is counted twice"


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.numel() == other.numel() and torch.equal(one.flatten(), other.flatten())


def _others(indices: torch.Tensor, experts: int) -> torch.Tensor:
    return (indices + 1) % experts


def _during(install: Callable[[Any], None], watching: _Watching, model: Any, fed: Mapping[str, Any]) -> torch.Tensor:
    install(watching)
    try:
        return _loss(model, fed)
    finally:
        install(None)


def _loss(model: Any, fed: Mapping[str, Any]) -> torch.Tensor:
    torch.manual_seed(0)
    with torch.no_grad():
        found: torch.Tensor = model(**fed, use_cache=False).loss
    return found
