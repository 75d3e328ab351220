"""ODE objects: what authors sample with where a class of theirs integrates, itself or by torchdiffeq's `odeint`.

Either the class is made with a number of points and has the method that integrates, or a transport is made first and
an object of it makes the function that integrates (`sample_ode`). Both go along points of time, each a step apart.
A method with a loop of its own is followed with numbers: it counts where its steps are Euler's.
"""

import ast
import math
import re
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import pairwise

from omni_kit.pysource.eval import UNKNOWN, Native, Unsupported
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import defaults, passed, positional, signature
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.numbers import called
from omni_kit.upstream.repositories.processes.process import Process
from omni_kit.upstream.repositories.sampler_step.members import methods_of
from omni_kit.upstream.repositories.sampler_step.objects import opened

_SOLVER, _INTEGRATES = "odeint", "sample_ode"
_EULER = "euler"
_COUNTS = (4, 7)
_NOISE = 0.8
_SCHEDULER = "FlowMatchEulerDiscreteScheduler"
_POINTS = re.compile(r"steps?$|points$")
_METHOD = re.compile(r"(method|type|solver)$")
_SHIFT = re.compile(r"shift", re.IGNORECASE)
_PATH = {"path_type": "Linear", "prediction": "velocity"}
"""Arguments of a transport whose model predicts the velocity from noise to data."""


def integrations(source: SourceFile) -> Iterator[Process]:
    """Yield the uses of such an object in a file."""
    calls = [node for node in ast.walk(source.tree) if isinstance(node, ast.Call)]
    for call in calls:
        meant = resolve(source, dotted(call.func) or "")
        cls = meant.node if isinstance(meant, Defined) else None
        if isinstance(meant, Defined) and isinstance(cls, ast.ClassDef):
            if _INTEGRATES in (methods := methods_of(cls)):
                yield from _transported(source, call, meant, methods[_INTEGRATES], calls)
            elif any(map(_solves, methods.values())) and (direct := [*_direct(source, call, meant, methods)]):
                yield from direct
            else:
                yield from _stepping(source, call, meant, methods, calls)


def _process(where: str, imports: tuple[str, ...], made: str, rises: bool, todo: Iterator[str]) -> Process:
    reason = f"{made} takes Euler's steps, from a model that answers the change of latents"
    called = f"{made}(begun, asked, **told)[-1]"
    return Process(where, imports, called, _SCHEDULER, reason, rises=rises, todo=tuple(todo))


def _solves(function: ast.FunctionDef) -> bool:
    calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
    return any((dotted(one.func) or "").rpartition(".")[2] == _SOLVER for one in calls)


def _transported(
    source: SourceFile, made: ast.Call, cls: Defined, method: ast.FunctionDef, calls: list[ast.Call]
) -> Iterator[Process]:
    """`Sampler(create_transport(...)).sample_ode(...)`, with the two objects kept in variables."""
    first = made.args[0] if made.args else None
    maker = _maker(source, first)
    uses = [one for one in calls if isinstance(one.func, ast.Attribute) and one.func.attr == _INTEGRATES]
    if maker is None or not uses or not isinstance(maker.node, ast.FunctionDef):
        return
    told = _told(_made_by(source, first) or made, maker.node)
    if any(told.get(name, wanted) not in (wanted, UNKNOWN) for name, wanted in _PATH.items()):
        return
    points, solver, rest = _named(method)
    if not points:
        return
    given = f"{points}=steps + 1" + (f", {solver}='{_EULER}'" if solver else "")
    call = f"{cls.name}({maker.name}()).{_INTEGRATES}({given})"
    bends = [one.arg for one in (*maker.node.args.args, *maker.node.args.kwonlyargs) if _SHIFT.search(one.arg)]
    todo = [*_shifted(source, uses[0], rest), *_shifted(source, _made_by(source, first) or made, bends)]
    yield _process(source.where(uses[0]), _imported(maker, cls), call, True, iter(todo))


def _direct(
    source: SourceFile, made: ast.Call, cls: Defined, methods: Mapping[str, ast.FunctionDef]
) -> Iterator[Process]:
    """`ODE(steps, ...).sample(noise, model, ...)`."""
    init = methods.get("__init__")
    name = next(name for name, one in methods.items() if _solves(one))
    if init is None or name.startswith("_"):
        return
    points, solver, rest = _named(init)
    needed = {one.arg for one in init.args.args[1 : len(init.args.args) - len(init.args.defaults)]}
    told = {one.arg for one in made.keywords if one.arg}
    ends = [_ends(node, init, told) for node in ast.walk(init) if isinstance(node, ast.Call)]
    way = [one for one in ends if one is not None]
    if not points or needed - {points, solver} or not way:
        return
    given = f"{points}=steps + 1" + (f", {solver}='{_EULER}'" if solver else "")
    # Of several ranges the last is the one of no special case: authors write those first.
    call = f"{cls.name}({given}).{name}"
    yield _process(source.where(made), _imported(cls), call, way[-1] == (0, 1), _shifted(source, made, rest))


def _stepping(
    source: SourceFile, made: ast.Call, cls: Defined, methods: Mapping[str, ast.FunctionDef], calls: list[ast.Call]
) -> Iterator[Process]:
    """`Solver(steps, ...).sample(change, noise)`, with `change(t, x)` and a loop of its own that takes Euler's steps.

    Of several methods the one counts that is called in a file which makes such an object.
    """
    init = methods.get("__init__")
    points = _named(init)[0] if init is not None else ""
    used = {one.func.attr for one in calls if isinstance(one.func, ast.Attribute)}
    for name, method in methods.items() if points else ():
        given = [one.arg for one in method.args.args[1:]]
        if len(given) != 2 or name not in used or not any(isinstance(one, ast.For) for method in methods.values()
                                                              for one in ast.walk(method)):  # fmt: skip
            continue
        for change, latents in (given, given[::-1]):
            rises = _rises(cls, method, points, change, latents)
            if rises is not None:
                asks = "lambda t, x: asked(x, t * torch.ones(len(x)), **told)"
                sampled = f"{cls.name}({points}=steps).{name}({change}={asks}, {latents}=begun)"
                reason = f"{name} of {cls.name} takes Euler's steps, from a model that answers the change of latents"
                yield Process(source.where(made), _imported(cls), sampled, _SCHEDULER, reason, rises=rises)
                return


def _rises(cls: Defined, method: ast.FunctionDef, points: str, change: str, latents: str) -> bool | None:
    """Return whether a method takes Euler's steps from 0 to 1, or from 1 to 0; None if it takes others."""
    assert isinstance(cls.node, ast.ClassDef)
    ways = set()
    for count in _COUNTS:
        asked: list[float] = []

        def answer(t: float, x: float, asked: list[float] = asked) -> float:
            asked.append(t)
            return 0.4 * x - 0.3 * t + 0.2

        try:
            function, _ = opened(cls.node, method)
            told = {change: Native(partial(answer)), latents: _NOISE, points: count}
            ended = called(cls.source, function, keywords=told)
        except (Unsupported, ArithmeticError, LookupError, TypeError, ValueError):
            return None
        times = [*asked, 1.0 if asked[:1] == [0.0] else 0.0]
        x = _NOISE
        for now, after in pairwise(times):
            x += (after - now) * answer(now, x, [])
        even = all(math.isclose(abs(after - now), 1 / count) for now, after in pairwise(times))
        known = isinstance(ended, int | float) and math.isclose(ended, x, rel_tol=1e-6)
        ways.add(times[0] == 0.0 if known and even and len(asked) == count else None)
    return ways.pop() if len(ways) == 1 else None


def _ends(call: ast.Call, init: ast.FunctionDef, told: set[str]) -> tuple[float, float] | None:
    """From where to where `linspace(t0, t1, n)` goes, 0 to 1 or back; None if a caller says it."""
    if (dotted(call.func) or "").rpartition(".")[2] != "linspace" or len(call.args) < 3:
        return None
    known = {name: literal(one) for name, one in defaults(signature(init)).items() if name not in told}
    start, end = (known.get(one.id) if isinstance(one, ast.Name) else literal(one) for one in call.args[:2])
    return (float(start), float(end)) if (start, end) in ((0, 1), (1, 0)) else None  # type: ignore[arg-type]


def _named(function: ast.FunctionDef) -> tuple[str, str, list[str]]:
    """Return the arguments for the number of points and the solver, and those that bend the points."""
    names = [one.arg for one in (*function.args.args, *function.args.kwonlyargs)]
    points = next((name for name in names if _POINTS.search(name)), "")
    solver = next((name for name in names if _METHOD.search(name)), "")
    return points, solver, [name for name in names if _SHIFT.search(name)]


def _shifted(source: SourceFile, call: ast.Call, names: list[str]) -> Iterator[str]:
    """Yield the to-dos for arguments with which a caller shifts the points."""
    for one in call.keywords:
        if one.arg in names and not (literal(one.value) is not UNKNOWN and not literal(one.value)):
            written = f"{one.arg}={ast.unparse(one.value)}"
            yield f"set the scheduler's shift: the authors pass {written} ({source.where(one.value)})"


def _made_by(source: SourceFile, node: ast.expr | None) -> ast.Call | None:
    """Return the call that made what a variable holds."""
    if isinstance(node, ast.Call):
        return node
    for one in (one for one in ast.walk(source.tree) if isinstance(one, ast.Assign) and isinstance(node, ast.Name)):
        if isinstance(one.value, ast.Call) and ast.unparse(one.targets[0]) == ast.unparse(node or one):
            return one.value
    return None


def _maker(source: SourceFile, node: ast.expr | None) -> Defined | None:
    made = _made_by(source, node)
    meant = resolve(source, dotted(made.func) or "") if made is not None else None
    return meant if isinstance(meant, Defined) else None


def _told(call: ast.Call, function: ast.FunctionDef) -> dict[str, object]:
    taken = signature(function)
    given = defaults(taken) | passed(call, positional(taken))
    return {name: literal(one) for name, one in given.items()}


def _imported(*meant: Defined) -> tuple[str, ...]:
    return tuple(f"from {one.source.module} import {one.name}" for one in meant)
