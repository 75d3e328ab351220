"""A converter on trial: fed the keys of a small checkpoint, symbolically, and compared with what transformers makes."""

from collections.abc import Sequence
from dataclasses import dataclass

from omni_checkers.engine.rule import NotApplicable
from omni_checkers.symbolic import (
    Call,
    Class,
    Evaluator,
    Exhausted,
    Function,
    Opaque,
    Oracle,
    Outcome,
    Program,
    Raised,
    Value,
    explore,
    last_name,
)
from omni_checkers.symbolic.tensors import NotATensor, Tiny, call
from omni_checkers.veomni.facts.configs import ModelRecord
from omni_kit.upstream.transformers.configs import ConfigClass
from omni_kit.upstream.transformers.recipes.transform import Operation, Transform
from omni_kit.upstream.transformers.traits import EXPERT_COUNTS, EXPERT_WIDTHS

EXPERTS, WIDTH, HIDDEN = 3, 2, 5
_PATHS = 32
_NAMES = str.maketrans("", "", "*._")
_OTHER_WIDTH = 7


def _values(cls: ConfigClass) -> dict[str, Value]:
    """Return the sizes of a small config; of several widths that a class has, only the first is that of its experts."""
    widths = [name for name in EXPERT_WIDTHS if name in cls.defaults]
    others = dict.fromkeys(widths[1:], _OTHER_WIDTH)
    sizes = dict.fromkeys(EXPERT_COUNTS, EXPERTS) | dict.fromkeys(EXPERT_WIDTHS, WIDTH) | others
    return {**sizes, "hidden_size": HIDDEN}


@dataclass(frozen=True)
class Case:
    """One stacked parameter: the tensors on disk that make it, and what transformers makes of them.

    Attributes:
        disk: key -> tensor, in an order in which no converter may trust.
        parts: the keys of each source pattern.
    """

    parameter: str
    disk: tuple[tuple[str, Tiny], ...]
    parts: tuple[tuple[str, ...], ...]
    wanted: Tiny

    @property
    def ready(self) -> Tiny:
        """A tensor that already lies as the module requires it."""
        return Tiny.named(self.parameter, self.wanted.shape)


def cases(parameters: Sequence[str], transforms: Sequence[Transform]) -> list[Case]:
    """Return the cases of a recipe for stacked parameters; none if the recipe does what is not known for sure."""
    renamings = [transform for transform in transforms if not transform.converts]
    found: dict[str, Case] = {}
    for parameter in parameters:
        for transform in transforms:
            made = _case(parameter, transform) if transform.converts else None
            if made is not None and not any(r.rename(key) for r in renamings for key, _ in made.disk):
                found.setdefault(parameter, made)
    return list(found.values())


def _case(parameter: str, transform: Transform) -> Case | None:
    target = _plain(transform.targets[0])
    sources = [_plain(source) for source in transform.sources]
    if len(transform.targets) != 1 or not target or not parameter.endswith(target) or not all(sources):
        return None
    prefix = parameter.removesuffix(target)
    merges = any(operation.name == "MergeModulelist" for operation in transform.operations)
    rows = (HIDDEN, WIDTH) if "down" in parameter else (2 * WIDTH, HIDDEN)
    if merges and len(sources) == 2:
        rows = (WIDTH, HIDDEN)
    shape = rows if merges else (EXPERTS, *reversed(rows))
    numbers = range(EXPERTS) if merges else range(1)
    parts = [[prefix + source.replace("*", str(number)) for number in numbers] for source in sources]
    tensors = [[Tiny.named(key, shape) for key in part] for part in parts]
    try:
        wanted = _merged(tensors, transform.operations)
    except NotATensor:
        return None
    disk = [(key, tensor) for part in zip(parts, tensors, strict=True) for key, tensor in zip(*part, strict=True)]
    return Case(parameter, tuple(reversed(disk)), tuple(map(tuple, parts)), wanted)


def _plain(pattern: str) -> str:
    """Return a pattern of keys without anchors; empty for one that is a real regular expression."""
    text = pattern.removesuffix("$").removeprefix("^")
    return text if text.count("*") <= 1 and text.translate(_NAMES).isalnum() else ""


def _merged(parts: list[list[Tiny]], operations: Sequence[Operation]) -> Tiny:
    """Apply transformers' operations to lists of experts."""
    tensors: list[list[Tiny]] = parts
    for operation in operations:
        dim = dict(operation.kwargs).get("dim", operation.args[0] if operation.args else 0)
        if operation.name == "MergeModulelist":
            tensors = [[call("stack", [part, dim], {})] for part in tensors]
        elif operation.name == "Concatenate":
            tensors = [[call("cat", [[tensor for part in tensors for tensor in part], dim], {})]]
        elif operation.name == "Transpose" and len(operation.args) >= 2:
            tensors = [[call("transpose", [part[0], *operation.args[:2]], {})] for part in tensors]
        else:
            raise NotATensor(operation.name)
    if len(tensors) != 1 or len(tensors[0]) != 1:
        raise NotATensor("more than one result")
    return tensors[0][0]


@dataclass(frozen=True)
class Trial:
    """The conversion of a checkpoint on one path of a converter.

    Attributes:
        refused: keys that `can_handle` does not take.
        emitted: name -> tensor.
        complaint: what finalize raised; empty when it raised nothing.
        converter: the class of the converter.
        unclear: why the trial says nothing; empty when it does.
        wrong: what ended it before the last tensor; empty when nothing did.
    """

    refused: tuple[str, ...] = ()
    emitted: tuple[tuple[Value, Value], ...] = ()
    complaint: str = ""
    converter: str = ""
    unclear: str = ""
    wrong: str = ""


def run_trial(program: Program, factory: Value, config: ConfigClass, disk: Sequence[tuple[str, Tiny]]) -> Trial:
    """Make a converter for a small config and feed it tensors in this order.

    Raises:
        NotApplicable: what it does depends on something that is not known.
    """
    cannot = "the converter's code cannot be followed"
    trials: set[Trial] = set()
    try:
        for trial in explore(lambda oracle: _one_path(program, oracle, factory, config, disk), limit=_PATHS):
            trials.add(trial)
            if trial.unclear or len(trials) > 1:
                raise NotApplicable(f"{cannot}: {trial.unclear or 'it depends on more than the checkpoint'}")
    except (Exhausted, RecursionError) as error:
        raise NotApplicable(f"{cannot}: {error}") from error
    return trials.pop()


def _one_path(
    program: Program, oracle: Oracle, factory: Value, config: ConfigClass, disk: Sequence[tuple[str, Tiny]]
) -> Trial:
    evaluator = Evaluator(program, oracle)
    made = evaluator.call_function(factory, [ModelRecord(config, _values)], {})
    converter = made.value
    if made.raised or not isinstance(converter, Call) or not isinstance(converter.function, Class):
        return Trial(unclear=made.raised or "the factory does not return an object of the package")
    refused, emitted = [], []
    for name, tensor in disk:
        taken = _method(evaluator, converter, "can_handle", name)
        if taken.raised or not isinstance(taken.value, bool):
            return Trial(unclear=f"can_handle('{name}') is {taken.raised or taken.value}")
        if not taken.value:
            refused.append(name)
            continue
        result = _method(evaluator, converter, "convert", name, tensor)
        if result.raised:
            return Trial(tuple(refused), wrong=f"convert('{name}') raises {result.raised}")
        if result.value is not None:
            emitted.append(_converted(result.value))
    ending = _method(evaluator, converter, "finalize")
    if unclear := next(
        (name for name, tensor in emitted if not (isinstance(name, str) and isinstance(tensor, Tiny))), None
    ):
        return Trial(unclear=f"its output for {unclear} is unknown")
    return Trial(tuple(refused), tuple(emitted), ending.raised or "", converter.function.name)


def _method(evaluator: Evaluator, converter: Call, name: str, *arguments: Value) -> Outcome:
    try:
        function = evaluator.attribute(converter, name, evaluator.top)
    except Raised as error:
        return Outcome(raised=error.text)
    if not isinstance(function, Function):
        return Outcome(value=Opaque(f"{name} is not known"))
    return evaluator.call_function(function, arguments, {})


def _converted(value: Value) -> tuple[Value, Value]:
    """(name, tensor) of a ConvertedCheckpointTensor."""
    if isinstance(value, Call) and last_name(value.function) == "ConvertedCheckpointTensor":
        return value.argument(0, "name"), value.argument(1, "tensor")
    return Opaque("result"), value
