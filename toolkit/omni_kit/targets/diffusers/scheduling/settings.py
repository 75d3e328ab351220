"""Config of a scheduler: the settings of the authors' loop, and of the code that makes its levels."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import defaults, passed, signature
from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.repositories.names import Defined, resolve

TRAINED = "num_train_timesteps"
_TRAINED = 1000


@dataclass
class Settings:
    """Name -> default, in order."""

    values: dict[str, Any] = field(default_factory=lambda: {TRAINED: _TRAINED})

    def add(self, name: str, value: Any) -> bool:
        """Return whether there is now a setting of that name with that value."""
        if name == TRAINED:
            self.values[name] = value
        return self.values.setdefault(name, value) == value and type(self.values[name]) is type(value)

    def lines(self) -> Iterator[str]:
        """Yield the settings as parameters."""
        for name, value in self.values.items():
            kind = "float | None" if value is None else type(value).__name__
            yield f"{name}: {kind} = {value!r}"


def plain(node: ast.expr | None) -> tuple[bool, Any]:
    """Return whether an expression is a setting that a config can hold, and which."""
    value = literal(node)
    return isinstance(value, bool | int | float | str | None), value


def defaults_of(function: ast.FunctionDef) -> dict[str, Any]:
    """Return the arguments of a function with a default that a config can hold."""
    given = defaults(signature(function)).items()
    return {name: told[1] for name, value in given if (told := plain(value))[0]}


class Configured(ast.NodeTransformer):
    """Gives the literal arguments of the authors' own functions the names of settings."""

    def __init__(self, source: SourceFile, settings: Settings) -> None:
        self.source = source
        self.settings = settings

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Return a call of a function of theirs: what it is given, and what it takes by default."""
        self.generic_visit(node)
        meant = resolve(self.source, node.func.id) if isinstance(node.func, ast.Name) else None
        if not isinstance(meant, Defined) or not isinstance(meant.node, ast.FunctionDef):
            return node
        function = meant.node
        names = [one.arg for one in function.args.args]
        given = passed(node, names)
        said = {**defaults_of(function), **{name: one for name, one in map(_told, given.items()) if one is not ...}}
        own = {name for name, value in said.items() if (name not in given or plain(given[name])[0])
               and self.settings.add(name, value)}  # fmt: skip
        first = [one for name, one in zip(names, node.args, strict=False) if name not in own]
        inline = [name for name in names[: len(node.args)] if name not in own] == names[: len(first)]
        loose = (
            []
            if inline
            else [ast.keyword(name, one) for name, one in zip(names, node.args, strict=False) if name not in own]
        )
        rest = [one for one in node.keywords if one.arg not in own]
        return ast.Call(
            node.func, first if inline else [], [*loose, *rest, *map(_setting, sorted(own, key=names.index))]
        )


def _told(item: tuple[str, ast.expr]) -> tuple[str, Any]:
    fits, value = plain(item[1])
    return item[0], value if fits else ...


def _setting(name: str) -> ast.keyword:
    return ast.keyword(name, config_of(name))


def config_of(name: str) -> ast.expr:
    """Return the expression that reads a setting."""
    return ast.Attribute(ast.Attribute(ast.Name("self", ast.Load()), "config", ast.Load()), name, ast.Load())


class Named(ast.NodeTransformer):
    """Reads variables from elsewhere."""

    def __init__(self, places: Mapping[str, ast.expr]) -> None:
        self.places = places

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Return the place that the variable is read from now."""
        return self.places.get(node.id, node) if isinstance(node.ctx, ast.Load) else node
