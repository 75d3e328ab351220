"""The authors' functions and methods that seem to sample, by their names and what they do."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence

from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.processes.call_arguments import MODEL
from omni_kit.upstream.repositories.processes.class_members import (
    constructor_arguments,
    every_method,
    plain_arguments,
)
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_names import is_named
from omni_kit.upstream.repositories.sampler_step.loop_statements import goes_over_data
from omni_kit.upstream.repositories.sampler_step.members import methods_of, of_self
from omni_kit.upstream.repositories.sources import sources_of

_ENTRY = re.compile(r"_steps$|sampl|solve|generate|integrate|inference|denoise|^(__call__|forward)$|loop$")
_OTHER = re.compile(
    r"train|loss|interpol|inpaint|infill|valid|test|invert|inver[st]ion|encode|edit|nll|bpd|likelihood|prior|matrix"
)
_MEASURES = re.compile(r"Loss|Metric|Discriminator|Evaluat")
_SOLVERS = ("odeint",)
_REPORTS = re.compile(r"progress|verbose|return|disable|log|save|print|store|intermediate")
_CLEAN = frozenset({"denoised", "D_x", "d_cur"})
"""Names for what a model behind a preconditioning returns."""


def seeming_samplers(reference: Reference) -> Iterator[tuple[str, str]]:
    """Yield the functions that seem to sample with a model, each with its file:line: the nearest first.

    Methods with a loop that receive a model, or of classes that hold one; functions with a loop that receive one, or
    that make the class.
    """
    for source in sources_of(reference):
        for node in source.tree.body:
            if isinstance(node, ast.ClassDef) and node is not reference.cls.node:
                own, methods = methods_of(node), every_method(source, node)
                takes = any(MODEL.match(one.arg) for one, _ in constructor_arguments(source, node))
                held = takes or bool(held_by(methods))
                for one in own.values() if not _MEASURES.search(node.name) else ():
                    if (held or _receives(one)) and is_entry(one) and loops(one, methods):
                        yield f"{node.name}.{one.name}", source.where(one)
            elif isinstance(node, ast.FunctionDef) and loops(node, {}) and not _OTHER.search(node.name):
                found = (is_entry(node) and _receives(node)) or _asks_own(source, node, reference.cls.node)
                yield from [(node.name, source.where(node))] if found else []


def functions_named(reference: Reference, name: str) -> Iterator[tuple[str, str, bool]]:
    """Yield the authors' functions and methods that a user may mean by a name: their full names, each with its
    file:line and whether it, or a method that it calls, has a loop over steps.
    """
    for source in sources_of(reference):
        for cls in (None, *(node for node in source.tree.body if isinstance(node, ast.ClassDef))):
            methods = every_method(source, cls) if cls is not None else {}
            own = methods_of(cls) if cls is not None else source.functions
            for one in own.values():
                full = ".".join(filter(None, (source.module, cls.name if cls is not None else "", one.name)))
                if is_named(full, name):
                    yield full, source.where(one), loops(one, methods)


def _receives(function: ast.FunctionDef) -> bool:
    """Return whether a function, or one in it, has an argument with the name of a model."""
    return any(isinstance(one, ast.arg) and MODEL.match(one.arg) for one in ast.walk(function))


def _asks_own(source: SourceFile, function: ast.FunctionDef, cls: ast.ClassDef) -> bool:
    """Return whether a function makes an object of a class, and calls a variable with several arguments in a loop."""
    made = any(isinstance(one, ast.Call) and makes(source, one, cls) for one in ast.walk(function))
    stored = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    loops = (one for one in ast.walk(function) if made and isinstance(one, ast.For | ast.While))
    calls = (one for loop in loops for one in ast.walk(loop) if isinstance(one, ast.Call))
    return any(isinstance(one.func, ast.Name) and one.func.id in stored and len(one.args) + len(one.keywords) > 1
               for one in calls)  # fmt: skip


def is_entry(function: ast.FunctionDef) -> bool:
    """Return whether a function's name says that it samples, and it goes all steps."""
    name = function.name
    if any(isinstance(node, ast.Break) for node in ast.walk(function)):  # how far it goes depends on what it finds
        return False
    return bool(_ENTRY.search(name)) and not _OTHER.search(name)


def cleans(function: ast.FunctionDef) -> bool:
    """Return whether a function asks a model behind a preconditioning, by the names of its variables."""
    return any(isinstance(one, ast.Name) and one.id in _CLEAN for one in ast.walk(function))


def is_other(function: ast.FunctionDef) -> bool:
    """Return whether a function's name says that it does something else than to sample."""
    return bool(_OTHER.search(function.name))


def loops(function: ast.FunctionDef, methods: Mapping[str, ast.FunctionDef], deep: int = 3) -> bool:
    """Return whether a function goes along steps: by a loop or by a solver, itself or in methods that it calls."""
    for node in ast.walk(function):
        if isinstance(node, ast.While) or (isinstance(node, ast.For) and not goes_over_data(node)):
            return True
        name = (dotted(node.func) or "").rpartition(".")[2] if isinstance(node, ast.Call) else ""
        inner = methods.get(of_self(node)) if isinstance(node, ast.Attribute) else None
        if name in _SOLVERS or (inner is not None and inner is not function and deep
                                and loops(inner, methods, deep - 1)):  # fmt: skip
            return True
    return False


def loops_by_names(source: SourceFile, function: ast.FunctionDef) -> bool:
    """Return whether a function goes along steps itself, or in functions of its file that it names."""
    named = {one.id for one in ast.walk(function) if isinstance(one, ast.Name)}
    others = (source.functions[name] for name in sorted(named & source.functions.keys()))
    return loops(function, {}) or any(loops(one, {}) and is_entry(one) for one in others)


def flags_passed(sources: Sequence[SourceFile], function: ast.FunctionDef) -> dict[str, str]:
    """Return the switches that all of the authors' calls of a function turn from their default: name to text."""
    usual = {one.arg: value for one, default in plain_arguments(function)
             if isinstance(value := literal(default), bool) and not _REPORTS.search(one.arg)}  # fmt: skip
    said: dict[str, set[bool]] = {name: set() for name in usual}
    for source in (one for one in sources if usual and f"{function.name}(" in one.text):
        for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
            if (dotted(call.func) or "").rpartition(".")[2] == function.name:
                given = {one.arg: literal(one.value) for one in call.keywords}
                passes = isinstance(call.func, ast.Attribute) and of_self(call.func) == function.name
                for name in usual if not passes else ():  # methods pass on what they are given
                    said[name].add(given.get(name, usual[name]) is True)
    return {name: repr(not value) for name, value in usual.items() if said[name] == {not value}}


def numbers_passed(
    sources: Sequence[SourceFile], function: ast.FunctionDef, names: Collection[str]
) -> dict[str, float]:
    """Return the numbers that the authors first pass a function for some arguments, by name."""
    found: dict[str, float] = {}
    for source in (one for one in sources if names and f"{function.name}(" in one.text):
        for call in (node for node in ast.walk(source.tree) if isinstance(node, ast.Call)):
            if (dotted(call.func) or "").rpartition(".")[2] == function.name:
                for one in call.keywords:
                    value = literal(one.value)
                    if one.arg and one.arg in names and isinstance(value, int | float) and not isinstance(value, bool):
                        found.setdefault(one.arg, value)
    return found


def makes(source: SourceFile, call: ast.Call, cls: ast.ClassDef) -> bool:
    """Return whether a call makes an object of a class."""
    name = dotted(call.func) or ""
    if name.rpartition(".")[2] != cls.name:
        return False
    meant = resolve(source, name)
    return isinstance(meant, Defined) and meant.node is cls


def held_by(methods: Mapping[str, ast.FunctionDef]) -> list[str]:
    """Return the attributes that methods call as a model."""
    calls = (node for one in methods.values() for node in ast.walk(one) if isinstance(node, ast.Call))
    named = (of_self(one.func) for one in calls if len(one.args) + len(one.keywords) > 1)
    return sorted({name for name in named if name not in methods and MODEL.match(name)})
