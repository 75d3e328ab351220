"""Calls of the authors' own samplers with a denoiser of one's choice, derived from signatures alone.

A sampler is a class that takes the model in its constructor, keeps it as an attribute, or passes it to a method; or a
function that takes it. Its other arguments are recognised by name. Whether a call samples is shown by running it.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import passed
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.processes.class_members import (
    bases,
    constructor_arguments,
    every_method,
    plain_arguments,
)
from omni_kit.upstream.repositories.processes.schedule_arguments import IS_TRAINED, schedule_arguments
from omni_kit.upstream.repositories.processes.settings_objects import settings_objects
from omni_kit.upstream.repositories.processes.wrappers import Wrapper, wrappers_of
from omni_kit.upstream.repositories.published import options_of
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_step.members import MADE, Given, methods_of, of_self
from omni_kit.upstream.repositories.sources import distance, sources_of

TRAINED = 1000
"""Number of steps that models are trained with, where nothing else is known."""
DENOISER, BEGUN, STEPS, SCALE = "denoiser", "begun", "steps", "scale"
"""Variables of a call: the model, its noise, the number of steps, and how strongly it guides."""
MADE_WITH, GIVEN = "made_with", "given"
"""Variables whose attributes are arguments that nothing is known of: of a constructor, and of what samples."""
_MODEL = re.compile(
    r"^((diffusion|velocity|eps|score|base)_)?(model|net|network|denoiser|unet|dit|transformer|estimator|backbone"
    r"|vector_field|drift)(_fn)?$|^(denoise_fn|func|fn)$"
)
_NOISE = re.compile(r"^((init|initial|start|prior)_?)?(noise|latents?)$|^[xyz](_?([tT01]|init))?$|^img$|^samples?$")
_COUNT = re.compile(
    r"^(num_|n_)?((sampling|sample|inference|infer|ddim|ode|euler|denoising|flow)_)?(time)?steps?$|^nfe$|^S$"
)
_GIVEN_BETAS, _ALONG = re.compile(r"^(b|betas?)$"), re.compile(r"^(seq|time_?steps|time_?seq)$")
_KEYWORDS = re.compile(r"^(model_kwargs|extra_args)$")
_METHOD = re.compile(r"^(ode_|sampling_)?(method|solver|solver_type)$")
_ADAPTIVE = (None, "dopri5", "dopri8", "bosh3", "adaptive_heun", "rk45")
"""Solvers that adapt their steps, or that a library takes by default."""
_LEVELS = re.compile(r"^(t_span|time_grid|t_eval|ts|sigmas|t_steps|levels|timesteps)$")
_GUIDED = re.compile(r"(cfg|guidance|cond)_?(scale|strength|rate|weight)|^(cfg|guidance|w)$")
SHAPE = f"tuple({BEGUN}.shape)"
"""The expression for the shape of latents."""
_ROWS = f"len({BEGUN})"
_FEATURES, _LENGTH = f"{BEGUN}.shape[1]", f"{BEGUN}.shape[-1]"
_GUIDES = re.compile(r"(^|_)(cfg|guidance)(_|$)")
_SIZES = (
    (re.compile(r"^(image|img|sample|latent)_?size$|^resolution$"), f"{BEGUN}.shape[-1]"),
    (re.compile(r"^(batch|bsz?|(num|n)_samples?|batch_size)$"), _ROWS),
    (re.compile(r"^(in_|num_|n_|latent_|im(a)?ge?_)?(channels|chans?)$|^n_feats$"), _FEATURES),
    (re.compile(r"^(feature|action|data|transition)_?(size|dim)$"), _FEATURES),
    (re.compile(r"^(seq|sequence)_?len(gth)?$|^horizon$"), _LENGTH),
    (re.compile(r"^(num_|n_)?frames$"), f"{BEGUN}.shape[-3]"),
    (re.compile(r"shape$|^size$"), SHAPE),
    (re.compile(r"^(step_size|dt)$"), f"1 / {STEPS}"),
    (re.compile(r"len(gth)?s$"), f"torch.full((len({BEGUN}),), {BEGUN}.shape[-1])"),
    (re.compile(r"^prompt"), f"{BEGUN}[..., :0]"),
    (re.compile(r"mask"), f"torch.ones_like({BEGUN})"),
    (re.compile(r"device$"), f"{BEGUN}.device"),
    (re.compile(r"dtype$"), f"{BEGUN}.dtype"),
)
_FITS = re.compile(r"^(batch_size|((image|img)_)?size|(in_)?channels)$")
"""Sizes that are passed though they have a default, as those of a small model differ."""
_FALLS, _RISES = f"torch.linspace(1, 0, {STEPS} + 1)", f"torch.linspace(0, 1, {STEPS} + 1)"
_ENTRY = re.compile(r"_steps$|sampl|solve|generate|integrate|inference|denoise|^(__call__|forward)$|loop$")
_OTHER = re.compile(
    r"train|loss|interpol|inpaint|infill|valid|test|invert|inver[st]ion|encode|edit|nll|bpd|likelihood|prior"
)
_SOLVERS = ("odeint",)
_CLEANS = re.compile(r"\bdenoised\b|\bD_x\b|\bd_cur\b")  # what a model behind a preconditioning returns
_MOST = 24


class Guidance(StrEnum):
    """Way of guidance: by `other + scale * (one - other)`; with `scale + 1`; in no call; by anything else."""

    usual = "usual"
    less = "less"
    unasked = "unasked"
    other = "other"


@dataclass(frozen=True)
class AuthorsCall:
    """A call of a sampler.

    Attributes:
        where: file:line.
        module, name: what it imports.
        function: what samples: that function, or a method of that class.
        called: the expression in DENOISER, BEGUN, STEPS, MADE_WITH and GIVEN, `around` and `torch`.
        draws: it draws its first noise itself.
        guides: the arguments by which the authors guide, as they have them by default.
        guided: the same call with `scale` for these; empty without any.
        less: their scale is one less than the usual one.
        levels: it is passed its levels, which its callers make.
        far: how many folders away the sampler is from the model's class.
        inner: another sampler of its class calls it.
        trained: how many steps the authors train with, where the sampler goes all of them; else 0.
        usual: it goes all of them by default, though a number of steps can be given.
        parts: what else it imports: module and name.
        wrapper: the class that holds the model while it samples; empty without one.
        wrappers: all such classes.
        adapts: the arguments by which the authors choose a solver that adapts its steps.
        off: the arguments by which they guide, and which are null by default.
        takes: the names of the function's arguments.
        assumed: values of arguments that nothing says, and that have an effect.
    """

    where: str
    module: str
    name: str
    function: str
    called: str
    draws: bool
    guides: tuple[str, ...] = ()
    guided: str = ""
    less: bool = False
    levels: bool = False
    far: int = 0
    inner: bool = False
    trained: int = 0
    usual: bool = False
    parts: tuple[tuple[str, str], ...] = ()
    wrapper: str = ""
    wrappers: tuple[str, ...] = ()
    adapts: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    takes: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()

    def is_named(self, function: str) -> bool:
        """Return whether this is the sampler of that name, with or without its class and its module."""
        return f".{self.full_name}".endswith(f".{function}")

    @property
    def full_name(self) -> str:
        """Its module, its class and its function."""
        return ".".join(dict.fromkeys((*self.module.split("."), self.name, self.function)))

    @property
    def todo(self) -> Iterator[str]:
        """Yield what the comparison leaves to a person."""
        if self.guides:
            yield f"compare the guidance with {', '.join(self.guides)} of {self.name} ({self.where})"
        if self.levels:
            yield f"compare the scheduler's levels with those that callers of {self.name} pass ({self.where})"
        if len(self.wrappers) > 1:
            others = ", ".join(one for one in self.wrappers if one != self.wrapper)
            yield f"compare the preconditioning with the checkpoint's: {self.wrapper} is taken, and not {others}"
        if self.assumed:
            assumed = ", ".join(self.assumed)
            yield f"set the scheduler as the authors make {self.name} ({self.where}): {assumed} is assumed"
        if self.off:
            yield f"compare the guidance that {', '.join(self.off)} of {self.name} switches on ({self.where})"
        if self.adapts:
            yield f"compare with the authors' adaptive steps: {', '.join(self.adapts)} of {self.name} ({self.where})"


def authors_calls(reference: Reference) -> list[AuthorsCall]:
    """Return the calls of the samplers nearest to a class, those with the fewest invented arguments first.

    Those that run all steps of training by default come before those that are passed another number, and those that
    know no other number come after them.
    """
    found: list[tuple[int, AuthorsCall]] = []
    sources = [*sources_of(reference)]
    wrappers = wrappers_of(reference, sources)
    for source in sources:
        far = 0 if source is reference.cls.source else 1 + distance(reference, source.path)
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and node is not reference.cls.node:
                calls = _of_class(reference, source, node, sources)
            elif isinstance(node, ast.FunctionDef) and _is_entry(node) and _loops_by_names(source, node):
                calls = _of_function(source, node, wrappers)
            else:
                continue
            found += [(cost, replace(call, far=far)) for cost, call in calls if STEPS in call.called]
        if len(found) > 2 * _MOST:
            break
    order = sorted(found, key=lambda each: (each[1].far, each[1].inner, each[0]))
    kinds = [[one for _, one in order if kind(one)][:_MOST] for kind in _KINDS]
    return [one for kind in kinds for one in kind]


_KINDS: tuple[Callable[[AuthorsCall], bool], ...] = (
    lambda one: one.usual,
    lambda one: not one.trained,
    lambda one: bool(one.trained) and not one.usual,
)


def chosen(reference: Reference, functions: Sequence[str]) -> str:
    """Return the one of several samplers that the authors' command line chooses by default, as `ddpm_steps` by
    `--sample_type ddpm`; empty without such an option.
    """
    words = {one: {*one.split("_")} for one in functions}
    for source in sources_of(reference) if len(words) > 1 else ():
        for option, value in options_of(source).items() if "argument" in source.text else ():
            named = [one for one in words if isinstance(value, str) and value in words[one]]
            if len(named) == 1 and re.search(r"sampl|method|solver", option):
                return named[0]
    return ""


def seeming_samplers(reference: Reference) -> Iterator[tuple[str, str]]:
    """Yield the functions that seem to sample with a model, each with its file:line: the nearest first.

    Methods with a loop of classes that hold a model; functions with a loop that receive one, or that make the class.
    """
    for source in sources_of(reference):
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and node is not reference.cls.node:
                own, methods = methods_of(node), every_method(source, node)
                takes = any(_MODEL.match(one.arg) for one, _ in constructor_arguments(source, node))
                for one in own.values() if takes or _held(methods) else ():
                    if _is_entry(one) and _loops(one, methods):
                        yield f"{node.name}.{one.name}", source.where(one)
            elif isinstance(node, ast.FunctionDef) and _loops(node, {}) and not _OTHER.search(node.name):
                receives = any(isinstance(one, ast.arg) and _MODEL.match(one.arg) for one in ast.walk(node))
                if (_is_entry(node) and receives) or _asks_own(source, node, reference.cls.node):
                    yield node.name, source.where(node)


def _asks_own(source: SourceFile, function: ast.FunctionDef, cls: ast.ClassDef) -> bool:
    """Return whether a function makes an object of a class, and calls a variable with several arguments in a loop."""
    made = any(isinstance(one, ast.Call) and _makes(source, one, cls) for one in ast.walk(function))
    stored = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    loops = (one for one in ast.walk(function) if made and isinstance(one, ast.For | ast.While))
    calls = (one for loop in loops for one in ast.walk(loop) if isinstance(one, ast.Call))
    return any(isinstance(one.func, ast.Name) and one.func.id in stored and len(one.args) + len(one.keywords) > 1
               for one in calls)  # fmt: skip


def _is_entry(function: ast.FunctionDef) -> bool:
    name = function.name
    if any(isinstance(node, ast.Break) for node in ast.walk(function)):  # how far it goes depends on what it finds
        return False
    return bool(_ENTRY.search(name)) and not _OTHER.search(name)


def _loops(function: ast.FunctionDef, methods: Mapping[str, ast.FunctionDef], deep: int = 3) -> bool:
    """Return whether a function goes along steps: by a loop or by a solver, itself or in methods that it calls."""
    for node in ast.walk(function):
        if isinstance(node, ast.For | ast.While):
            return True
        name = (dotted(node.func) or "").rpartition(".")[2] if isinstance(node, ast.Call) else ""
        inner = methods.get(of_self(node)) if isinstance(node, ast.Attribute) else None
        if name in _SOLVERS or (inner is not None and inner is not function and deep
                                and _loops(inner, methods, deep - 1)):  # fmt: skip
            return True
    return False


def _loops_by_names(source: SourceFile, function: ast.FunctionDef) -> bool:
    """Return whether a function goes along steps itself, or in functions of its file that it names."""
    named = {one.id for one in ast.walk(function) if isinstance(one, ast.Name)}
    others = (source.functions[name] for name in sorted(named & source.functions.keys()))
    return _loops(function, {}) or any(_loops(one, {}) and _is_entry(one) for one in others)


def _objects(source: SourceFile, function: ast.FunctionDef) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the arguments that are an object of a class in the same file, as its methods that are called say."""
    for one, default in plain_arguments(function):
        nodes = [node.func for node in ast.walk(function) if isinstance(node, ast.Call)]
        called = {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == one.arg}
        kinds = [name for name, cls in source.classes.items() if called and called <= methods_of(cls).keys()]
        if default is None and len(kinds) == 1 and not _MODEL.match(one.arg):
            yield one.arg, (source.module, kinds[0])


def _of_function(
    source: SourceFile, function: ast.FunctionDef, wrappers: Sequence[Wrapper]
) -> Iterator[tuple[int, AuthorsCall]]:
    """Yield the calls of a function, with the model itself or with each of the objects that precondition it."""
    parts = dict(_objects(source, function))
    objects = {name: f"around({kind}, (), None)" for name, (_, kind) in parts.items()}
    cleans = bool(_CLEANS.search(ast.unparse(function))) and not objects
    own = plain_arguments(function)
    betas = next((one.arg for one, _ in own if _GIVEN_BETAS.match(one.arg)), "")
    along = next((one.arg for one, _ in own if betas and _ALONG.match(one.arg)), "")
    objects |= {betas: f"torch.linspace(0.0001, 0.02, {STEPS})", along: f"range({STEPS})"} if along else {}
    for told in _told(own, required=_MODEL, parts=objects):
        made = [f"{function.name}({text})" for text in (told.text, told.guided)]
        call = replace(_call(source, function, function.name, made, told), parts=tuple(parts.values()))
        if along:
            call = replace(call, trained=TRAINED, assumed=(f"{betas} from 0.0001 to 0.02",))
        if not cleans:
            yield told.cost, call
        for one in wrappers if cleans else ():
            plain, guided = (text.replace(f"={DENOISER}", f"={one.around(DENOISER)}") for text in
                             (call.called, call.guided))  # fmt: skip
            names = tuple(each.name for each in wrappers)
            yield told.cost, replace(
                call, called=plain, guided=guided, wrapper=one.name, wrappers=names,
                parts=((one.module, one.name),),
            )  # fmt: skip


def _of_class(
    reference: Reference, source: SourceFile, cls: ast.ClassDef, sources: Sequence[SourceFile]
) -> Iterator[tuple[int, AuthorsCall]]:
    methods = every_method(source, cls)
    entries = [one for one in methods.values() if _is_entry(one) and not _CLEANS.search(ast.unparse(one))
               and _loops(one, methods)
               and not any(_is_property(each) for each in one.decorator_list)]  # fmt: skip
    if not entries:
        return
    given = constructor_arguments(source, cls)
    parts = dict(_parts(source, cls, given, sources))
    scheduled = schedule_arguments(reference, sources, given, STEPS)
    known = {**{name: text for name, (text, _) in parts.items()}, **scheduled.made}
    known |= dict(settings_objects(reference.repository, given, _inits(source, cls)))
    values = {**scheduled.values, **_passed(cls, given, sources)}
    made = [*_told(given, constructs=True, parts=known, values=values)]
    made += [one for one in _told(given, constructs=True, parts=known, values=values, whole=True) if one.trained]
    if scheduled.made:
        made = [replace(one, trained=TRAINED) for one in made]
    assumed = tuple(one for one in scheduled.assumed if re.split("=| ", one)[0] not in values.keys() - scheduled.values)
    held = _held(methods)
    named = {
        entry.name: {of_self(node) for node in ast.walk(entry) if isinstance(node, ast.Attribute)} for entry in entries
    }
    for entry in entries:
        inner = any(entry.name in names for name, names in named.items() if name != entry.name)
        own = plain_arguments(entry)[1:]
        takes = any(_MODEL.match(one.arg) for one, _ in own)
        for told in _told(own, required=_MODEL if takes else None, way=_way(methods.values())):
            name = "" if entry.name in ("__call__", "forward") else f".{entry.name}"
            for one in made:
                if (takes or one.model) and not (one.trained and STEPS in told.text):
                    pairs = ((one.text, told.text), (one.guided, told.guided))
                    calls = [f"{cls.name}({first}){name}({second})" for first, second in pairs]
                    call = _call(source, entry, cls.name, calls, told, one)
                    imported = tuple(meant for _, meant in parts.values())
                    call = replace(call, parts=imported, trained=one.trained, usual=one.usual, inner=inner)
                    call = replace(call, assumed=assumed)
                    yield from ((one.cost + told.cost + more, each) for more, each in enumerate(_turned(call)))
            for one in made if not takes and held and not any(one.model for one in made) else ():
                if one.trained and STEPS in told.text:
                    continue
                scales, calls = _kept_scales(methods), []
                for value, text in (("0.0", told.text), (SCALE, told.guided)):
                    kept = ", ".join(f"{each!r}: {value}" for each in scales)
                    more = "".join(f", {each}" for each in (f"kept={{{kept}}}" if kept else "", one.text) if each)
                    object_ = f"around({cls.name}, {held!r}, {DENOISER}{more})"
                    calls.append(f"{object_}{name or '.' + entry.name}({text})")
                call = _call(source, entry, cls.name, calls, told)
                call = replace(call, trained=one.trained, usual=one.usual, inner=inner)
                yield from ((9 + told.cost + more, each) for more, each in enumerate(_turned(call)))


def _turned(call: AuthorsCall) -> Iterator[AuthorsCall]:
    """Yield a call; and, where it is passed a length, with channels as the last axis of latents."""
    yield call
    if _LENGTH in call.called and re.search(r"len\w*=|horizon=", call.called):
        turn = {_LENGTH: _FEATURES, _FEATURES: _LENGTH}
        plain, guided = (re.sub("|".join(map(re.escape, turn)), lambda one: turn[one[0]], text)
                         for text in (call.called, call.guided))  # fmt: skip
        yield replace(call, called=plain, guided=guided)


def _parts(
    source: SourceFile, cls: ast.ClassDef, given: Sequence[Given], sources: Sequence[SourceFile]
) -> Iterator[tuple[str, tuple[str, tuple[str, str]]]]:
    """Yield the arguments of a constructor that are None by default and must not be: the expression and its import.

    An argument annotated with a class of the authors' gets the first object of such a class that is made of nothing,
    from the sampler's folder; one that guides, the authors' function of its name.
    """
    inits = _inits(source, cls)
    tests = [node.test for init in inits for node in ast.walk(init) if isinstance(node, ast.Assert)]
    wanted = {ast.unparse(test.left).removeprefix("self.") for test in tests if isinstance(test, ast.Compare)
              and isinstance(test.ops[0], ast.IsNot)}  # fmt: skip
    near = [file for file in sources if file.path.parent == source.path.parent]
    for one, default in given:
        if default is None or literal(default) is not None:
            continue
        kind = resolve(source, dotted(one.annotation) or "") if one.annotation is not None else None
        if one.arg in wanted and isinstance(kind, Defined):
            part = next(_made_of_nothing(kind.node, near), None)
            if part is not None:
                yield one.arg, (f"{part[1]}()", part)
        elif one.arg.endswith("_fn") and "guid" in one.arg:
            found = next(((file.module, node.name) for file in sources for node in file.tree.body
                          if isinstance(node, ast.FunctionDef) and node.name.endswith(one.arg)), None)  # fmt: skip
            if found is not None:
                yield one.arg, (found[1], found)


def _inits(source: SourceFile, cls: ast.ClassDef) -> list[ast.FunctionDef]:
    return [made for each in (cls, *bases(source, cls)) if (made := methods_of(each).get(MADE)) is not None]


def _passed(cls: ast.ClassDef, given: Sequence[Given], sources: Sequence[SourceFile]) -> dict[str, Any]:
    """Return the values that the authors pass a constructor where they first call it: literals, options, or defaults of
    the function that calls it.
    """
    order = [one.arg for one, _ in given]
    for source in (one for one in sources if cls.name in one.text):
        calls = [one for one in ast.walk(source.tree) if isinstance(one, ast.Call) and _makes(source, one, cls)]
        options = options_of(source) if calls else {}
        for call in calls:
            usual = {one.arg: literal(default) for function in ast.walk(source.tree)
                     if isinstance(function, ast.FunctionDef) and call in ast.walk(function)
                     for one, default in plain_arguments(function) if default is not None}  # fmt: skip
            values = {name: options.get(node.attr, UNKNOWN) if isinstance(node, ast.Attribute)
                      else usual.get(node.id, UNKNOWN) if isinstance(node, ast.Name) else literal(node)
                      for name, node in passed(call, order).items()}  # fmt: skip
            if known := {name: one for name, one in values.items() if isinstance(one, int | float | str | tuple)}:
                return known
    return {}


def _makes(source: SourceFile, call: ast.Call, cls: ast.ClassDef) -> bool:
    name = dotted(call.func) or ""
    if name.rpartition(".")[2] != cls.name:
        return False
    meant = resolve(source, name)
    return isinstance(meant, Defined) and meant.node is cls


def _made_of_nothing(kind: ast.stmt, near: Sequence[SourceFile]) -> Iterator[tuple[str, str]]:
    """Yield the classes, as module and name, that inherit from a class and need no argument."""
    for file in near:
        for name, node in file.classes.items():
            if kind in bases(file, node) and all(
                default is not None for _, default in constructor_arguments(file, node)
            ):
                yield file.module, name


def _call(
    source: SourceFile, node: ast.FunctionDef, name: str, called: Sequence[str], *told: "_Told"
) -> AuthorsCall:  # fmt: skip
    """Return a call, given as it is and with a scale of guidance."""
    module = source.module
    guides = tuple(dict.fromkeys(each for one in told for each in one.guides))
    draws = not any(one.noise for one in told)
    where = source.where(node) if node in [*ast.walk(source.tree)] else f"{source.path}:{node.lineno}"
    plain, guided = called
    off = tuple(dict.fromkeys(each for one in told for each in one.off))
    levels, adapts = any(one.levels for one in told), tuple(each for one in told for each in one.adapts)
    return AuthorsCall(
        where, module, name, node.name, plain, draws, guides, guided if guided != plain else "", levels=levels,
        adapts=adapts, off=off, takes=tuple(one.arg for one, _ in plain_arguments(node)),
    )  # fmt: skip


def _is_property(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("property", "classmethod")


def _held(methods: Mapping[str, ast.FunctionDef]) -> list[str]:
    """Return the attributes that methods call as a model."""
    calls = (node for one in methods.values() for node in ast.walk(one) if isinstance(node, ast.Call))
    named = (of_self(one.func) for one in calls if len(one.args) + len(one.keywords) > 1)
    return sorted({name for name in named if name not in methods and _MODEL.match(name)})


def _kept_scales(methods: Mapping[str, ast.FunctionDef]) -> list[str]:
    nodes = (node for one in methods.values() for node in ast.walk(one) if isinstance(node, ast.Attribute))
    return [name for name in sorted({of_self(node) for node in nodes}) if name and _GUIDED.search(name)]


@dataclass(frozen=True)
class _Told:
    """Arguments of one call.

    Attributes:
        text: as they are written.
        guided: the same with a scale of guidance.
        cost: how many were made up.
        model, noise, levels: whether one of them is passed.
        guides: those that guide.
        adapts: those by which the authors choose a solver that adapts its steps; it is passed another.
        off: those that guide, and are null by default.
        trained: how many steps of training there are by default, where it is passed the number of steps instead.
        usual: and it goes all of them unless it is passed another number.
    """

    text: str
    guided: str
    cost: int
    model: bool
    noise: bool
    levels: bool
    guides: tuple[str, ...]
    adapts: tuple[str, ...] = ()
    off: tuple[str, ...] = ()
    trained: int = 0
    usual: bool = False


def _way(functions: Iterable[ast.FunctionDef]) -> str:
    """Return the levels that fall, or those that rise, as functions make them by `linspace`; empty without such."""
    calls = [node for one in functions for node in ast.walk(one) if isinstance(node, ast.Call)]
    starts = {literal(one.args[0]) for one in calls if (dotted(one.func) or "").endswith("linspace") and one.args}
    ways = {_RISES if one == 0 else _FALLS for one in starts if isinstance(one, int | float) and one in (0, 1)}
    return ways.pop() if len(ways) == 1 else ""


def _told(
    given: Sequence[Given],
    required: re.Pattern[str] | None = None,
    constructs: bool = False,
    way: str = "",
    parts: Mapping[str, str] | None = None,
    values: Mapping[str, Any] | None = None,
    whole: bool = False,
) -> Iterator[_Told]:
    """Yield the way to call something with these arguments, unless nothing says which way its levels go.

    Args:
        required: there must be an argument of such a name.
        constructs: it is a constructor.
        way: of its levels.
        parts: arguments whose values are known.
        values: those that the authors pass, for arguments without a default; if `whole`, for all others, too.
        whole: the number of steps of training is that of steps, unless another number has a default.
    """
    names = [one.arg for one, _ in given]
    if required is not None and not any(required.match(name) for name in names):
        return
    counted = [one.arg for one, default in given if _COUNT.match(one.arg) and not isinstance(literal(default), bool)]
    counted = [name for name in counted if not IS_TRAINED.match(name)] or ([] if constructs else counted)
    said_by = values or {}
    left = {one.arg for one, default in given if default is not None and literal(default) is None}
    open_ = bool(counted) and whole and not {*counted} - left and not {*counted} & said_by.keys()
    counted = [] if open_ else counted
    every = {one.arg: said_by.get(one.arg, literal(default) if default is not None else TRAINED)
             for one, default in given if IS_TRAINED.match(one.arg)} if whole and not counted else {}  # fmt: skip
    trained = next((value for value in every.values() if type(value) is int), 0)
    counted = counted or [*every][:1]
    bent = [one.arg for one, default in given
            if _LEVELS.match(one.arg) and default is None and not constructs and one.arg not in counted]  # fmt: skip
    way = way or (_FALLS if bent == ["sigmas"] else "")
    for levels in ([way] if way else []) if bent else [""]:
        said, cost, adapts = dict[str, str](), 0, list[str]()
        noises = [] if constructs else [
            one.arg for one, default in given
            if _NOISE.match(one.arg) and not (one.arg == "y" and default is not None)  # an optional y is a label
        ]  # fmt: skip
        for one, default in given:
            name = one.arg
            if parts and name in parts:
                said[name] = parts[name]
                cost += 1
            elif _MODEL.match(name) and DENOISER not in said.values():
                said[name] = DENOISER
            elif name in noises[:1]:
                said[name] = BEGUN
            elif name in counted[:1]:
                said[name] = STEPS
            elif name in bent:
                said[name] = levels
            elif size := next((text for pattern, text in _SIZES if pattern.search(name)), ""):
                usual = literal(default) if default is not None else ...
                fits = isinstance(usual, int | tuple) and _FITS.match(name)
                if usual is ... or (usual is None and "shape" in name) or fits:
                    pair = isinstance(said_by.get(name, usual), tuple) and size == _LENGTH
                    said[name] = f"tuple({BEGUN}.shape[2:])" if pair else size
                    apart = size == SHAPE and _ROWS in said.values()  # a number of samples, and the shape of each
                    said[name] = f"tuple({BEGUN}.shape[1:])" if apart else said[name]
            elif constructs and name in said_by and (default is None or whole):
                said[name] = repr(said_by[name])
            elif _KEYWORDS.search(name) and (default is None or literal(default) is None):
                said[name] = "{}"
            elif default is None and constructs and IS_TRAINED.match(name):
                said[name] = str(TRAINED)
            elif default is None:
                said[name] = f"{MADE_WITH if constructs else GIVEN}.{name}"
                cost += 3 if constructs else 1
            elif not constructs and _METHOD.match(name) and literal(default) in _ADAPTIVE:
                said[name] = "'euler'"
                adapts.append(f"{name}={ast.unparse(default)}")
        guides = tuple(f"{one.arg}={ast.unparse(default)}" for one, default in given if default is not None
                       and _GUIDED.search(one.arg) and literal(default) is not None)  # fmt: skip
        scaled = {one.arg: SCALE for one, default in given if default is not None and one.arg not in said
                  and _GUIDED.search(one.arg) and type(literal(default)) in (int, float)}  # fmt: skip
        text, guided = (", ".join(f"{name}={value}" for name, value in each.items()) for each in (said, said | scaled))
        uses = set(said.values())
        model, noise = DENOISER in uses, BEGUN in uses
        usual = open_ and bool(trained)
        off = tuple(one.arg for one, default in given if default is not None and literal(default) is None
                    and _GUIDES.search(one.arg) and one.arg not in said)  # fmt: skip
        yield _Told(text, guided, cost, model, noise, bool(bent), guides, tuple(adapts), off, trained, usual)
