"""Everything that the authors wrote and that a class needs, in the order in which it can stand in one file."""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from omni_kit.pysource.source import dotted
from omni_kit.upstream.repositories.logs import only_logs
from omni_kit.upstream.repositories.names import Defined, in_stand_ins, keeps_names, resolve_within

_FAILURES = r"\b(ImportError|ModuleNotFoundError|Exception)\b"


@dataclass
class Closure:
    """Dependencies of a class.

    Attributes:
        definitions: what the authors wrote, each after what it needs.
        uses: for each of these, the dotted names in it that mean another of them.
        foreign: for each of these, the dotted names in it that are imported, with their absolute names.
    """

    definitions: list[Defined] = field(default_factory=list)
    uses: dict[Defined, dict[str, Defined]] = field(default_factory=dict)
    foreign: dict[Defined, dict[str, str]] = field(default_factory=dict)

    def packages(self) -> dict[str, str]:
        """Return the packages that are imported from -> file:line of the first use."""
        found: dict[str, str] = {}
        for one in self.definitions:
            for name in (*self.foreign[one].values(), *_guarded_imports(one.node)):
                found.setdefault(name.partition(".")[0], one.source.where(one.node))
        return found

    def optional(self) -> set[str]:
        """Return the packages that are imported only in a `try` that handles the lack of them."""
        tried = [one for one in self.definitions if isinstance(one.node, ast.Try) and _goes_on(one.node)]
        rest = (name for one in self.definitions if one not in tried for name in self.foreign[one].values())
        needed = {name.partition(".")[0] for name in rest}
        return {name.partition(".")[0] for one in tried for name in _guarded_imports(one.node)} - needed


def _goes_on(node: ast.Try) -> bool:
    """Return whether a statement handles that a package is missing, and raises nothing then."""
    expected = all(one.type is None or re.search(_FAILURES, ast.unparse(one.type)) for one in node.handlers)
    return expected and not any(isinstance(one, ast.Raise) for each in node.handlers for one in ast.walk(each))


def _guarded_imports(node: ast.stmt) -> list[str]:
    """Return the imports of a statement that may fail."""
    if not isinstance(node, ast.Try | ast.If):
        return []
    plain = [alias.name for one in ast.walk(node) if isinstance(one, ast.Import) for alias in one.names]
    return plain + [one.module or "" for one in ast.walk(node) if isinstance(one, ast.ImportFrom) and not one.level]


def closure_of(root: Defined, *, silent: bool = False) -> Closure:
    """Walk from a definition to all that it names; of one that is `silent`, without what only its logs name."""
    found = Closure()
    _add(root, found, silent)
    return found


def _add(one: Defined, found: Closure, silent: bool) -> None:
    if one in found.uses:
        return
    found.uses[one], found.foreign[one] = {}, {}
    for name in dict.fromkeys(names_in(one.node, silent=silent)):
        name, meant = _meaning(one, name)
        if isinstance(meant, str):
            found.foreign[one][name] = meant
        elif meant is not None and meant != one:
            if not keeps_names(meant.node):  # what that binds keeps its name
                found.uses[one][name] = meant
            _add(meant, found, silent)
    found.definitions.append(one)


def completed(closure: Closure, one: Defined) -> None:
    """Add to a closure what one of its definitions needs since its text was changed.

    A name that several imports inside functions bound meant nothing; of one that was left, it means what that imports.
    """
    for written in dict.fromkeys(names_in(one.node)):
        name, meant = _meaning(one, written)
        if isinstance(meant, Defined) and meant != one and not {written, name} & closure.uses[one].keys():
            inner = closure_of(meant)
            new = [each for each in inner.definitions if each not in closure.uses]
            closure.uses |= {each: inner.uses[each] for each in new}
            closure.foreign |= {each: inner.foreign[each] for each in new}
            closure.uses[one][name] = meant
            at = closure.definitions.index(one)
            closure.definitions[at:at] = new


def _meaning(one: Defined, name: str) -> tuple[str, Defined | str | None]:
    """Return the part of a dotted name that the authors, or a stand-in, define, and what it is: `ops.Mask` of
    `ops.Mask.of`.

    Where nobody does it is the whole name, with the absolute name of what is imported.
    """
    parts = name.split(".")
    every = {part: resolve_within(one, part) for part in (".".join(parts[:cut]) for cut in range(len(parts), 0, -1))}
    for part, meant in every.items():
        found = in_stand_ins(meant) if isinstance(meant, str) else meant
        if found is not None:
            return part, found
    return name, every[name]


def names_in(node: ast.AST, *, silent: bool = False) -> Iterator[str]:
    """Yield the names that are read in a definition, with what is asked of them: "nn.Linear", of which "nn" is a part.

    Bound names of a function are left out where they are arguments or assigned there. So are names in texts.

    Args:
        silent: leave out lines that only log.
    """
    yield from _names(node, frozenset(), silent)


def _names(node: ast.AST, bound: frozenset[str], silent: bool) -> Iterator[str]:
    if silent and only_logs(node):
        return
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        inner = bound | bound_in(node)
        outside = [node.args] if isinstance(node, ast.Lambda) else [*node.decorator_list, node.args, node.returns]
        for part in filter(None, outside):
            yield from _names(part, bound, silent)
        for part in [node.body] if isinstance(node, ast.Lambda) else node.body:
            yield from _names(part, inner, silent)
        return
    name = dotted(node) if isinstance(node, ast.Attribute | ast.Name) else None
    if name is not None:
        if name.partition(".")[0] not in bound and isinstance(getattr(node, "ctx", None), ast.Load):
            yield name
        return
    for child in ast.iter_child_nodes(node):
        yield from _names(child, bound, silent)


def bound_in(function: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> frozenset[str]:
    """Return the arguments of a function and what it assigns."""
    given = function.args
    every = [*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, [given.vararg, given.kwarg])]
    stored = (n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))
    return frozenset({one.arg for one in every}) | frozenset(stored)
