"""A loop that was cut out of the authors' pipeline: what takes its steps, and the file that runs it."""

import ast
import builtins
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from omni_kit.pysource.eval import UNKNOWN, Unsupported
from omni_kit.pysource.nodes import calls
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.targets.diffusers.porting.forward import LATENTS, MASK, TIME
from omni_kit.targets.diffusers.scheduling.betas import schedulers
from omni_kit.targets.diffusers.scheduling.choice import Stepping, stepping_of
from omni_kit.targets.diffusers.scheduling.configured_scheduler import constructed_with, held_as
from omni_kit.targets.diffusers.scheduling.library_scheduler import Installed
from omni_kit.upstream.repositories.names import Defined, definitions, resolve
from omni_kit.upstream.repositories.processes.used_samplers import used_samplers
from omni_kit.upstream.repositories.published import made_in_configs
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.repository import Repository
from omni_kit.upstream.repositories.sampler_step.loop_rewriter import SCHEDULER
from omni_kit.upstream.repositories.sampler_step.simulation import trace_of
from omni_kit.upstream.repositories.sampler_step.slicing import FUNCTION, LEVELS, SlicedLoop, sliced
from omni_kit.upstream.repositories.sampler_step.split_step import Divided
from omni_kit.upstream.repositories.sampling import Sampling
from omni_kit.upstream.repositories.sources import distance, sources_of

_TRAINED, _NOISE, _CLOSE = 1000, 0.8, 1e-6
_LOADED = (".from_pretrained", ".from_config")
_KINDS = frozenset({"SchedulerMixin", "ConfigMixin"})
_METHODS = frozenset({"set_timesteps", "step"})
_DYNAMIC = "use_dynamic_shifting"
_HEAD = '''"""The loop of {} by itself, for a comparison with the pipeline; it runs only next to the authors' code.

Noise is [pictures, ...], an embedded text [pictures, tokens, width], labels are [pictures]; `scale` is that of
guidance. Returns latents.
"""
'''
_TIMES: Mapping[str, Callable[[float], float]] = {
    "whole": lambda t: t,
    "part": lambda t: t / _TRAINED,
    "rises": lambda t: 1 - t / _TRAINED,
}


@dataclass(frozen=True)
class CutLoop:
    """A loop that stands by itself.

    Attributes:
        loop: the loop.
        stepping: what takes its steps.
        script: the text of a file with a function that samples as it does.
    """

    loop: SlicedLoop
    stepping: Stepping
    script: str

    @property
    def sampling(self) -> Sampling:
        """The loop, as one that is called."""
        return replace(self.loop.sampling, script=self.script)


def cut_of(
    reference: Reference, found: Sequence[Sampling], names: Mapping[str, str], text: str, needed: Collection[str] = (),
    why: dict[str, str] | None = None,
) -> CutLoop | None:  # fmt: skip
    """Return the first loop that stands by itself; None if none does.

    Args:
        names: what the authors call an argument of forward -> what it is called here.
        text: the argument for a prompt or labels.
        needed: arguments that the model runs with none of, for all that forward says.
        why: receives the reason why a loop does not stand by itself, by its file:line.
    """
    order = list(
        dict.fromkeys(name.partition("{")[0] for name in reference.forward)
    )  # a dictionary has several entries
    if text and text.partition("{")[0] not in order:
        return None
    latents, time, mask = (next((old for old, new in names.items() if new == one), "") for one in (LATENTS, TIME, MASK))
    required = [name for name, one in reference.forward.items() if name in order and (one.required or name in needed)]
    for one in found:
        try:
            loop = sliced(one, order, latents, time, text, mask, required, _takes_more(reference))
            told = {latents, time, text, mask, loop.embedded, *loop.conditions, *loop.constants, *loop.derived}
            if left := sorted(key for key, each in reference.forward.items() if each.required and key not in told):
                raise Unsupported(f"passes the model no {', '.join(left)}")
            if loop.scheduler:
                stepping, made = _scheduled(reference, one, loop, order, latents, time)
            else:
                stepping, made = stepping_of(loop.sampling, order, names, None), ""
            if stepping.unmoved:
                raise Unsupported(stepping.unmoved)
            if _unsure(reference, found):
                raise Unsupported("is of one of several classes, and nothing says which one the authors use")
            return CutLoop(loop, stepping, _script(loop, made))
        except Unsupported as error:
            if why is not None:
                why[one.where] = str(error)
    return None


def _unsure(reference: Reference, found: Sequence[Sampling]) -> bool:
    """Return whether several classes have these loops, and the authors' code is not known to use any."""
    classes = {one.full_name.rpartition(".")[0] for one in found if one.owner is not None or one.closed}
    return len(classes) > 1 and not used_samplers(reference, {one.full_name for one in found})


def _takes_more(reference: Reference) -> bool:
    """Return whether forward takes any keyword."""
    found = reference.cls.method("forward")
    return found is not None and found[1].args.kwarg is not None


def _scheduled(
    reference: Reference, sampling: Sampling, loop: SlicedLoop, order: Sequence[str], latents: str, time: str
) -> tuple[Stepping, str]:
    """Return the scheduler of diffusers that takes the steps of a loop, and the text that makes it.

    Raises:
        Unsupported: it is none, or the loop does more than to ask the model and it.
    """
    chosen = scheduler_of(reference, sampling.source, sampling.made, loop.scheduler)
    made, config, where = chosen.meant, chosen.given, chosen.where
    if config.get(_DYNAMIC):
        raise Unsupported("shifts its schedule by the size of latents")
    if isinstance(made, Defined) and not is_of_diffusers_kind(made):
        raise Unsupported(f"steps with {made.name}, which inherits from no scheduler of diffusers")
    divided = Divided(loop.sampling, order, latents, time)
    way = trace_of(divided, len(LEVELS), _NOISE, _model, {})
    if way is None or len(way.calls) != len(LEVELS):
        raise Unsupported("does more in a step than call its model and its scheduler")
    kinds = [kind for kind, made in _TIMES.items()
             if all(abs(made(t) - told) < _CLOSE for t, (_, told) in zip(LEVELS, way.calls, strict=True))]  # fmt: skip
    signs = [sign for sign in (1.0, -1.0) if _goes(sign, way.calls, way.ended)]
    if not kinds or not signs or (kinds[0] == "rises") != (signs[0] < 0):
        raise Unsupported("gives its model another step, or its scheduler another answer")
    whole = kinds[0] == "whole"
    real, rises = whole and divided.asks[0].real, kinds[0] == "rises"
    given = ", ".join(f"{key}={value!r}" for key, value in config.items())
    reason = f"{sampling.function} takes its steps with {loop.scheduler}, which is made in {where}"
    if isinstance(made, Defined):
        scales = loop.scaled and "init_noise_sigma" in ast.unparse(made.node)
        found = Installed("", config, whole, real, scales, rises, by_count=not loop.sigmas)
        imported = f"from {made.source.module} import {made.name}\n{SCHEDULER} = {made.name}({given})"
        return Stepping(found, reason=f"{reason}; its class is copied", shift=1.0, copied=made), imported
    scales = all(hasattr(schedulers()[made](**config), one) for one in ("init_noise_sigma", "scale_model_input"))
    found = Installed(made, config, whole, real, scales, rises, by_count=not loop.sigmas)
    stepping = Stepping(found, reason=reason, shift=config.get("shift", 1.0), todo=chosen.todo)
    return stepping, f"{SCHEDULER} = {made}({given})"


def _model(x: float, t: float) -> float:
    return 0.3 * x + 0.001 * t + 0.2


def _goes(sign: float, asked: Sequence[tuple[float, float]], ended: float) -> bool:
    x = _NOISE
    for t, (sample, time) in zip(LEVELS, asked, strict=True):
        if abs(sample - x) > _CLOSE * max(1.0, abs(x)):
            return False
        x += sign * _model(sample, time) * t
    return abs(x - ended) < _CLOSE * max(1.0, abs(ended))


@dataclass(frozen=True)
class _Named:
    """A scheduler, its settings, the place that says so, and whether it is loaded from a checkpoint."""

    meant: str | Defined
    given: dict[str, Any]
    source: SourceFile
    node: ast.AST
    loaded: bool = False


@dataclass(frozen=True)
class Chosen:
    """The scheduler that authors sample with.

    Attributes:
        meant: a class of diffusers by name, or one of the authors' own.
        given: its literal settings.
        where: the place that says so, as file:line.
        todo: what nothing says.
    """

    meant: str | Defined
    given: dict[str, Any]
    where: str
    todo: tuple[str, ...] = ()


def scheduler_of(reference: Reference, source: SourceFile, function: ast.FunctionDef, written: str) -> Chosen:
    """Return the scheduler that a function of the authors' uses by this name.

    Raises:
        Unsupported: nothing says which.
    """
    kept = held_as(source, function, written)
    if isinstance(kept, ast.Call) and _scheduler(source, dotted(kept.func) or "") is not None:
        if (own := _constructed(source, kept, reference.repository)) is None:
            raise Unsupported(f"makes {written} with settings that nothing says")
        return _chosen(own, ())
    sources = sorted(sources_of(reference), key=lambda one: distance(reference, one.path))
    if (written_down := _documented(reference, source, written.rpartition(".")[2])) is not None:
        return Chosen(*written_down)
    made = [*_made(sources, _LOADED[:1], reference.repository)]
    loaded = [one for one in made if one.loaded]
    for name in _annotated(source, function, ast.unparse(kept) if kept is not None else written):
        if (meant := _scheduler(source, name)) is not None:
            same = next((one for one in loaded if one.meant == meant), None)
            return _chosen(same, loaded) if same is not None else Chosen(meant, {}, source.where(function))
    told = (iter(made), _listed(sources), _next_to(source, sources))
    found = [one for way in told if (one := next(way, None)) is not None] or [*_made(sources, _LOADED[1:])]
    if not found:
        raise Unsupported(f"does not say which scheduler {written} is")
    nearest = min(found, key=lambda one: distance(reference, one.source.path))
    same = next((one for one in made if one.meant == nearest.meant), nearest)  # where it is made, its settings are said
    return _chosen(same, loaded)


def _chosen(one: _Named, loaded: Sequence[_Named]) -> Chosen:
    """Return a scheduler; of one that authors load, the settings that they do not pass are those of a checkpoint."""
    where = one.source.where(one.node)
    if not one.loaded or not isinstance(one.meant, str):
        return Chosen(one.meant, one.given, where)
    todo = [f"set the scheduler's settings as the authors' checkpoint does: {where} loads them, these are defaults"]
    others = {str(other.meant) for other in loaded if other.source is one.source} - {one.meant}
    todo += [f"choose the scheduler as the authors do: {where} also uses {', '.join(sorted(others))}"] if others else []
    return Chosen(one.meant, one.given, where, tuple(todo))


def _documented(reference: Reference, source: SourceFile, name: str) -> tuple[str, dict[str, Any], str] | None:
    """Return the scheduler of diffusers whose class a config names, and its settings there: of several the one under
    the name that the loop has for it, one that the file of the loop imports, and that of most configs, in this order.
    """
    found = [(one.cls.rpartition(".")[2], {key: value for key, value in one.given.items() if not key.startswith("_")},
              one.where, one.key == name) for one in made_in_configs(reference.repository, "Scheduler")]  # fmt: skip
    known = {each.rpartition(".")[2] for each in source.imports}
    there = [one for one in found if one[0] in schedulers()]
    best = max(there, key=lambda one: (one[3], one[0] in known, sum(one[:2] == other[:2] for other in there)),
               default=None)  # fmt: skip
    return best[:3] if best is not None else None


def _made(
    sources: Sequence[SourceFile], loaded: Sequence[str], repository: Repository | None = None
) -> Iterator[_Named]:
    """Yield the schedulers that calls make: by one of these methods, or by the constructor.

    Args:
        repository: its configs have what constructors receive; without it, no constructor counts.
    """
    for one in sources:
        for call in (node for node in calls(one.tree) if "Scheduler" in (dotted(node.func) or "")):
            name = dotted(call.func) or ""
            method = next((each for each in _LOADED if name.endswith(each)), "")
            if method not in loaded if method else repository is None:
                continue
            if method:
                meant = _scheduler(one, name.removesuffix(method))
                found = None if meant is None else _Named(meant, _passed(call, meant), one, call, method == _LOADED[0])
            else:
                found = None if repository is None else _constructed(one, call, repository)
            if found is not None:
                yield found


def _passed(call: ast.Call, meant: str | Defined) -> dict[str, Any]:
    """Return the settings that a call passes over those of a checkpoint."""
    if not isinstance(meant, str):
        return {}
    settings = inspect.signature(schedulers()[meant].__init__).parameters
    given = {str(one.arg): literal(one.value) for one in call.keywords if one.arg in settings}
    return {name: value for name, value in given.items() if value is not UNKNOWN}


def _constructed(source: SourceFile, call: ast.Call, repository: Repository) -> _Named | None:
    """Return the scheduler that a call makes by the constructor; None if it makes none, or with unknown settings."""
    meant = _scheduler(source, dotted(call.func) or "")
    given = constructed_with(source, call, meant, repository)
    if isinstance(meant, Defined):
        given = {key: value for key, value in given.items() if value is not UNKNOWN}
    return None if meant is None or UNKNOWN in given.values() else _Named(meant, given, source, call)


def _listed(sources: Sequence[SourceFile]) -> Iterator[_Named]:
    """Yield the schedulers of a table that the authors choose from by name, that of the command line's default first.

    Such a table has an entry for each: `{"scheduler": "DDIMScheduler", "kwargs": {...}}`.
    """
    named = (one for one in sources if "add_argument" in one.text)
    told = [{str(one.arg): one.value for one in call.keywords} for one in named for call in calls(one.tree)]
    chosen = [(one["choices"], literal(one["default"])) for one in told if {"choices", "default"} <= one.keys()]
    usual = {(ast.unparse(table), key) for table, key in chosen if isinstance(key, str)}
    for one in sources:
        for table, value in one.constants.items():
            entries = literal(value)
            if not isinstance(entries, dict):
                continue
            known = {key: each for key, each in entries.items() if isinstance(each, dict)
                     and each.get(SCHEDULER) in schedulers() and isinstance(each.get("kwargs"), dict)}  # fmt: skip
            for key in sorted(known, key=lambda key: (table, key) not in usual):
                yield _Named(known[key][SCHEDULER], known[key]["kwargs"], one, value)


def _next_to(source: SourceFile, sources: Sequence[SourceFile]) -> Iterator[_Named]:
    """Yield the authors' own schedulers that are defined in the folder of the loop, the plainest first."""
    near = [(one, name) for one in sources if one.path.parent == source.path.parent for name in one.classes]
    for one, name in sorted(near, key=lambda pair: (len(pair[1]), pair[1])):
        if isinstance(meant := _scheduler(one, name), Defined):
            yield _Named(meant, {}, one, meant.node)


def _scheduler(source: SourceFile, name: str) -> str | Defined | None:
    """Return the scheduler that a name means: diffusers' by its name there, or the authors' own, of diffusers' kind or
    with its methods.
    """
    meant = resolve(source, name)
    if isinstance(meant, str):
        return last if (last := meant.rpartition(".")[2]) in schedulers() else None
    if not isinstance(meant, Defined) or not isinstance(meant.node, ast.ClassDef):
        return None
    methods = {one.name for one in meant.node.body if isinstance(one, ast.FunctionDef)}
    return meant if is_of_diffusers_kind(meant) or methods >= _METHODS else None


def is_of_diffusers_kind(own: Defined) -> bool:
    """Return whether a class of the authors' inherits from diffusers' schedulers."""
    bases = [ast.unparse(one).rpartition(".")[2] for one in getattr(own.node, "bases", [])]
    return any(one in _KINDS or one in schedulers() for one in bases)


def _annotated(source: SourceFile, function: ast.FunctionDef, written: str) -> Iterator[str]:
    """Yield the names in the annotation of the argument that a scheduler is given as."""
    wanted = written.rpartition(".")[2].lstrip("_")
    inits = [one for cls in source.classes.values() for one in cls.body if isinstance(one, ast.FunctionDef)
             and one.name == "__init__" and any(each.lineno == function.lineno for each in cls.body)]  # fmt: skip
    for taker in (*inits, function):
        for one in (each for each in ast.walk(taker.args) if isinstance(each, ast.arg) and each.arg == wanted):
            nodes = ast.walk(one.annotation) if one.annotation is not None else ()
            for node in nodes:
                text = node.value if isinstance(node, ast.Constant) else dotted(node)
                if isinstance(text, str):
                    yield text


def _script(loop: SlicedLoop, made: str) -> str:
    """Return the text of a file that samples as the loop does, with what it reads of the authors' file."""
    source, tree = loop.sampling.source, ast.parse(loop.sampling.script)
    function = tree.body[0]
    assert isinstance(function, ast.FunctionDef)
    if made:
        function.body[:0] = ast.parse(made).body
    nodes = [one for one in ast.walk(function) if isinstance(one, ast.Name)]
    bound = {one.id for one in nodes if isinstance(one.ctx, ast.Store)} | {one.arg for one in function.args.args}
    bound |= {one.name for node in function.body if isinstance(node, ast.ImportFrom) for one in node.names}
    free = sorted({one.id for one in nodes} - bound - {"torch"} - {*dir(builtins)})
    device = [ast.parse("device = noise.device").body[0]] if "device" in free else []
    function.body[:0] = device
    lines = [line for name in free if name != "device" for line in _imported(source, name)]
    head = _HEAD.format(loop.sampling.function)
    own = [line for line in lines if line.startswith("    ")]
    function.body[:0] = [node for line in own for node in ast.parse(line.strip()).body]
    top = ["import torch", *(line for line in lines if not line.startswith("    "))]
    return f"{head}\n" + "\n".join(top) + f"\n\n\n{ast.unparse(ast.fix_missing_locations(function))}\n"


def _imported(source: SourceFile, name: str) -> Iterator[str]:
    """Yield the line that imports a name of the authors' file; what is theirs is imported once their code can be."""
    if name in schedulers():
        yield f"from diffusers import {name}"
    elif name in definitions(source):
        yield f"    from {source.module} import {name}"
    elif (one := source.imports.get(name)) is not None:
        theirs = source.library.module_file(one.module) is not None
        line = f"from {one.module} import {one.name} as {name}" if one.name else f"import {one.module} as {name}"
        yield f"    {line}" if theirs else line
    else:
        raise Unsupported(f"reads {name}, which {FUNCTION} cannot import")
