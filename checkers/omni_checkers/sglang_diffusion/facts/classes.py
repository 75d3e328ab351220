"""The classes of one pipeline by what SGLang takes them for: found by their bases, never by their names or files."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from omni_checkers.engine.files import File
from omni_kit.upstream.python.source import dotted

PIPELINE = frozenset({"ComposedPipelineBase"})
CONFIG = frozenset({"PipelineConfig", "ImagePipelineConfig", "SpatialImagePipelineConfig"})
DIT_CONFIG = frozenset({"DiTConfig"})
ARCH_CONFIG = frozenset({"DiTArchConfig"})
DIT = frozenset({"BaseDiT", "CachableDiT"})
STAGE = frozenset({"PipelineStage"})


@dataclass(frozen=True)
class Found:
    """A class, with the file that defines it."""

    node: ast.ClassDef
    file: File

    def method(self, name: str) -> ast.FunctionDef | None:
        """A method that the class itself defines."""
        return next((one for one in self.node.body if isinstance(one, ast.FunctionDef) and one.name == name), None)

    def assigned(self, name: str) -> ast.expr | None:
        """What the class body assigns to a name, with or without an annotation."""
        for statement in self.node.body:
            if isinstance(statement, ast.AnnAssign) and dotted(statement.target) == name:
                return statement.value
            if isinstance(statement, ast.Assign) and any(dotted(target) == name for target in statement.targets):
                return statement.value
        return None


@dataclass(frozen=True)
class Classes:
    """All classes of a pipeline's files."""

    files: Sequence[File]

    @cached_property
    def by_name(self) -> Mapping[str, Found]:
        """Every class, by its name."""
        return {node.name: Found(node, file) for file in self.files for node in file.nodes(ast.ClassDef)}

    def of(self, roots: frozenset[str]) -> Iterator[Found]:
        """The classes that derive from one of these, through classes of the same pipeline as well."""
        yield from (found for found in self.by_name.values() if self._derives(found.node, roots, frozenset()))

    def _derives(self, node: ast.ClassDef, roots: frozenset[str], seen: frozenset[str]) -> bool:
        bases = {(dotted(base) or "").rpartition(".")[2] for base in node.bases}
        if bases & roots:
            return True
        inner = (self.by_name[base] for base in bases if base in self.by_name and base not in seen)
        return any(self._derives(one.node, roots, seen | {node.name}) for one in inner)
