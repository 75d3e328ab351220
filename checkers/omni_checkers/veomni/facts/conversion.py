"""Checkpoint converters: the classes that a directory defines, and the factories that are attached to models."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from omni_checkers.engine.facts import fact
from omni_checkers.engine.files import File
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.symbolic import Call, Class, Function, Partial, Program, Symbol, Value
from omni_checkers.symbolic.tensors import Tiny
from omni_checkers.veomni.facts.experts import Experts, StackedExperts
from omni_checkers.veomni.facts.registry import Returned
from omni_checkers.veomni.facts.trial import Case, Trial, cases, run_trial

FACTORY = "_create_checkpoint_tensor_converter"
_PROTOCOL = {"can_handle", "convert"}
_STATIC = Symbol("builtins.staticmethod")


@dataclass(frozen=True)
class ConverterClass:
    """A class of the directory that follows VeOmni's converter protocol, its bases in the directory included."""

    file: File
    node: ast.ClassDef
    methods: dict[str, ast.FunctionDef]


@dataclass(frozen=True)
class Factory:
    """The converter factory of one returned class.

    Attributes:
        callee: what is called with the model; None if it is not a function of the directory.
        static: it is wrapped so that reading it from an instance does not bind the instance.
    """

    returned: Returned
    value: Value
    callee: Value
    static: bool


@fact
def converter_classes(program: Program, files: dict[Path, File]) -> list[ConverterClass]:
    """Return every converter class outside the generated files."""
    found = []
    for path, file in files.items():
        if "generated" in path.relative_to(program.root).parts[:-1] or file.tree is None:
            continue
        local = {node.name: node for node in file.nodes(ast.ClassDef)}
        for node in local.values():
            methods = dict(_methods(node, local))
            if methods.keys() >= _PROTOCOL:
                found.append(ConverterClass(file, node, methods))
    if not found:
        raise NotApplicable("the directory defines no checkpoint converter")
    return found


def _methods(
    node: ast.ClassDef, local: dict[str, ast.ClassDef], below: tuple[ast.ClassDef, ...] = ()
) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Yield the methods of a class after those of its bases in the file; `below` are the classes that lead here."""
    for base in node.bases:
        if isinstance(base, ast.Name) and base.id in local and local[base.id] not in (*below, node):
            yield from _methods(local[base.id], local, (*below, node))
    for item in node.body:
        if isinstance(item, ast.FunctionDef):
            yield item.name, item


@fact
def factories(returned: list[Returned]) -> list[Factory]:
    """Return the factory of every returned class that carries one."""
    found = []
    for item in returned:
        value = item.attached(FACTORY)
        if value is not None:
            callee, static = _unwrapped(value)
            found.append(Factory(item, value, callee, static))
    return found


def _unwrapped(value: Value) -> tuple[Value, bool]:
    """Return the callee below staticmethod and partial, and whether reading it from an instance leaves it as it is."""
    if isinstance(value, Call) and value.function == _STATIC and value.args:
        return value.args[0], True
    if isinstance(value, Function) and any(
        isinstance(item, ast.Name) and item.id == "staticmethod" for item in getattr(value.node, "decorator_list", ())
    ):
        return value, True
    return value, isinstance(value, (Partial, Class))


@dataclass(frozen=True)
class Rehearsal:
    """An attached factory with everything that a trial of its converter needs."""

    factory: Factory
    experts: StackedExperts
    cases: list[Case]

    @property
    def name(self) -> str:
        """The name of the class that carries the factory."""
        return self.factory.returned.name

    def run(self, program: Program, disk: Sequence[tuple[str, Tiny]]) -> Trial:
        """Feed the converter tensors; see `run_trial`."""
        assert self.experts.config is not None
        return run_trial(program, self.factory.callee, self.experts.config, disk)


@fact
def rehearsals(factories: list[Factory], experts: Experts) -> list[Rehearsal]:
    """Return one for every returned class whose recipe says what its converter has to make."""
    found: dict[str, Rehearsal] = {}
    for factory in factories:
        try:
            stacked = experts.of(factory.returned.value)
        except NotApplicable:
            continue
        made = cases(stacked.names, stacked.transforms)
        if made and stacked.config is not None:
            found.setdefault(factory.returned.name, Rehearsal(factory, stacked, made))
    if not found:
        raise NotApplicable("no attached converter has a recipe that defines its output")
    return list(found.values())
