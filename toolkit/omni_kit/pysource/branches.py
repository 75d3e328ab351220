"""The branches of the functions in a file, and what decides which of them runs: config fields and call arguments.

A branch is a function's body, the body of a loop, a `case`, an `except`, or either side of an `if`, also one without
`else`. Conditional expressions and branches in the line of their condition are not told apart: a tracer sees lines.
"""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from omni_kit.pysource.nodes import blocks, last_name, methods, names_in, walked, within, without_docstring
from omni_kit.pysource.reads import attributes_read
from omni_kit.pysource.source import parse_file

Arcs = Collection[tuple[int, int]]  # from line, to line; negative where a function begins or ends
Function = ast.FunctionDef | ast.AsyncFunctionDef

_DEEP = 8  # steps from a name to what it was made of
_SPEAKERS = frozenset({"logger", "logging", "warnings", "log"})
_MACHINE = frozenset(
    {"is_tracing", "is_scripting", "is_compiling", "is_torchdynamo_compiling", "device", "is_available"}
)
_CONFIG = "config"
_OPPOSITES = ((ast.Is, ast.IsNot), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn))


@dataclass(frozen=True)
class Decision:
    """The values that a condition depends on.

    Attributes:
        fields: of configs, by name.
        arguments: of calls, by name.
        machine: it asks for a device, a library or a compiler.
    """

    fields: frozenset[str] = frozenset()
    arguments: frozenset[str] = frozenset()
    machine: bool = False

    def __or__(self, other: "Decision") -> "Decision":
        return Decision(self.fields | other.fields, self.arguments | other.arguments, self.machine or other.machine)


@dataclass(frozen=True)
class Branch:
    """One branch of a function.

    Attributes:
        function: its name, with those of the classes and functions around it.
        line: where it begins; the line of the condition for an `if` that has no `else`.
        condition_line: line of its condition; one of the branches of a condition is taken whenever that is reached.
        condition: what must hold in this function, as code; empty for the function itself.
        decision: what the condition depends on.
        outer: the branch around it; None for the body of a function that no other contains.
        apart: why it is of no interest for training; empty otherwise.
        entry: the class around it where no function of the file makes one: a model, or a head that may not be in use.
        inside: the first and the last line of it; without lines of its own, those of the condition and what it skips.
        absent: it has no lines of its own.
    """

    function: str
    line: int
    condition_line: int
    condition: str = ""
    decision: Decision = field(default=Decision(), compare=False)
    outer: "Branch | None" = field(default=None, repr=False)
    apart: str = ""
    entry: str = ""
    inside: tuple[int, int] = (0, 0)
    absent: bool = False
    condition_ends: int = 0

    def ran(self, arcs: Arcs) -> bool:
        """Return whether these arcs went through it."""
        first, last = self.inside
        if not self.absent:
            return any(first <= line <= last for arc in arcs for line in arc)
        return any(first <= here <= self.condition_ends and not first <= there <= last for here, there in arcs)


class BranchReader:
    """The branches of one file.

    Args:
        file: Python source.
        not_trained: names of methods that serve something else than training, and why: name -> reason.

    Raises:
        OSError, SyntaxError, UnicodeDecodeError: it cannot be read.
    """

    def __init__(self, file: Path, not_trained: Mapping[str, str] | None = None) -> None:
        self._tree = parse_file(file)[1]
        self._not_trained = not_trained or {}

    @cached_property
    def branches(self) -> Sequence[Branch]:
        """All branches, in the order of their lines; one comes after the branch that contains it."""
        return sorted(self._of_body(self._tree.body, _Scope()), key=lambda branch: branch.line)

    def users(self, name: str) -> list[int]:
        """Return the lines of functions in which a function or class of this file is named, its own lines left out."""
        own = next((n for n in self._tree.body if getattr(n, "name", "") == name), None)
        inside = range(own.lineno, (own.end_lineno or own.lineno) + 1) if own is not None else range(0)
        lines = {
            item.lineno
            for body in within(self._tree, ast.FunctionDef)
            for statement in body.body
            for item in within(statement, ast.Name, ast.Attribute)
            if last_name(item) == name and item.lineno not in inside
        }
        return sorted(lines)

    def _of_body(self, body: Sequence[ast.stmt], scope: "_Scope") -> Iterator[Branch]:
        for number, node in enumerate(body):
            rest = body[number + 1 :]
            if scope.function is not None and rest and isinstance(node, ast.If) and _leaves(node):
                yield from self._of_if(node, scope, rest)  # what follows is its `else`
                return
            if isinstance(node, ast.ClassDef):
                yield from self._of_body(node.body, scope.within_class(node, self._entry(node, scope)))
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield from self._of_function(node, scope)
            elif scope.function is not None:
                yield from self._of_statement(node, scope)
            else:
                for part in blocks(node):
                    yield from self._of_body(part, scope)

    def _of_function(self, node: Function, scope: "_Scope") -> Iterator[Branch]:
        body = without_docstring(node.body)
        if not body:
            return
        inner = scope.within_function(node, self._tree)
        reason = scope.apart or self._not_trained.get(node.name, "") or _says_only(body)
        branch = Branch(
            inner.name,
            node.lineno,
            node.lineno,
            outer=scope.branch,
            apart=reason,
            entry=scope.entry,
            inside=_span(body),
        )
        yield branch
        yield from self._of_body(body, replace(inner, branch=branch, apart=reason))

    def _of_statement(self, node: ast.stmt, scope: "_Scope") -> Iterator[Branch]:
        if isinstance(node, ast.If):
            yield from self._of_if(node, scope)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            test = node.test if isinstance(node, ast.While) else node.iter
            yield from self._of_arm(node, node.body, ast.unparse(test), test, scope)
            yield from self._of_body(node.orelse, scope)
        elif isinstance(node, ast.Match):
            for case in node.cases:
                said = f"{ast.unparse(node.subject)} is {ast.unparse(case.pattern)}"
                yield from self._of_arm(node, case.body, said, node.subject, scope)
        elif isinstance(node, ast.Try):
            yield from self._of_body([*node.body, *node.orelse, *node.finalbody], scope)
            for handler in node.handlers:
                kind = ast.unparse(handler.type) if handler.type is not None else "an exception"
                caught = replace(scope, apart=scope.apart or "exceptions")
                yield from self._of_arm(handler, handler.body, kind, None, caught)
        else:
            for part in blocks(node):
                yield from self._of_body(part, scope)

    def _of_if(self, node: ast.If, scope: "_Scope", rest: Sequence[ast.stmt] = ()) -> Iterator[Branch]:
        if node.body[0].lineno == node.lineno:
            yield from self._of_body(node.orelse or rest, scope)
            return
        yield from self._of_arm(node, node.body, ast.unparse(node.test), node.test, scope)
        negated = _negated(node.test)
        if other := node.orelse or rest:
            elif_ = bool(node.orelse) and isinstance(other[0], ast.If) and other[0].col_offset == node.col_offset
            yield from self._of_arm(node, other, negated, node.test, scope, silent=elif_)
        else:
            yield Branch(
                scope.name, node.lineno, node.lineno, negated, scope.decides(node.test), scope.branch,
                scope.apart or ("this machine" if scope.decides(node.test).machine else ""), scope.entry,
                (node.lineno, node.end_lineno or node.lineno), absent=True,
                condition_ends=node.test.end_lineno or node.lineno,
            )  # fmt: skip

    def _of_arm(
        self,
        of: ast.stmt | ast.ExceptHandler,
        body: Sequence[ast.stmt],
        said: str,
        test: ast.expr | None,
        scope: "_Scope",
        *,
        silent: bool = False,
    ) -> Iterator[Branch]:
        """Yield an arm, and what is in it; a silent one is not counted, because what is in it says the same."""
        decision = scope.decides(test) if test is not None else Decision()
        reason = scope.apart or _says_only(body) or ("this machine" if decision.machine else "")
        branch = Branch(
            scope.name, body[0].lineno, of.lineno, said, decision, scope.branch, reason, scope.entry, _span(body)
        )  # fmt: skip
        if not silent:
            yield branch
        yield from self._of_body(body, replace(scope, branch=scope.branch if silent else branch, apart=reason))

    def _entry(self, node: ast.ClassDef, scope: "_Scope") -> str:
        """Return the name of a class that no function of the file and no class below it uses; empty for others."""
        if scope.name or self.users(node.name) or any(node.name in names_in(base) for base in self._bases):
            return ""
        return node.name

    @cached_property
    def _bases(self) -> list[ast.expr]:
        return [base for node in within(self._tree, ast.ClassDef) for base in node.bases]


@dataclass(frozen=True)
class _Scope:
    """Enclosing scope of a statement."""

    name: str = ""
    owner: ast.ClassDef | None = None
    function: Function | None = None
    tree: ast.Module | None = None
    branch: Branch | None = None
    apart: str = ""
    entry: str = ""

    def within_class(self, node: ast.ClassDef, entry: str) -> "_Scope":
        name = f"{self.name}.{node.name}".lstrip(".")
        return replace(self, name=name, owner=node, function=None, entry=self.entry or entry)

    def within_function(self, node: Function, tree: ast.Module) -> "_Scope":
        return replace(self, name=f"{self.name}.{node.name}".lstrip("."), function=node, tree=tree)

    def decides(self, test: ast.expr) -> Decision:
        """Return the values that a condition in this function depends on."""
        return _Reading(self).of(test, _DEEP)


@dataclass(frozen=True)
class _Reading:
    """Follows names to what they were made of, within a function and its class."""

    scope: _Scope
    _seen: set[tuple[str, str]] = field(default_factory=set)

    def of(self, node: ast.expr, depth: int) -> Decision:
        found = Decision(frozenset(attributes_read(node, _CONFIG)) - {_CONFIG}, machine=_asks_machine(node))
        if depth == 0:
            return found
        found |= Decision(arguments=frozenset(_named_arguments(node)))
        for item in walked(node):
            if isinstance(item, ast.Attribute) and isinstance(item.value, ast.Name) and item.value.id == "self":
                found |= self._of_attribute(item.attr, depth)
            elif isinstance(item, ast.Name):
                found |= self._of_name(item.id, node, depth)
        return found

    def _of_attribute(self, name: str, depth: int) -> Decision:
        owner = self.scope.owner
        if owner is None or name == _CONFIG or ("self", name) in self._seen:
            return Decision()
        self._seen.add(("self", name))
        found = Decision(arguments=frozenset({"training"})) if name == "training" else Decision()
        for method in methods(owner):
            for value in _assigned(method, f"self.{name}"):
                found |= _Reading(replace(self.scope, function=method), self._seen).of(value, depth - 1)
        return found

    def _of_name(self, name: str, where: ast.expr, depth: int) -> Decision:
        function = self.scope.function
        if function is None or name in ("self", "kwargs", _CONFIG) or (function.name, name) in self._seen:
            return Decision()
        self._seen.add((function.name, name))
        found = Decision()
        if name in _parameters(function):
            found |= Decision(arguments=frozenset({name}))
        for value in _assigned(function, name):
            if value.lineno <= where.lineno:
                found |= self.of(value, depth - 1)
        return found


def _assigned(function: Function, target: str) -> Iterator[ast.expr]:
    """Yield the values of a name or an attribute in a function: assignments, loops and unpacking."""
    pairs: list[tuple[ast.expr, ast.expr | None]] = []
    for node in walked(function):
        if isinstance(node, ast.Assign):
            pairs += [(place, node.value) for place in node.targets]
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            pairs.append((node.target, node.value))
        elif isinstance(node, ast.For):
            pairs.append((node.target, node.iter))
    for place, value in pairs:
        named = place.elts if isinstance(place, ast.Tuple) else [place]
        if value is not None and any(ast.unparse(one) == target for one in named):
            yield value


def _parameters(function: Function) -> set[str]:
    given = function.args
    return {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)} - {"self", "cls", _CONFIG}


def _named_arguments(node: ast.expr) -> Iterator[str]:
    """Yield names that are looked up among the keywords of a call: `kwargs.get("x")`, `kwargs["x"]`, `"x" in
    kwargs`.
    """
    for item in walked(node):
        match item:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="kwargs"), attr="get" | "pop"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield name
            case ast.Subscript(value=ast.Name(id="kwargs"), slice=ast.Constant(value=str(name))):
                yield name
            case ast.Compare(left=ast.Constant(value=str(name)), comparators=[ast.Name(id="kwargs")]):
                yield name


def _asks_machine(node: ast.expr) -> bool:
    """Return whether it asks for a device, a compiler, or what is installed."""
    for item in within(node, ast.Attribute, ast.Call):
        name = last_name(item)
        if name in _MACHINE or (name.startswith("is_") and name.endswith("_available")):
            return True
    return False


def _says_only(body: Sequence[ast.stmt]) -> str:
    """Return why an arm is left apart: it raises in the end, or only warns."""
    if isinstance(body[-1], ast.Raise):
        return "raises"
    said = [node.value for node in body if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)]
    if len(said) == len(body) and all(_root(call.func) in _SPEAKERS for call in said):
        return "warns"
    return ""


def _leaves(node: ast.If) -> bool:
    """Return whether what follows an `if` runs only where its condition does not hold."""
    return not node.orelse and isinstance(node.body[-1], ast.Return | ast.Raise | ast.Continue | ast.Break)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _negated(test: ast.expr) -> str:
    """Return the opposite of a condition, as code."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return ast.unparse(test.operand)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and (other := _opposite(test.ops[0])):
        return ast.unparse(ast.Compare(test.left, [other], test.comparators))
    return ast.unparse(ast.UnaryOp(ast.Not(), test))


def _opposite(said: ast.cmpop) -> ast.cmpop | None:
    for one, other in _OPPOSITES:
        if isinstance(said, one | other):
            return other() if isinstance(said, one) else one()
    return None


def _span(body: Sequence[ast.stmt]) -> tuple[int, int]:
    return body[0].lineno, body[-1].end_lineno or body[-1].lineno


def methods_of(file: Path, name: str) -> frozenset[str]:
    """Return the names of the methods of a class in a file, without those that every model has."""
    for node in parse_file(file)[1].body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            return frozenset(one.name for one in within(node, ast.FunctionDef)) - {"__init__", "forward"}
    return frozenset()
