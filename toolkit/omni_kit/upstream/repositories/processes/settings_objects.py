"""Objects with settings that a sampler's constructor reads, as configs of the authors have them."""

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omni_kit.upstream.repositories.processes.call_arguments import COUNT, STEPS
from omni_kit.upstream.repositories.processes.schedule_arguments import IS_TRAINED
from omni_kit.upstream.repositories.published import sections
from omni_kit.upstream.repositories.repository import Repository
from omni_kit.upstream.repositories.sampler_step.members import MADE, Given, of_self

_NUMBER = re.compile(r"-?\d+(\.\d*)?e[-+]?\d+", re.IGNORECASE)  # a text in YAML 1.1, a number for those who wrote it
_STEPS = re.compile(r"steps?$", re.IGNORECASE)
_GETS, _ASKS = ("get", "pop"), ("hasattr", "getattr")
NAMESPACE = "namespace"
"""Variable of a call: what makes an object of attributes, which are its entries, too."""
_Path = tuple[str, ...]


@dataclass(frozen=True)
class SettingsObject:
    """The settings that a constructor reads of one argument.

    Attributes:
        name: the argument.
        values: for every name that is read; a mapping for one of which names are read.
    """

    name: str
    values: Mapping[str, Any]

    @property
    def trained(self) -> int:
        """Return the number of steps of training; 0 if no setting says it."""
        return next((value for path, value in _leaves(self.values) if IS_TRAINED.match(path[-1])
                     and type(value) is int), 0)  # fmt: skip

    def expression(self, *, whole: bool) -> str:
        """Return the expression for the object, with the number of steps of a run.

        Args:
            whole: the number of steps of training is that of steps.
        """
        return _written(self.values, self.trained if whole else 0)

    def expressions(self, *, whole: bool) -> dict[str, str]:
        """Return the expression for each setting, as `expression` has it for all."""
        return _each(self.values, self.trained if whole else 0)


def settings_objects(
    repository: Repository, given: Sequence[Given], methods: Collection[ast.FunctionDef], near: str = "",
    takers: Collection[ast.FunctionDef] = (), options: Sequence[tuple[Mapping[str, Any], str]] = (),
) -> Iterator[SettingsObject]:  # fmt: skip
    """Yield the settings of the arguments without a default of which methods read what a config has, or a command line.

    Several configs must agree, or one must be that of the model.

    Args:
        methods: constructors, and methods that may read what these keep.
        near: the file of the model's config.
        takers: the methods with these arguments, if they are not constructors.
        options: those of the authors' command lines, each with its file.
    """
    for name in (one.arg for one, default in given if default is None):
        read = _Read(name, methods, takers)
        needed = {path for path, must in read.paths.items() if must}
        words = {path[0] for path in needed}
        every = [*((section, repository.show(file)) for section, file in sections(repository, words)), *options]
        found = [(values, where) for section, where in every if needed
                 and (values := _taken(section, read.paths)) is not None]  # fmt: skip
        found = [one for one in found if one[1] == near] or found
        if found and all(values == found[0][0] for values, _ in found):
            yield SettingsObject(name, found[0][0])


@dataclass
class _Read:
    """The names that methods read of an argument, or of the attribute that keeps it.

    Attributes:
        paths: from the outermost name to the innermost; whether each must be there, as nothing asks for it first.
    """

    name: str
    methods: Collection[ast.FunctionDef]
    takers: Collection[ast.FunctionDef] = ()
    paths: dict[_Path, bool] = field(default_factory=dict)
    _kept: set[str] = field(default_factory=set)
    _parts: dict[str, _Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        makes = [one for one in self.methods if (one in self.takers if self.takers else one.name == MADE)]
        self._kept = {attribute for one in makes for node in ast.walk(one) if isinstance(node, ast.Assign)
                      and ast.unparse(node.value) == self.name
                      for target in node.targets if (attribute := of_self(target))}  # fmt: skip
        for node in (node for one in makes for node in ast.walk(one) if isinstance(node, ast.Assign)):
            if isinstance(target := node.targets[0], ast.Name) and (path := self._path(node.value, makes=True)[0]):
                self._parts[target.id] = path  # `noise = opt["noise"]`
        for one in self.methods:
            self._see(one, one in makes)
        longer = {path[:length] for path in self.paths for length in range(1, len(path))}
        self.paths = {path: must for path, must in self.paths.items() if path not in longer}

    def _see(self, node: ast.AST, makes: bool) -> None:
        path, must = self._path(node, makes)
        if path:
            self.paths[path] = self.paths.get(path, True) and must
            return
        for one in ast.iter_child_nodes(node):
            self._see(one, makes)

    def _path(self, node: ast.AST, makes: bool) -> tuple[_Path | None, bool]:
        """Return the names from the argument to what a node reads, and whether they must be there; None if it reads
        something else.
        """
        match node:
            case ast.Name(id=name) if name == self.name and makes:
                return (), True
            case ast.Name(id=name) if name in self._parts and makes:
                return self._parts[name], True
            case ast.Attribute() if of_self(node) in self._kept:
                return (), True
            case ast.Call(func=ast.Attribute(value=inner, attr=attr), args=[ast.Constant(value=str(key)), *_]) if (
                attr in _GETS
            ):
                return self._longer(inner, key, makes)[0], False
            case ast.Call(func=ast.Name(id=asks), args=[inner, ast.Constant(value=str(key)), *_]) if asks in _ASKS:
                return self._longer(inner, key, makes)[0], False
            case ast.Attribute(value=inner, attr=key) | ast.Subscript(value=inner, slice=ast.Constant(value=str(key))):
                return self._longer(inner, key, makes)
        return None, False

    def _longer(self, inner: ast.AST, key: str, makes: bool) -> tuple[_Path | None, bool]:
        path, must = self._path(inner, makes)
        return (None if path is None else (*path, key)), must


def _taken(section: Mapping[str, Any], paths: Mapping[_Path, bool]) -> dict[str, Any] | None:
    """Return what a mapping has for paths; None if one that must be there is not."""
    found: dict[str, Any] = {}
    for path, must in sorted(paths.items()):
        value: Any = section
        for key in path:
            value = value.get(key, ...) if isinstance(value, Mapping) else ...
        if value is ... and must:
            return None
        place = found
        for key in path[:-1] if value is not ... else ():
            place = place.setdefault(key, {})
        place |= {path[-1]: _number(value)} if value is not ... else {}
    return found


def _leaves(values: Mapping[str, Any], path: _Path = ()) -> Iterator[tuple[_Path, Any]]:
    for name, value in values.items():
        yield from _leaves(value, (*path, name)) if isinstance(value, Mapping) else [((*path, name), value)]


def _written(values: Mapping[str, Any], trained: int) -> str:
    """Return the expression for settings.

    Args:
        trained: the number of steps of training, where that is the number of steps; else 0.
    """
    if not all(str(name).isidentifier() for name in values):
        return repr(dict(values))
    return f"{NAMESPACE}({', '.join(f'{name}={text}' for name, text in _each(values, trained).items())})"


def _each(values: Mapping[str, Any], trained: int) -> dict[str, str]:
    return {name: _written(value, trained) if isinstance(value, Mapping) else STEPS
            if type(value) is int and _counts(name, value, trained) else repr(value)
            for name, value in values.items()}  # fmt: skip


def _counts(name: str, value: int, trained: int) -> bool:
    """Return whether a number is that of steps."""
    if trained:
        return bool(IS_TRAINED.match(name)) or (value == trained and bool(_STEPS.search(name)))
    return bool(COUNT.match(name)) and not IS_TRAINED.match(name)


def _number(value: Any) -> Any:
    return float(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value
