"""Code of one process, of models that several processes may share: diffusers splits a model by its own means."""

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN, Domain, Frame, Function, Scope, Unsupported, evaluate
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.targets.diffusers.porting.alternatives import with_changed
from omni_kit.targets.diffusers.porting.devices import Choosing
from omni_kit.targets.diffusers.porting.replaced_functions import changed_functions
from omni_kit.upstream.repositories.closure import Closure, bound_in, closure_of
from omni_kit.upstream.repositories.names import Defined, in_stand_ins, resolve

_DISTRIBUTED = "torch.distributed"
_PACKAGES = (_DISTRIBUTED, "xfuser", "megatron", "yunchang")
_ALONE: Mapping[str, object] = {
    f"{_DISTRIBUTED}.is_available": True, f"{_DISTRIBUTED}.is_initialized": False,
    f"{_DISTRIBUTED}.get_world_size": 1, f"{_DISTRIBUTED}.get_rank": 0,
}  # fmt: skip
_COLLECTIVES = tuple(f"{_DISTRIBUTED}.{name}" for name in ("barrier", "broadcast", "all_reduce"))


def without_processes(closure: Closure) -> Closure:
    """Return the closure with the branches that a program of one process takes, if it may talk to others."""
    if not any(_of_group(name) for names in closure.foreign.values() for name in names.values()) and not any(
        _of_group(one.source.module) or _imports_group(one.source) for one in closure.definitions
    ):
        return closure
    changing = {name for one in closure.definitions for name in _changed_by(one.node)}

    def alone(one: Defined, function: ast.FunctionDef) -> ast.FunctionDef | None:
        change = _Alone(_Group(one, function, changing))
        change.visit(function)
        return _without_unread(function, change.group) if change.done else None

    return with_changed(closure, changed_functions(closure.definitions, alone))


def _changed_by(node: ast.AST) -> set[str]:
    """Return the variables of a file that functions in a node set."""
    inside = [*ast.walk(node)]
    named = {name for one in inside if isinstance(one, ast.Global) for name in one.names}
    return named & {one.id for one in inside if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}


def _reading(node: ast.FunctionDef) -> ast.FunctionDef:
    """Return a function without the lines that only say which variables are the file's."""
    plain = copy.copy(node)
    plain.body = [one for one in node.body if not isinstance(one, ast.Global)]
    return plain


def _of_group(name: str) -> bool:
    """Return whether an absolute name is of a package that processes talk to each other with."""
    return any(name == one or name.startswith(f"{one}.") for one in (*_PACKAGES, *(f"standins.{p}" for p in _PACKAGES)))


@cache
def _imports_group(source: SourceFile) -> bool:
    return any(_of_group(f"{one.module}.{one.name}" if one.name else one.module) for one in source.imports.values())


@cache
def _communicates(one: Defined) -> bool:
    """Return whether a definition talks to other processes, or asks for them, or what it needs does."""
    found = closure_of(one)
    return any(_of_group(name) for names in found.foreign.values() for name in names.values()) or any(
        _of_group(each.source.module) for each in found.definitions
    )


@cache
def _asks_for_group(source: SourceFile, name: str) -> bool:
    """Return whether a name of a file is what asks for other processes, or talks to them."""
    meant = _resolved(source, name)
    if not isinstance(meant, Defined):
        return meant is not None and _of_group(meant)
    elsewhere = meant.source.path != source.path and _imports_group(meant.source)
    return not isinstance(meant.node, ast.ClassDef) and (elsewhere or _communicates(meant))


def _resolved(source: SourceFile, name: str) -> Defined | str | None:
    meant = resolve(source, name)
    return (in_stand_ins(meant) or meant) if isinstance(meant, str) else meant


@dataclass(frozen=True)
class _Outside:
    """A definition of another package."""

    name: str


@dataclass(frozen=True)
class _Made:
    """An object of a class of the authors that a file makes once."""

    cls: Defined


class _Group(Domain):
    """Values of expressions that ask for other processes, in a program of one."""

    def __init__(self, home: Defined, function: ast.FunctionDef, changing: set[str]) -> None:
        super().__init__(steps=20_000)
        self._home, self._changing = home, changing
        self._bound = bound_in(function)
        self.assigned: dict[str, list[ast.expr]] = {}
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.assigned.setdefault(node.targets[0].id, []).append(node.value)
        self._asking: set[str] = set()
        while more := {name for name, values in self.assigned.items()
                       if name not in self._asking and all(map(self.is_of_group, values))}:  # fmt: skip
            self._asking |= more

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression in one process; UNKNOWN if it depends on anything else."""
        if isinstance(node, ast.BoolOp):
            parts = [self.value(one) for one in node.values]
            decisive = isinstance(node.op, ast.Or)
            if any(one is not UNKNOWN and bool(one) is decisive for one in parts):
                return decisive
        if not self.is_asked(node):
            return UNKNOWN
        with suppress(Unsupported, RecursionError):
            return evaluate(node, self, home=self._home)
        return UNKNOWN

    def is_asked(self, node: ast.AST) -> bool:
        """Return whether an expression asks for other processes."""
        return any(self._asks(one) for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute))

    def _asks(self, node: ast.expr) -> bool:
        name = dotted(node) or ""
        head = name.partition(".")[0]
        if head in self._bound:
            return head in self._asking
        return bool(name) and _asks_for_group(self._home.source, name)

    def is_of_group(self, node: ast.expr) -> bool:
        """Return whether an expression consists of nothing but what asks for other processes, and constants."""
        names = [one for one in ast.walk(node) if isinstance(one, ast.Name)]
        return bool(names) and all(self._asks(one) or self._asks_whole(node, one) for one in names)

    def _asks_whole(self, node: ast.expr, name: ast.Name) -> bool:
        """Return whether a name is the module of what asks: `state` of `state.get_group()`."""
        chains = (one for one in ast.walk(node) if isinstance(one, ast.Attribute))
        return any((dotted(one) or "").startswith(f"{name.id}.") and self._asks(one) for one in chains)

    def communicates(self, body: Sequence[ast.AST]) -> bool:
        """Return whether statements talk to other processes."""
        return any(self.is_asked(one) for one in body)

    def name(self, name: str, frame: Frame) -> Any:
        """See `Domain`: a variable of the function, or what its file means."""
        if frame.home is self._home and name in self._bound:
            values = self.assigned.get(name, [])
            if len(values) != 1:
                raise Unsupported(f"uses {name}")
            return evaluate(values[0], self, home=self._home)
        return self._meaning(_resolved(frame.home.source, name), name)

    def _meaning(self, meant: Defined | str | None, name: str) -> Any:
        if isinstance(meant, str):
            return _Outside(meant)
        if meant is None or name in self._changing:
            raise Unsupported(f"uses {name}")
        if isinstance(meant.node, ast.FunctionDef):
            source = meant.source
            return Function(_reading(meant.node), source.path, source.module, Scope({}), meant)
        if isinstance(meant.node, ast.ClassDef):
            return _Made(meant)
        value = meant.node.value if isinstance(meant.node, ast.Assign | ast.AnnAssign) else None
        if value is None:
            raise Unsupported(f"uses {name}")
        return evaluate(value, self, home=meant)

    def attribute(self, base: Any, name: str, frame: Frame) -> Any:
        """See `Domain`: of a module, or what a constructor sets to a literal once."""
        if isinstance(base, _Outside):
            written = dotted(frame.at) if isinstance(frame.at, ast.Attribute) else None
            whole = f"{base.name}.{name}"
            own = _resolved(frame.home.source, written) if written else None  # of a module of the authors
            return self._meaning(own or in_stand_ins(whole) or whole, name)
        if isinstance(base, _Made):
            return evaluate(_set_once(base.cls, name), self, home=base.cls)
        return super().attribute(base, name, frame)

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], frame: Frame, node: ast.expr) -> Any:
        """See `Domain`."""
        if isinstance(function, _Outside):
            found = next((said for name, said in _ALONE.items() if name == _public(function.name)), UNKNOWN)
            if found is UNKNOWN:
                raise Unsupported(f"calls {function.name}")
            return found
        if isinstance(function, _Made):
            return function
        return super().call(function, arguments, keywords, frame, node)


def _public(name: str) -> str:
    return name.replace(".distributed_c10d.", ".")


def _set_once(cls: Defined, name: str) -> ast.expr:
    """Return the value that the constructor of a class gives an attribute, and no other method.

    Raises:
        Unsupported: it is set elsewhere, or several times.
    """
    assert isinstance(cls.node, ast.ClassDef)
    values = [one.value for one in ast.walk(cls.node) if isinstance(one, ast.Assign)
              for target in one.targets if ast.unparse(target) == f"self.{name}"]  # fmt: skip
    init = ClassRef(cls.source, cls.node).defines("__init__")
    if len(values) != 1 or init is None or not any(one is values[0] for one in ast.walk(init)):
        raise Unsupported(f"uses {name}")
    return values[0]


class _Alone(Choosing):
    """Keeps the branches of one process.

    A test of which no value is known, and that asks for other processes alone, chooses the branch that does not.
    """

    def __init__(self, group: _Group) -> None:
        super().__init__()
        self.group = group

    def _chosen(self, test: ast.expr, body: Sequence[ast.AST], orelse: Sequence[ast.AST]) -> bool | None:
        said = self.group.value(test)
        if said is not UNKNOWN:
            return bool(said)
        talks, other = self.group.communicates(body), self.group.communicates(orelse)
        return other if self.group.is_of_group(test) and talks is not other else None

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:  # noqa: N802
        """Return one branch, where the test asks for other processes."""
        said = self._chosen(node.test, node.body, node.orelse)
        if said is not None:
            self.done = True
            kept = [inner for one in (node.body if said else node.orelse) for inner in _listed(self.visit(one))]
            return kept or [ast.Pass()]
        self.generic_visit(node)
        node.orelse = [] if [*map(type, node.orelse)] == [ast.Pass] else node.orelse
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:  # noqa: N802
        """Return one value."""
        said = self._chosen(node.test, [node.body], [node.orelse])
        if said is None:
            return self.generic_visit(node)
        self.done = True
        kept: ast.AST = self.visit(node.body if said else node.orelse)
        return kept

    def visit_Assert(self, node: ast.Assert) -> ast.AST:  # noqa: N802
        """Drop what holds in one process."""
        said = self.group.value(node.test)
        if said is UNKNOWN or not said:
            return self.generic_visit(node)
        self.done = True
        return ast.Pass()

    def visit_Expr(self, node: ast.Expr) -> ast.AST:  # noqa: N802
        """Drop what only waits for other processes, or makes tensors equal there."""
        name = dotted(node.value.func) if isinstance(node.value, ast.Call) else None
        meant = resolve(self.group._home.source, name) if name else None
        if not isinstance(meant, str) or not _public(meant).startswith(_COLLECTIVES):
            return self.generic_visit(node)
        self.done = True
        return ast.Pass()

    def visit_Call(self, node: ast.Call) -> ast.AST:  # noqa: N802
        """Return the number of processes, or that of this one, for a call that asks for it."""
        said = self.group.value(node)
        if said is UNKNOWN or not isinstance(said, bool | int):
            return self.generic_visit(node)
        self.done = True
        return ast.copy_location(ast.Constant(said), node)


def _listed(node: ast.AST | list[ast.stmt] | None) -> Iterator[ast.stmt]:
    for one in node if isinstance(node, list) else [node]:
        if isinstance(one, ast.stmt):
            yield one


def _without_unread(function: ast.FunctionDef, group: _Group) -> ast.FunctionDef:
    """Return a function without variables that nothing reads any more and that hold what asks for other processes."""
    while True:
        read = {one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
        dropped = _Dropped({name for name, values in group.assigned.items() if name not in read
                            and all(map(group.is_of_group, values))})  # fmt: skip
        dropped.visit(function)
        if not dropped.done:
            return function


class _Dropped(ast.NodeTransformer):
    """Drops assignments to some variables."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self.done = False

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Return nothing of `group = get_group()`."""
        target = node.targets[0]
        if len(node.targets) > 1 or not isinstance(target, ast.Name) or target.id not in self._names:
            return node
        self.done = True
        return ast.copy_location(ast.Pass(), node)
