"""A loop over steps cut out of its function: what moves latents, without what makes prompts and decodes pictures."""

import ast
import builtins
import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from omni_kit.pysource.eval import UNKNOWN, Domain, Frame, Scope, Unsupported, evaluate
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import defaults, passed, signature
from omni_kit.upstream.repositories.names import resolve
from omni_kit.upstream.repositories.numbers import Numbers
from omni_kit.upstream.repositories.passed_levels import SHAPE
from omni_kit.upstream.repositories.recorded import NEGATIVE
from omni_kit.upstream.repositories.sampler_step.batches import is_real, of_one, once
from omni_kit.upstream.repositories.sampler_step.flow import binds, flat, needed, reads
from omni_kit.upstream.repositories.sampler_step.members import stored
from omni_kit.upstream.repositories.sampler_step.outline import DEVICE, apart, unwrapped
from omni_kit.upstream.repositories.sampling import AGAINST, MODEL, NOISE, SCALE, SIZE, STEPS, TEXT, Sampling

GUIDED, SCHEDULER = "guided", "scheduler"
FUNCTION = "sample"
LEVELS = (900.0, 500.0, 100.0)
"""Stand-ins for the timesteps of a scheduler."""
_ROLES = (MODEL, NOISE, STEPS, TEXT, AGAINST, SCALE)
_IS_SCALE = re.compile(r"^_?(text_)?(guidance|guide|cfg|cond)_(scale|strength|weight)r?$|^cfg$")
_IS_GUIDED = re.compile(r"^_?((do|use)_)?(cfg|classifier_free_guidance)$")
_IS_AGAINST = re.compile(r"(^|_)(neg|negative|uncond|unconditional|empty|null)(_|$)", re.IGNORECASE)
_IS_COUNT = re.compile(r"(^|_)(num_)?(inference_|sampling_|sample_|denoising_|infer_|ddim_|n_?)?steps$")
_IS_SCHEDULER = re.compile(r"(^|[._])scheduler$")
_DRAWS = re.compile(r"(rand|noise|prepare_latents|init_latents|get_latents)", re.IGNORECASE)
_PLACES = frozenset({"shape", "device", "dtype", "ndim", "size"})
_BARS = frozenset({"tqdm", "progress_bar", "progress", "track"})
_SCALED = 4.0
_COUNTS = (4, 7)
TRAINED = 1000
"""Timesteps of a scheduler, where its settings do not say otherwise."""
_GUIDANCE = "guidance"
_MOST = 40


@dataclass(frozen=True)
class SlicedLoop:
    """A loop as a function of its own.

    Attributes:
        sampling: with latents, a prompt, a count of steps and a scale as the only arguments; its statements are those
            that guide.
        conditions: what else the model is passed: its argument -> whether there is another one to guide against.
        constants: arguments of the model that the loop passes a value written there, and the value.
        scheduler: what takes the step, as the authors write it; empty if their statements do.
        scaled: latents are scaled by it for the model.
        halved: of an answer with twice the channels the first half counts; the other is a variance.
        masked: the model is passed a mask of the prompt's tokens.
        guides: it joins two answers by the scale.
        embedded: the argument of the model that receives the scale; empty without one.
        sigmas: the levels that it passes its scheduler, as an expression in the number of steps; empty for none.
    """

    sampling: Sampling
    conditions: Mapping[str, bool]
    constants: Mapping[str, object]
    scheduler: str = ""
    scaled: bool = False
    halved: bool = False
    masked: bool = False
    guides: bool = True
    embedded: str = ""
    sigmas: str = ""


def sliced(
    sampling: Sampling,
    order: Sequence[str],
    latents: str,
    time: str,
    text: str,
    mask: str = "",
    required: Sequence[str] = (),
    takes_more: bool = False,
) -> SlicedLoop:
    """Cut a loop out of its function.

    Args:
        order: the arguments of the model.
        latents, time, text: those that hold latents, the step, and the prompt or the labels, `name{key}` for an entry
            of a dictionary; the last may be empty.
        mask: the one that says which tokens of the prompt count; all do here.
        required: the arguments that the model must be given.
        takes_more: the model takes any other keyword, which is left out.

    Raises:
        Unsupported: it needs what is none of these; what.
    """
    return _Slicer(sampling, order, latents, time, text, mask, mask in required, required, takes_more).sliced()


@dataclass
class _Slicer:
    """One loop, while it is cut out."""

    sampling: Sampling
    order: Sequence[str]
    latents: str
    time: str
    text: str
    mask: str
    masked: bool
    required: Sequence[str]
    takes_more: bool = False
    conditions: dict[str, bool] = field(default_factory=dict)
    constants: dict[str, object] = field(default_factory=dict)
    scaled: bool = False
    halved: bool = False
    guides: bool = False
    embedded: str = ""
    sigmas: ast.expr | None = None
    moved: str = ""
    model: str = ""
    scheduler: str = ""
    deciding: bool = False
    named: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.loop, (before, after) = apart(self.sampling.made, self.sampling.loop)
        self.outer = before
        self.before = [*_opened(before)]
        self.arguments = {one.arg for one in ast.walk(self.sampling.made.args) if isinstance(one, ast.arg)}
        self.given = dict(self._dicts())
        self.reached = _Spoken(self, guided=None).block(self.loop.body)
        asked = [call for node in self.reached for call in _calls(node) if self._is_model(call)]
        self.calls = [call for call in asked if self._heads & self._roots(self._told(call)[self.time])]
        models = {ast.unparse(call.func) for call in self.calls}
        if len(models) != 1:
            raise Unsupported(f"calls {' and '.join(sorted(models)) or 'no model with latents and a step'}")
        steppers = {ast.unparse(one.func.value) for node in self.reached for one in _calls(node) if _steps(one)}  # type: ignore[attr-defined]
        if len(steppers) > 1:
            raise Unsupported(f"steps with {' and '.join(sorted(steppers))}")
        kept = (one.attr for one in self._nodes() if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store))
        if changed := sorted(name for name in kept if _IS_SCALE.search(name)):
            raise Unsupported(f"changes {changed[0]} in each step")
        self.model, self.scheduler = models.pop(), next(iter(steppers), "")
        if any(ast.unparse(call.func) == self.model for node in after for call in _calls(node)):
            raise Unsupported("calls its model once more after the loop")

    def _dicts(self) -> Iterator[tuple[str, Mapping[str, ast.expr]]]:
        """Yield variables that hold keyword arguments, as `arg_c = {"context": context}`."""
        for node in (*self.before, *_opened(self.loop.body)):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict() as value):
                    keys = [one.value if isinstance(one, ast.Constant) else None for one in value.keys]
                    if all(isinstance(one, str) for one in keys):
                        yield name, dict(zip(map(str, keys), value.values, strict=True))
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Name(id="dict"), args=[]) as call):
                    yield name, {one.arg: one.value for one in call.keywords if one.arg}

    @cached_property
    def methods(self) -> set[str]:
        """Methods of the file's classes, none of which is a model: `self.encode`."""
        nodes = (one for cls in self.sampling.source.classes.values() for one in cls.body)
        return {f"self.{one.name}" for one in nodes if isinstance(one, ast.FunctionDef)}

    def _told(self, call: ast.Call) -> dict[str, ast.expr]:
        """Return the arguments of the model that a call passes, those of a known dictionary among them."""
        more: dict[str, ast.expr] = {}
        name, unknown = "", False
        for one in call.keywords:
            if one.arg is None:
                name = one.value.id if isinstance(one.value, ast.Name) else ""
                more |= self.given.get(name, {})
                unknown = name in self.arguments and name not in self.given
        told = {**passed(call, self.order), **more}
        told = {name: one for name, one in told.items() if name in self.order or not self.takes_more}
        if unknown:  # all that the model needs besides
            told = {**{each: ast.Name(name, ast.Load()) for each in self.required if each not in told}, **told}
        return told

    def _is_model(self, call: ast.Call) -> bool:
        whole = ast.unparse(call.func)
        begun = {*self.arguments, *(name for node in self.before for name in binds(node))}
        starred = any(isinstance(one, ast.Starred) for one in call.args)
        if whole.partition(".")[0] not in begun or "scheduler" in whole or starred or whole in self.methods:
            return False
        told = self._told(call)
        return len(call.args) <= len(self.order) and {self.latents, self.time} <= told.keys() <= {*self.order}

    def sliced(self) -> SlicedLoop:
        """Return the loop by itself."""
        self.sigmas = self._levels()
        moved = self.moved = self._moved()
        body = _Spoken(self, guided=None).block(self.loop.body)
        guided = _Spoken(self, guided=True).block(self.loop.body)
        answers = self._answers(guided)
        self._passes(body, *answers)
        self._passes(guided, *answers, alone=True)
        whole = self._function(moved, body, guided=False)
        told = self._function(moved, [*_at_once(guided)], guided=True)
        loop = next(node for node in told.body if isinstance(node, ast.For))
        roles = {role: role for role in _ROLES if role not in (TEXT, AGAINST) or self.text}
        sampling = replace(
            self.sampling, made=told, loop=loop, roles=roles, owner=None, closed="", script=ast.unparse(whole),
        )  # fmt: skip
        return SlicedLoop(
            sampling,
            self.conditions,
            self.constants,
            self.scheduler,
            self.scaled,
            self.halved,
            self.masked,
            self.guides,
            self.embedded,
            ast.unparse(self.sigmas) if self.sigmas is not None else "",
        )

    def _moved(self) -> str:
        """Return the variable that goes from noise to latents."""
        changed = {name for node in self._nodes() if isinstance(node, ast.stmt) for name in binds(node)} - {"self"}
        begun = self.arguments | stored(self.before)
        wanted = reads(self._told(self.calls[0])[self.latents])
        for _ in range(_MOST):
            if found := sorted(wanted & changed & begun):
                break
            values = [node for node in self._nodes() if isinstance(node, ast.Assign) and binds(node) & wanted]
            more = set().union(wanted, *(_depends(node.value) for node in values))
            if more == wanted:
                break
            wanted = more
        if len(found) != 1:
            raise Unsupported(f"moves {', '.join(found) or 'nothing'}, and not one variable that begins as noise")
        return found[0]

    def _answers(self, body: Sequence[ast.stmt]) -> tuple[tuple[str, str], bool]:
        """Read from the formula of guidance which answer has the prompt; and whether one call gives both."""
        nodes = [node for stmt in body for node in ast.walk(stmt)]
        calls = [node for node in nodes if isinstance(node, ast.Call) and _is_named(node.func, MODEL)]
        formulas = (node for node in nodes if isinstance(node, ast.BinOp) and SCALE in reads(node))
        for prompt, other in (pair for one in formulas if (pair := self._pair(one)) is not None):
            self.guides = True
            for node in (one for one in nodes if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Tuple)):
                names = [one.id for one in node.targets[0].elts if isinstance(one, ast.Name)]  # type: ignore[attr-defined]
                if names in ([prompt, other], [other, prompt]) and "chunk" in ast.unparse(node.value):
                    return ((TEXT, AGAINST) if names[0] == prompt else (AGAINST, TEXT)), True
            places = {name: node.lineno for node in nodes if isinstance(node, ast.Assign)
                      and any(one in calls for one in ast.walk(node.value)) for name in binds(node)}  # fmt: skip
            if {prompt, other} <= places.keys():
                return ((TEXT, AGAINST) if places[prompt] < places[other] else (AGAINST, TEXT)), False
            raise Unsupported(f"does not say which of {prompt} and {other} is made with the prompt")
        if len(calls) > 1:
            raise Unsupported("calls its model several times and does not guide by one + scale * (other - one)")
        return (TEXT, AGAINST), False

    @staticmethod
    def _pair(formula: ast.BinOp) -> tuple[str, str] | None:
        """The answers with and without the prompt in `one + scale * (other - one)`."""
        inner = [node for node in ast.walk(formula) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
                 and isinstance(node.left, ast.Name) and isinstance(node.right, ast.Name)]  # fmt: skip
        return (inner[0].left.id, inner[0].right.id) if inner else None  # type: ignore[attr-defined]

    def _passes(self, body: Sequence[ast.stmt], order: tuple[str, str], halves: bool, alone: bool = False) -> None:
        """Give the model what stands for the prompt and for other conditions, by the names of its arguments."""
        calls = [call for stmt in body for call in _calls(stmt) if _is_named(call.func, MODEL)]
        for number, call in enumerate(calls):
            told = self._told(call)
            if not {self.latents, self.time} <= told.keys():
                raise Unsupported(f"calls its model with {', '.join(sorted(told))} in line {call.lineno}")
            time = self._time(told[self.time]) if alone else told[self.time]
            found = [ast.keyword(self.latents, told[self.latents]), ast.keyword(self.time, time)]
            argument, _, item = self.text.rstrip("}").partition("{")
            if self.text:
                given = _read(_halved(*order) if halves else order[number % 2])
                found.append(ast.keyword(argument, ast.Dict([ast.Constant(item)], [given]) if item else given))
            self.masked |= self.mask in told and literal(told[self.mask]) is UNKNOWN
            if self.mask and self.masked:
                found.append(
                    ast.keyword(
                        self.mask, _read(f"torch.ones(({ast.unparse(found[-1].value)}).shape[:2], dtype=torch.bool)")
                    )
                )
            for name in sorted(told.keys() - {self.latents, self.time, argument, self.mask}):
                values = [self._told(one)[name] for one in calls if name in self._told(one)]
                found += self._condition(name, values, order, halves, number)
            call.args, call.keywords = [], sorted(found, key=lambda one: self.order.index(str(one.arg)))

    def _time(self, value: ast.expr) -> ast.expr:
        """Return the timestep of one picture, as an expression in the loop's variables."""
        bound = [(name, node) for node in self._nodes() if isinstance(node, ast.Assign) for name in binds(node)]
        often = [name for name, _ in bound]
        made = {name: node.value for name, node in bound if often.count(name) == 1}
        found = of_one(value, made)
        if found is None:
            return value
        found = _Spoken(self, guided=True).visit(copy.deepcopy(found))
        real = is_real(value, made)
        return ast.Call(ast.Attribute(found, "float", ast.Load()), [], []) if real else found

    def _condition(
        self, name: str, values: Sequence[ast.expr], order: tuple[str, str], halves: bool, number: int
    ) -> Iterator[ast.keyword]:
        if _GUIDANCE in name and self._is_scale(values[0]):
            self.embedded = name
            yield ast.keyword(name, _read(f"torch.full(({self.moved}.shape[0],), float({SCALE}))"))
            return
        value = literal(values[0])
        if value is UNKNOWN and isinstance(values[0], ast.Name):
            bound = [literal(node.value) for node in self._bindings({values[0].id})]
            value = bound[0] if len(bound) == 1 else self.known.get(values[0].id, UNKNOWN)
        if value is None and _GUIDANCE in name:  # a distilled model's, which its users give
            self.conditions[name] = False
            yield ast.keyword(
                name, _read(f"None if {name} is None else ({_halved(name, name, name)})" if halves else name)
            )
            return
        if value is not UNKNOWN:
            self.constants[name] = value
            yield ast.keyword(name, ast.Constant(value) if not isinstance(value, dict | list | tuple) else values[0])
            return
        if made := self._roots(values[0]) & {*self._heads, self.moved}:
            raise Unsupported(f"makes {name} of {', '.join(sorted(made))} in each step")
        joined = self._joined(values[0]) if halves else [ast.unparse(one) for one in values]
        doubled = len({*joined}) > 1
        self.conditions[name] = doubled
        names = {TEXT: name, AGAINST: f"{NEGATIVE}{name}" if doubled else name}
        self.named |= dict.fromkeys((self._roots(values[0]) & self.arguments) - self.known.keys() - {"self"}, name)
        text = names[order[number % 2]] if doubled else name
        if halves and joined:
            text = f"None if {name} is None else ({_halved(names[order[0]], names[order[1]], name)})"
        elif halves:  # what their callers repeat, where it has a row for every sample
            rows = f"{name} is not None and {name}.dim() > 0 and len({name}) == len({self.moved})"
            text = f"torch.cat([{name}, {name}]) if {GUIDED} and {rows} else {name}"
        yield ast.keyword(name, _read(text))

    def _is_scale(self, value: ast.expr) -> bool:
        """Return whether a value is one number for every sample, from an argument: a distilled model's scale."""
        made = {name: node.value for node in self.before if isinstance(node, ast.Assign) for name in binds(node)}
        one = of_one(value, made)
        return isinstance(one, ast.Name) and one.id in self.arguments and _GUIDANCE in one.id

    @cached_property
    def _heads(self) -> set[str]:
        """The variables of the loop's head."""
        return stored([self.loop.target])

    def _nodes(self) -> Iterator[ast.AST]:
        """Yield the nodes of those statements of the loop that can be reached."""
        for stmt in self.reached:
            yield from ast.walk(stmt)

    def _bindings(self, names: set[str]) -> Iterator[ast.Assign]:
        for node in (*self.before, *self._nodes()):
            if isinstance(node, ast.Assign) and binds(node) & names:
                yield node

    def _joined(self, value: ast.expr) -> list[str]:
        """Return the two halves of what a variable holds: one with the prompt, and one to guide against; else empty."""
        found = next((one for node in self._bindings(reads(value)) if (one := _joined(node.value))), [])
        return [ast.unparse(one) for one in found]

    def _roots(self, value: ast.expr) -> set[str]:
        """Return the variables that a value is made of."""
        found = _depends(value)
        for _ in range(_MOST):
            more = found.union(*(_depends(node.value) for node in self._bindings(found)))
            if more == found:
                break
            found = more
        return found

    @cached_property
    def known(self) -> Mapping[str, object]:
        """The values of arguments by default that nothing before the loop, or in it, changes."""
        values = {name: literal(one) for name, one in defaults(signature(self.sampling.made)).items()}
        values |= {name: literal(value) for node in self.before for name, value in _popped(node)}
        nodes = (*(one for one in self.before if not [*_popped(one)]), *ast.walk(self.loop))
        changed = {name for one in nodes if isinstance(one, ast.stmt) for name in binds(one)}
        values = {name: one for name, one in values.items() if name not in changed and not _IS_AGAINST.search(name)}
        return {name: one for name, one in values.items() if one is not UNKNOWN}

    def _levels(self) -> ast.expr | None:
        """Return the sigmas that the authors pass their scheduler, made of the number of steps; None for none.

        Raises:
            Unsupported: they pass it others.
        """
        calls = [one for node in self.before for one in _calls(node)]
        setting = [one for one in calls if ast.unparse(one.func).endswith(("set_timesteps", "retrieve_timesteps"))]
        told = {one.arg for call in setting for one in call.keywords if one.arg
                and not (isinstance(one.value, ast.Name) and self.known.get(one.value.id, 0) is None)}  # fmt: skip
        if not (wrong := told & {"sigmas", "timesteps"}):
            return None
        value = next(one.value for call in setting for one in call.keywords if one.arg in wrong)
        if isinstance(value, ast.Name):
            made = [node.value for node in self.before if isinstance(node, ast.Assign) and value.id in binds(node)]
            usual = {name: literal(one) for name, one in defaults(signature(self.sampling.made)).items()}
            spoken = _Spoken(self, guided=None, known={**usual, **self.known})
            value = spoken.visit(copy.deepcopy(made[0])) if len(made) == 1 else value
        free = {name for name in reads(value) - {STEPS} if self.sampling.source.imports.get(name) is None}
        if wrong != {"sigmas"} or STEPS not in reads(value) or free:
            raise Unsupported(f"tells its scheduler {', '.join(sorted(wrong))}")
        return value

    def fits(self, body: Sequence[ast.stmt]) -> bool | None:
        """Return whether statements call the model as it is; None if they do not call it."""
        found = [self._is_model(call) for node in body for call in _calls(node) if ast.unparse(call.func) == self.model]
        return all(found) if found else None

    def always(self, test: ast.expr, names: Mapping[str, object]) -> bool | None:
        """Return the outcome of a test that is the same in every step, whatever their number; None for others."""
        if not reads(test) & self._heads or not self.model or self.deciding:
            return None
        outcomes = set()
        for heads in self._steps:
            try:
                outcomes.add(bool(evaluate(test, Numbers(), {**names, **heads}, home=self.sampling.source)))
            except Unsupported:
                return None
        return outcomes.pop() if len(outcomes) == 1 else None

    @cached_property
    def _steps(self) -> list[dict[str, object]]:
        """The variables of the loop's head in each step of some runs; empty if they cannot be computed."""
        source, found = self.sampling.source, list[dict[str, object]]()
        self.deciding = True
        try:
            along = self._along(guided=True)
            prelude = self._prelude(reads(along), self.moved or NOISE, guided=True)
            for count in _COUNTS:
                names = {STEPS: count, DEVICE: None, SCALE: _SCALED, GUIDED: True}
                frame = Frame(Numbers(), source.path, source.module, Scope(names), source)
                frame.run(prelude)
                for head in frame.items(along):
                    frame.bind(self.loop.target, head)
                    found.append({name: frame.scope.names[name] for name in self._heads})
        except Unsupported:
            return []
        finally:
            self.deciding = False
        return found

    def _function(self, moved: str, body: list[ast.stmt], guided: bool) -> ast.FunctionDef:
        """Return the function: what the loop reads is made before it, of its arguments alone."""
        target, along = self.loop.target, self._along(guided)
        flattened = [*flat(body, {SCALE} if guided else set())]
        kept, live = needed(flattened, {moved})
        begin = f"{moved} = {NOISE}"
        if self.scheduler and not guided:
            count = f"sigmas={ast.unparse(self.sigmas)}" if self.sigmas is not None else STEPS
            begin = f"{SCHEDULER}.set_timesteps({count})\n{begin} * getattr({SCHEDULER}, 'init_noise_sigma', 1.0)"
        start = ast.parse(begin).body if moved != NOISE else []
        factors = [*self._factors(moved)] if not self.scheduler else []
        wanted = (live | reads(along)).union(*map(reads, factors)) - self._heads - {moved}
        prelude = self._prelude(wanted, moved, guided)
        loop = ast.For(target, along, kept or [ast.Pass()], [], None)
        given = [*_ROLES, *self.conditions, *(f"{NEGATIVE}{name}" for name, two in self.conditions.items() if two)]
        none: list[ast.expr] = [ast.Constant(None) for _ in given[len(_ROLES) :]]
        arguments = ast.arguments([], [ast.arg(one) for one in given], None, [], [], None, none)
        ends = [ast.Return(ast.Name(moved, ast.Load()))]
        made = ast.FunctionDef(FUNCTION, arguments, [*start, *prelude, *factors, loop, *ends], [], None, None)
        return ast.fix_missing_locations(ast.copy_location(made, self.sampling.made))

    def _along(self, guided: bool) -> ast.expr:
        """Return the iterable of the loop."""
        along = unwrapped(_Spoken(self, guided=True).visit(_Unwrapped().visit(copy.deepcopy(self.loop.iter))))
        if not self.scheduler:
            return along
        text = f"[{', '.join(map(str, LEVELS))}]" if guided else f"{SCHEDULER}.timesteps"
        whole = ast.unparse(along)
        inner = next((one for one in (f"{SCHEDULER}.timesteps", *sorted(reads(along), key=len, reverse=True))
                      if one in whole and ("timesteps" in one or one == "ts")), "")  # fmt: skip
        if not inner:
            raise Unsupported(f"goes along {whole}, and not along its scheduler's timesteps")
        return _read(whole.replace(inner, text))

    def _factors(self, moved: str) -> Iterator[ast.stmt]:
        """Yield the factors of noise before the first step.

        Raises:
            Unsupported: the loop begins with something else.
        """
        for node in (one for one in self.before if moved in binds(one)):
            if not isinstance(node, ast.Assign):
                raise Unsupported(f"begins with {ast.unparse(node)}")
            value = _Spoken(self, guided=True).visit(copy.deepcopy(node.value))
            product = value if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) else None
            sides = [product.left, product.right] if product is not None else [value]
            factors = [one for one in sides if not self._is_noise(one, moved)]
            if len(factors) == len(sides):
                raise Unsupported(f"begins with {ast.unparse(node)}")
            for one in factors:
                scaled = ast.BinOp(ast.Name(moved, ast.Load()), ast.Mult(), one)
                yield ast.copy_location(ast.Assign([ast.Name(moved, ast.Store())], scaled), node)

    def _is_noise(self, node: ast.expr, moved: str) -> bool:
        """Return whether a value is noise: drawn there, or an argument that must be given, whatever its shape
        becomes.
        """
        given = self.arguments - self.known.keys() - {"self"}
        variables = _depends(node)
        found = bool(variables & {moved, *given}) or bool(_DRAWS.search(ast.unparse(node)))
        self.named |= {name: NOISE for name in variables & given if found and name != moved}
        return found

    def _prelude(self, wanted: set[str], moved: str, guided: bool) -> list[ast.stmt]:
        """Return the statements that make what is read, of the arguments and of what the file has.

        Raises:
            Unsupported: something is made of what is not known.
        """
        own = {
            *_ROLES,
            DEVICE,
            GUIDED,
            moved,
            SCHEDULER,
            *self.conditions,
            *(f"{NEGATIVE}{name}" for name in self.conditions),
        }
        wanted = wanted - own
        spoken = _Spoken(self, guided=True if guided else None).block(self.outer)
        plain = [
            one for one in spoken if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.If | ast.Expr)
        ]
        plain = [one for one in plain if not {moved, "self"} & binds(one) and not _keeps(one)]
        kept, live = needed([*flat(plain, {SCALE} if guided else set())], wanted)
        read = wanted.union(*(reads(one) for one in kept))
        if lost := sorted(read & stored([one for one in spoken if one not in plain]) - {moved}):
            raise Unsupported(f"reads {', '.join(lost)}, of which it is not known what it is made of")
        begun = [self._begun(name, guided) for name in sorted(live - own)]
        head = [] if guided else [ast.parse(f"{GUIDED} = {SCALE} > 1").body[0]]
        return [*head, *(one for one in begun if one is not None), *kept]

    def _begun(self, name: str, guided: bool) -> ast.stmt | None:
        """Return the statement that makes a variable that nothing before the loop does; None if the file has it."""
        schedule = self.sampling.schedule
        if schedule is not None and schedule.argument == name:
            sizes = (lambda text: str(SIZE)) if guided else (lambda text: text.replace("latents", NOISE))
            given = [f"{key}={sizes(text) if text.startswith(SHAPE) else text}" for key, text in schedule.given.items()]
            call = ", ".join([f"{schedule.steps}={STEPS}", *given])
            return ast.parse(f"{name} = {schedule.function}({call})").body[0]
        value = self.named.get(name) or (repr(self.known[name]) if name in self.known else None)
        if value is not None:
            return ast.parse(f"{name} = {value}").body[0]
        if name in self.arguments or name == "self":
            raise Unsupported(f"reads {name}, of which it is not known what it is made of")
        if resolve(self.sampling.source, name) is None and not hasattr(builtins, name):
            raise Unsupported(f"reads {name}, which is made outside of it")
        return None


class _Spoken(ast.NodeTransformer):
    """Statements in the words of the function of its own: its model, its scheduler, its scale.

    Attributes:
        guided: what is known of whether there is guidance.
    """

    def __init__(self, slicer: _Slicer, guided: bool | None, known: Mapping[str, object] | None = None) -> None:
        self.slicer = slicer
        self.guided = guided
        self.known = slicer.known if known is None else known

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Statements without those that are never come to, and without contexts."""
        found: list[ast.stmt] = []
        for node in copy.deepcopy([*body]):
            if isinstance(node, ast.With):
                found += self.block(node.body)
            elif isinstance(node, ast.If):
                found += self._branch(node)
            elif _is_same(node):
                continue
            elif _halves(node):
                found += self._split(node)
            elif not isinstance(node, ast.Pass | ast.Assert | ast.Delete | ast.Continue | ast.Raise | ast.Return):
                found.append(self.visit(node))
        return found

    def _branch(self, node: ast.If) -> list[ast.stmt]:
        test = self._left(self.visit(node.test))
        known = self._value(test)
        if known is not None:
            return self.block(node.body if known else node.orelse)
        fits, others = (self.slicer.fits(body) for body in (node.body, node.orelse))
        if fits and others is False:  # another engine's call, which takes other arguments
            return self.block(node.body)
        then, other = self.block(node.body), self.block(node.orelse)
        if self.guided and all(_casts(one) or self._is_whole(one) for one in [*then, *other]):
            return []
        if then and not other and all(isinstance(one, ast.If) and _halves(one.body[0]) for one in then):
            return then
        return [ast.copy_location(ast.If(test, then or [ast.Pass()], other), node)] if then or other else []

    def _split(self, node: ast.stmt) -> list[ast.stmt]:
        """Return the statement that keeps half of an answer's channels, where it has a variance in the other half."""
        self.slicer.halved = True
        if self.guided:
            return []
        test = (
            _read(f"{_halves(node)}.shape[1] != {self.slicer.moved}.shape[1]") if self.slicer.moved else _read("True")
        )
        return [ast.copy_location(ast.If(test, [self.visit(node)], []), node)]

    def _is_whole(self, node: ast.stmt) -> bool:
        """Return whether a statement keeps as much of an answer as latents have: `x = x[:, : latents.shape[1]]`."""
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Subscript(value=ast.Name(id=own), slice=ast.Tuple(elts=[*_, ast.Slice(lower=None) as part])),
            ) if part.upper is not None:
                return name == own and ast.unparse(part.upper).startswith(f"{self.slicer.moved}.shape[")
        return False

    def _left(self, test: ast.expr) -> ast.expr:
        """Return a test without those of its parts that decide nothing."""
        if not isinstance(test, ast.BoolOp):
            return test
        idle = isinstance(test.op, ast.And)
        parts = [one for one in test.values if self._value(one) is not idle]
        if len(parts) > 1:
            return ast.copy_location(ast.BoolOp(test.op, parts), test)
        return parts[0] if parts else ast.Constant(idle)

    def _value(self, test: ast.expr) -> bool | None:
        """Return the outcome of a test; None if that is not known."""
        if isinstance(test, ast.BoolOp):
            parts, stops = [self._value(one) for one in test.values], isinstance(test.op, ast.Or)
            return stops if stops in parts else None if None in parts else not stops
        if isinstance(test, ast.Call) and ast.unparse(test.func) == "hasattr":
            return True if self.guided else None
        names = {**self.known, **({GUIDED: True, SCALE: _SCALED} if self.guided else {})}
        try:
            found = evaluate(test, Domain(), names)
        except Unsupported:
            return self.slicer.always(test, names)
        return bool(found) if isinstance(found, bool | int | float | str | None) else None

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        """Return whether there is something to guide against: `null_cond is not None`."""
        match node:
            case ast.Compare(
                left=ast.Name(id=name), ops=[ast.Is() | ast.IsNot() as op], comparators=[ast.Constant(None)]
            ):
                if name in self.slicer.arguments and _IS_AGAINST.search(name):
                    guided = ast.Name(GUIDED, ast.Load())
                    return ast.copy_location(
                        guided if isinstance(op, ast.IsNot) else ast.UnaryOp(ast.Not(), guided), node
                    )
        return self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        """Return the branch that is taken, where that is known."""
        test = self.visit(node.test)
        known = self._value(test)
        if known is not None:
            return self.visit(node.body if known else node.orelse)  # type: ignore[no-any-return]
        return ast.copy_location(ast.IfExp(test, self.visit(node.body), self.visit(node.orelse)), node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Latents are scaled for the model, and moved, by a scheduler."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Attribute) and _is_named(node.func.value, SCHEDULER):
            if node.func.attr == "scale_model_input":
                self.slicer.scaled = True
                return node.args[0] if self.guided else node
            if node.func.attr == "step":
                return self._step(node)
        return node

    def _step(self, node: ast.Call) -> ast.expr:
        told = passed(node, ("model_output", "timestep", "sample"))
        if not {"model_output", "timestep", "sample"} <= told.keys():
            raise Unsupported(f"steps with {ast.unparse(node)}")
        answer, time, sample = (told[name] for name in ("model_output", "timestep", "sample"))
        if self.guided:  # the arithmetic that stands for a step
            moved = ast.BinOp(sample, ast.Add(), ast.BinOp(answer, ast.Mult(), time))
            return ast.copy_location(ast.List([moved], ast.Load()), node)
        return ast.copy_location(_read(f"{SCHEDULER}.step({ast.unparse(answer)}, {ast.unparse(time)}, "
                                       f"{ast.unparse(sample)}, return_dict=False)"), node)  # fmt: skip

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """See the class."""
        if (name := self._meant(ast.unparse(node))) is not None:
            return ast.copy_location(ast.Name(name, node.ctx), node)
        if self.guided and ast.unparse(node) == f"{self.slicer.scheduler}.config.num_train_timesteps":
            return ast.copy_location(ast.Constant(TRAINED), node)
        if isinstance(node.value, ast.Name) and node.value.id == "self" and isinstance(node.ctx, ast.Load):
            return self._own(node)
        self.generic_visit(node)
        if node.attr == "prev_sample":  # the first of what a step returns
            return ast.copy_location(ast.Subscript(node.value, ast.Constant(0), ast.Load()), node)
        return node

    def _own(self, node: ast.Attribute) -> ast.expr:
        """Return an attribute of the object: a guidance's, or an argument that it keeps, or a value that it is
        given.
        """
        slicer, name = self.slicer, node.attr.lstrip("_")
        if _IS_SCALE.search(name) or _IS_GUIDED.search(name):
            return ast.Name(SCALE if _IS_SCALE.search(name) else GUIDED, ast.Load())
        if name in slicer.arguments:
            return ast.Name(name, ast.Load())
        for one in slicer.before:
            kept = isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) in (f"self.{name}", f"self._{name}")
            if isinstance(one, ast.Assign) and kept and literal(one.value) is not UNKNOWN:
                return one.value
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """See the class."""
        name = self._meant(node.id)
        return (
            node
            if name is None or isinstance(node.ctx, ast.Store)
            else ast.copy_location(ast.Name(name, node.ctx), node)
        )

    def _meant(self, text: str) -> str | None:
        slicer = self.slicer
        if text == slicer.model:
            return MODEL
        if text == slicer.scheduler:
            return SCHEDULER
        begun = text in slicer.arguments or any(text in binds(one) for one in slicer.before)
        if begun and _IS_SCALE.search(text):
            return SCALE
        if begun and _IS_GUIDED.search(text):
            return GUIDED
        return STEPS if begun and _IS_COUNT.search(text) and text in slicer.arguments else None


def _opened(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, those of contexts and branches among them."""
    for node in body:
        if isinstance(node, ast.With | ast.If):
            yield from _opened([*node.body, *getattr(node, "orelse", [])])
        else:
            yield node


def _popped(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Name and default of what a statement takes from arguments: `callback = kwargs.pop("callback", None)`."""
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(attr="pop" | "get"), args=[_, value])
        ):
            yield name, value


class _Depends(ast.NodeVisitor):
    """The variables whose values matter, and not only where and how large they are."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """See the class."""
        if node.attr not in _PLACES:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """See the class."""
        self.found.add(node.id)


def _depends(node: ast.AST) -> set[str]:
    visitor = _Depends()
    visitor.visit(node)
    return visitor.found


def _is_same(node: ast.stmt) -> bool:
    """Return whether a statement changes nothing: `x = x`."""
    return isinstance(node, ast.Assign) and [ast.unparse(one) for one in node.targets] == [ast.unparse(node.value)]


def _keeps(node: ast.stmt) -> bool:
    """Return whether a statement sets an attribute, which the function of its own has none of."""
    return isinstance(node, ast.Assign) and any(isinstance(one, ast.Attribute) for one in node.targets)


def _halves(node: ast.stmt) -> str:
    """Return the variable of which a statement keeps half of the channels: `x, _ = x.chunk(2, dim=1)`; else empty."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=name), ast.Name()])], value=ast.Call() as call):
            pass
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript(value=ast.Call() as call)):
            pass
        case _:
            return ""
    given = passed(call, ("chunks", "dim") if name in reads(call.func) else ("input", "chunks", "dim"))
    along = (literal(given.get("chunks")), literal(given.get("dim"))) == (2, 1)
    return name if along and ast.unparse(call.func).endswith("chunk") else ""


def _casts(node: ast.stmt) -> bool:
    """Return whether a statement gives a variable another type, and no other value: `x = x.to(dtype)`."""
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(value=ast.Name(id=own), attr="to"))
        ):
            return name == own
        case ast.If(body=then, orelse=other):
            return all(map(_casts, [*then, *other]))
    return isinstance(node, ast.Pass)


def _calls(node: ast.AST) -> list[ast.Call]:
    """Return the calls in a node as it is now: `pysource.nodes` remembers them, and these trees change."""
    return [one for one in ast.walk(node) if isinstance(one, ast.Call)]


def _steps(call: ast.Call) -> bool:
    """Return whether a scheduler is asked for the next latents."""
    func = call.func
    return (
        isinstance(func, ast.Attribute) and func.attr == "step" and bool(_IS_SCHEDULER.search(ast.unparse(func.value)))
    )


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _joined(node: ast.expr) -> list[ast.expr]:
    """Return the parts of `torch.cat([one, other])`; empty for anything else."""
    first = node.args[0] if isinstance(node, ast.Call) and node.args else None
    name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
    return first.elts if name in ("cat", "concat") and isinstance(first, ast.List | ast.Tuple) else []


def _read(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _halved(one: str, other: str, alone: str = TEXT) -> str:
    return f"torch.cat([{one}, {other}]) if {GUIDED} else {alone}"


class _Unwrapped(ast.NodeTransformer):
    """Takes progress bars away, wherever they are."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """See the class."""
        self.generic_visit(node)
        shown = ast.unparse(node.func).rpartition(".")[2] in _BARS and len(node.args) > 0
        return node.args[0] if shown else node


class _Once(ast.NodeTransformer):
    """Keeps one of two equal halves of a batch."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """See the class."""
        self.generic_visit(node)
        return once(node)[0]


def _at_once(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield _Once().visit(node)
