"""Registrations of a model directory, and the return values of the registered functions."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from omni_checkers.engine.facts import fact
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.symbolic import (
    Call,
    Class,
    Effect,
    Evaluator,
    Exhausted,
    Function,
    Module,
    Opaque,
    Oracle,
    Outcome,
    Program,
    Raised,
    Scope,
    Stored,
    Symbol,
    Value,
    explore,
)
from omni_kit.pysource.eval import Frame

MODELING = "MODELING_REGISTRY"
CONFIG = "MODEL_CONFIG_REGISTRY"
T = TypeVar("T")


@dataclass(frozen=True)
class Registration:
    """One entry that importing the directory makes in a registry of VeOmni.

    Attributes:
        registry: MODELING_REGISTRY, MODEL_CONFIG_REGISTRY or MODEL_PROCESSOR_REGISTRY.
        key: None if it could not be read.
        function: the register function; a value of another kind where it is not one of the directory's functions.
    """

    registry: str
    key: str | None
    function: Value
    path: Path
    line: int

    @property
    def node(self) -> ast.AST | None:
        """The definition of the register function; None if it is not a function of the directory."""
        return self.function.node if isinstance(self.function, Function) else None


@dataclass(frozen=True)
class Returned:
    """One path through a register function: the class that it returns, and what is attached to it by then."""

    registration: Registration
    outcome: Outcome
    evaluator: Evaluator

    @property
    def value(self) -> Value:
        """The class, or whatever else this path returns."""
        return self.outcome.value

    @property
    def name(self) -> str:
        """The name of the class, without its module."""
        return str(self.value).rpartition(".")[2]

    @property
    def place(self) -> tuple[Path, int]:
        """File and line of the returned value, else of the registration."""
        module = self.outcome.module
        return (module.path, self.outcome.line) if module else (self.registration.path, self.registration.line)

    def attached(self, attribute: str) -> Value | None:
        """Return the class's attribute of this name, inherited or set by the register function; None without any."""
        found = self.evaluator.attached(self.value, attribute)
        if found.__class__ is not Opaque:
            return found
        if isinstance(self.value, Class):
            inherited = self.evaluator.class_attribute(self.value, attribute)
            return None if isinstance(inherited, Opaque) else inherited
        return None


@fact
def registrations(program: Program) -> list[Registration]:
    """Return everything that importing the directory registers, on any path."""
    found: dict[tuple[str, str | None, int], Registration] = {}

    def run(oracle: Oracle) -> None:
        for item in _registered(_imported(program, oracle).effects):
            found.setdefault((item.registry, item.key, item.line), item)

    for _ in _explored(run):
        pass
    return list(found.values())


@fact
def returned(program: Program, registrations: list[Registration]) -> list[Returned]:
    """Return every path through every register function of a modeling class that ends in a return."""
    found = []
    for registration in registrations:
        if registration.registry == MODELING and isinstance(registration.function, Function):
            paths = dispatch(program, registration, Opaque("<architecture>"))
            found += [path for path in paths if path.outcome.raised is None]
    if not found:
        raise NotApplicable("no register function returns a class")
    return found


def dispatch(program: Program, registration: Registration, architecture: Value) -> Iterator[Returned]:
    """Yield every path through a register function that is called with this architecture, those that raise included."""

    def run(oracle: Oracle) -> Returned:
        evaluator = _imported(program, oracle)
        same = [item for item in _registered(evaluator.effects) if item.node is registration.node]
        function = same[0].function if same else registration.function
        return Returned(registration, evaluator.call_function(function, [architecture], {}), evaluator)

    yield from _explored(run)


def imported_modules(program: Program) -> dict[str, int]:
    """Return the modules of the package that importing it imports, on any path, with the line of the import."""
    found: dict[str, int] = {}
    for evaluator in _explored(lambda oracle: _imported(program, oracle)):
        found |= evaluator.imports
    return found


def _explored(run: Callable[[Oracle], T]) -> Iterator[T]:
    try:
        yield from explore(run)
    except (Exhausted, RecursionError) as error:
        raise NotApplicable(f"the register functions cannot be followed: {error}") from error


class _Importing(Evaluator):
    """Executes the packages below the directory, too, as soon as a module imports them or something inside them."""

    def module_named(self, module_name: str, name: str | None, frame: Frame) -> Value:
        if self.importing:
            self._run_packages(module_name if name is None else f"{module_name}.{name}")
        return super().module_named(module_name, name, frame)

    def run_module(self, module: Module) -> Scope:
        if self.importing:
            self._run_packages(module.name.rpartition(".")[0])
        return super().run_module(module)

    def _run_packages(self, name: str) -> None:
        """Execute a package, and those around it, the outermost first."""
        parts = name.split(".")
        for length in range(1, len(parts) + 1):
            inner = self.program.module(".".join(parts[:length]))
            if inner is not None and inner.is_package and inner.path.is_file():
                super().run_module(inner)


def _imported(program: Program, oracle: Oracle) -> Evaluator:
    evaluator = _Importing(program, oracle)
    module = program.module(program.name)
    assert module is not None
    try:
        evaluator.run_module(module)
    except Raised:
        return evaluator
    return evaluator


def _registered(effects: list[Effect]) -> Iterator[Registration]:
    for effect in effects:
        found = _entry(effect.value)
        if found is not None:
            registry, key, function = found
            line = getattr(getattr(function, "node", None), "lineno", effect.line)
            text = key if isinstance(key, str) else None
            yield Registration(registry, text, function, effect.module.path, effect.line or line)


def _entry(value: Value) -> tuple[str, Value, Value] | None:
    """(registry, key, function) of `R.register(key)(f)`, `R.register(key, f)` or `R[key] = f`."""
    if isinstance(value, Stored):
        registry = _registry(value.container)
        return (registry, value.key, value.value) if registry else None
    if not isinstance(value, Call):
        return None
    if isinstance(value.function, Call):
        inner = value.function
        registry = _register_call(inner)
        return (registry, inner.argument(0, "key"), value.args[0]) if registry and value.args else None
    registry = _register_call(value)
    function = value.argument(1, "cls_or_func")
    return (registry, value.argument(0, "key"), function) if registry and function is not None else None


def _register_call(call: Call) -> str | None:
    if isinstance(call.function, Symbol) and call.function.name.endswith(".register"):
        return _registry(Symbol(call.function.name.removesuffix(".register")))
    return None


def _registry(value: Value) -> str | None:
    name = str(value).rpartition(".")[2] if isinstance(value, Symbol) else ""
    return name if name.endswith("_REGISTRY") else None
