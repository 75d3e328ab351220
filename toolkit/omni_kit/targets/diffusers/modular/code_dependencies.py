"""Collects, file by file, what pieces of a pipeline's code need around them: functions, statements and imports."""

import ast
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

import libcst as cst

from omni_kit.pysource.source import Imported, SourceFile, absolute_module
from omni_kit.targets.diffusers.modular.pipeline_class import Method, definitions
from omni_kit.targets.diffusers.modular.rewriting import Rewrite, rewritten

_FUTURE = Imported("__future__", "annotations")
_STANDARD = "diffusers.pipelines."
_RELATIVE = re.compile(r"^(\s*)from (\.+)([\w.]*) import", re.MULTILINE)


@dataclass(frozen=True)
class Piece:
    """Code that is written into a file.

    Attributes:
        text: as it is written there.
        source: the file that it was taken from, whose names it uses.
    """

    text: str
    source: SourceFile

    @cached_property
    def names(self) -> list[str]:
        """The names in it, each once."""
        nodes = (node.id for node in ast.walk(ast.parse(self.text)) if isinstance(node, ast.Name))
        return list(dict.fromkeys(nodes))


@dataclass
class Around:
    """Code above the blocks of one file.

    Attributes:
        imports: lines.
        statements: what upstream's file does at its top level, and is done here, too; each with its line there.
        functions: what is defined here, by name.
        unevaluated: annotations are not evaluated in a file that some of it is from.
    """

    imports: list[str] = field(default_factory=list)
    statements: dict[str, int] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    unevaluated: bool = False


class Collector:
    """Defines each function once: in the first file that needs it."""

    def __init__(
        self, method: Callable[[str], Method | None], package: str, own: Mapping[str, str] = MappingProxyType({}),
        homes: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        """Args:
            method: finds a method of the pipeline that becomes a function.
            package: what stands for "diffusers." in imports.
            own: modules that lie next to the blocks -> how they are imported from there.
            homes: names that the pipeline's file does not know -> the module that has them.
        """  # fmt: skip
        self._own = own
        self._named = homes
        self._method = method
        self._package = package
        self._homes: dict[str, str] = {}

    def around(self, file: str, pieces: Sequence[Piece]) -> Around:
        """Return the code that pieces of one file need above them."""
        found, todo, seen = Around(), list(pieces), set[tuple[str, str]]()
        while todo:
            piece = todo.pop(0)
            found.unevaluated |= _FUTURE in piece.source.imports.values()
            for name in piece.names:
                if (name, piece.source.module) not in seen:
                    seen.add((name, piece.source.module))
                    todo += self._needed(file, name, piece.source, found)
        found.functions = dict(reversed(found.functions.items()))
        found.imports = sorted(set(found.imports))
        found.statements = dict(sorted(found.statements.items(), key=lambda one: one[1]))
        return found

    def _needed(self, file: str, name: str, source: SourceFile, found: Around) -> list[Piece]:
        if (module := self._named.get(name)) is not None:
            found.imports.append(f"from {self._placed(module)} import {name}")
            return []
        method = self._method(name)
        source = self._home(name, source)
        defined = definitions(source).get(name)
        if method is not None:
            return self._defined(file, name, lambda: self._as_function(method), found)
        if defined is not None and isinstance(defined[0], (ast.FunctionDef, ast.ClassDef)):
            return self._defined(file, name, lambda: Piece(_code(defined[1]), source), found)
        if defined is not None:
            text = _RELATIVE.sub(lambda match: self._absolute(match, source), _code(defined[1]))
            new = text not in found.statements
            found.statements[text] = defined[0].lineno
            return [Piece(text, source)] if new else []
        if name in source.imports:
            found.imports.append(self._import(name, source.imports[name]))
        return []

    def _home(self, name: str, source: SourceFile) -> SourceFile:
        """Return the file that a name is copied from: another standard pipeline that it is imported from, or this one.

        Classes stay where they are: what a pipeline is given is of that very class.
        """
        while (one := source.imports.get(name)) is not None and one.module not in self._own:
            home = source.home_of(one) if one.module.startswith(_STANDARD) else None
            if home is None or home[1] != name or source.resolve_class(name) is not None:
                break
            source = home[0]
        return source

    def _defined(self, file: str, name: str, make: Callable[[], Piece], found: Around) -> list[Piece]:
        home = self._homes.setdefault(name, file)
        if home != file:
            found.imports.append(f"from .{home} import {name}")
            return []
        piece = make()
        found.functions[name] = piece.text
        return [piece]

    def _as_function(self, method: Method) -> Piece:
        plain = [one for one in method.written.decorators if _code(one.decorator) != "staticmethod"]
        node = method.written.with_changes(decorators=plain, leading_lines=[])
        return Piece(_code(rewritten(node, Rewrite(method=self._method))), method.home.source)

    def _import(self, name: str, one: Imported) -> str:
        module = one.module
        if one.name is None:
            return f"import {module}" if module.partition(".")[0] == name else f"import {module} as {name}"
        renamed = "" if one.name == name else f" as {name}"
        return f"from {self._placed(module)} import {one.name}{renamed}"

    def _placed(self, module: str) -> str:
        """Return a module of diffusers, as it is imported from where the blocks lie."""
        if module in self._own:
            return self._own[module]
        return self._package + module.removeprefix("diffusers.") if module.startswith("diffusers.") else module

    def _absolute(self, match: "re.Match[str]", source: SourceFile) -> str:
        node = ast.ImportFrom(match[3] or None, [], len(match[2]))
        return f"{match[1]}from {self._placed(absolute_module(source.package, node))} import"


def _code(node: cst.CSTNode) -> str:
    if isinstance(node, cst.BaseExpression):
        return cst.Module([]).code_for_node(node)
    return cst.Module([node]).code.strip("\n")  # type: ignore[list-item]
