"""Members of a pipeline: those that a modular pipeline also has, and those that its own class must bring."""

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.names import of_tree
from omni_kit.pysource.source import dotted
from omni_kit.targets.diffusers.modular.pipeline_class import Method, Opened
from omni_kit.upstream.diffusers.classes import find_class

MODULAR = "ModularPipeline"


@dataclass(frozen=True)
class Made:
    """Statements that make an attribute.

    Attributes:
        body: they end with its value.
        replaced: the pipeline assigns it again while it runs.
    """

    body: list[ast.stmt]
    replaced: bool = False


# A method as it stands, or what makes an attribute.
Member = Method | Made


@dataclass(frozen=True)
class Reached:
    """Members of a pipeline that code needs, with all that it calls.

    Attributes:
        parts: components.
        settings: values of the config.
        attributes: everything of `self`.
    """

    parts: tuple[str, ...]
    settings: tuple[str, ...]
    attributes: frozenset[str]


class Members:
    """The attributes of one pipeline."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        library = opened.pipeline.library
        self._modular = find_class(library, MODULAR)

    def function(self, name: str) -> Method | None:
        """Return a method that becomes a function next to the blocks; None for properties, and where its name
        is taken.
        """
        found = self._opened.method(name)
        if found is None or found.is_property or "classmethod" in found.decorators or _above(found):
            return None
        source = found.home.source
        return None if name in source.imports or name in source.functions else found

    def reached(self, nodes: Iterable[ast.AST]) -> Reached:
        """Return the members that pieces of code need."""
        seen: set[str] = set()
        todo, settings = list(nodes), list[str]()
        while todo:
            node = todo.pop()
            settings += _settings(node)
            for name in of_tree(node).attributes - seen:
                seen.add(name)
                todo += self._behind(name)
        parts = [name for name in self._opened.parts if name in seen]
        own = self._opened.settings
        return Reached(tuple(parts), tuple(name for name in own if name in settings), frozenset(seen))

    def _behind(self, name: str) -> Iterator[ast.AST]:
        method = self._opened.method(name)
        if method is not None:
            yield from method.nodes
        elif name in self.made:
            yield from self.made[name]

    @cached_property
    def made(self) -> dict[str, list[ast.stmt]]:
        """Assignments of the constructor: attribute -> statements that end with its value, written as a property."""
        body = [one for one in self._opened.constructor if not _registers(one)]
        names = {name for node in body for name in of_tree(node).kept}
        return {name: self._property(name, body) for name in sorted(names)}

    def _property(self, name: str, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements of a constructor that make an attribute, which is a variable there, as its siblings
        are.
        """
        needed: set[str] = set()
        taken: list[ast.stmt] = []
        for node in reversed(body):
            found = of_tree(node)
            if name in found.kept or found.stored & needed:
                needed |= found.read
                taken.insert(0, node)
        kept = frozenset(one for node in taken for one in of_tree(node).kept)
        words = _Words(self._opened, kept if name in kept else frozenset())
        module = ast.parse("\n".join(ast.unparse(node) for node in taken))
        changed = ast.fix_missing_locations(words.visit(module)).body
        last = changed[-1]
        if len(changed) == 1 and isinstance(last, ast.Assign) and dotted(last.targets[0]) == name:
            return [ast.Return(last.value)]
        return [*changed, ast.Return(ast.Name(name, ast.Load()))]

    def _of_base(self, name: str) -> Method | None:
        """A method of the base of all standard pipelines that needs nothing which modular ones do not have."""
        found = self._opened.of_base(name)
        if found is None:
            return None
        used = of_tree(found.node)
        return found if all(one in used.kept or self.inherited(one) for one in used.attributes) else None

    def leaves_out(self, node: ast.stmt) -> str:
        """The method that a statement calls and nothing takes from, of those that only standard pipelines have."""
        call = node.value if isinstance(node, ast.Expr) else None
        name = (dotted(call.func) or "") if isinstance(call, ast.Call) else ""
        own = name.removeprefix("self.")
        if own == name or "." in own or self._opened.method(own) is not None or self.inherited(own):
            return ""
        return own if self._opened.of_base(own) is not None else ""

    def inherited(self, name: str) -> bool:
        """Return whether a modular pipeline, or a mixin of the pipeline, has an attribute."""
        if name.startswith("__"):
            return True
        mixins = [self._opened.cls.source.resolve_class(base) for base in self._opened.bases]
        classes = [self._modular, *(ClassRef(*found) for found in mixins if found is not None)]
        return any(one is not None and _has(one, name) for one in classes)

    def own(self, reached: Reached) -> tuple[dict[str, Member], list[str]]:
        """Return the members that the class of the modular pipeline brings, and names without a source.

        Returns:
            Name -> a member; literals become class attributes.
        """
        found: dict[str, Member] = {}
        unknown: list[str] = []
        kept = self._kept(reached)
        for name in sorted(reached.attributes):
            if name in self._opened.parts or self.function(name) is not None or self.inherited(name):
                continue
            assigned = self._opened.cls.assigned(name)
            if (method := self._opened.method(name) or self._of_base(name)) is not None:
                found[name] = method
            elif name in self.made:
                found[name] = Made(self.made[name], name in kept)
            elif assigned is not None:
                found[name] = Made([ast.Return(assigned[1])])
            elif name not in kept:
                unknown.append(name)
            elif not name.startswith("_"):
                found[name] = Made([ast.Return(ast.Constant(None))])
        return found | self._called_by(found), unknown

    def _called_by(self, members: dict[str, Member]) -> dict[str, Member]:
        """Return methods that members need on the pipeline itself."""
        nodes = [node for one in members.values() for node in (one.nodes if isinstance(one, Method) else one.body)]
        names = self.reached(nodes).attributes - members.keys()
        return {name: method for name in sorted(names) if (method := self.function(name)) is not None}

    def _kept(self, reached: Reached) -> frozenset[str]:
        """Return attributes that are assigned while the pipeline runs."""
        methods = (self._opened.method(name) for name in reached.attributes)
        nodes = [self._opened.call.node, *(node for one in methods if one is not None for node in one.nodes)]
        return frozenset(name for node in nodes for name in of_tree(node).kept)


class _Words(ast.NodeTransformer):
    """The words of a constructor in those of a property: arguments are the pipeline's, what is made is a variable."""

    def __init__(self, opened: Opened, made: frozenset[str]) -> None:
        self._opened = opened
        self._made = made

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """Return an argument."""
        known = (("self.", self._opened.parts), ("self.config.", self._opened.settings))
        where = next((prefix for prefix, names in known if node.id in names), "")
        return ast.parse(f"{where}{node.id}", mode="eval").body if where else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        """Replace an attribute that is assigned here by its variable."""
        own = dotted(node.value) == "self" and node.attr in self._made
        return ast.Name(node.attr, node.ctx) if own else self.generic_visit(node)  # type: ignore[return-value]


def _registers(node: ast.stmt) -> bool:
    """Return whether a statement of a constructor is one that diffusers requires of each."""
    return isinstance(node, ast.Expr)


def constant(body: list[ast.stmt]) -> bool:
    """Return whether what an attribute is made by is a literal."""
    value = body[0].value if len(body) == 1 and isinstance(body[0], ast.Return) else None
    return value is not None and not any(isinstance(node, (ast.Name, ast.Call)) for node in ast.walk(value))


def _settings(node: ast.AST) -> list[str]:
    chains = (dotted(one) or "" for one in ast.walk(node) if isinstance(one, ast.Attribute))
    return [name.removeprefix("self.config.") for name in chains if name.startswith("self.config.")]


def _above(method: Method) -> bool:
    """Return whether a method asks its base."""
    calls = (node for node in ast.walk(method.node) if isinstance(node, ast.Call))
    return any(dotted(node.func) == "super" for node in calls)


def _has(cls: ClassRef, name: str) -> bool:
    return cls.method(name) is not None or cls.assigned(name) is not None
