"""Reads of a function's locals that no assignment precedes on some path, by definite-assignment analysis."""

import ast
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from omni_kit.pysource.nodes import within

_Function = ast.FunctionDef | ast.AsyncFunctionDef
_INNER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True)
class UnsetRead:
    """One read of a local.

    Attributes:
        statement: the statement that reads it; for a statement with blocks, its head reads it.
        never: whether no path sets it before; False where some path does.
    """

    name: str
    statement: ast.stmt = field(compare=False)
    never: bool


def unset_reads(function: _Function) -> list[UnsetRead]:
    """Return the reads of locals that may come before any assignment.

    Loops may run zero times, every exception may be raised before the first statement of a `try`, and conditions are
    independent of one another. Nested functions are left out, because they run later.
    """
    flow = _Flow(frozenset(_locals(function)))
    parameters = frozenset(one.arg for one in within(function.args, ast.arg))
    flow.block(function.body, _State(parameters, parameters))
    return flow.found


def _locals(function: _Function) -> Iterator[str]:
    shared = {name for one in within(function, ast.Global) for name in one.names}
    shared |= {name for one in within(function, ast.Nonlocal) for name in one.names}
    for statement in function.body:
        yield from _bound(statement) - shared


def _bound(node: ast.AST) -> set[str]:
    """Return the names that code binds in its own scope."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return {name}
        case ast.Lambda():
            return set()
        case ast.Name(id=name, ctx=ast.Store()):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(one.asname or one.name).partition(".")[0] for one in names}
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return {one.target.id for one in within(node, ast.NamedExpr)}
    own = getattr(node, "rest" if isinstance(node, ast.MatchMapping) else "name", None)
    held = {own} if isinstance(own, str) and isinstance(node, (ast.ExceptHandler, ast.pattern)) else set()
    return held.union(*map(_bound, ast.iter_child_nodes(node)))


@dataclass(frozen=True)
class _State:
    """The locals that every path to a place has set, and those that some path has set."""

    sure: frozenset[str]
    maybe: frozenset[str]

    def plus(self, names: Iterable[str]) -> "_State":
        return _State(self.sure.union(names), self.maybe.union(names))

    def perhaps(self, names: Iterable[str]) -> "_State":
        return _State(self.sure, self.maybe.union(names))


def _joined(states: Iterable[_State | None]) -> _State | None:
    """Return the state where paths meet; None if none arrives."""
    there = [one for one in states if one is not None]
    if not there:
        return None
    return _State(
        frozenset.intersection(*(one.sure for one in there)), frozenset().union(*(one.maybe for one in there))
    )


@dataclass
class _Flow:
    names: frozenset[str]
    found: list[UnsetRead] = field(default_factory=list)
    breaks: list[list[_State]] = field(default_factory=list)

    def block(self, body: Sequence[ast.stmt], state: _State | None) -> _State | None:
        """Return the state behind statements; None if they do not end."""
        for one in body:
            if state is None:
                return None
            state = self.statement(one, state)
        return state

    def statement(self, node: ast.stmt, state: _State) -> _State | None:
        match node:
            case ast.If():
                self.reads(node.test, node, state)
                state = state.plus(_bound(node.test))
                return _joined([self.block(node.body, state), self.block(node.orelse, state)])
            case ast.For() | ast.AsyncFor():
                self.reads(node.iter, node, state)
                return self.loop(node, state, state.perhaps(_bound(node)).plus(_bound(node.target)), state)
            case ast.While():
                inside = state.perhaps(_bound(node))
                self.reads(node.test, node, inside)
                endless = isinstance(node.test, ast.Constant) and bool(node.test.value)
                tested = inside.plus(_bound(node.test))
                return self.loop(node, state, tested, None if endless else state.plus(_bound(node.test)))
            case ast.Try() | ast.TryStar():
                return self.tried(node, state)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    self.reads(item, node, state)
                    state = state.plus(_bound(item))
                return self.block(node.body, state)
            case ast.Match():
                return self.matched(node, state)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return state.plus([node.name])
            case ast.Break():
                self.breaks[-1].append(state)
                return None
            case ast.Return() | ast.Raise() | ast.Continue():
                self.reads(node, node, state)
                return None
            case ast.AugAssign(target=ast.Name(id=name)):
                self.reads(ast.Name(name, ast.Load()), node, state)
            case ast.AnnAssign(target=ast.Name(), value=None):
                return state
            case ast.Delete(targets=targets):
                gone = {one.id for one in targets if isinstance(one, ast.Name)}
                return _State(state.sure - gone, state.maybe - gone)
        self.reads(node, node, state)
        return state.plus(_bound(node))

    def loop(
        self, node: ast.For | ast.AsyncFor | ast.While, before: _State, inside: _State, ends: _State | None
    ) -> _State | None:
        """A loop whose body starts in the state `inside`, and which is over in the state `ends` if it never runs."""
        self.breaks.append([])
        self.block(node.body, inside)
        after = ends.perhaps(_bound(node)) if ends is not None else None
        return _joined([self.block(node.orelse, after), *self.breaks.pop()])

    def tried(self, node: ast.Try | ast.TryStar, state: _State) -> _State | None:
        raised = state.perhaps(name for one in node.body for name in _bound(one))
        caught = [(one.body, raised.plus([one.name] if one.name else [])) for one in node.handlers]
        ends = [self.block(node.orelse, self.block(node.body, state)), *(self.block(*one) for one in caught)]
        last = self.block(node.finalbody, raised)
        after = _joined(ends)
        return after.plus(last.sure - raised.sure) if after is not None and last is not None else None

    def matched(self, node: ast.Match, state: _State) -> _State | None:
        self.reads(node.subject, node, state)
        ends: list[_State | None] = []
        for case in node.cases:
            inside = state.plus(_bound(case.pattern))
            if case.guard is not None:
                self.reads(case.guard, node, inside)
            ends.append(self.block(case.body, inside))
        last = node.cases[-1]
        always = last.guard is None and isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None
        return _joined([*ends, None if always else state])

    def reads(self, node: ast.AST, statement: ast.stmt, state: _State) -> None:
        """Record what an expression, or a statement without blocks, reads too early."""
        own = _bound(node) if isinstance(node, ast.expr) else {one.target.id for one in within(node, ast.NamedExpr)}
        for name in _read(node):
            if name in self.names - state.sure - own:
                self.found.append(UnsetRead(name, statement, name not in state.maybe))


def _read(node: ast.AST) -> Iterator[str]:
    """Yield the names of its own scope that code reads when it runs."""
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            yield name
        case _ if isinstance(node, _COMPREHENSIONS):
            own = {name for one in node.generators for name in _bound(one.target)}
            for child in ast.iter_child_nodes(node):
                yield from (name for name in _read(child) if name not in own)
        case _ if not isinstance(node, _INNER):
            for child in ast.iter_child_nodes(node):
                yield from _read(child)
