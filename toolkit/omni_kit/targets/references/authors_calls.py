"""The authors' own samplers, run with a denoiser in place of their model: traced with a stand-in, or compared."""

import ast
import importlib
import importlib.util
import inspect
import math
import re
import resource
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, chdir, contextmanager, suppress
from functools import cache
from itertools import product
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import nn

from omni_kit.errors import in_short
from omni_kit.targets.references.authors import Authors
from omni_kit.targets.references.guided_steps import guided_within, numbers_of
from omni_kit.targets.references.on_cpu import stay_on_cpu
from omni_kit.targets.references.sampled_latents import (
    LastClamp,
    LastComputed,
    latents_of,
    noise_first,
)
from omni_kit.targets.references.sampled_latents import (
    unclamped as unclamped,  # samplers that were written before import it from here
)
from omni_kit.targets.references.showing import showing_nothing
from omni_kit.targets.references.standing_in import StandIn
from omni_kit.targets.references.trained_module import namespace as namespace
from omni_kit.targets.replacing import replaced
from omni_kit.toys.batches.denoiser.failed_checks import condition_of
from omni_kit.toys.elapsed import Elapsed
from omni_kit.upstream.repositories.processes.call_arguments import GIVEN, MADE_WITH
from omni_kit.upstream.repositories.processes.sampler_call import Guidance
from omni_kit.upstream.repositories.reference import find_reference
from omni_kit.upstream.repositories.sampler_step.simulation import DRAWN, MODELS, NOISE

_LONGEST = 4.0  # seconds of one sampler: some never end with a stand-in
_BUSY = 5.0  # times as long by the clock, where other processes run
_MEMORY = 3 * 2**30  # bytes, of one sampler
_LONGEST_TRYING, _WHOLE = 12.0, 30.0  # seconds of one call, and of all as far as none has run
_MOST_CALLS, _LONG, _MOST_NUMBERS = 128, 20, 4096
_CLOSE = 1e-5
_SCALE, _APART = 3.0, 0.2
_FINE = 40  # steps, to find those that guide, and what is kept of small noise levels
_Ends = tuple[float, float, str, str]
_FORWARD, _SCALES = "forward_with_", re.compile(r"scale|weight|strength|guidance|cfg")
_LAYERS = re.compile(
    r"\b(nn\.(Parameter|Linear|Conv|Embedding|LSTM|GRU|Sequential|Module(List|Dict)|\w*Norm)|from_pretrained|load_state_dict)"
)
_UNKNOWN = re.compile(rf"\b(?:{MADE_WITH}|{GIVEN})\.\w+")
_MAKES = (("1", "2"), ("None", "None"), ("{}", "{}"))
_FULL, _VALUES = "torch.full_like(begun, {})", (0.0, 0.913)
_OF_LATENTS = re.compile(r"torch\.(?:zeros_like\(begun\)|full_like\(begun, ([\d.]+)\))")
_GIVES = (
    ("torch.zeros_like(begun)", _FULL.format(_VALUES[1])), ("{}", "{}"), ("1", "2"), ("None", "None"),
    ("torch.zeros(len(begun), dtype=torch.long)", "torch.ones(len(begun), dtype=torch.long)"),
    ("torch.zeros(len(begun), begun.shape[-1], 8)", "torch.ones(len(begun), begun.shape[-1], 8)"),
    ("torch.zeros(len(begun), 8, begun.shape[-1])", "torch.ones(len(begun), 8, begun.shape[-1])"),
    ("StandIn('one')", "StandIn('other')"),
)  # fmt: skip
"""Values for arguments that nothing is known of: two of each kind. Those as large as latents differ by argument."""
_STEP_OF_VALUES = 0.011
_KNOWN = 0.57
"""Value that is mixed with latents."""
_MOST_TRIED, _MOST_REASONS = 80, 6


class Denoiser(nn.Module):
    """Takes the place of a model in the authors' sampler, however that passes its arguments.

    What a sampler passes to guide by is left out: each of two halves of a batch, or of two calls, gets one answer; or,
    to see how it guides, answers that are `apart`.

    Args:
        asked: `asked(latents, time)`.
        order: the arguments of the model's forward.
        latents, time: those that hold latents and the step.
        rows: how many samples there are.
        values: how many values the model returns, of which the first is the prediction; or the keys of its mapping.
        model: what attributes are read from; without one any attribute is there, and equals anything.
        apart: what is added to the first and to the second of two answers.
        at: the call in which they are, counted from 0; in every call if it is None.
        channels: number of channels of latents; read where `model` is None.
        kind: the class of the model, of which `around` makes no object; without one that of `model`.

    Attributes:
        doubled: of each call, whether it was asked for two answers.
        empty: the arguments that each call passes as None.
    """

    def __init__(
        self, asked: Callable[..., Any], order: Sequence[str], latents: str, time: str, rows: int,
        values: int | Sequence[str] = 1, model: Any = None, apart: tuple[float, float] = (0.0, 0.0), channels: int = 1,
        kind: type | None = None, at: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.__dict__["_kind"] = type(model) if kind is None and model is not None else kind
        self._channels = channels
        self._asked, self._order, self._names, self._rows = asked, [*order], (latents, time), rows
        self._values = values
        self.__dict__["_model"] = model
        self._own = nn.Parameter(torch.zeros(1))  # samplers ask where a model is
        self._others: tuple[float, ...] | None = None
        self._apart, self._at = apart, at
        self.doubled: list[bool] = []
        self.empty: set[str] | None = None
        self._last: tuple[torch.Tensor, torch.Tensor] | None = None
        self.__dict__["_caller"] = (None, "")

    @property
    def caller(self) -> FrameType | None:
        """Return the function that called last, as it runs."""
        frame: FrameType | None = self.__dict__["_caller"][0]
        return frame

    def ended(self, returned: Any, shape: torch.Size) -> torch.Tensor:
        """Return the latents that a sampler returns; of one that returns others, those that it was left with.

        Raises:
            ValueError: there are none of this shape.
        """
        frame, name = self.__dict__["_caller"]
        if returned is not None or frame is None:
            return latents_of(returned, shape)
        return latents_of(frame.f_locals.get(name), shape)

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the model; a method that guides with it, as far as it does not guide."""
        if name.startswith("_"):
            return super().__getattr__(name)
        if name.startswith(_FORWARD):
            return self._guided
        model = self.__dict__.get("_model")
        return _Anything(self._channels) if model is None else getattr(model, name)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Answer for latents and a step."""
        given = {**dict(zip(self._order, args, strict=False)), **kwargs}
        none = {name for name, value in given.items() if value is None}
        self.empty = none if self.empty is None else self.empty & none
        if {*self._names} <= given.keys():
            x, told = (given[name] for name in self._names)
        else:  # a wrapper's names
            x, told = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor | int | float)][:2]
        self._keep([one for one in (*args, *kwargs.values()) if one is not x and one is not told])
        self._see(inspect.currentframe(), x)
        t, twice = torch.as_tensor(told).reshape(-1), len(x) == 2 * self._rows
        if twice and not torch.equal(x[: self._rows], x[self._rows :]):
            raise ValueError("asks with latents of two kinds")
        x, t = x[: self._rows], t[: self._rows].expand(self._rows) if t.numel() == 1 else t[: self._rows]
        answer = self._asked(x, t)
        again = self._last is not None and all(map(torch.equal, self._last, (x, t)))
        self._last = None if again else (x.clone(), t.clone())
        if again:
            self.doubled[-1] = True
        else:
            self.doubled.append(twice)
        first, second = self._apart if self._at in (None, len(self.doubled) - 1) else (0.0, 0.0)
        answer = torch.cat([answer + first, answer + second]) if twice else answer + (second if again else first)
        if isinstance(self._values, int):
            return (answer, *[None] * (self._values - 1)) if self._values > 1 else answer
        return {**dict.fromkeys(self._values), self._values[0]: answer}

    def _see(self, frame: Any, x: torch.Tensor) -> None:
        """Note the function that calls, and the variable in which it has the latents."""
        while frame is not None and (frame.f_locals.get("self") is self or frame.f_globals is vars(nn.modules.module)):
            frame = frame.f_back
        held = next((name for name, one in frame.f_locals.items() if one is x), "") if frame is not None else ""
        self.__dict__["_caller"] = (frame, held)

    def _guided(self, *args: Any, **kwargs: Any) -> Any:
        """Answer as the model's own way to guide does with a scale of 1.

        Raises:
            ValueError: the scale is another.
        """
        scales = [value for name, value in kwargs.items() if name not in self._order and _SCALES.search(name)]
        if any(scale != 1 for scale in scales):
            raise ValueError("guides in a method of its model")
        return self(*args, **{name: value for name, value in kwargs.items() if name in self._order})

    def _keep(self, others: Sequence[Any]) -> None:
        """Check that numbers other than the step are the same in every call.

        Raises:
            ValueError: another number differs between calls.
        """
        numbers = [torch.as_tensor(one).float().reshape(-1)[:1].tolist() for one in others
                   if isinstance(one, int | float) or (isinstance(one, torch.Tensor) and one.ndim < 2)]  # fmt: skip
        said = tuple(number for one in numbers for number in one)
        if self._others not in (None, said):
            raise ValueError("tells its model more of each step")
        self._others = said


class _Anything:
    """An attribute that a sampler only compares and tests, or that says how many channels latents have."""

    def __init__(self, channels: int) -> None:
        self._channels = channels

    def __index__(self) -> int:
        return self._channels

    def __mul__(self, other: int) -> int:
        return self._channels * other

    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    def __bool__(self) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]


def around(
    cls: type, held: str | Sequence[str], model: Any, kept: Mapping[str, Any] | None = None, **given: Any
) -> Any:
    """Return an object that holds this model, and is made as far as its constructor goes with these arguments.

    The constructor makes no other module of the authors' that has layers: each is the model, too; and so is each object
    of the model's class, whoever makes it.

    Args:
        held: the attributes for the model.
        kept: other attributes.
    """
    kind: Any = cls
    made: Any = object.__new__(cls)
    if isinstance(made, nn.Module):
        nn.Module.__init__(made)
    module = sys.modules[cls.__module__]
    others = [name for name, one in vars(module).items() if inspect.isclass(one) and issubclass(one, nn.Module)
              and one not in cls.__mro__ and not one.__module__.startswith("torch.") and _has_layers(one)]  # fmt: skip
    with ExitStack() as instead:
        for place, name in [*((module, name) for name in others), *_named(model)]:
            instead.enter_context(replaced(place, name, lambda *_, **__: model))
        if (authors := _authors_of(module)) is not None:
            instead.enter_context(chdir(authors.repository.outermost))  # it may read files of theirs
        try:
            kind.__init__(made, **given)
        except TimeoutError:
            raise
        except Exception:  # whatever comes of arguments that were made up
            pass
    for name, value in {**dict.fromkeys([held] if isinstance(held, str) else held, model), **(kept or {})}.items():
        setattr(made, name, value)
    return made.eval() if isinstance(made, nn.Module) else made


def prepared(made: Any, method: str, **given: Any) -> Any:
    """Return an object of which a method is called first: it makes the schedule that others read."""
    getattr(made, method)(**given)
    return made


def _named(model: Any) -> list[tuple[Any, str]]:
    """Return the modules, each with a name that it has for the class that a denoiser stands for."""
    kind = vars(model).get("_kind") if isinstance(model, Denoiser) else None
    theirs = [one for one in [*sys.modules.values()] if _authors_of(one) is not None]
    return [(module, name) for module in theirs for name, one in [*vars(module).items()]
            if kind is not None and inspect.isclass(one)
            and (one.__module__, one.__qualname__) == (kind.__module__, kind.__qualname__)]  # fmt: skip


def _authors_of(module: Any) -> Authors | None:
    """Return what has imported a module of the authors'."""
    return getattr(getattr(module, "__loader__", None), "authors", None)


def _has_layers(cls: type[nn.Module]) -> bool:
    """Return whether code of a module or of its bases makes layers or weights, or loads them; schedules do not."""
    own = [one for one in cls.__mro__ if not one.__module__.startswith("torch.") and one is not object]
    try:
        return any(_LAYERS.search(inspect.getsource(one)) for one in own)
    except (OSError, TypeError):  # it was made while the code ran
        return True


@cache
def defined(module: str, name: str) -> Any:
    """Return what a file of the authors' defines, made of the definitions that it needs: other imports do not run."""
    spec = importlib.util.find_spec(module)
    file = Path(spec.origin if spec is not None and spec.origin else "")
    every = ast.parse(file.read_text(encoding="utf-8")).body
    wanted, kept = {name}, list[ast.stmt]()
    while more := [node for node in every if node not in kept and {*_bound(node)} & wanted]:
        kept += more
        wanted |= {one.id for node in more for one in ast.walk(node) if isinstance(one, ast.Name)}
    names: dict[str, Any] = {"__name__": module}
    body = [node for node in every if node in kept]
    exec(compile(ast.Module(body, []), str(file), "exec"), names)
    return names[name]


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement at the top of a file makes."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        yield from (one.asname or one.name.partition(".")[0] for one in node.names)
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign):
        yield from (one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name))


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise an error in code that takes more of the processor's time, several times as much of the clock's, or much
    memory: loops may never end with stand-ins.
    """

    def late(*_: Any) -> None:
        raise TimeoutError(f"does not end in {seconds:g} s")

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, seconds), (signal.SIGALRM, signal.ITIMER_REAL, _BUSY * seconds))
    before = [signal.signal(number, late) for number, _, _ in timers]
    for _, timer, limit in timers:
        signal.setitimer(timer, limit)
    try:
        with _in_memory(_MEMORY):
            yield
    finally:
        for _, timer, _ in timers:
            signal.setitimer(timer, 0)
        for (number, _, _), handler in zip(timers, before, strict=True):
            signal.signal(number, handler)


@contextmanager
def _in_memory(size: int) -> Iterator[None]:
    """Let code allocate no more bytes than these, where the system says how many a process has."""
    status = Path("/proc/self/statm")
    if not status.is_file():
        yield
        return
    held = int(status.read_text(encoding="ascii").split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    most = [one for one in (held + size, *before) if one != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(most), before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def trace(request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what each call of a sampler did with stand-ins, or why it did not run.

    Args:
        request: `reference`, the class as "PATH::Class"; `order`, `latents`, `time`, the arguments of its forward;
            `values`, how many it returns, or under which keys; `axes`, the numbers of axes of latents to try; `counts`
            of steps; `calls`, each with its `module`, `name`, `parts`, `called`, `guided`, `draws`, `trained`,
            `defined`, `held`, `joined`, `mixed`, and `far`, which is the same for those that must agree.
    """
    stay_on_cpu()
    reference = find_reference(request["reference"])
    authors, elapsed = Authors(reference), Elapsed()
    with suppress(Exception):  # the authors' own reasons
        request = {**request, "kind": authors.get(reference.cls.source.module, reference.class_name)}
    found: list[dict[str, Any]] = []
    ran: Any = None
    for call in request["calls"]:
        late = elapsed.seconds > _WHOLE and call["far"] != ran
        found.append({"why": "was not run: those before it took too long"} if late else _traced(authors, request, call))
        ran = call["far"] if ran is None and "ways" in found[-1] else ran
    return found


def _said(error: Exception) -> str:
    """Return an error in one line; an assertion without a message by its condition."""
    return in_short(error) if str(error) else f"{type(error).__name__}: {condition_of(error)}"


def _traced(authors: Authors, request: Mapping[str, Any], call: Mapping[str, Any]) -> dict[str, Any]:
    why = dict[str, None]()
    try:
        with authors.importing_files(), limited(_LONGEST):
            named = [(call["module"], call["name"]), *call["parts"]]
            used = {name: getattr(importlib.import_module(module), name) for module, name in named}
            used |= {name: defined(module, name) for module, name in call["defined"]}
    except Exception as error:  # the authors' own reasons
        return {"why": _said(error)}
    elapsed = Elapsed()
    for axes, values in product(request["axes"], filled(call["called"])):
        if elapsed.seconds > _LONGEST_TRYING:
            break
        try:
            return _gone(request, call, used, axes, *values)
        except Exception as error:  # the authors' own reasons
            why.setdefault(_said(error))
    return {"why": "; ".join([*why][:_MOST_REASONS])}


def _gone(
    request: Mapping[str, Any], call: Mapping[str, Any], used: Mapping[str, Any], axes: int, known: dict[str, str],
    other: Mapping[str, str],
) -> dict[str, Any]:  # fmt: skip
    """Return what a call did with values for its unknown arguments, of which others must make no difference."""
    told = {**call, **_with(call, known)}
    counts, trained = request["counts"], call["trained"]
    run = _Run(request, told, used, axes)

    def goes_alike(values: Mapping[str, str]) -> bool:
        again = _Run(request, {**call, **_with(call, values)}, used, axes)
        return alike(first, again.way(counts[0], 0)) and again.joined == run.joined

    with limited(_LONGEST):
        first = run.way(counts[0], 0)
        matter = _that_matter(known, other, goes_alike)
        ways = [{"count": count, "model": place, **_Run(request, told, used, axes).way(count, place)}
                for count in counts for place in range(len(MODELS))]  # fmt: skip
        tables = _Run(request, told, used, axes).peeked(trained) if trained else []
    fine = _fine(_Run(request, told, used, axes)) if not trained else None
    mixes = call["mixed"] is not None and _mixes(request, told, used, axes, counts[0], first)
    how, within = _guidance(request, told, used, axes, ways[0]) if call["guided"] else (Guidance.usual, None)
    ranks = [one for one in request["axes"] if one == axes or _goes(_Run(request, told, used, one), counts[0])]
    return {"ways": ways, "guides": how, "within": within, "known": known, "tables": tables, "empty": run.empty,
            "matter": matter, "ranks": ranks, "joined": next(iter(run.joined)), "mixes": mixes,
            "fine": fine}  # fmt: skip


def _beside(names: Sequence[str]) -> dict[str, float]:
    """Return the values of conditions that are known to be joined with latents, which tell them apart."""
    return {name: _VALUES[0] + at * _STEP_OF_VALUES for at, name in enumerate(names)}


def _mixes(
    request: Mapping[str, Any], call: Mapping[str, Any], used: Mapping[str, Any], axes: int, count: int,
    first: Mapping[str, Any],
) -> bool:  # fmt: skip
    """Return whether a sampler goes the same way with a mask under which nothing is known, and has what is known after
    each step where all is.
    """
    mixed = call["mixed"]
    kept, known = (1.0, 0.0) if mixed["generates"] else (0.0, 1.0)
    try:
        with limited(_LONGEST):
            free, bound = (_Run(request, {**call, "masked": one}, used, axes).way(count, 0) for one in (kept, known))
    except Exception:  # the authors' own reasons
        return False
    after = [*(x for x, _ in bound["calls"][1:]), bound["ended"]]
    return alike(free, first) and all(math.isclose(one, _KNOWN, rel_tol=1e-4) for one in after)


def _with(call: Mapping[str, Any], known: Mapping[str, str]) -> dict[str, Any]:
    """Return the parts of a call that unknown arguments have a place in, with values for these; and which of them are
    as large as latents, each with its value.
    """
    sized = {name.partition(".")[2]: float(found[1] or 0) for name, text in known.items() if name.startswith(GIVEN)
             and (found := _OF_LATENTS.fullmatch(text)) is not None}  # fmt: skip
    sized |= _beside(call["joined"])
    return {name: replaced_in(call[name], known) for name in ("called", "guided")} | {"sized": sized}


def _fine(run: "_Run") -> dict[str, Any] | None:
    """Return what a sampler does in many steps, with the numbers that it has; None if it does not run."""
    with suppress(Exception), limited(_LONGEST):  # the authors' own reasons
        return {"count": _FINE, "model": 0, **run.way(_FINE, 0), "numbers": run.numbers}
    return None


def _goes(run: "_Run", count: int) -> bool:
    """Return whether a sampler runs with latents of a run."""
    try:
        with limited(_LONGEST):
            run.way(count, 0)
    except Exception:  # the authors' own reasons
        return False
    return True


def _that_matter(
    known: Mapping[str, str], other: Mapping[str, str], goes_alike: Callable[[Mapping[str, str]], bool]
) -> list[str]:
    """Return the unknown arguments of a constructor that are numbers and change where a call goes.

    Raises:
        ValueError: other unknown arguments do.
    """
    if other == known or goes_alike(other):
        return []
    matter = [name for name in known if not goes_alike({**known, name: other[name]})]
    if not matter or not all(name.startswith(MADE_WITH) and known[name] == _MAKES[0][0] for name in matter):
        raise ValueError(f"depends on unknown arguments: {', '.join(known)}")
    return matter


def filled(called: str) -> list[tuple[dict[str, str], dict[str, str]]]:
    """Return values to try for the arguments of a call that nothing is known of: each with others of the same kind.

    What comes of a call must be the same with both.
    """
    names = list(dict.fromkeys(_UNKNOWN.findall(called)))
    makes = [name for name in names if name.startswith(MADE_WITH)]
    gives = [name for name in names if name not in makes]
    found = []
    for kind in _MAKES if makes else _MAKES[:1]:
        for kinds in sorted(product(_GIVES, repeat=len(gives)), key=lambda each: len(set(each) - {_GIVES[0]})):
            apart = (_apart(each, at) for at, each in enumerate(kinds))
            pairs = {**dict.fromkeys(makes, kind), **dict(zip(gives, apart, strict=True))}
            found.append(tuple({name: pair[place] for name, pair in pairs.items()} for place in (0, 1)))
    return found[:_MOST_TRIED]  # type: ignore[return-value]


def _apart(kind: tuple[str, ...], at: int) -> tuple[str, ...]:
    """Return the values of a kind for an argument at a place: those as large as latents are its own."""
    if kind is not _GIVES[0] or not at:
        return kind
    return tuple(_FULL.format(round(one + at * _STEP_OF_VALUES, 3)) for one in _VALUES)


def replaced_in(called: str, known: Mapping[str, str]) -> str:
    """Return a call with values for arguments that nothing is known of."""
    return _UNKNOWN.sub(lambda found: known[found[0]], called)


def _guidance(
    request: Mapping[str, Any], call: Mapping[str, Any], used: Mapping[str, Any], axes: int, plain: Mapping[str, Any]
) -> tuple[Guidance, _Ends | None]:
    """Return how a sampler guides, and the interval of times in which it does, if not at every step: where two answers,
    guided by as is usual, give the plain one, it must go the same way.
    """
    told, twice = {**call, "called": call["guided"]}, False
    for more, how in ((0.0, Guidance.usual), (1.0, Guidance.less)):
        whole = _SCALE + more
        pair = (_APART, _APART * whole / (whole - 1))
        for apart in (pair, pair[::-1]):
            run = _Run(request, told, used, axes, apart)
            try:
                with limited(_LONGEST):
                    found = run.way(plain["count"], plain["model"])
            except Exception:  # the authors' own reasons
                continue
            twice = twice or any(run.doubled)
            if any(run.doubled) and alike(found, plain):
                return how, None
            if any(run.doubled) and (within := _within(request, told, used, axes, apart)):
                return how, within
    return (Guidance.other if twice else Guidance.unasked), None


def _within(
    request: Mapping[str, Any], call: Mapping[str, Any], used: Mapping[str, Any], axes: int, apart: tuple[float, float]
) -> _Ends | None:
    """Return the interval of times in which a sampler guides; None if none is found.

    A step that does not guide goes by the answer for the condition, whatever the other one is.
    """
    alone = (0.0, _APART) if apart[0] == _APART else (_APART, 0.0)
    plain = _Run(request, call, used, axes)
    try:
        with limited(_LONGEST):
            way = plain.way(_FINE, 0)

            def guides(place: int) -> bool | None:
                if not plain.doubled[place]:
                    return False
                for answers, found in ((apart, True), (alone, False)):
                    if alike(_Run(request, call, used, axes, answers, place).way(_FINE, 0), way):
                        return found
                return None

            return guided_within(guides, [time for _, time in way["calls"]], plain.numbers)
    except Exception:  # the authors' own reasons
        return None


def alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether two ways have the same calls and end with the same latents, up to rounding."""
    first, second = ([*(number for pair in way["calls"] for number in pair), way["ended"]] for way in (one, other))
    close = (math.isclose(a, b, rel_tol=1e-4, abs_tol=1e-4) for a, b in zip(first, second, strict=False))
    return len(first) == len(second) and all(close)


class _Peeked(Exception):
    """A run has reached its first call."""


class _Run:
    """One run of a sampler with a stand-in."""

    def __init__(
        self, request: Mapping[str, Any], call: Mapping[str, Any], used: Mapping[str, Any], axes: int,
        apart: tuple[float, float] = (0.0, 0.0), at: int | None = None,
    ) -> None:  # fmt: skip
        self.request, self.call, self.used, self.apart, self.at = request, call, used, apart, at
        self.doubled, self.numbers = list[bool](), list[float]()
        self.shape = torch.Size([2, *[4] * (axes > 2), *[8] * (axes - 1 - (axes > 2))])
        self.calls: list[tuple[float, float]] = []
        self.empty: list[str] = []
        self.joined: dict[tuple[int, tuple[str, ...]] | None, None] = {}
        self.tables: dict[tuple[float, ...], None] = {}

    def peeked(self, count: int) -> list[list[float]]:
        """Return the long lists of numbers that it has at hand for a number of steps: those of its length."""
        with suppress(_Peeked):
            self.way(count, 0, peeks=True)
        return [[*one] for one in self.tables if len(one) in (count, count + 1)]

    @torch.no_grad()
    def way(self, count: int, place: int, peeks: bool = False) -> dict[str, Any]:
        """Return its calls, its latents, and the long lists of numbers that it had at hand.

        Args:
            peeks: end at the first call.
        """
        begun, shapes = torch.full(self.shape, NOISE), set[torch.Size]()

        def asked(joined: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
            x = self._latents(joined)
            told = (one_value(x), float(t[0]) if t.is_floating_point() else int(t[0]))
            if not self.calls or self.calls[-1] != told:
                self.calls.append(told)
            shapes.add(x.shape)
            if len(self.calls) > max(_MOST_CALLS, count if self.call.get("trained") else 0):
                raise ValueError("asks too often")
            self._note(inspect.currentframe())
            self.numbers = self.numbers or numbers_of(denoiser.caller)
            if peeks:
                raise _Peeked
            return torch.full_like(x, MODELS[place](*told))

        order, latents, told_by = (self.request[one] for one in ("order", "latents", "time"))
        denoiser = Denoiser(
            asked,
            order,
            latents,
            told_by,
            len(begun),
            self.request["values"],
            apart=self.apart,
            channels=begun.shape[1],
            kind=self.request.get("kind"),
            at=self.at,
        )
        conditioned = {name: torch.full_like(begun, one) for name, one in _beside(self.call["joined"]).items()}
        told = {"denoiser": denoiser, "begun": begun, "steps": count, "torch": torch, "around": around,
                "prepared": prepared, "namespace": namespace, "StandIn": StandIn, "scale": _SCALE,
                "conditioned": conditioned, "mixed": self._mixed(begun), **self.used}  # fmt: skip
        if self.call["held"]:  # an object that holds the model is made of these, and guides by nothing
            told |= {"model": denoiser, "noise": begun, "text": None, "against": None, "scale": 1.0}
            exec("\n".join(self.call["held"]), told)

        def drawn(*size: Any, **given: Any) -> torch.Tensor:
            return torch.full(tuple(size[0]) if len(size) == 1 and not isinstance(size[0], int) else size, DRAWN)

        def drawn_like(tensor: torch.Tensor, **given: Any) -> torch.Tensor:
            return torch.full_like(tensor, DRAWN)

        def drawn_into(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
            return tensor.fill_(DRAWN)

        with (
            replaced(torch, "randn", drawn), replaced(torch, "randn_like", drawn_like),
            replaced(torch.Tensor, "normal_", drawn_into),
            noise_first(begun, self.call["draws"]), showing_nothing(), LastClamp() as clamp,
            LastComputed(begun.shape) as last,
        ):  # fmt: skip
            inside = False
            try:
                ended = denoiser.ended(eval(self.call["called"], told), begun.shape)
            except TimeoutError:
                raise
            except Exception:  # it makes something else of its latents, or of those of another size
                if shapes != {begun.shape} or len(self.calls) < count or peeks:
                    raise
                ended, inside = latents_of(last.latents, begun.shape), True
        if not self.calls:
            raise ValueError("does not call its model")
        self.doubled = denoiser.doubled
        self.empty = sorted(denoiser.empty or ())
        ends = {"ended": one_value(ended), "unclamped": one_value(clamp.before(ended)), "inside": inside}
        ends |= {"computed": one_value(ended if last.latents is None else last.latents)}
        return {"calls": self.calls, **ends, "tables": [*map(list, self.tables)]}

    def _mixed(self, begun: torch.Tensor) -> dict[str, torch.Tensor | None]:
        """Return what is mixed with latents: nothing, unless a value of the mask is given."""
        mixed, masked = self.call["mixed"], self.call.get("masked")
        if mixed is None or masked is None:
            return dict.fromkeys((mixed["known"], mixed["mask"])) if mixed is not None else {}
        return {mixed["known"]: torch.full_like(begun, _KNOWN), mixed["mask"]: torch.full_like(begun, masked)}

    def _latents(self, x: torch.Tensor) -> torch.Tensor:
        """Return the latents in what the model receives, and note the conditions that are joined with them.

        Raises:
            ValueError: something else is, or other conditions in other steps.
        """
        differ = [axis for axis, (one, own) in enumerate(zip(x.shape, self.shape, strict=False)) if one != own]
        form, found = None, x
        if len(x.shape) == len(self.shape) and len(differ) == 1 and not x.shape[differ[0]] % self.shape[differ[0]]:
            parts = torch.split(x, self.shape[differ[0]], differ[0])
            names = tuple(self._named(one_value(one)) for one in parts)
            if any(names) and names.count("") != 1:
                raise ValueError("joins latents with something else than its arguments")
            form, found = ((differ[0], names), parts[names.index("")]) if any(names) else (None, x)
        self.joined[form] = None
        if len(self.joined) > 1:
            raise ValueError("joins latents with other conditions in other steps")
        return found

    def _named(self, value: float) -> str:
        """Return the argument that has a value; empty for latents."""
        sized = self.call.get("sized", {})
        return next((name for name, one in sized.items() if math.isclose(one, value, abs_tol=_CLOSE)), "")

    def _note(self, frame: Any) -> None:
        """Note the vectors that the callers of the model hold: betas, and what is made of them."""
        for _ in range(8):
            frame = frame.f_back if frame is not None else None
            for value in [*frame.f_locals.values()] if frame is not None and len(self.calls) == 1 else ():
                held = [value, *_held(value)]
                held += [inner for one in held[1:] for inner in _held(one)]
                held += [*value.buffers()] if isinstance(value, nn.Module) else []
                for one in held:
                    self._add(one)

    def _add(self, value: Any) -> None:
        if isinstance(value, torch.Tensor | np.ndarray) and value.ndim == 2 and len(value) == 1:
            value = value[0]
        if isinstance(value, torch.Tensor | np.ndarray) and value.ndim == 1 and _LONG <= len(value) <= _MOST_NUMBERS:
            numbers = tuple(value.tolist())
            if all(isinstance(one, float) and math.isfinite(one) for one in numbers):
                self.tables[numbers] = None


def _held(value: Any) -> list[Any]:
    """Return the attributes of an object, or the values of a mapping."""
    if isinstance(value, dict):
        return [*value.values()]
    return [*vars(value).values()] if hasattr(value, "__dict__") and not inspect.ismodule(value) else []


def one_value(tensor: torch.Tensor) -> float:
    """Return the one value that every element has.

    Raises:
        ValueError: they have several.
    """
    value = float(tensor.flatten()[0])
    if not torch.isfinite(tensor).all() or not torch.allclose(tensor.float(), torch.tensor(value), atol=_CLOSE):
        raise ValueError("treats elements of the latents differently")
    return value
