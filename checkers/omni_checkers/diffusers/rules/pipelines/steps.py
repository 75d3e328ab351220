"""Rules about what comes back of a step: DFU226 to DFU228."""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omni_checkers.diffusers.examples import LUMEN, PIPELINE, changed
from omni_checkers.diffusers.facts.pipelines import call_of
from omni_checkers.engine.files import walked
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN, Frame, OpenDomain, Unknown, Unsupported, evaluate
from omni_kit.pysource.nodes import calls, keyword, last_name, methods
from omni_kit.pysource.source import dotted

_STEP = "self.scheduler.step(noise_pred, t, latents, return_dict=False)[0]"
_POPPED = 'prompt_embeds = changed.pop("prompt_embeds", prompt_embeds)'
_FREED = "        self.maybe_free_model_hooks()\n"
_FREE = "maybe_free_model_hooks"
_CLOSE = 1e-6


class StepsAreTimes(Rule):
    """Pass the scheduler the step's timestep, and the denoiser one timestep for each row.

    In `for i, t in enumerate(timesteps)`, `scheduler.step` receives t. If `torch.cat([latents] * 2)` doubles the rows,
    the timestep is expanded to those rows, not to the rows of the latents. Two calls of one denoiser in a function
    receive the same variable in the same unit.

    Why: a scheduler that looks up the wrong number finds another step, or none. A timestep for half of the batch
    raises, or broadcasts wrongly, only with guidance.

    Fine when: the scheduler counts steps itself and expects the index.
    """

    id = "DFU226"
    name = "steps-are-times"
    target = "diffusers"
    failure_modes = ("sigma-schedule",)
    BAD = (changed(PIPELINE, (_STEP, _STEP.replace(", t,", ", i,"))),)
    GOOD = ({PIPELINE: LUMEN[PIPELINE]},)

    def check(self, classes: list[ClassRef]) -> Findings:
        for cls in classes:
            if cls.derives("DiffusionPipeline", "ModularPipelineBlocks"):
                for function in methods(cls.node):
                    for node, what in (*_numbered(function), *_fewer(function), *_units(function)):
                        yield at(cls.source, node, what)


def _numbered(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    for loop in (node for node in walked(function) if isinstance(node, ast.For)):
        counted = isinstance(loop.iter, ast.Call) and last_name(loop.iter) == "enumerate"
        names = [last_name(one) for one in getattr(loop.target, "elts", [])] if counted else []
        for call in calls(loop, "step") if len(names) == 2 else ():
            if "scheduler" not in (dotted(call.func) or ""):
                continue
            given = keyword(call, "timestep") or (call.args[1] if len(call.args) > 1 else None)
            if given is not None and last_name(given) == names[0]:
                yield given, f"the scheduler receives the step's index, {names[0]}, instead of its timestep, {names[1]}"


def _fewer(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    """Yield a time that is expanded to the latents, and passed next to twice as many rows."""
    doubled: dict[str, str] = {}
    times: dict[str, tuple[ast.AST, str]] = {}
    assigned = [one for one in walked(function) if isinstance(one, ast.Assign) and len(one.targets) == 1]
    often = Counter(last_name(one.targets[0]) for one in assigned)
    for one in assigned:
        name = last_name(one.targets[0])
        if often[name] == 1 and (of := _twice(one.value)):
            doubled[name] = of
        elif often[name] == 1 and (of := _expanded(one.value)):
            times[name] = one, of
    for call in calls(function):
        given = [last_name(one) for one in (*call.args, *(word.value for word in call.keywords))]
        rows = {doubled[name] for name in given if name in doubled}
        for name in given:
            if name in times and times[name][1] in rows and name not in doubled:
                node, of = times[name]
                yield node, f"there is a timestep for each row of {of}, but the denoiser receives twice as many rows"


def _units(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    """Calls of one denoiser that are told one time in two units."""
    first: dict[tuple[str, frozenset[str]], ast.expr] = {}
    for call in sorted(calls(function), key=lambda one: one.lineno):
        given = keyword(call, "timestep")
        names = frozenset(one.id for one in walked(given) if isinstance(one, ast.Name)) if given is not None else ()
        if given is not None and names:
            told = first.setdefault((ast.unparse(call.func), frozenset(names)), given)
            one, other = _factor(given), _factor(told)
            if one is not None and other is not None and abs(one - other) > _CLOSE * abs(other):
                yield (
                    given,
                    f"the denoiser receives {ast.unparse(given)} here, but {ast.unparse(told)} in the call before",
                )


def _factor(node: ast.expr) -> float | None:
    """Return what an expression is where every variable is 1; None if it is more than a multiple."""
    try:
        return _number(evaluate(node, _Multiples()))
    except Unsupported:
        return None


@dataclass(frozen=True)
class _Multiple(Unknown):
    """Something times a factor.

    Attributes:
        owner: what a method is looked up on.
    """

    factor: float = 1.0
    owner: float | None = None


class _Multiples(OpenDomain):
    """Variables, attributes and items count as 1, and a method's result as the value that it is called on."""

    def name(self, name: str, frame: Frame) -> Any:
        """See `Domain`."""
        return _Multiple()

    def attribute(self, base: Any, name: str, frame: Frame) -> Any:
        """See `Domain`."""
        return _Multiple(owner=_number(base))

    def item(self, base: Any, key: Any, frame: Frame) -> Any:
        """See `Domain`."""
        return _Multiple()

    def operation(self, name: str, operands: list[Any], frame: Frame) -> Any:
        """See `Domain`."""
        match name, [_number(one) for one in operands]:
            case "mul", [float() as left, float() as right]:
                return _Multiple(factor=left * right)
            case "truediv", [float() as left, float() as right] if right:
                return _Multiple(factor=left / right)
        return UNKNOWN

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], frame: Frame, node: ast.expr) -> Any:
        """See `Domain`."""
        owner = getattr(function, "owner", None)
        return UNKNOWN if owner is None else _Multiple(factor=owner)


def _number(value: Any) -> float | None:
    if isinstance(value, _Multiple):
        return value.factor
    return float(value) if isinstance(value, int | float) else None


def _twice(node: ast.expr) -> str:
    """Return the name of a tensor that is joined with itself, even if that depends on guidance."""
    node = node.body if isinstance(node, ast.IfExp) else node
    if not isinstance(node, ast.Call) or last_name(node) not in ("cat", "concat") or not node.args:
        return ""
    many = node.args[0]
    listed = many.left if isinstance(many, ast.BinOp) and getattr(many.right, "value", None) == 2 else many
    names = [last_name(one) for one in getattr(listed, "elts", [])]
    same = len(names) == (1 if listed is not many else 2) and len({*names}) == 1
    return names[0] if same else ""


def _expanded(node: ast.expr) -> str:
    """Of `t.expand(x.shape[0])`, x."""
    for call in calls(node, "expand"):
        size = call.args[0] if len(call.args) == 1 else None
        if isinstance(size, ast.Subscript) and isinstance(size.value, ast.Attribute) and size.value.attr == "shape":
            return last_name(size.value.value)
    return ""


class TensorsComeBackUnderTheirNames(Rule):
    """Assign each tensor that a callback returns to the variable of the same name.

    In `x = outputs.pop("x", x)` the variable, the key and the default have one name.

    Why: a callback changes the prompt and overwrites the negative prompt, or its change is discarded.

    Fine when: the callback uses its own names.
    """

    id = "DFU227"
    name = "tensors-come-back-under-their-names"
    target = "diffusers"
    failure_modes = ("cfg-conditioning",)
    BAD = (changed(PIPELINE, (_POPPED, _POPPED.replace('"prompt_embeds"', '"latents"'))),)
    GOOD = ({PIPELINE: LUMEN[PIPELINE]},)

    def check(self, classes: list[ClassRef]) -> Findings:
        for cls in classes:
            if cls.derives("DiffusionPipeline", "ModularPipelineBlocks"):
                for function in methods(cls.node):
                    for call, name, asked in _popped(function):
                        yield at(cls.source, call, f"{name} becomes '{asked}' of the callback's result")


def _popped(function: ast.FunctionDef) -> Iterator[tuple[ast.Call, str, str]]:
    found = []
    for node in (one for one in walked(function) if isinstance(one, ast.Assign) and len(one.targets) == 1):
        call = node.value
        if isinstance(call, ast.Call) and last_name(call) == "pop" and len(call.args) == 2:
            name, asked = last_name(node.targets[0]), getattr(call.args[0], "value", None)
            if isinstance(asked, str) and name == last_name(call.args[1]):
                found.append((call, name, asked))
    names = {name for _, name, _ in found}
    yield from (one for one in found if one[1] != one[2] and one[2] in names)


class HooksAreFreed(Rule):
    """Call `maybe_free_model_hooks` at the end of a pipeline that declares an offload sequence.

    `__call__` calls it, or a method of the class that `__call__` calls.

    Why: with `enable_model_cpu_offload` the last component stays on the accelerator. The second call runs out of memory
    or finds components on the wrong device.

    Fine when: `__call__` calls another pipeline that does it.
    """

    id = "DFU228"
    name = "hooks-are-freed"
    target = "diffusers"
    failure_modes = ("diffusers-capability-flags",)
    BAD = (changed(PIPELINE, (_FREED, "")),)
    GOOD = ({PIPELINE: LUMEN[PIPELINE]},)

    def check(self, pipelines: list[ClassRef]) -> Findings:
        for cls in pipelines:
            call = call_of(cls)
            if call is None or not _offloads(cls) or _delegates(call):
                continue
            if not any(True for entry in (call, *methods(cls.node)) for _ in calls(entry, _FREE)):
                yield at(cls.source, call, f"{cls.node.name}.__call__ never calls {_FREE}")


def _offloads(cls: ClassRef) -> bool:
    """Return whether several components are offloaded in an order that the class says."""
    found = cls.assigned("model_cpu_offload_seq")
    return found is not None and isinstance(found[1], ast.Constant) and "->" in str(found[1].value)


def _delegates(call: ast.FunctionDef) -> bool:
    """Return whether a component of it is a pipeline that does the work, or the base's own `__call__`."""
    return any("pipe" in last_name(one.func) or "super()" in ast.unparse(one.func) for one in calls(call))
