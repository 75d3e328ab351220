"""The functions of a library that an integration replaces, each with the library's own."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from omni_checkers.codediff.align import ClonePair, Statement
from omni_checkers.codediff.changes import alterations, changes, left_out
from omni_checkers.codediff.edits import Change, Edit
from omni_checkers.codediff.fingerprint import names_read, names_stored, parameters, unparse_cached
from omni_checkers.engine.facts import fact
from omni_checkers.engine.files import walked, within
from omni_checkers.engine.rule import NotApplicable
from omni_checkers.veomni.facts.callees import Callees, modules_of
from omni_checkers.veomni.facts.generated import Generated, upstream_function
from omni_kit.pysource.source import dotted

_ARITHMETIC = {"getattr", "int", "float", "min", "max", "math.sqrt"}


@dataclass(frozen=True)
class Override:
    """A method, or a function where `owner` is empty, that replaces upstream's of the same name."""

    item: Generated
    owner: str
    copy: ClonePair

    @property
    def name(self) -> str:
        """Name as people write it: Class.method."""
        return f"{self.owner}.{self.copy.ours.name}" if self.owner else self.copy.ours.name

    @cached_property
    def callees(self) -> Callees:
        """Return the callees in the same file."""
        return Callees(self.item.source, self.owner, self.copy.ours, dict(modules_of(self.item.source, self.owner)))

    def altered(self) -> Iterator[tuple[Statement, Statement, str]]:
        """Yield statements that differ from upstream's that they replace, with how; unless what else was changed
        explains it.
        """
        ours, theirs = self.copy.ours, self.copy.theirs
        absent = parameters(theirs) - parameters(ours) - names_read(ours)
        for one in alterations(self.copy):
            if absent & names_read(one.there.node):  # what it does not take, it cannot say
                continue
            real = [edit.what for edit in one.edits if not self._explained(one.here, edit)]
            if real and (len(one.edits) == 1 or all(edit.call for edit in one.edits)):
                yield one.here, one.there, " and ".join(real)

    def changes(self) -> Iterator[Change]:
        """Yield what is wrong with the copy, each line once; what is left out is not."""
        found: dict[int, Change] = {}
        for here, there, what in self.altered():
            found.setdefault(here.number, Change("altered-statement", what, here.number, there.number))
        for one in changes(self.copy):
            found.setdefault(one.line, one)
        yield from found.values()

    def left_out(self) -> Iterator[Statement]:
        """Yield statements of upstream's that change a value and are left out; those about a class or function that
        this file does without are not.
        """
        source = self.item.source
        here = {*source.classes, *source.functions, *source.imports, *source.constants}
        for block in left_out(self.copy):
            names = (node.id for one in block for node in within(one.node, ast.Name))
            if not any(name[:1].isupper() and name not in here for name in names):
                yield block[0]

    def _explained(self, here: Statement, edit: Edit) -> bool:
        """Return whether an edit follows from what else was changed."""
        if edit.call is not None:
            return self._travels(edit.call, edit.argument) or self._not_taken(edit.call, edit.argument)
        if edit.gone:  # or asked before
            return {*edit.gone} <= self.copy.codes[0]
        return isinstance(edit.kept, ast.Name) and self._is_new(edit.kept.id, here)

    def _travels(self, call: ast.Call, argument: str) -> bool:
        """Return whether an argument goes with the others that the function and the call do not name."""
        rest = self.copy.ours.args.kwarg
        passed = rest is not None and any(k.arg is None and unparse_cached(k.value) == rest.arg for k in call.keywords)
        return passed and argument in parameters(self.copy.theirs) - parameters(self.copy.ours)

    def _not_taken(self, call: ast.Call, argument: str) -> bool:
        """Return whether what is called has no such parameter in this file, or the rest of the arguments was taken
        apart.
        """
        callee = self.callees.of(call)
        if argument.startswith("**"):
            named = self.copy.theirs.args.kwarg
            no_rest = callee is not None and callee.node.args.kwarg is None
            return named is None or argument != f"**{named.arg}" or no_rest
        return callee is not None and argument not in parameters(callee.node) and callee.node.args.kwarg is None

    def _is_new(self, name: str, here: Statement) -> bool:
        """Return whether a local name holds something in a statement that upstream's code of that name does not
        make.
        """
        patched = {function.name for _, function in self.item.patched}
        made = [one for one in self.copy.mine if one is not here and name in names_stored(one.node)]
        return any(one.code not in self.copy.codes[1] or _called(one.node) & patched for one in made)

    def mentions(self) -> set[str]:
        """Return the attributes, names and strings in it, and in the functions and own methods that it calls."""
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


@fact
def overrides(generated: list[Generated]) -> list[Override]:
    """Return every function that differs from the one of upstream that it replaces."""
    found = [
        Override(item, owner, ClonePair(function, theirs))
        for item in generated
        for owner, function in item.patched
        if (theirs := upstream_function(item, owner, function.name)) is not None
    ]
    if not found:
        raise NotApplicable("no function of upstream is replaced")
    return found


def settings_of(override: Override) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield the attributes of upstream's class that hold settings, each with the names by which they can be read, too.

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
    """Return whether a value is a setting, or made of settings alone."""
    called = {dotted(node.func) or "?" for node in walked(value) if isinstance(node, ast.Call)}
    names = {node.id for node in walked(value) if isinstance(node, ast.Name)} - called - {"ACT2FN"}
    return bool(names) and names <= {"config", "self", *optional} and called <= _ARITHMETIC


def _optional(function: ast.FunctionDef) -> set[str]:
    """Return the parameters that have a default."""
    placed = [argument.arg for argument in function.args.args]
    return set(placed[len(placed) - len(function.args.defaults) :]) if function.args.defaults else set()


def _shapes(call: ast.Call) -> set[str]:
    """Return the attributes that a module or a tensor is made with, by their place: its shape."""
    made = (dotted(call.func) or "").partition(".")[0] in {"nn", "torch"}
    return {n.attr for arg in call.args for n in walked(arg) if isinstance(n, ast.Attribute)} if made else set()


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
