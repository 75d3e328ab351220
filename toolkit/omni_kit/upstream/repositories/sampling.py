"""Sampling by the authors: the loop over steps, its schedule, and the model's inputs."""

import ast
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import Any, TypeGuard

from omni_kit.errors import BadInput
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN, Unsupported
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import passed
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.numbers import called
from omni_kit.upstream.repositories.passed_levels import SHAPE, passed_levels, steps_of
from omni_kit.upstream.repositories.processes.authors_calls import authors_calls
from omni_kit.upstream.repositories.processes.holders import holders, receivers
from omni_kit.upstream.repositories.processes.sampler_entries import functions_named
from omni_kit.upstream.repositories.processes.used_samplers import used_samplers
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_names import is_named, short_names
from omni_kit.upstream.repositories.sampler_step.loop_statements import (
    calls_in,
    goes_over_data,
    steps_scheduler,
    without_aliases,
)
from omni_kit.upstream.repositories.sampler_step.members import MADE, of_self
from omni_kit.upstream.repositories.sampler_step.objects import Owner
from omni_kit.upstream.repositories.sampler_step.stateless import functions_of
from omni_kit.upstream.repositories.sources import distance, sources_of

MODEL, NOISE, TEXT, AGAINST, STEPS, SCALE = "model", "noise", "text", "against", "steps", "scale"
# How authors call what else their loop is given.
_SAID = {
    AGAINST: re.compile(r"(neg|uncond|empty|null)", re.IGNORECASE),
    STEPS: re.compile(r"steps?$", re.IGNORECASE),
    SCALE: re.compile(r"(cfg|guidance|scale)", re.IGNORECASE),
}
_OF_PICTURES = re.compile(r"inpaint|outpaint|infill|interpol|invert|inversion")
"""Names of functions that begin with a picture: they sample only if a user names them."""
_TRIED = (4, 7, 12)
SIZE = 1024
"""Stands for a size of latents where a schedule depends on it."""
_CLOSE = 1e-9
_SINGLE = 1e-5  # what levels of single precision leave of a factor
_TRAINS, _ADDS = "backward", "append"


@dataclass(frozen=True)
class Schedule:
    """The noise levels of a run.

    Attributes:
        function: what makes them.
        shift: the factor by which they are bent away from even steps from 1 to 0; 1 for even ones; None for others.
        where: file:line.
        made: that function, where it alone tells them: they fall, from 1 or below it, and end before 0 or there.
        given: what else than the number of steps the loop passes it, as written.
        argument: of the loop's function, where its callers make the levels and pass them.
    """

    function: str
    shift: float | None
    where: str
    made: Defined | None = None
    given: Mapping[str, str] = field(default_factory=dict)
    argument: str = ""

    @property
    def steps(self) -> str:
        """The argument that says how many steps there are."""
        return steps_of(self.made.node) if self.made is not None else ""


@dataclass(frozen=True)
class Sampling:
    """The authors' loop.

    Attributes:
        where: file:line.
        forward: whether a step adds the model's answer times the change of noise; None if that was not read.
        schedule: what the loop goes along, where that is a function of theirs.
        module, function: what has the loop, as it is imported.
        roles: MODEL, NOISE, ... -> the argument of that function; empty if one that must be given has none.
        source, made, loop: the file, the function and the loop itself.
        owner: the class whose method it is; its objects are told as variables of the function.
        closed: why a method cannot be determined without its object.
        script: the function's text, where it was cut out of one of the authors'.
        sure: its object surely holds the model, and is needed to sample.
    """

    where: str
    forward: bool | None
    schedule: Schedule | None
    module: str
    function: str
    roles: Mapping[str, str]
    source: SourceFile
    made: ast.FunctionDef
    loop: ast.For
    owner: Owner | None = None
    closed: str = ""
    script: str = ""
    sure: bool = False

    @property
    def full_name(self) -> str:
        """Its module, its class and its function."""
        own = (name for name, cls in self.source.classes.items()
               if cls.lineno <= self.loop.lineno <= (cls.end_lineno or 0))  # fmt: skip
        return ".".join(dict.fromkeys((*self.module.split("."), *islice(own, 1), *self.function.split("."))))

    def called(self, condition: str) -> tuple[str, str]:
        """Return the import, and a call of it as `sampled`, with the roles by name; a method's object is made for it.

        Args:
            condition: the model's argument for a text; `name{key}` if that is an entry of a mapping.
        """
        last = self._last
        owned = self.owner.given if self.owner is not None else frozenset()
        entry = condition.rstrip("}").partition("{")[2]
        values = {role: f"{{'{entry}': {role}}}" for role in (TEXT, AGAINST)} if entry else {}
        first, rest = (", ".join(f"{name}={values.get(role, role)}" for role, name in self.roles.items()
                                 if (name in owned) == mine) for mine in (True, False))  # fmt: skip
        if self.owner is None:
            return self.function, f"sampled({rest}){last}"
        method = self.function.rpartition(".")[2]
        return self.owner.name, f"sampled({first}){'' if method == '__call__' else f'.{method}'}({rest}){last}"

    @property
    def _last(self) -> str:
        """Subscript that takes the latents from the returned value: the last of a list with one entry a step."""
        returned = [node.value.id for node in ast.walk(self.made) if isinstance(node, ast.Return)
                    and isinstance(node.value, ast.Name)]  # fmt: skip
        lists = {name for name, value in _assigned(self.made) if isinstance(value, ast.List)}
        return "[-1]" if {*returned} & lists else ""


def samplings_of(reference: Reference) -> list[Sampling]:
    """Return the functions that may sample with the class: those that say so, else those that call a model as it is
    called.

    Of several that fit equally, those that the authors use are returned, if any is known; of these, those in the
    folders nearest to the class; of these, those with a scheduler if any.

    The list is empty if the reference names a sampler that is called as a whole.

    Raises:
        BadInput: the reference names one, and there is none of that name, or more than one.
    """
    found: dict[int, list[Sampling]] = {}
    made = [meant for meant, _ in receivers(reference)]
    every = [pair for source in sources_of(reference) for pair in _loops(source, reference, made)]
    if reference.loop:
        named = [one for _, one in every if is_named(one.full_name, reference.loop)]
        if not named:
            called = authors_calls(reference)
            if any(is_named(one.full_name, reference.loop) for one in called):
                return []
            raise _no_sampler(reference, [*(one.full_name for _, one in every), *(one.full_name for one in called)])
        several = short_names([*dict.fromkeys(one.full_name for one in named)])
        if len(several) > 1:
            raise BadInput(f"several functions are called '{reference.loop}'", f"name one of: {', '.join(several)}")
        return named[:1]
    for fits, one in every:
        if not _OF_PICTURES.search(one.made.name) and all(one.where != other.where for other in found.get(fits, [])):
            found.setdefault(fits, []).append(one)
    best = found[max(found)] if found and max(found) >= 0 else []
    used = used_samplers(reference, {one.full_name for one in best})
    best = [one for one in best if not used or one.full_name in used]
    if all(one.closed for one in best):  # what can be read comes first, then what surely holds the model
        best = [one for one in best if one.sure] or best
    else:
        best = [one for one in best if not one.sure]
    nearest = min((distance(reference, one.source.path) for one in best), default=0)
    near = [one for one in best if distance(reference, one.source.path) == nearest]
    return [one for one in near if any(map(steps_scheduler, calls_in(one.loop)))] or near


def _no_sampler(reference: Reference, known: Sequence[str]) -> BadInput:
    """Return the error for a named sampler that is none of the known ones: what is so, of a function that exists."""
    advice = f"name one of: {', '.join(short_names([*dict.fromkeys(known)])) or 'none at all'}"
    for full, where, goes in functions_named(reference, reference.loop):
        reason = "its loop calls no model with what came of the call before" if goes else "it has no loop over steps"
        return BadInput(f"'{reference.loop}' ({full}, {where}) could not be read as sampling: {reason}", advice)
    return BadInput(f"'{reference.loop}' is not a function of theirs", advice)


def _loops(source: SourceFile, reference: Reference, made: Sequence[Defined]) -> Iterator[tuple[int, Sampling]]:
    """Yield the functions with a loop that calls a model, and how well each fits the class."""
    tops = {node.name for node in source.tree.body if isinstance(node, ast.FunctionDef)}
    models = {cls: one.attributes for cls, one in holders(reference).items()}
    for found_function, owner, closed, asking in functions_of(source, models):
        if found_function.name == MADE:  # an object is made there
            continue
        function = without_aliases(found_function)
        if any(isinstance(one.func, ast.Attribute) and one.func.attr == _TRAINS for one in calls_in(function)):
            continue
        for loop in (node for node in ast.walk(function) if isinstance(node, ast.For) and not goes_over_data(node)):
            moved = [_moves(name, value) for name, value in _assigned(loop)]
            told = [one for one in moved if one is not None]
            stepped = any(map(steps_scheduler, calls_in(loop)))
            named = bool(told or stepped or asking or (closed and _takes_steps(function)))
            if _comes_back(loop, function, asking, anywhere=named, made_before=stepped):
                schedule = _schedule(source, function, loop) or _passed(source, function, loop, reference)
                top = owner is not None or function.name in tops
                roles = _roles(function, loop, {name for name, _ in _assigned(loop)}) if top else {}
                if schedule is not None and schedule.argument:
                    roles = {}  # its levels are passed, and no number of steps
                own = Defined(source, owner.name if owner is not None else function.name, found_function)
                fits = 1 if asking else _fits(source, function, loop, reference, own in made)
                moves = told[-1] if told else None
                found = Sampling(
                    source.where(loop), moves, schedule, source.module, function.name, roles, source, function, loop,
                    owner, closed, sure=bool(asking),
                )  # fmt: skip
                usual = bool(told or closed or stepped)  # what moves as most loops do comes first
                yield 2 * fits - (not usual), found
                break


def _takes_steps(function: ast.FunctionDef) -> bool:
    """Return whether a function is told how many steps there are: what its loop is for is not read otherwise."""
    return any(_SAID[STEPS].search(one.arg) for one in (*function.args.args, *function.args.kwonlyargs))


def _fits(source: SourceFile, function: ast.FunctionDef, loop: ast.For, reference: Reference, made: bool) -> int:
    """3 where a function says that it samples with the class, -1 where with another; else whether calls fit."""
    given = {one.arg: one.annotation for one in (*function.args.args, *function.args.kwonlyargs)}
    calls = [one for one in ast.walk(loop) if isinstance(one, ast.Call) and _head(one.func) in given]
    asked = [one for one in calls if any(one in ast.walk(value) for _, value in _bound(loop))
             and len(one.args) + len(one.keywords) > 1 and "scheduler" not in (dotted(one.func) or "")]  # fmt: skip
    for call in calls:
        meant = resolve(source, _annotated(given[_head(call.func)]))
        if isinstance(meant, Defined) and isinstance(meant.node, ast.ClassDef):
            known = {one.node for one in reference.cls.mro if isinstance(one, ClassRef)}
            return 3 if meant.node in known else -1
    if made:
        return 3
    names = list(reference.forward)
    return int(any(_takes(call, names) for call in asked))


def _takes(call: ast.Call, names: Sequence[str]) -> bool:
    several = any(isinstance(one, ast.Starred) for one in call.args)
    by_name = {one.arg for one in call.keywords if one.arg}
    return not several and len(call.args) + len(by_name) <= len(names) and by_name <= {*names}


def _annotated(node: ast.expr | None) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return (dotted(node) or "") if node is not None else ""


def _is_call(value: ast.expr) -> TypeGuard[ast.Call]:
    return isinstance(value, ast.Call)


def _roles(function: ast.FunctionDef, loop: ast.For, moved: set[str]) -> dict[str, str]:
    """Return the role of each argument of a function: the called model, the moved noise, and others by name."""
    given = [*function.args.posonlyargs, *function.args.args]
    names = [one.arg for one in (*given, *function.args.kwonlyargs)]
    calls = [one for one in ast.walk(loop) if isinstance(one, ast.Call) and _head(one.func) in names]
    calls = [one for one in calls if isinstance(one.func, ast.Name)] or calls  # latents have methods, too
    given_always = {one.arg for one in given[: len(given) - len(function.args.defaults)]}
    before = [(name, value) for node in _before(function.body, loop) for name, value in _assigned(node)]
    begun = {one for name, value in before if name in moved for one in _variables(value) & given_always}
    told = {one.id for call in calls for one in ast.walk(call) if isinstance(one, ast.Name)}
    found: dict[str, str] = {}
    for name in names:
        if any(_head(call.func) == name for call in calls):
            found.setdefault(MODEL, name)
        elif name in begun or name in moved:
            found.setdefault(NOISE, name)
        else:
            by_name = (role for role, said in _SAID.items() if said.search(name))
            if role := next(by_name, TEXT if name in told else ""):
                found.setdefault(role, name)
    complete = given_always <= {*found.values()} and {MODEL, NOISE, TEXT, STEPS} <= found.keys()
    return found if complete else {}


def _assigned(loop: ast.AST) -> list[tuple[str, ast.expr]]:
    found = []
    for node in ast.walk(loop):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.append((node.targets[0].id, node.value))
        elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            found.append((node.target.id, ast.BinOp(ast.Name(node.target.id, ast.Load()), node.op, node.value)))
    return found


def _bound(loop: ast.For) -> list[tuple[set[str], ast.expr]]:
    """Return the names and the value of each assignment in a loop, and of each value that is added to a list."""
    nodes = [one for one in ast.walk(loop) if isinstance(one, ast.Assign | ast.AugAssign)]
    found = [({one.id for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
               for one in ast.walk(target) if isinstance(one, ast.Name)}, node.value) for node in nodes]  # fmt: skip
    added = [(one.func.value, one.args[0]) for one in calls_in(loop)
             if isinstance(one.func, ast.Attribute) and one.func.attr == _ADDS and len(one.args) == 1]  # fmt: skip
    return found + [({held.id}, value) for held, value in added if isinstance(held, ast.Name)]


def _comes_back(
    loop: ast.For, function: ast.FunctionDef, asking: Set[str], *, anywhere: bool, made_before: bool
) -> bool:
    """Return whether something that a model receives is made, in the loop, of what it answers.

    Args:
        asking: attributes and methods of an object that are the model or ask it, where that is known.
        anywhere: the model may be a method of an argument, and the loop need not begin with what comes back.
        made_before: the model may be made in the function, before the loop.
    """
    bound, given = _bound(loop), _given(function, loop if made_before else None)
    asks = {ast.unparse(value): calls for _, value in bound if (calls := _asked(value, given, asking))
            and (anywhere or _is_direct(value, function))}  # fmt: skip
    if not asks:
        return False
    read = [(names, _variables(value), ast.unparse(value) in asks) for names, value in bound]
    made: set[str] = set()
    handed = {name for calls in asks.values() for call in calls for name in _told(call)}
    for _ in bound:
        before = len(made), len(handed)
        made = made.union(*(names for names, variables, is_asked in read if is_asked or variables & made))
        handed = handed.union(*(variables for names, variables, _ in read if names & handed))
        if before == (len(made), len(handed)):
            break
    if anywhere:
        return bool(handed & made)
    return bool(handed & made & _given(function, loop))


def _before(body: Sequence[ast.stmt], loop: ast.For) -> Iterator[ast.stmt]:
    """Yield the statements before a loop, also where it stands in the body of a `with`."""
    for node in body:
        if node is loop:
            return
        if isinstance(node, ast.With):
            yield from _before(node.body, loop)
        elif not any(one is loop for one in ast.walk(node)):
            yield node


def _is_direct(value: ast.expr, function: ast.FunctionDef) -> bool:
    """Return whether what is called is an argument of the function itself, and no method of one."""
    given = {one.arg for one in (*function.args.args, *function.args.kwonlyargs)}
    calls = (one.func for one in ast.walk(value) if isinstance(one, ast.Call))
    return any(isinstance(one, ast.Name) and one.id in given for one in calls)


def _variables(node: ast.expr) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}


def _given(function: ast.FunctionDef, loop: ast.For | None) -> set[str]:
    """Return the arguments of a function, and with a loop what is assigned before it."""
    given = {one.arg for one in (*function.args.args, *function.args.kwonlyargs)}
    before = _before(function.body, loop) if loop is not None else ()
    return given | {name for node in before for name, _ in _assigned(node)}


def _asked(value: ast.expr, given: Collection[str], asking: Set[str]) -> list[ast.Call]:
    """Return the calls of a model in a value: of something that the function was given, with several arguments."""
    calls = [one for one in calls_in(value) if len(one.args) + len(one.keywords) > 1 and not steps_scheduler(one)]
    if asking:
        return [one for one in calls if of_self(one.func) in asking or ast.unparse(one.func) in asking]
    return [one for one in calls if _head(one.func) in given]


def _told(call: ast.Call) -> set[str]:
    """Return the variables that a call is passed."""
    return set[str]().union(*map(_variables, (*call.args, *(one.value for one in call.keywords))))


def _head(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _moves(name: str, value: ast.expr) -> bool | None:
    """Return whether `x = x + (later - now) * answer`; False for the other sign; None for anything else."""
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.Add | ast.Sub):
        return None
    if not isinstance(value.left, ast.Name) or value.left.id != name or not isinstance(value.right, ast.BinOp):
        return None
    return isinstance(value.op, ast.Add) if isinstance(value.right.op, ast.Mult) else None


def _schedule(source: SourceFile, function: ast.FunctionDef, loop: ast.For) -> Schedule | None:
    """Return the schedule of a loop: a variable in its head that a function of the authors made."""
    wanted = {node.id for node in ast.walk(loop.iter) if isinstance(node, ast.Name)}
    for name, value in _assigned(function):
        if name not in wanted:
            continue
        for call in (
            node for node in ast.walk(value) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        ):
            meant = resolve(source, call.func.id)  # type: ignore[attr-defined]
            if isinstance(meant, Defined) and isinstance(meant.node, ast.FunctionDef):
                return _scheduled(meant, meant.node, call)
    return None


def _passed(source: SourceFile, function: ast.FunctionDef, loop: ast.For, reference: Reference) -> Schedule | None:
    """Return the schedule that a caller makes and passes to the function with the loop."""
    counted = {name for node in ast.walk(loop.iter) if isinstance(node, ast.Call) and dotted(node.func) == "range"
               for name in _variables(node)}  # fmt: skip
    taken = {one.arg for one in (*function.args.args, *function.args.kwonlyargs)}
    moved = {name for name, _ in _assigned(loop)} & taken
    wanted = _variables(loop.iter) & taken - counted - moved
    own = Defined(source, function.name, function)
    for one in passed_levels(own, wanted, moved, sources_of(reference)) if wanted and moved else ():
        assert isinstance(one.made.node, ast.FunctionDef)
        values = {name: SIZE if text.startswith(SHAPE) else ast.literal_eval(text) for name, text in one.given.items()}
        if _falls(one.made.source, one.made.node, values):
            where = one.made.source.where(one.made.node)
            return Schedule(one.made.name, None, where, one.made, one.given, one.argument)
    return None


def _scheduled(meant: Defined, made: ast.FunctionDef, call: ast.Call) -> Schedule:
    """Return the schedule that a function makes, called as in the loop; without values if arguments are unknown."""
    names, steps = [one.arg for one in made.args.args], steps_of(made)
    said = passed(call, names)
    where, more = meant.source.where(made), {name: one for name, one in said.items() if name != steps}
    values = {name: literal(one) for name, one in more.items()}
    if UNKNOWN in values.values():
        return Schedule(meant.name, None, where)
    shift = shift_of(meant.source, made, values)
    alone = shift is None and _falls(meant.source, made, values)
    given = {name: ast.unparse(one) for name, one in more.items()}
    return Schedule(meant.name, shift, where, meant if alone else None, given)


def _falls(source: SourceFile, function: ast.FunctionDef, given: Mapping[str, Any]) -> bool:
    """Return whether the noise levels of several runs fall, each from 1 or below it."""
    for count in _TRIED:
        try:
            values = called(source, function, keywords={**given, steps_of(function): count})
        except Unsupported:
            return False
        right = isinstance(values, list) and len(values) in (count, count + 1) and all(map(_is_number, values))
        if not right or (len(values) == count + 1 and abs(values[-1]) > _CLOSE) or not 0 < values[0] <= 1 + _CLOSE:
            return False
        if any(later >= earlier for earlier, later in pairwise(values)) or values[count - 1] <= 0:
            return False
    return True


def _is_number(value: object) -> bool:
    return isinstance(value, int | float)


def shift_of(source: SourceFile, function: ast.FunctionDef, given: Mapping[str, Any]) -> float | None:
    """By which factor a schedule is bent: its numbers are compared with those of the formula, for several counts."""
    found: set[float] = set()
    for count in _TRIED:
        try:
            values = called(source, function, keywords={**given, steps_of(function): count})
        except Unsupported:
            return None
        one = bent(values, count)
        if one is None:
            return None
        found.add(round(one, 6))
    return found.pop() if len(found) == 1 else None


def bent(values: object, count: int) -> float | None:
    """By which factor the levels of a run are bent away from even steps from 1 to 0; None if they are others."""
    if not isinstance(values, list) or len(values) not in (count, count + 1) or not math.isclose(values[0], 1.0):
        return None
    if len(values) == count + 1 and abs(values[-1]) > _CLOSE:
        return None
    factors = []
    for index in range(1, count):
        even, own = 1 - index / count, values[index]
        if not 0 < own < 1:
            return None
        factors.append(own * (1 - even) / (even * (1 - own)))
    return factors[0] if all(math.isclose(one, factors[0], rel_tol=_SINGLE) for one in factors) else None
