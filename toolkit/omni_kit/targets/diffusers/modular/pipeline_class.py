"""A pipeline's class, opened: its methods and what its file defines around them, in concrete syntax."""

import ast
from dataclasses import dataclass
from functools import cache, cached_property

import libcst as cst

from omni_kit.errors import Refusal
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.names import of_tree
from omni_kit.pysource.signatures import defaults, named, signature
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.pipelines import Pipeline

BASE = "DiffusionPipeline"
_PLAIN = (ast.FunctionDef, ast.ClassDef)


@cache
def concrete(source: SourceFile) -> cst.Module:
    """Return a file in concrete syntax."""
    return cst.parse_module(source.text)


@cache
def definitions(source: SourceFile) -> dict[str, tuple[ast.stmt, cst.CSTNode]]:
    """Name -> the statement at the top level that binds it, but for plain imports; in both syntaxes."""
    found: dict[str, tuple[ast.stmt, cst.CSTNode]] = {}
    for node, written in zip(source.tree.body, concrete(source).body, strict=True):
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Expr)):
            continue
        bound = {node.name} if isinstance(node, _PLAIN) else of_tree(node).stored
        found |= dict.fromkeys(bound, (node, written))
    return found


@dataclass(frozen=True)
class Method:
    """A method of a pipeline.

    Attributes:
        home: the class that defines it.
        node: as Python reads it.
        written: as it is written.
        setters: of a property, what assigning it does; in both syntaxes.
    """

    home: ClassRef
    node: ast.FunctionDef
    written: cst.FunctionDef
    setters: tuple[tuple[ast.FunctionDef, cst.FunctionDef], ...] = ()

    @property
    def nodes(self) -> list[ast.FunctionDef]:
        """Definitions of the property and its setters."""
        return [self.node, *(node for node, _ in self.setters)]

    @property
    def decorators(self) -> list[str]:
        """Names of its decorators, dotted names only."""
        names = (one.func if isinstance(one, ast.Call) else one for one in self.node.decorator_list)
        return [name for one in names if (name := dotted(one))]

    @property
    def static(self) -> bool:
        """Return whether it is called without the pipeline."""
        return "staticmethod" in self.decorators

    @property
    def is_property(self) -> bool:
        """Return whether it is read like an attribute."""
        return "property" in self.decorators


@dataclass(frozen=True)
class Opened:
    """A pipeline to be taken apart."""

    pipeline: Pipeline

    @property
    def cls(self) -> ClassRef:
        """Its class."""
        return self.pipeline.cls

    @cached_property
    def call(self) -> Method:
        """Its `__call__`.

        Raises:
            Refusal: it has none of its own.
        """
        found = self.method("__call__")
        if found is None:
            raise Refusal(f"{self.cls.node.name} does not define __call__", "pass a pipeline with __call__")
        return found

    def method(self, name: str) -> Method | None:
        """Return a method that the pipeline, or a pipeline that it derives from, defines; None for those of its
        mixins.
        """
        found = self.cls.method(name)
        if found is None or not is_pipeline(found[0]):
            return None
        return _as_method(*found)

    def of_base(self, name: str) -> Method | None:
        """Return a method of the base of all standard pipelines."""
        base = find_class(self.pipeline.library, BASE)
        found = base.method(name) if base is not None else None
        return _as_method(*found) if found is not None else None

    @cached_property
    def constructor(self) -> list[ast.stmt]:
        """The statements of its `__init__`, behind those of the pipelines that it derives from."""
        homes = [entry for entry in reversed(self.cls.mro) if isinstance(entry, ClassRef) and is_pipeline(entry)]
        found = (home.defines("__init__") for home in homes)
        return [statement for one in found if one is not None for statement in one.body]

    @cached_property
    def bases(self) -> list[str]:
        """Its mixins, by the names that its file has for them."""
        own = self.cls.source
        homes = [one for one in self.cls.mro if isinstance(one, ClassRef) and is_pipeline(one) and one.source == own]
        kept = []
        for name in dict.fromkeys(name for home in homes for name in own.bases(home.node)):
            found = own.resolve_class(name)
            if name != BASE and not (found is not None and is_pipeline(ClassRef(*found))):
                kept.append(name)
        return kept

    @cached_property
    def parts(self) -> dict[str, str]:
        """Component -> its class, by the name that the pipeline's file has for it; empty if that is not told."""
        calls = (node for one in self.constructor for node in ast.walk(one) if isinstance(node, ast.Call))
        named = [
            one.arg
            for node in calls
            if dotted(node.func) == "self.register_modules"
            for one in node.keywords
            if one.arg is not None
        ]
        said = {one.name: one.class_name for one in self.pipeline.components}
        asked = {name: self._class_of(name) for name in named}
        return {name: asked.get(name) or said.get(name, "") for name in dict.fromkeys([*named, *said])}

    def _class_of(self, name: str) -> str:
        init = self.method("__init__")
        every = [*init.node.args.args, *init.node.args.kwonlyargs] if init is not None else []
        annotation = next((one.annotation for one in every if one.arg == name), None)
        inner = ast.walk(annotation) if annotation is not None and not isinstance(annotation, ast.IfExp) else ()
        known = (one.id for one in inner if isinstance(one, ast.Name) and one.id[:1].isupper())
        return next((one for one in known if one in self.cls.source.imports and one not in ("Union", "Optional")), "")

    @cached_property
    def settings(self) -> dict[str, str]:
        """Config values other than components: name -> the default, as written."""
        init = self.method("__init__")
        if init is None:
            return {}
        taken = signature(init.node, bound=True)
        given = defaults(taken)
        return {name: ast.unparse(given[name]) if name in given else "None"
                for name in named(taken) if name not in self.parts}  # fmt: skip


def _as_method(home: ClassRef, node: ast.FunctionDef) -> Method:
    module = concrete(home.source)
    classes = (one for one in module.body if isinstance(one, cst.ClassDef) and one.name.value == home.node.name)
    both = list(zip(home.node.body, next(classes).body.body, strict=True))
    setters = [pair for pair in both if any(dotted(one) == f"{node.name}.setter" for one in _decorators(pair[0]))]
    written = next(written for one, written in both if one is node)
    return Method(home, node, written, tuple(setters))  # type: ignore[arg-type]


def _decorators(node: ast.stmt) -> list[ast.expr]:
    return node.decorator_list if isinstance(node, ast.FunctionDef) else []


def is_pipeline(cls: ClassRef) -> bool:
    """Return whether a class is a pipeline of its own, and not their common base."""
    names = [entry.node.name if isinstance(entry, ClassRef) else entry.rpartition(".")[2] for entry in cls.mro]
    return BASE in names and cls.node.name != BASE
