"""A loop over steps, divided: what is made before it, what a step does after each answer of its model."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from omni_kit.pysource.eval import Unsupported
from omni_kit.upstream.repositories.sampler_step.batches import of_one
from omni_kit.upstream.repositories.sampler_step.flow import DenoiserCall, binds, flat, needed, reads
from omni_kit.upstream.repositories.sampler_step.model_calls import Asks, bound_once
from omni_kit.upstream.repositories.sampler_step.outline import NoiseAlone, Placed, apart, is_random, unwrapped
from omni_kit.upstream.repositories.sampling import AGAINST, MODEL, NOISE, SCALE, STEPS, Sampling

AFTER = "prev_sample"
_KEPT = "self"
_DEEPEST = 8
_ALIKE = frozenset({"to", "float", "double", "clone", "contiguous", "detach"})


@dataclass(frozen=True)
class Stage:
    """Part of a step after one of the outputs.

    Attributes:
        sample: the variable that is the latents that the model received; empty if they are kept.
        answer: the variable that is what it answered.
        kept: variables that an earlier stage, or an earlier step, left.
        body: statements; they set `AFTER`, and the attributes that later stages need.
        reads: what else they need.
    """

    sample: str
    answer: str
    kept: tuple[str, ...]
    body: list[ast.stmt]
    reads: frozenset[str]


@dataclass
class Divided:
    """A loop, divided.

    Attributes:
        sampling: the loop.
        names: the arguments of the model, in order.
        latents, time: those that hold latents and the step.

    Raises:
        Unsupported: it is of a shape that cannot be; why.
    """

    sampling: Sampling
    names: Sequence[str]
    latents: str
    time: str
    stages: dict[int, Stage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Divides it."""
        if self.sampling.closed:
            raise Unsupported(self.sampling.closed)
        if not self.sampling.roles:
            raise Unsupported("requires more arguments than a model, noise, texts, a number of steps and a scale")
        self._loop, (before, self.after) = apart(self.sampling.made, self.sampling.loop)
        guides = {self._role(SCALE), self._role(AGAINST)} - {""}
        self.prelude = self._of_one([Placed(self._noise).visit(one) for one in flat(before, guides)])
        self.along = Placed(self._noise).visit(unwrapped(self._loop.iter))
        body = self._of_one(
            self._without_lists(list(flat([NoiseAlone().visit(one) for one in self._loop.body], guides)))
        )
        asks = Asks(self._role(MODEL), self._role(SCALE), self.names, self.latents, self.time, self._ones())
        self.body = asks.marked(body)
        self.asks = asks.found
        self._divide()
        self._settle()

    def _role(self, role: str) -> str:
        return self.sampling.roles.get(role, "")

    @property
    def _noise(self) -> set[str]:
        noise = self._role(NOISE)
        return {noise, *(name for node in apart(self.sampling.made, self.sampling.loop)[1][0]
                         for name in binds(node) if noise in reads(node))}  # fmt: skip

    def _of_one(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return statements in which a number is no longer repeated for every picture: it is the same for each."""
        found: list[ast.stmt] = []
        for node in body:
            if isinstance(node, ast.Assign) and reads(node.value) & self._noise:
                one = of_one(node.value, {})
                if one is not None and not reads(one) & self._noise - binds(node):
                    if ast.unparse(node.targets[0]) != ast.unparse(one):
                        found.append(ast.copy_location(ast.Assign(node.targets, one), node))
                    continue
            found.append(node)
        return found

    def _without_lists(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return statements without those that only append to a list that the loop does not read."""
        lists = {name for name, value in bound_once(self.prelude).items() if isinstance(value, ast.List)}
        appends = {id(node): binds(node) & lists for node in body if isinstance(node, ast.Expr)}
        kept = [node for node in body if not appends.get(id(node))]
        read = set().union(*(reads(node) for node in kept))
        return [node for node in body if not appends.get(id(node)) or appends[id(node)] & read]

    def _ones(self) -> Mapping[str, ast.expr]:
        return {name: one for name, one in bound_once(self.prelude).items() if of_one(one, {}) is None}

    @cached_property
    def heads(self) -> set[str]:
        """The variables of the loop's head."""
        return {one.id for one in ast.walk(self._loop.target) if isinstance(one, ast.Name)}

    @property
    def target(self) -> ast.expr:
        """The loop's head."""
        return self._loop.target

    @cached_property
    def _own(self) -> set[str]:
        return {name for node in self.body for name in binds(node)}

    @cached_property
    def latents_name(self) -> str:
        """The variable that goes from noise to latents."""
        _, live = needed(self.body, self._own)
        begun = {name for node in self.prelude for name in binds(node) if self._role(NOISE) in reads(node)}
        found = sorted((begun | {self._role(NOISE)}) & live & self._own)
        if len(found) != 1:
            raise Unsupported(f"moves {', '.join(found) or 'nothing'}, and not one variable that begins as noise")
        return found[0]

    @cached_property
    def carried(self) -> tuple[str, ...]:
        """The variables that one step leaves to the next, other than the latents."""
        found: set[str] = set()
        for _ in range(_DEEPEST):
            _, live = needed(self.body, found | {self.latents_name})
            more = (live & self._own) - {self.latents_name}
            if more == found:
                break
            found = more
        return tuple(sorted(found))

    def begins(self, name: str) -> ast.expr:
        """Return the value of a carried variable before the first step.

        Raises:
            Unsupported: it is made of the noise.
        """
        value = bound_once(self.prelude).get(name, ast.Constant(None))
        if reads(value) & self._noise:
            raise Unsupported(f"begins with {name} made of its noise")
        return value

    @cached_property
    def factor(self) -> ast.expr | None:
        """Factor of the noise before the first step; None for none.

        Raises:
            Unsupported: it is changed otherwise.
        """
        if self.latents_name == self._role(NOISE) and self.latents_name not in {
            n for s in self.prelude for n in binds(s)
        }:
            return None
        values = [node.value for node in self.prelude if isinstance(node, ast.Assign | ast.AugAssign)
                  and self.latents_name in binds(node)]  # fmt: skip
        value = values[0] if len(values) == 1 else ast.Constant(None)
        sides = (value.left, value.right) if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult) else ()
        for one, other in (sides, sides[::-1]) if sides else ():
            if self._is_noise(one) and not reads(other) & self._noise:
                return other
        if self._is_noise(value):
            return None
        raise Unsupported(f"begins with {ast.unparse(value)}, and not with noise times a number")

    def _is_noise(self, node: ast.expr) -> bool:
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _ALIKE:
            node = node.func.value
        return isinstance(node, ast.Name) and node.id == self._role(NOISE)

    def _divide(self) -> None:
        first = next((place for place, node in enumerate(self.body) if isinstance(node, DenoiserCall)), None)
        if first is None or any(_holds(node) for node in self.body[:first]):
            raise Unsupported("calls its model only in some of its steps")
        ask = self.body[first]
        assert isinstance(ask, DenoiserCall)
        self.before, _ = needed(self.body[:first], reads(ask.sample))
        self.left: tuple[str, ...] = ()
        rest = self._code(self.body[first + 1 :])
        _, live = needed(rest, {AFTER})
        self.left = tuple(sorted(self._bound(self.body[:first]) & live)) if is_random(self.before) else ()
        pre = [] if self.left else self.body[:first]
        self._stage(ask, [*pre, *rest], {self.latents_name} if self.latents_name not in self.left else set())
        self.told, _ = needed([_told(node) for node in self.body], set())

    @staticmethod
    def _bound(body: Sequence[ast.stmt]) -> set[str]:
        return {name for node in body for name in binds(node)}

    def _stage(self, ask: DenoiserCall, code: list[ast.stmt], sample: set[str]) -> None:
        body, live = needed(code, {AFTER})
        own = self._own - self.heads | {self.latents_name} | {*self.left}
        kept = tuple(sorted((live & own) - sample - {ask.answer}))
        rest = frozenset(live - own - sample - {ask.answer})
        self.stages[ask.number] = Stage(next(iter(sample), ""), ask.answer, kept, body, rest)

    def _code(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return statements to the next place at which the model is asked, or to the end of the step."""
        told: list[ast.stmt] = []
        for place, node in enumerate(body):
            rest = list(body[place + 1 :])
            if isinstance(node, DenoiserCall):
                sample = {node.sample.id} if isinstance(node.sample, ast.Name) else set()
                self._stage(node, self._code(rest), sample)
                return [*told, *_leaves(self.stages[node.number].kept, node.sample)]
            if _holds(node):
                assert isinstance(node, ast.If)
                return [*told, ast.If(node.test, self._code([*node.body, *rest]), self._code([*node.orelse, *rest]))]
            told.append(node)
        return [*told, *_leaves(self.carried, ast.Name(self.latents_name, ast.Load()))]

    @cached_property
    def wanted(self) -> set[str]:
        """Names that must be computed or passed before the first step."""
        found = reads(self.along) | (reads(self.factor) if self.factor is not None else set())
        found |= needed(self.before, set().union(*(reads(one.sample) for one in self.asks[:1])))[1] - {
            self.latents_name
        }
        for stage in self.stages.values():
            found |= stage.reads
        for name in self.carried:
            found |= reads(self.begins(name))
        found |= needed(self.told, set())[1] - {*self.carried}
        return found - self.heads

    @cached_property
    def counted_up(self) -> list[str]:
        """Variables that steps change and that the model is told a time of: a schedule cannot be made without steps."""
        return sorted(needed(self.told, set())[1] & {*self.carried})

    def _settle(self) -> None:
        """Collect the statements before the first step, and the names that they need."""
        self.start, self.given = needed(self.prelude, self.wanted)
        steps = self._role(STEPS)
        taken = {*self.sampling.roles.values()} - {steps}
        if wrong := sorted((self.given & taken) | (self.wanted & {*self.carried, self.latents_name})):
            raise Unsupported(f"makes its schedule, or its step, of {', '.join(wrong)}")

    @property
    def made(self) -> list[str]:
        """The variables of the prelude that steps read."""
        used = needed(self.before, set())[1] | set().union(*(stage.reads for stage in self.stages.values()))
        used |= set().union(*(reads(node) for node in self.before))
        return sorted(self._bound(self.start) & used)

    @cached_property
    def levels(self) -> str:
        """The variable that is gone along; empty if that is none, or not one."""
        bound = self._bound(self.start)
        found = sorted(reads(self.along) & bound)
        counted = isinstance(self.along, ast.Call) and getattr(self.along.func, "id", "") == "range"
        if counted or not found:
            nodes = [node for stage in self.stages.values() for one in stage.body for node in ast.walk(one)]
            found = sorted({self._level(node) for node in nodes} & bound)
        return found[0] if len(found) == 1 else ""

    def _level(self, node: ast.AST) -> str:
        """Return the variable of which one element is read by the loop's head; empty for other code."""
        known = isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and reads(node.slice) & self.heads
        return node.value.id if known else ""  # type: ignore[attr-defined]

    @property
    def random(self) -> bool:
        """Return whether a step draws noise."""
        return is_random(self.before) or any(is_random(stage.body) for stage in self.stages.values())


def _leaves(kept: Sequence[str], sample: ast.expr) -> list[ast.stmt]:
    own = [
        ast.Assign([ast.Attribute(ast.Name(_KEPT, ast.Load()), f"_{name}", ast.Store())], ast.Name(name, ast.Load()))
        for name in kept
    ]
    return [*own, ast.Assign([ast.Name(AFTER, ast.Store())], sample)]


def _told(node: ast.stmt) -> ast.stmt:
    """Return a statement with the steps that the model is told, and not with what it receives."""
    if isinstance(node, DenoiserCall):
        only = DenoiserCall()
        only.number, only.sample, only.time, only.answer = node.number, ast.Constant(0), node.time, node.answer
        return only
    return ast.If(node.test, [*map(_told, node.body)], [*map(_told, node.orelse)]) if isinstance(node, ast.If) else node


def _holds(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and any(isinstance(one, DenoiserCall) for one in ast.walk(node))
