"""The functions that a generated file has in the place of upstream's, beside upstream's own."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from omni_checkers.engine.files import walked, within
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.symbolic.alterations import Copy
from omni_checkers.symbolic.lines import Line, parameters
from omni_checkers.veomni.facts.callees import Callees, modules_of
from omni_checkers.veomni.facts.generated import Generated, upstream_function
from omni_kit.pysource.source import dotted

_ARITHMETIC = {"getattr", "int", "float", "min", "max", "math.sqrt"}


@dataclass(frozen=True)
class Override:
    """A method, or a function where `owner` is empty, that stands in the place of upstream's of the same name."""

    item: Generated
    owner: str
    copy: Copy

    @property
    def name(self) -> str:
        """As people write it: Class.method."""
        return f"{self.owner}.{self.copy.ours.name}" if self.owner else self.copy.ours.name

    @cached_property
    def callees(self) -> Callees:
        """What its calls reach in the same file."""
        return Callees(self.item.source, self.owner, self.copy.ours, dict(modules_of(self.item.source, self.owner)))

    def is_new(self, name: str, line: Line) -> bool:
        """Whether a local name holds something in a line that upstream's code of that name does not make."""
        original = {one.code for one in self.copy.original}
        patched = {function.name for _, function in self.item.patched}
        made = [one for one in self.copy.mine if one is not line and _binds(one.node, name)]
        return any(one.code not in original or _called(one.node) & patched for one in made)

    def mentions(self) -> set[str]:
        """The attributes, names and strings in it, and in the functions and own methods that it calls."""
        found: set[str] = set()
        todo, seen = [(self.owner, self.copy.ours)], set[ast.FunctionDef]()
        while todo:
            owner, function = todo.pop()
            if function in seen:
                continue
            seen.add(function)
            found |= _mentioned(function)
            callees = Callees(self.item.source, owner, function, dict(modules_of(self.item.source, owner)))
            for call in within(function, ast.Call):
                callee = callees.of(call)
                if callee is not None and callee.node.name not in {"forward", "__init__"}:
                    todo.append((callee.name.rpartition(".")[0], callee.node))
        return found


def overrides(generated: list[Generated]) -> list[Override]:
    """Every function that differs from the one of upstream that it replaces."""
    found = [
        Override(item, owner, Copy(function, theirs))
        for item in generated
        for owner, function in item.patched
        if (theirs := upstream_function(item, owner, function.name)) is not None
    ]
    if not found:
        raise NotApplicable("no function of upstream is replaced")
    return found


def settings_of(override: Override) -> Iterator[tuple[str, frozenset[str]]]:
    """The attributes of upstream's class that hold settings, each with the names by which they can be read, too.

    A setting comes from the config, from an argument that may be left out, or from other settings by arithmetic. A size
    that the shapes of parameters show is none.
    """
    initialiser = upstream_function(override.item, override.owner, "__init__") if override.owner else None
    nodes = walked(initialiser) if initialiser is not None else []
    shown = {name for node in nodes if isinstance(node, ast.Call) for name in _shapes(node)}
    optional = _optional(initialiser) if initialiser is not None else set()
    for node in nodes:
        match node:
            case ast.Assign([ast.Attribute(ast.Name("self"), name)], value) if _settled(value, optional):
                source = value.attr if isinstance(value, ast.Attribute) else name
                if not {name, source} & shown:
                    yield name, frozenset({name, source})


def _settled(value: ast.expr, optional: set[str]) -> bool:
    """Whether a value is a setting, or made of settings alone."""
    called = {dotted(node.func) or "?" for node in walked(value) if isinstance(node, ast.Call)}
    names = {node.id for node in walked(value) if isinstance(node, ast.Name)} - called - {"ACT2FN"}
    return bool(names) and names <= {"config", "self", *optional} and called <= _ARITHMETIC


def _optional(function: ast.FunctionDef) -> set[str]:
    """The parameters that have a default."""
    placed = [argument.arg for argument in function.args.args]
    return set(placed[len(placed) - len(function.args.defaults) :]) if function.args.defaults else set()


def _shapes(call: ast.Call) -> set[str]:
    """The attributes that a module or a tensor is made with, by their place: its shape."""
    made = (dotted(call.func) or "").partition(".")[0] in {"nn", "torch"}
    return {n.attr for arg in call.args for n in walked(arg) if isinstance(n, ast.Attribute)} if made else set()


def _binds(node: ast.AST, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for n in walked(node))


def _called(node: ast.AST) -> set[str]:
    calls = (inner for inner in walked(node) if isinstance(inner, ast.Call))
    return {(dotted(call.func) or "").rpartition(".")[2] for call in calls}


def _mentioned(function: ast.FunctionDef) -> set[str]:
    found = parameters(function)
    for node in walked(function):
        match node:
            case ast.Attribute(_, name) | ast.Name(name) | ast.keyword(name) if name:
                found.add(name)
            case ast.Constant(str(text)):
                found.add(text)
    return found
