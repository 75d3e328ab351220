"""Arguments of the authors' functions that are settings: an object, or a mapping, with a value for each name."""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.repositories.processes.call_arguments import Told, arguments_told, written
from omni_kit.upstream.repositories.processes.class_members import plain_arguments
from omni_kit.upstream.repositories.processes.settings_objects import NAMESPACE
from omni_kit.upstream.repositories.published import documented, options_of
from omni_kit.upstream.repositories.repository import Repository
from omni_kit.upstream.repositories.sampler_step.members import Given

_MAPPING, _GETS = "dict", "get"
_METHODS = frozenset({"keys", "values", "items", "copy", "update", "pop"})


@dataclass(frozen=True)
class SettingsArgument:
    """An argument whose attributes, or whose values, a function reads.

    Attributes:
        name: the argument.
        kind: what makes it of keywords.
        values: what the authors' command line or configs have for the names that are read.
        unknown: the other names.
    """

    name: str
    kind: str
    values: Mapping[str, Any]
    unknown: Collection[str]

    def told(self, *, whole: bool) -> Told | None:
        """Return its values in a call; those that a run decides by expressions for them.

        Args:
            whole: the number of steps of training is that of steps.
        """
        given: list[Given] = [(ast.arg(name), ast.Constant(value)) for name, value in self.values.items()]
        given += [(ast.arg(name), None) for name in self.unknown]
        return next(arguments_told(given, settings=True, whole=whole), None)

    def expression(self, said: Mapping[str, str]) -> str:
        """Return the expression for it with the expressions for some of its values."""
        return f"{self.kind}({written({name: repr(value) for name, value in self.values.items()} | {**said})})"


def settings_arguments(
    repository: Repository, sources: Sequence[SourceFile], function: ast.FunctionDef
) -> Iterator[SettingsArgument]:
    """Yield the arguments without a default of which a function reads values by constant names and calls nothing.

    One that it also passes on has all values of the command line or the config.
    """
    for one, default in plain_arguments(function):
        attributes, keys, passed_on = _read(function, one.arg)
        if default is None and bool(attributes) != bool(keys):
            names = sorted(attributes or keys)
            values = _values(repository, sources, names, every=passed_on)
            unknown = [name for name in names if name not in values]
            yield SettingsArgument(one.arg, NAMESPACE if attributes else _MAPPING, values, unknown)


def _read(function: ast.FunctionDef, name: str) -> tuple[set[str], set[str], bool]:
    """Return the attributes and the keys that are read of a variable, and whether it is passed on; no names if it has
    other uses.
    """
    attributes, keys, uses = set[str](), set[str](), 0
    for node in ast.walk(function):
        held = node.value if isinstance(node, ast.Attribute | ast.Subscript) else None
        if not isinstance(held, ast.Name) or held.id != name:
            uses += isinstance(node, ast.Name) and node.id == name
            continue
        if isinstance(node, ast.Attribute):
            attributes.add(node.attr)
        elif isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            keys.add(str(node.slice.value))
        else:
            return set(), set(), False
        uses -= 1
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        func = call.func
        if isinstance(func, ast.Attribute) and isinstance(func.value, ast.Name) and func.value.id == name:
            if func.attr not in (*_METHODS, _GETS):
                return set(), set(), False
            attributes.discard(func.attr)
            keys |= {str(one.value) for one in call.args[:1] if isinstance(one, ast.Constant) and func.attr == _GETS}
    given = (one for node in ast.walk(function) if isinstance(node, ast.Call)
             for one in (*node.args, *(each.value for each in node.keywords)))  # fmt: skip
    passed = sum(isinstance(one, ast.Name) and one.id == name for one in given)
    return (set(), set(), False) if uses > passed else (attributes, keys, passed > 0)


def _values(
    repository: Repository, sources: Sequence[SourceFile], names: Sequence[str], *, every: bool
) -> dict[str, Any]:
    """Return the values that the nearest command line, or the config with most of the names, has for them.

    Args:
        every: those for other names, too.
    """
    found: list[Mapping[str, Any]] = [options_of(source) for source in sources if "add_argument" in source.text]
    found += [values for values, _ in documented(repository, names)]
    best = max(found, key=lambda one: len(one.keys() & {*names}), default=dict[str, Any]())
    plain = [name for name, one in best.items() if str(name).isidentifier() and not isinstance(one, Mapping)]
    return {name: best[name] for name in (plain if every else names) if name in best}
