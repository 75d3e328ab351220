"""Parallel plans as they are at run time, and the parameters that they are matched against."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omni_checkers.engine.facts import fact
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.symbolic import (
    Call,
    Class,
    Evaluator,
    Exhausted,
    Function,
    Opaque,
    Oracle,
    Program,
    Raised,
    Value,
    explore,
)
from omni_checkers.veomni.facts.generated import Generated
from omni_kit.errors import BadInput
from omni_kit.upstream.places import read_json
from omni_kit.upstream.skeleton import Skeleton, build_skeleton
from omni_kit.upstream.transformers.config_view import ConfigView
from omni_kit.upstream.transformers.configs import ConfigClass, ModelConfig
from omni_kit.upstream.transformers.defaults import default_config

METHOD = "get_parallel_plan"


@dataclass(frozen=True)
class ShardingPlan:
    """The parallel plan of one class of a generated file.

    Attributes:
        keys: plan name ("ep") -> the patterns of its keys.
        dims: pattern -> the dimensions that it is cut along, where they are numbers.
        path, line: the function that makes the plan.
        unread: why the plan could not be read; empty when it was.
    """

    generated: Generated
    class_name: str
    keys: dict[str, tuple[str, ...]]
    path: Path
    line: int
    unread: str = ""
    dims: dict[str, frozenset[int]] = field(default_factory=dict)


@dataclass
class Skeletons:
    """Skeletons of generated classes, read once each."""

    toy: dict[str, Any]
    _known: dict[tuple[Path, str], Skeleton | str] = field(default_factory=dict)

    def of(self, generated: Generated, class_name: str) -> Skeleton:
        """Return the parameters of a class.

        Raises:
            NotApplicable: they cannot be read; why.
        """
        key = generated.file.path, class_name
        if key not in self._known:
            self._known[key] = self._read(generated, class_name)
        known = self._known[key]
        if isinstance(known, str):
            raise NotApplicable(known)
        return known

    def _read(self, generated: Generated, class_name: str) -> Skeleton | str:
        cls = generated.config_class(class_name)
        if cls is None:
            return f"the config of {class_name} is not known"
        try:
            return build_skeleton(generated.source, class_name, ConfigView(self._config(cls)))
        except (BadInput, RecursionError) as error:
            return f"the parameters of {class_name} cannot be read: {error}"

    def _config(self, cls: ConfigClass) -> ModelConfig:
        if self.toy.get("model_type") == cls.model_type:
            return ModelConfig(cls, self.toy, "toy_config.json")
        return default_config(cls)


@fact
def skeletons(path: Path) -> Skeletons:
    """Return the parameters of the generated classes."""
    toy = path / "toy_config.json"
    try:
        return Skeletons(read_json(toy) if toy.is_file() else {})
    except BadInput:
        return Skeletons({})


@fact
def plans(program: Program, generated: list[Generated]) -> list[ShardingPlan]:
    """Return the plan of every generated class that has one of its own."""
    found = [
        _plan(program, file, name)
        for file in generated
        for name, node in file.classes.items()
        if any(getattr(item, "name", "") == METHOD for item in node.body)
    ]
    if not found:
        raise NotApplicable(f"no generated class defines {METHOD}")
    return found


def _plan(program: Program, generated: Generated, class_name: str) -> ShardingPlan:
    parts = generated.file.path.relative_to(program.root).with_suffix("").parts
    module = program.module(".".join([program.name, *parts]))
    node = generated.classes[class_name]
    method = next(item for item in node.body if getattr(item, "name", "") == METHOD)
    keys: dict[str, dict[str, None]] = {}
    dims: dict[str, frozenset[int]] = {}
    where: tuple[Path, int] = (generated.file.path, method.lineno)
    unread = ""

    def run(oracle: Oracle) -> tuple[Evaluator, Value]:
        evaluator = Evaluator(program, oracle)
        assert module is not None
        function = evaluator.class_attribute(Class(module, node, class_name), METHOD)
        if isinstance(function, Call) and function.args:
            function = function.args[0]
        given = [Opaque("<self>")] if isinstance(function, Function) else []
        return evaluator, evaluator.call_function(function, given, {})

    try:
        for evaluator, outcome in explore(run):
            found = plan_keys(outcome.value)
            if outcome.raised or found is None:
                unread = outcome.raised or f"{outcome.value} is not a readable ParallelPlan"
                continue
            if evaluator.last_module is not None:
                where = evaluator.last_module.path, evaluator.last_line
            for name, patterns in found.items():
                keys.setdefault(name, {}).update(dict.fromkeys(patterns))
            for pattern, dim in _dims(outcome.value):
                dims[pattern] = dims.get(pattern, frozenset()) | {dim}
            call = outcome.value
            if isinstance(call, Call) and call.line and evaluator.last_module is not None:
                where = _place(evaluator, call) or where
    except (Exhausted, Raised) as error:
        unread = str(error)
    return ShardingPlan(
        generated, class_name, {k: tuple(v) for k, v in keys.items()}, *where, unread if not keys else "", dims
    )


def _place(evaluator: Evaluator, call: Call) -> tuple[Path, int] | None:
    return next(((e.module.path, e.line) for e in evaluator.effects if e.value is call), None)


def _dims(value: Value) -> Iterator[tuple[str, int]]:
    """Pattern -> the dimension of its Shard, of a ParallelPlan(...) value that can be read."""
    plan = value.argument(0, "extra_parallel_plan") if isinstance(value, Call) else None
    for inner in plan.values() if isinstance(plan, dict) else ():
        for pattern, placed in inner.items():
            dim = placed.argument(0, "dim") if isinstance(placed, Call) and placed.calls("Shard") else None
            if isinstance(dim, int):
                yield str(pattern), dim


def plan_keys(value: Value) -> dict[str, tuple[str, ...]] | None:
    """Plan name -> patterns, of a ParallelPlan(...) value; None for anything that cannot be read."""
    if not isinstance(value, Call) or not value.calls("ParallelPlan"):
        return None
    plan = value.argument(0, "extra_parallel_plan")
    if not isinstance(plan, dict) or not all(isinstance(inner, dict) for inner in plan.values()):
        return None
    if not all(isinstance(key, str) for inner in plan.values() for key in inner):
        return None
    return {str(name): tuple(inner) for name, inner in plan.items()}
