"""Arguments with which the authors make an object of a class: the expressions of their code, or of their configs."""

import ast
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import passed, positional, signature
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.processes.call_arguments import COUNT, MODEL, STEPS
from omni_kit.upstream.repositories.processes.schedule_arguments import IS_TRAINED
from omni_kit.upstream.repositories.processes.settings_objects import SettingsObject
from omni_kit.upstream.repositories.published import CLASSES, made_in_configs, options_of, sections
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_step.members import Given, arguments_of, constructor
from omni_kit.upstream.repositories.sources import sources_of

_DEEPEST = 4
_TRAINS, _SAMPLES = "train", ("test", "val", "valid", "eval", "sample", "sampling", "infer", "inference")
"""Names of phases, for which configs have settings of their own."""
_Assigned = Mapping[str, ast.expr]


@dataclass(frozen=True)
class WrittenArguments:
    """Arguments of a constructor.

    Attributes:
        said: their expressions, by name.
        counted: the same with the number of steps as that of steps of training; empty if no expression has one.
        trained: how many steps of training they say there are; 0 where nothing says it.
        defined: the functions of the authors' that these call: module and name.
        imports: the classes of the authors' that they name.
        differ: configs that make the object otherwise.
    """

    said: Mapping[str, str] = field(default_factory=dict)
    counted: Mapping[str, str] = field(default_factory=dict)
    trained: int = 0
    defined: tuple[tuple[str, str], ...] = ()
    imports: tuple[tuple[str, str], ...] = ()
    differ: tuple[str, ...] = ()


def written_arguments(
    reference: Reference, cls: ast.ClassDef, calls: Sequence[tuple[SourceFile, ast.Call]], given: Sequence[Given],
    *, makes: bool = False,
) -> WrittenArguments:  # fmt: skip
    """Return what the authors pass a constructor, if they pass what a function of theirs makes, else what configs have;
    nothing for a constructor that takes a model or a number of steps.

    Args:
        calls: of the class, the nearest first.
        makes: the constructor makes the model, of settings that it takes.
    """
    order = [one.arg for one, _ in given]
    if any((MODEL.match(name) and not makes) or (COUNT.match(name) and not IS_TRAINED.match(name)) for name in order):
        return WrittenArguments()
    for source, call in calls:
        assigned = _assigned_around(source, call)
        plain, counted = (_Expression(source, assigned, reference, whole) for whole in (False, True))
        said, whole = ({name: text for name, node in passed(call, order).items() if (text := one.text(node))}
                       for one in (plain, counted))  # fmt: skip
        if plain.defined and {*_needed(given)} <= said.keys():
            return WrittenArguments(
                said,
                whole if whole != said else {},
                next(iter(counted.trained), 0),
                (*plain.defined,),
                (*plain.imports,),
            )
    found = configured_arguments(reference, cls, given)
    return found if found.said else _configured_by_names(reference, {*order}, {*_needed(given)})


def written_objects(
    reference: Reference, calls: Sequence[tuple[SourceFile, ast.Call]], given: Sequence[Given]
) -> WrittenArguments:
    """Return the arguments for which the authors first pass an object of a class of theirs, or a member of one:
    `Settings(steps=1000)`, `Kind.plain`.
    """
    order = [one.arg for one, _ in given]
    for source, call in calls[:1]:
        assigned = _assigned_around(source, call)
        plain, counted = (_Expression(source, assigned, reference, whole) for whole in (False, True))
        given_by = {name: node for name, node in passed(call, order).items()
                    if not MODEL.match(name) and not COUNT.match(name)}  # fmt: skip
        said, whole = ({name: text for name, node in given_by.items() if (text := one.of_object(node))}
                       for one in (plain, counted))  # fmt: skip
        return counted.written(said, whole)
    return WrittenArguments()


def _needed(given: Sequence[Given]) -> list[str]:
    return [one.arg for one, default in given if default is None]


def configured_arguments(reference: Reference, cls: ast.ClassDef, given: Sequence[Given]) -> WrittenArguments:
    """Return the arguments that configs have for the class; those of the first that names the model, too."""
    taken, whole = {one.arg for one, _ in given}, {*_needed(given)}
    found: list[tuple[dict[str, str], str]] = []
    imports: dict[tuple[str, str], None] = {}
    for made in made_in_configs(reference.repository, cls.name):
        own = {name: value for name, value in made.given.items() if name in taken}
        if made.cls.rpartition(".")[2] == cls.name and own and whole <= own.keys():
            said = {name: _configured(value, reference, imports) for name, value in own.items()}
            found += [(said, made.where)] if all(said.values()) else []
    if not found:
        return WrittenArguments()
    near = configs_of(reference)
    found = [one for one in found if one[1] in near] or found
    first = found[0][0]
    differ = dict.fromkeys(where for said, where in found if said != first)
    named = tuple(one for one in imports if any(one[1] in text for text in first.values()))
    return WrittenArguments(dict(first), imports=named, differ=tuple(differ))


def configs_of(reference: Reference) -> frozenset[str]:
    """Return the configs that make the model: by its name, or by its path, which another class of its name lacks."""
    own = f".{reference.cls.source.module}.{reference.class_name}"
    made = [*made_in_configs(reference.repository, reference.class_name)]
    return frozenset(one.where for one in made if own.endswith(f".{one.cls}") or f".{one.cls}".endswith(own))


def _configured(value: Any, reference: Reference, imports: dict[tuple[str, str], None]) -> str:
    """Return the expression for a value of a config; empty for one that refers to another, or names what is not theirs.

    What names a class of theirs is an object of it, and what names a function is that function.
    """
    named = next((key for key in CLASSES if isinstance(value, Mapping) and key in value), "")
    if named:
        inside = CLASSES[named]
        arguments = {**((value.get(inside) or {}) if inside else value)}
        arguments.pop(named, None)
        said = {name: _configured(one, reference, imports) for name, one in arguments.items()}
        found = _named(str(value[named]), reference)
        if found is None or not all(said.values()):
            return ""
        imports[found[0].module, found[1]] = None
        return f"{found[1]}({', '.join(f'{name}={text}' for name, text in said.items())})"
    if isinstance(value, str) and (found := _named(value, reference)) is not None:
        imports[found[0].module, found[1]] = None
        return f"{found[1]}()" if found[1] in found[0].classes else found[1]
    return "" if _refers(value) else repr(value)


def _named(path: str, reference: Reference) -> tuple[SourceFile, str] | None:
    """Return the file and the name of a class or function of theirs, of a dotted path; None for any other text."""
    module, _, name = path.rpartition(".")
    for source in sources_of(reference) if module and all(map(str.isidentifier, path.split("."))) else ():
        same = f".{module}".endswith(f".{source.module}") or f".{source.module}".endswith(f".{module}")
        if same and any(
            isinstance(one, ast.ClassDef | ast.FunctionDef) and one.name == name for one in source.tree.body
        ):
            return source, name
    return None


def _configured_by_names(reference: Reference, taken: Set[str], needed: Set[str]) -> WrittenArguments:
    """Return the arguments that the config of the model, or else all configs alike, have in a section with the names of
    these, at least two of which are needed.
    """
    every = sections(reference.repository, needed) if len(needed) > 1 else ()
    found = [({name: _of_sampling(value) for name, value in section.items()}, reference.repository.show(file))
             for section, file in every if section.keys() <= taken and not _refers(section)]  # fmt: skip
    found = [one for one in found if one[1] == reference.config_file] or found
    if not found or any(values != found[0][0] for values, _ in found):
        return WrittenArguments()
    settings = SettingsObject("", found[0][0])
    said, counted = (settings.expressions(whole=whole) for whole in (False, True))
    return WrittenArguments(said, counted if settings.trained else {}, settings.trained)


def _of_sampling(value: Any) -> Any:
    """Return settings, where those for training and for sampling stand apart, with those for sampling in both."""
    if not isinstance(value, Mapping):
        return value
    names = [name for name in value if str(name) in _SAMPLES and _TRAINS in value]
    if len(names) == 1 and isinstance(value[names[0]], Mapping):
        return {**value, _TRAINS: value[names[0]]}
    return {name: _of_sampling(one) for name, one in value.items()}


def _refers(value: Any) -> bool:
    """Return whether a value of a config refers to another value, or has an object in it."""
    if isinstance(value, Mapping):
        return bool(value.keys() & CLASSES.keys()) or any(map(_refers, value.values()))
    return any(map(_refers, value)) if isinstance(value, list) else "${" in str(value)


@dataclass(frozen=True)
class _Expression:
    """Expressions of a file, with what its variables and its settings are.

    Attributes:
        counted: a number of steps of training is that of steps.
        defined: the functions that they call.
        imports: the classes that they name.
        trained: the numbers of steps of training that they have.
    """

    source: SourceFile
    assigned: _Assigned
    reference: Reference
    counted: bool = False
    defined: dict[tuple[str, str], None] = field(default_factory=dict)
    imports: dict[tuple[str, str], None] = field(default_factory=dict)
    trained: list[int] = field(default_factory=list)

    def of_object(self, node: ast.expr) -> str:
        """Return an object of a class of theirs, or a member of one, as it reads elsewhere; empty for other nodes and
        for modules.
        """
        if isinstance(node, ast.Name) and node.id in self.assigned:
            node = self.assigned[node.id]
        named = node.func if isinstance(node, ast.Call) else node.value if isinstance(node, ast.Attribute) else None
        meant = resolve(self.source, dotted(named) or "") if named is not None else None
        cls = meant.node if isinstance(meant, Defined) else None
        modules = [one for one in cls.bases if "Module" in ast.unparse(one)] if isinstance(cls, ast.ClassDef) else [cls]
        return self.text(node) if not modules else ""

    def written(self, said: Mapping[str, str], whole: Mapping[str, str]) -> WrittenArguments:
        """Return arguments with all that their expressions name."""
        counted = whole if whole != said else {}
        return WrittenArguments(
            said, counted, next(iter(self.trained), 0), tuple(self.defined), tuple(self.imports)
        )  # fmt: skip

    def text(self, node: ast.expr, deep: int = _DEEPEST) -> str:
        """Return it as it reads elsewhere; empty if that is not known."""
        if (value := literal(node)) is not UNKNOWN:
            return repr(value)
        if not deep:
            return ""
        if isinstance(node, ast.Name) and node.id in self.assigned:
            return self.text(self.assigned[node.id], deep - 1)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        meant = resolve(self.source, dotted(node.func) or "") if isinstance(node, ast.Call) else None
        if not isinstance(node, ast.Call) or not isinstance(meant, Defined):
            return ""
        names = _names_of(meant)
        said = {name: self.text(one, deep - 1) for name, one in passed(node, names).items()}
        if len(said) < len(node.args) + len(node.keywords) or not all(said.values()):
            return ""
        for name in said if self.counted else ():
            if IS_TRAINED.match(name):
                self.trained.extend([int(said[name])] if said[name].isdigit() else [])
                said[name] = STEPS
        made = self.defined if isinstance(meant.node, ast.FunctionDef) else self.imports
        made[meant.source.module, meant.name] = None
        return f"{meant.name}({', '.join(f'{name}={text}' for name, text in said.items())})"

    def _attribute(self, node: ast.Attribute) -> str:
        """Return a member of a class, or the value of a setting."""
        meant = resolve(self.source, dotted(node.value) or "")
        if isinstance(meant, Defined) and isinstance(meant.node, ast.ClassDef):
            self.imports[meant.source.module, meant.name] = None
            return f"{meant.name}.{node.attr}"
        found = _settings(self.reference).get(node.attr, []) if isinstance(node.value, ast.Name) else []
        return repr(found[0]) if len(found) == 1 else ""


def _names_of(meant: Defined) -> list[str]:
    """Return the arguments of a function, or of a constructor, in their order; the fields of a dataclass; nothing for
    a constructor that takes any.
    """
    if isinstance(meant.node, ast.ClassDef):
        made = constructor(meant.node)
        takes_any = made.args.vararg or made.args.kwarg
        return [] if takes_any else [one.arg for one, _ in arguments_of(made)]
    return positional(signature(meant.node)) if isinstance(meant.node, ast.FunctionDef) else []


def _assigned_around(source: SourceFile, call: ast.Call) -> _Assigned:
    """Return the values of variables that are assigned once in the function of a call, or at the top of the file."""
    around = [one for one in ast.walk(source.tree) if isinstance(one, ast.FunctionDef)
              and one.lineno <= call.lineno <= (one.end_lineno or 0)]  # fmt: skip
    found: dict[str, list[ast.expr]] = {}
    for node in ast.walk(around[-1] if around else source.tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found.setdefault(node.targets[0].id, []).append(node.value)
    return {name: values[0] for name, values in found.items() if len(values) == 1}


@cache
def _settings(reference: Reference) -> Mapping[str, list[Any]]:
    """Return the values that code sets as attributes of an object of settings (`cfg.steps = 1000`), or that a command
    line has by default; by name.
    """
    found: dict[str, list[Any]] = {}
    for name, value in _set(reference):
        kept = found.setdefault(name, [])
        if value not in kept:
            kept.append(value)
    return found


def _set(reference: Reference) -> Iterator[tuple[str, Any]]:
    for source in sources_of(reference):
        for node in source.tree.body:
            target = node.targets[0] if isinstance(node, ast.Assign) else None
            if isinstance(node, ast.Assign) and isinstance(target, ast.Attribute):
                value = literal(node.value)
                yield from [(target.attr, value)] if value is not UNKNOWN else []
        if "add_argument" in source.text:
            yield from options_of(source).items()
