"""A loop over steps cut out of its function: what moves latents, without what makes prompts and decodes pictures."""

import ast
import builtins
import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile

from omni_kit.pysource.eval import UNKNOWN, Frame, Scope, Unsupported, evaluate
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import defaults, passed, signature
from omni_kit.upstream.repositories.names import resolve
from omni_kit.upstream.repositories.numbers import Numbers
from omni_kit.upstream.repositories.passed_levels import SHAPE, passed_expressions
from omni_kit.upstream.repositories.recorded import NEGATIVE
from omni_kit.upstream.repositories.sampler_step.batches import is_real, of_one
from omni_kit.upstream.repositories.sampler_step.flow import Substituted, binds, flat, needed, needed_in_loop, reads
from omni_kit.upstream.repositories.sampler_step.loop_rewriter import (
    IS_AGAINST,
    IS_SCALE,
    SCALED,
    SCHEDULER,
    LoopRewriter,
)
from omni_kit.upstream.repositories.sampler_step.loop_statements import (
    GUIDED,
    WithoutProgressBars,
    calls_in,
    expression,
    is_named,
    joined_if_guided,
    joined_parts,
    once_each,
    opened,
    popped_defaults,
    sets_attribute,
    steps_scheduler,
    value_variables,
)
from omni_kit.upstream.repositories.sampler_step.members import stored
from omni_kit.upstream.repositories.sampler_step.outline import DEVICE, apart, unwrapped
from omni_kit.upstream.repositories.sampler_step.update_rule import Formula, Share
from omni_kit.upstream.repositories.sampling import AGAINST, MODEL, NOISE, SCALE, SIZE, STEPS, TEXT, Sampling

FUNCTION = "sample"
LEVELS = (900.0, 500.0, 100.0)
"""Stand-ins for the timesteps of a scheduler."""
_ROLES = (MODEL, NOISE, STEPS, TEXT, AGAINST, SCALE)
_DRAWS = re.compile(r"(rand|noise|prepare_latents|init_latents|get_latents)", re.IGNORECASE)
_COUNTS = (4, 7)
_OF_TIMESTEPS = (
    "torch.is_tensor({})",
    "isinstance({}, torch.Tensor)",
    "len({}.shape) == 0",
    "{}.ndim == 0",
    "{}.dim() == 0",
)
_WEIGHT: Mapping[str, ast.expr] = {SCALE: expression(f"({SCALE} - 1)")}
"""The weight of guidance as authors count it from 0, in terms of a scale."""
LATENTS = "latents"
"""The variable in an expression of `SlicedLoop.derived`."""
_GUIDANCE = "guidance"
_MOST = 40


_KEEPS = frozenset({
    "to", "float", "double", "half", "bfloat16", "type", "type_as", "cuda", "cpu", "clone", "contiguous", "detach",
    "view", "reshape", "permute", "transpose", "flatten", "unflatten", "unsqueeze", "squeeze", "repeat",
    "repeat_interleave", "expand", "chunk", "dim", "size", "requires_grad_",
})  # fmt: skip
"""Methods of a tensor after which it has the same values."""


@dataclass(frozen=True)
class SlicedLoop:
    """A loop as a function of its own.

    Attributes:
        sampling: with latents, a prompt, a count of steps and a scale as the only arguments; its statements are those
            that guide.
        conditions: what else the model is passed: its argument -> whether there is another one to guide against.
        constants: arguments of the model that the loop passes a value written there, and the value.
        forms: of the prompt's arguments that get an axis more for the model, what does it: `.unsqueeze(1)`.
        derived: arguments that it makes of what the model gets as latents, and the expression in `latents`.
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
    derived: Mapping[str, str] = field(default_factory=dict)
    forms: Mapping[str, str] = field(default_factory=dict)
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
    derived: dict[str, str] = field(default_factory=dict)
    forms: dict[str, str] = field(default_factory=dict)
    scaled: bool = False
    halved: bool = False
    guides: bool = False
    weighted: bool = False
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
        self.before = [*opened(before)]
        self.arguments = {one.arg for one in ast.walk(self.sampling.made.args) if isinstance(one, ast.arg)}
        self.before = [*LoopRewriter(self, guided=None).reachable(before)]
        self.given = dict(self._dicts())
        self.reached = LoopRewriter(self, guided=None).block(self.loop.body)
        asked = [call for node in self.reached for call in calls_in(node) if self._is_model(call)]
        self.calls = [call for call in asked if self._heads & self._roots(self._told(call)[self.time])]
        models = {ast.unparse(call.func) for call in self.calls}
        if len(models) != 1:
            raise Unsupported(f"calls {' and '.join(sorted(models)) or 'no model with latents and a step'}")
        steps = (one.func for node in self.reached for one in calls_in(node) if steps_scheduler(one))
        steppers = {ast.unparse(one.value) for one in steps if isinstance(one, ast.Attribute)}
        if len(steppers) > 1:
            raise Unsupported(f"steps with {' and '.join(sorted(steppers))}")
        kept = (one.attr for one in self._nodes() if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store))
        if changed := sorted(name for name in kept if IS_SCALE.search(name)):
            raise Unsupported(f"changes {changed[0]} in each step")
        self.model, self.scheduler = models.pop(), next(iter(steppers), "")
        if any(ast.unparse(call.func) == self.model for node in after for call in calls_in(node)):
            raise Unsupported("calls its model once more after the loop")

    def _dicts(self) -> Iterator[tuple[str, Mapping[str, ast.expr]]]:
        """Yield variables that hold keyword arguments, as `arg_c = {"context": context}`."""
        for node in (*self.before, *opened(self.loop.body)):
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
        body = LoopRewriter(self, guided=None).block(self.loop.body)
        guided = LoopRewriter(self, guided=True).block(self.loop.body)
        answers = self._answers(guided)
        if self.weighted:
            body, guided = ([Substituted(_WEIGHT).visit(node) for node in one] for one in (body, guided))
        self._passes(body, *answers)
        self._passes(guided, *answers, alone=True)
        whole = self._function(moved, body, guided=False)
        told = self._function(moved, [*once_each(guided)], guided=True)
        loop = next(node for node in told.body if isinstance(node, ast.For))
        roles = {role: role for role in _ROLES if role not in (TEXT, AGAINST) or self.text}
        sampling = replace(
            self.sampling, made=told, loop=loop, roles=roles, owner=None, closed="", script=ast.unparse(whole),
        )  # fmt: skip
        return SlicedLoop(
            sampling,
            self.conditions,
            self.constants,
            self.derived,
            self.forms,
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
            more = set().union(wanted, *(value_variables(node.value) for node in values))
            if more == wanted:
                break
            wanted = more
        if len(found) != 1:
            raise Unsupported(f"moves {', '.join(found) or 'nothing'}, and not one variable that begins as noise")
        return found[0]

    def _answers(self, body: Sequence[ast.stmt]) -> tuple[tuple[str, str], bool]:
        """Read from the formula of guidance which answer has the prompt; and whether one call gives both."""
        nodes = [node for stmt in body for node in ast.walk(stmt)]
        calls = [node for node in nodes if isinstance(node, ast.Call) and is_named(node.func, MODEL)]
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

    def _pair(self, formula: ast.BinOp) -> tuple[str, str] | None:
        """The answers with and without the prompt in `one + scale * (other - one)`."""
        names = sorted(reads(formula) - {SCALE})
        if len(names) == 2:
            read = Formula(SCALE, {names[0]: Share(1.0, 0.0), names[1]: Share(0.0, 1.0)})
            form = read.of(formula)
            self.weighted = self.weighted or read.is_weighted(form)
            if isinstance(form, Share) and (read.is_guidance(form) or read.is_weighted(form)):
                return (names[0], names[1]) if form.one > form.other else (names[1], names[0])
        inner = [node for node in ast.walk(formula) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub)
                 and isinstance(node.left, ast.Name) and isinstance(node.right, ast.Name)]  # fmt: skip
        return (inner[0].left.id, inner[0].right.id) if inner else None  # type: ignore[attr-defined]

    def _passes(self, body: Sequence[ast.stmt], order: tuple[str, str], halves: bool, alone: bool = False) -> None:
        """Give the model what stands for the prompt and for other conditions, by the names of its arguments."""
        calls = [call for stmt in body for call in calls_in(stmt) if is_named(call.func, MODEL)]
        for number, call in enumerate(calls):
            told = self._told(call)
            if not {self.latents, self.time} <= told.keys():
                raise Unsupported(f"calls its model with {', '.join(sorted(told))} in line {call.lineno}")
            time = self._time(told[self.time]) if alone else told[self.time]
            found = [ast.keyword(self.latents, told[self.latents]), ast.keyword(self.time, time)]
            argument, _, item = self.text.rstrip("}").partition("{")
            if self.text:
                given = expression(joined_if_guided(*order, TEXT) if halves else order[number % 2])
                own = self._more_axes(argument, told.get(argument))
                shaped = expression(f"({ast.unparse(given)}){own}") if own else given
                found.append(ast.keyword(argument, ast.Dict([ast.Constant(item)], [shaped]) if item else shaped))
            self.masked |= self.mask in told and literal(told[self.mask]) is UNKNOWN
            if self.mask and self.masked:
                ones = f"torch.ones(({ast.unparse(given)}).shape[:2], dtype=torch.bool)"
                own = self._more_axes(self.mask, told.get(self.mask))
                found.append(ast.keyword(self.mask, expression(f"{ones}{own}")))
            for name in sorted(told.keys() - {self.latents, self.time, argument, self.mask}):
                values = [self._told(one)[name] for one in calls if name in self._told(one)]
                if name not in self.derived and (made := self._of_latents(values[0], told[self.latents])):
                    self.derived[name] = made
                if name in self.derived:
                    found.append(ast.keyword(name, ast.Constant(None) if alone else told[name]))
                else:
                    found += self._condition(name, values, order, halves, number)
            call.args, call.keywords = [], sorted(found, key=lambda one: self.order.index(str(one.arg)))

    def _time(self, value: ast.expr) -> ast.expr:
        """Return the timestep of one picture, as an expression in the loop's variables."""
        made: dict[str, ast.expr] = {}
        before = takewhile(lambda one: self.calls[0] not in ast.walk(one), opened(self.reached))
        for node in (one for one in before if isinstance(one, ast.Assign)):
            for name in binds(node) if isinstance(node.targets[0], ast.Name) else ():
                again = {name: made[name]} if name in made else {}
                made[name] = Substituted(again).visit(copy.deepcopy(node.value))
        found = of_one(value, made)
        if found is None:
            return value
        found = LoopRewriter(self, guided=True).visit(copy.deepcopy(found))
        real = is_real(value, made)
        return ast.Call(ast.Attribute(found, "float", ast.Load()), [], []) if real else found

    def _more_axes(self, name: str, value: ast.expr | None) -> str:
        """Return what gives an argument another axis before the model gets it: `.unsqueeze(1)`; empty for nothing."""
        own = value.id if isinstance(value, ast.Name) else ""
        for one in (*opened(self.reached), *self.before):
            match one:
                case ast.Assign(targets=[ast.Name(id=bound)], value=ast.Call(args=[ast.Constant() as at]) as call):
                    if own == bound and ast.unparse(call.func) == f"{own}.unsqueeze":
                        self.forms[name] = f".unsqueeze({ast.unparse(at)})"
        return self.forms.get(name, "")

    def _of_latents(self, value: ast.expr, sample: ast.expr) -> str:
        """Return a value that a step makes of the model's latents alone, as an expression in `latents`; else empty."""
        own = {sample.id} if isinstance(sample, ast.Name) else set()
        made = {name: [node.value for node in self._nodes() if isinstance(node, ast.Assign) and binds(node) == {name}]
                for name in self._roots(value) - own - {self.moved}}  # fmt: skip
        once_made = {name: values[0] for name, values in made.items() if len(values) == 1}
        for _ in range(_MOST):
            if not (inner := reads(value) & once_made.keys()):
                break
            value = Substituted({name: once_made[name] for name in inner}).visit(copy.deepcopy(value))
        free = reads(value) - own - {self.moved, "torch"}
        if free or not reads(value) & {*own, self.moved} or isinstance(value, ast.Name):
            return ""
        latents = ast.Name(LATENTS, ast.Load())
        return ast.unparse(Substituted(dict.fromkeys({*own, self.moved}, latents)).visit(copy.deepcopy(value)))

    def _condition(
        self, name: str, values: Sequence[ast.expr], order: tuple[str, str], halves: bool, number: int
    ) -> Iterator[ast.keyword]:
        if _GUIDANCE in name and self._is_scale(values[0]):
            self.embedded = name
            yield ast.keyword(name, expression(f"torch.full(({self.moved}.shape[0],), float({SCALE}))"))
            return
        value = literal(values[0])
        if value is UNKNOWN and isinstance(values[0], ast.Name):
            bound = [literal(node.value) for node in self._bindings({values[0].id})]
            value = bound[0] if len(bound) == 1 else self.known.get(values[0].id, UNKNOWN)
        if value is None and (_GUIDANCE in name or name in self.required):  # its users give it
            self.conditions[name] = False
            yield ast.keyword(
                name,
                expression(f"None if {name} is None else ({joined_if_guided(name, name, name)})" if halves else name),
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
            text = f"None if {name} is None else ({joined_if_guided(names[order[0]], names[order[1]], name)})"
        elif halves:  # what their callers repeat, where it has a row for every sample
            rows = f"getattr({name}, 'ndim', 0) > 0 and len({name}) == len({self.moved})"
            text = f"torch.cat([{name}, {name}]) if {GUIDED} and {rows} else {name}"
        yield ast.keyword(name, expression(text))

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
        found = next((one for node in self._bindings(reads(value)) if (one := joined_parts(node.value))), [])
        return [ast.unparse(one) for one in found]

    def _roots(self, value: ast.expr) -> set[str]:
        """Return the variables that a value is made of."""
        found = value_variables(value)
        for _ in range(_MOST):
            more = found.union(*(value_variables(node.value) for node in self._bindings(found)))
            if more == found:
                break
            found = more
        return found

    @cached_property
    def known(self) -> Mapping[str, object]:
        """The values of arguments by default that nothing before the loop, or in it, changes.

        A branch that is never taken while the arguments have these values changes none of them.
        """
        values = {name: literal(one) for name, one in defaults(signature(self.sampling.made)).items()}
        values |= {name: literal(value) for node in opened(self.outer) for name, value in popped_defaults(node)}
        values = {name: one for name, one in values.items() if one is not UNKNOWN and not IS_AGAINST.search(name)}
        while True:
            rewriter = LoopRewriter(self, guided=None, known=values)
            nodes = (one for one in rewriter.reachable([*self.outer, *self.loop.body]) if not [*popped_defaults(one)])
            every = (one for node in nodes for one in ast.walk(node) if isinstance(one, ast.stmt))
            changed = {name for one in every for name in binds(one)} | stored([self.loop.target])
            if not changed & values.keys():
                return values
            values = {name: one for name, one in values.items() if name not in changed}

    def _levels(self) -> ast.expr | None:
        """Return the sigmas that the authors pass their scheduler, made of the number of steps; None for none.

        Raises:
            Unsupported: they pass it others.
        """
        calls = [one for node in self.before for one in calls_in(node)]
        setting = [one for one in calls if ast.unparse(one.func).endswith(("set_timesteps", "retrieve_timesteps"))]
        told = {one.arg for call in setting for one in call.keywords if one.arg
                and not (isinstance(one.value, ast.Name) and self.known.get(one.value.id, 0) is None)}  # fmt: skip
        if not (wrong := told & {"sigmas", "timesteps"}):
            return None
        value = next(one.value for call in setting for one in call.keywords if one.arg in wrong)
        if isinstance(value, ast.Name):
            made = [node.value for node in self.before if isinstance(node, ast.Assign) and value.id in binds(node)]
            usual = {name: literal(one) for name, one in defaults(signature(self.sampling.made)).items()}
            spoken = LoopRewriter(self, guided=None, known={**usual, **self.known})
            value = spoken.visit(copy.deepcopy(made[0])) if len(made) == 1 else value
        free = {name for name in reads(value) - {STEPS} if self.sampling.source.imports.get(name) is None}
        if wrong != {"sigmas"} or STEPS not in reads(value) or free:
            raise Unsupported(f"tells its scheduler {', '.join(sorted(wrong))}")
        return value

    def of_step(self, test: ast.expr) -> bool | None:
        """Return the outcome of a test whether a scheduler's timestep is a tensor, and of no axes; None for others."""
        along = ast.unparse(self.loop.iter)
        steps = self._heads - (
            {ast.unparse(self.loop.target).partition(",")[0].strip("( ")} if "enumerate" in along else set()
        )
        steps |= {name for node in self.loop.body if isinstance(node, ast.Assign) and ast.unparse(node.value) in steps
                  for name in binds(node)}  # fmt: skip
        if "timesteps" not in along or not any(map(steps_scheduler, calls_in(self.loop))):
            return None
        known = (f"{how.format(name)}" for name in steps for how in _OF_TIMESTEPS)
        return True if ast.unparse(test) in known else None

    def fits(self, body: Sequence[ast.stmt]) -> bool | None:
        """Return whether statements call the model as it is; None if they do not call it."""
        found = [
            self._is_model(call) for node in body for call in calls_in(node) if ast.unparse(call.func) == self.model
        ]
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
                names = {STEPS: count, DEVICE: None, SCALE: SCALED, GUIDED: True}
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
        kept, live = needed_in_loop(flattened, {moved})
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
        along = unwrapped(
            LoopRewriter(self, guided=True).visit(WithoutProgressBars().visit(copy.deepcopy(self.loop.iter)))
        )
        if not self.scheduler:
            return along
        text = f"[{', '.join(map(str, LEVELS))}]" if guided else f"{SCHEDULER}.timesteps"
        whole = ast.unparse(along)
        inner = next((one for one in (f"{SCHEDULER}.timesteps", *sorted(reads(along), key=len, reverse=True))
                      if one in whole and ("timesteps" in one or one == "ts")), "")  # fmt: skip
        if not inner:
            raise Unsupported(f"goes along {whole}, and not along its scheduler's timesteps")
        return expression(whole.replace(inner, text))

    def _factors(self, moved: str) -> Iterator[ast.stmt]:
        """Yield the factors of noise before the first step.

        Raises:
            Unsupported: the loop begins with something else.
        """
        for node in (one for one in self.before if moved in binds(one)):
            if not isinstance(node, ast.Assign):
                raise Unsupported(f"begins with {ast.unparse(node)}")
            value = LoopRewriter(self, guided=True).visit(copy.deepcopy(node.value))
            product = value if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) else None
            sides = [product.left, product.right] if product is not None else [value]
            factors = [one for one in sides if not self._is_noise(one, moved)]
            if len(factors) == len(sides) or not _keeps_values(node.value, moved):
                raise Unsupported(f"begins with {ast.unparse(node)}")
            for one in factors:
                scaled = ast.BinOp(ast.Name(moved, ast.Load()), ast.Mult(), one)
                yield ast.copy_location(ast.Assign([ast.Name(moved, ast.Store())], scaled), node)

    def _is_noise(self, node: ast.expr, moved: str) -> bool:
        """Return whether a value is noise: drawn there, or an argument that must be given, whatever its shape
        becomes.
        """
        given = self.arguments - self.known.keys() - {"self"}
        variables = value_variables(node)
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
        spoken = LoopRewriter(self, guided=True if guided else None).block(self.outer)
        plain = [
            one for one in spoken if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.If | ast.Expr)
        ]
        plain = [one for one in plain if not {moved, "self"} & binds(one) and not sets_attribute(one)]
        if self.weighted:
            plain = [Substituted(_WEIGHT).visit(one) for one in plain]
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
        if made := next(passed_expressions(self.sampling.made, name, self.sampling.source, STEPS), None):
            return ast.Assign([ast.Name(name, ast.Store())], made, lineno=self.loop.lineno)
        if name in self.arguments or name == "self":
            raise Unsupported(f"reads {name}, of which it is not known what it is made of")
        if resolve(self.sampling.source, name) is None and not hasattr(builtins, name):
            raise Unsupported(f"reads {name}, which is made outside of it")
        return None


def _keeps_values(node: ast.expr, name: str) -> bool:
    """Return whether an expression calls only methods of a variable that keep the values: their shape may change."""
    calls = [one.func for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)]
    return all(one.attr in _KEEPS for one in calls if isinstance(one.value, ast.Name) and one.value.id == name)
