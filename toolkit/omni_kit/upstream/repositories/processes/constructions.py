"""Constructors of the authors' samplers, called with what their configs and their code say."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import passed
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.processes.call_arguments import (
    DENOISER,
    GUIDED,
    STEPS,
    TRAINED,
    Told,
    arguments_told,
    has_meaning,
)
from omni_kit.upstream.repositories.processes.class_members import (
    bases,
    constructor_arguments,
    every_method,
    plain_arguments,
    set_up_by,
)
from omni_kit.upstream.repositories.processes.sampler_entries import makes
from omni_kit.upstream.repositories.processes.schedule_arguments import schedule_arguments
from omni_kit.upstream.repositories.processes.settings_objects import SettingsObject, settings_objects
from omni_kit.upstream.repositories.processes.written_arguments import (
    configured_arguments,
    written_arguments,
    written_objects,
)
from omni_kit.upstream.repositories.published import options_of
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_step.members import MADE, Given, methods_of

PREPARED = "prepared"
"""Variable of a call: what calls a method of an object and returns the object."""


@dataclass(frozen=True)
class Construction:
    """Ways to make an object of a class.

    Attributes:
        told: arguments of its constructor, in each way.
        imports: what they import: module and name.
        assumed: values that nothing says, as `name=value`.
        defined: the functions of the authors' that they call: module and name.
        differ: configs that make the object otherwise.
        guides: the arguments that guide, as configs have them.
        setup: the call of the method that must be called before it samples, with what that is passed; and
        `counted_setup`, where the number of steps of training is that of steps; empty without such a method.
    """

    told: tuple[Told, ...]
    imports: tuple[tuple[str, str], ...]
    assumed: tuple[str, ...]
    defined: tuple[tuple[str, str], ...] = ()
    differ: tuple[str, ...] = ()
    guides: Mapping[str, str] = field(default_factory=dict)
    setup: str = ""
    counted_setup: str = ""

    def prepared(self, made: str, told: Told) -> str:
        """Return the expression for an object that can sample.

        Args:
            made: that for the object, which is made with `told`.
        """
        setup = self.counted_setup if told.trained else self.setup
        return f"{PREPARED}({made}, {setup})" if setup else made


def construction(
    reference: Reference, source: SourceFile, cls: ast.ClassDef, sources: Sequence[SourceFile],
    models: Collection[str] = (), entries: Collection[str] = (), *, makes: bool = False,
) -> Construction:  # fmt: skip
    """Return the ways to make an object of one of the authors' classes.

    Args:
        models: the arguments that the authors pass the model.
        entries: the names of the methods that sample.
        makes: the constructor makes the model itself.
    """
    given, setup = constructor_arguments(source, cls), _Setup(reference, source, cls, entries)
    parts = dict(_parts(source, cls, given, sources))
    calls = [(file, call) for file, every in _calls(cls, sources) for call in every]
    wrote = written_arguments(reference, cls, calls, given, makes=makes)
    objects = written_objects(reference, calls, given)
    imports = tuple(meant for _, meant in parts.values())
    if wrote.said and not models:
        own = dict(objects.said) | {name: text for name, (text, _) in parts.items()}
        fixed = arguments_told(given, constructs=True, parts=own | dict(wrote.said))
        told = [replace(one, trained=0, cost=0) for one in fixed]
        whole = arguments_told(given, constructs=True, parts=own | dict(wrote.counted))
        told += [replace(one, trained=wrote.trained or TRAINED, cost=0) for one in whole if wrote.counted]
        named = tuple(dict.fromkeys((*imports, *wrote.imports, *objects.imports)))
        return Construction(tuple(told), named, (), (*wrote.defined, *objects.defined), wrote.differ,
                            setup=setup.text(whole=False), counted_setup=setup.text(whole=True))  # fmt: skip
    scheduled = schedule_arguments(reference, sources, given, STEPS)
    known = {**objects.said, **{name: text for name, (text, _) in parts.items()}, **scheduled.made}
    known |= dict.fromkeys(models, DENOISER)
    configured = configured_arguments(reference, cls, [one for one in given if not has_meaning(one[0].arg)])
    known |= configured.said
    settings = [*_settings(reference, source, cls, given, sources)]
    known |= {one.name: one.expression(whole=False) for one in settings}
    values = {**scheduled.values, **_passed(cls, given, sources)}
    made = [*arguments_told(given, constructs=True, parts=known, values=values)]
    counted = known | {**objects.counted} | {one.name: one.expression(whole=True) for one in settings}
    trained = next((one.trained for one in (*settings, *setup.settings) if one.trained), objects.trained)
    whole = arguments_told(given, constructs=True, parts=counted, values=values, whole=True)
    made += [replace(one, trained=one.trained or trained) for one in whole if one.trained or trained]
    if scheduled.made:
        made = [replace(one, trained=TRAINED) for one in made]
    assumed = tuple(one for one in scheduled.assumed if re.split("=| ", one)[0] not in values.keys() - scheduled.values)
    named = tuple(dict.fromkeys((*imports, *objects.imports, *configured.imports)))
    guides = configured_arguments(reference, cls, [one for one in given if GUIDED.search(one[0].arg)])
    return Construction(tuple(made), named, assumed, objects.defined, configured.differ, guides.said,
                        setup=setup.text(whole=False), counted_setup=setup.text(whole=True))  # fmt: skip


class _Setup:
    """The method of a class that must be called before its objects sample, if there is one.

    Attributes:
        settings: those of its arguments that a config has.
    """

    def __init__(self, reference: Reference, source: SourceFile, cls: ast.ClassDef, entries: Collection[str]) -> None:
        methods = every_method(source, cls)
        self._method = set_up_by(methods, entries, _inits(source, cls)) if entries else None
        self._given = plain_arguments(self._method)[1:] if self._method is not None else []
        others = [*methods.values()]
        takers = [self._method] if self._method is not None else []
        self.settings = [*settings_objects(reference.repository, self._given, others, reference.config_file, takers)]

    def text(self, *, whole: bool) -> str:
        """Return its name and its arguments as `prepared` takes them; empty without such a method.

        Args:
            whole: the number of steps of training is that of steps.
        """
        known = {one.name: one.expression(whole=whole) for one in self.settings}
        told = next(arguments_told(self._given, constructs=True, parts=known), None)
        if self._method is None or told is None:
            return ""
        return ", ".join(filter(None, (repr(self._method.name), told.text)))


def _settings(
    reference: Reference, source: SourceFile, cls: ast.ClassDef, given: Sequence[Given], sources: Sequence[SourceFile]
) -> Iterator[SettingsObject]:
    """Yield the settings that the constructors of a class read, and its methods of what these keep."""
    repository = reference.repository
    options = [(options_of(one), repository.show(one.path)) for one in sources if "add_argument" in one.text]
    methods = [*_inits(source, cls), *(one for name, one in every_method(source, cls).items() if name != MADE)]
    yield from settings_objects(repository, given, methods, reference.config_file, options=options)


def _parts(
    source: SourceFile, cls: ast.ClassDef, given: Sequence[Given], sources: Sequence[SourceFile]
) -> Iterator[tuple[str, tuple[str, tuple[str, str]]]]:
    """Yield the arguments of a constructor that are None by default and must not be: the expression and its import.

    An argument annotated with a class of the authors' gets the first object of such a class that is made of nothing,
    from the sampler's folder; one that guides, the authors' function of its name.
    """
    inits = _inits(source, cls)
    tests = [node.test for init in inits for node in ast.walk(init) if isinstance(node, ast.Assert)]
    wanted = {ast.unparse(test.left).removeprefix("self.") for test in tests if isinstance(test, ast.Compare)
              and isinstance(test.ops[0], ast.IsNot)}  # fmt: skip
    near = [file for file in sources if file.path.parent == source.path.parent]
    for one, default in given:
        if default is None or literal(default) is not None:
            continue
        kind = resolve(source, dotted(one.annotation) or "") if one.annotation is not None else None
        if one.arg in wanted and isinstance(kind, Defined):
            part = next(_made_of_nothing(kind.node, near), None)
            if part is not None:
                yield one.arg, (f"{part[1]}()", part)
        elif one.arg.endswith("_fn") and "guid" in one.arg:
            found = next(((file.module, node.name) for file in sources for node in file.tree.body
                          if isinstance(node, ast.FunctionDef) and node.name.endswith(one.arg)), None)  # fmt: skip
            if found is not None:
                yield one.arg, (found[1], found)


def _inits(source: SourceFile, cls: ast.ClassDef) -> list[ast.FunctionDef]:
    return [made for each in (cls, *bases(source, cls)) if (made := methods_of(each).get(MADE)) is not None]


def _passed(cls: ast.ClassDef, given: Sequence[Given], sources: Sequence[SourceFile]) -> dict[str, Any]:
    """Return the values that the authors pass a constructor where they first call it: literals, options, or defaults of
    the function that calls it.
    """
    order = [one.arg for one, _ in given]
    for source, calls in _calls(cls, sources):
        options = options_of(source)
        for call in calls:
            usual = {one.arg: literal(default) for function in ast.walk(source.tree)
                     if isinstance(function, ast.FunctionDef) and call in ast.walk(function)
                     for one, default in plain_arguments(function) if default is not None}  # fmt: skip
            values = {name: options.get(node.attr, UNKNOWN) if isinstance(node, ast.Attribute)
                      else usual.get(node.id, UNKNOWN) if isinstance(node, ast.Name) else literal(node)
                      for name, node in passed(call, order).items()}  # fmt: skip
            if known := {name: one for name, one in values.items() if isinstance(one, int | float | str | tuple)}:
                return known
    return {}


def _calls(cls: ast.ClassDef, sources: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, list[ast.Call]]]:
    """Yield the files in which the authors make an object of a class, with their calls of it."""
    for source in (one for one in sources if cls.name in one.text):
        if calls := [one for one in ast.walk(source.tree) if isinstance(one, ast.Call) and makes(source, one, cls)]:
            yield source, calls


def _made_of_nothing(kind: ast.stmt, near: Sequence[SourceFile]) -> Iterator[tuple[str, str]]:
    """Yield the classes, as module and name, that inherit from a class and need no argument."""
    for file in near:
        for name, node in file.classes.items():
            if kind in bases(file, node) and all(
                default is not None for _, default in constructor_arguments(file, node)
            ):
                yield file.module, name
