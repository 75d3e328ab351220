"""The statements of a config, one after the other, in the scope of its module, of a class or of a function."""

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from omni_kit.patchgen import spec
from omni_kit.patchgen.reader import known
from omni_kit.patchgen.reader.expressions import Expressions
from omni_kit.patchgen.reader.values import RECORDS, Native, Partial, Scope, Unreadable, Written, bounded, plain
from omni_kit.patchgen.spec import Origin
from omni_kit.patchgen.standins import StandIn

_MAX_DEPTH = 30


class Reading(Protocol):
    """What the frames of one config share."""

    position: Origin | None
    """The line of module-level code that is being read."""
    depth: int
    """How many functions are being gone through."""

    def spend(self) -> None:
        """Takes one step off the budget."""

    def imported(self, name: str, home: Path, names: tuple[str, ...], level: int) -> Any:
        """What an import gives."""


class _Return(Exception):
    """A function gives its value."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class _Break(Exception):
    """A loop ends."""


class _Continue(Exception):
    """A pass of a loop ends."""


class Frame(Expressions):
    """Goes through statements.

    Args:
        reading: what it shares with the others.
        path, module: the file, and its dotted name.
        scope: where names are looked up and stored.
        at_module: whether this is module-level code, whose lines register patches.
    """

    def __init__(self, reading: Reading, path: Path, module: str, scope: Scope, *, at_module: bool = False) -> None:
        self.reading, self.path, self.module, self.scope, self.at_module = reading, path, module, scope, at_module

    def run(self, body: Sequence[ast.stmt]) -> None:
        """Goes through statements.

        Raises:
            Unreadable: the effect of one of them cannot be told.
        """
        for node in body:
            self.spend()
            runner: Callable[[Any], None] | None = getattr(self, f"run_{type(node).__name__.lower()}", None)
            try:
                if runner is None:
                    raise Unreadable(f"has a statement that is not read ({type(node).__name__.lower()})")
                runner(node)
            except (_Return, _Break, _Continue):
                raise
            except Exception as error:
                raise self.located(error, node) from error

    def located(self, error: Exception, node: ast.stmt) -> Unreadable:
        """The error with the line of the statement, unless one further in has it already."""
        found = error if isinstance(error, Unreadable) else Unreadable(f"ends in {type(error).__name__}: {error}")
        found.origin = found.origin or Origin(str(self.path), node.lineno)
        return found

    def spend(self) -> None:
        """Takes one step off the budget."""
        self.reading.spend()

    def inner(self) -> "Frame":
        """A comprehension's own scope."""
        return Frame(self.reading, self.path, self.module, Scope({}, self.scope.enclosing()), at_module=self.at_module)

    @contextmanager
    def at(self, line: int) -> Iterator[None]:
        """What the DSL is told of the place while it registers something."""
        if self.at_module:
            self.reading.position = Origin(str(self.path), line)
        with spec.positioned(self.reading.position):
            yield

    # statements

    def run_expr(self, node: ast.Expr) -> None:
        """An expression for its effect; a text alone is a comment."""
        if not isinstance(node.value, ast.Constant):
            self.value(node.value)

    def run_pass(self, node: ast.Pass) -> None:
        """Nothing."""

    def run_assign(self, node: ast.Assign) -> None:
        """`a = b = value`."""
        value = self.value(node.value)
        for target in node.targets:
            self.bind(target, value)

    def run_annassign(self, node: ast.AnnAssign) -> None:
        """`a: T = value`; without a value it is a comment."""
        if node.value is not None:
            self.bind(node.target, self.value(node.value))

    def run_augassign(self, node: ast.AugAssign) -> None:
        """`a += value`; a list grows in place."""
        before, value = self.value(node.target), self.value(node.value)
        if isinstance(before, list) and isinstance(node.op, ast.Add) and isinstance(value, (list, tuple, set)):
            before.extend(value)
            bounded(before)
        elif isinstance(before, set) and isinstance(node.op, ast.BitOr) and isinstance(value, (set, frozenset)):
            before.update(value)
        else:
            self.bind(node.target, self.combined(node.op, before, value))

    def run_delete(self, node: ast.Delete) -> None:
        """`del name`."""
        for target in node.targets:
            if not isinstance(target, ast.Name) or target.id not in self.scope.names:
                raise Unreadable("deletes what is no name")
            del self.scope.names[target.id]

    def run_assert(self, node: ast.Assert) -> None:
        """A claim, which must hold."""
        if not self.truth(node.test):
            raise Unreadable("fails in an assertion")

    def run_if(self, node: ast.If) -> None:
        """The branch that is taken."""
        self.run(node.body if self.truth(node.test) else node.orelse)

    def run_for(self, node: ast.For) -> None:
        """Every pass of a loop over plain values."""
        for item in self.items(node.iter):
            self.bind(node.target, item)
            try:
                self.run(node.body)
            except _Continue:
                continue
            except _Break:
                break
        else:
            self.run(node.orelse)

    def run_break(self, node: ast.Break) -> None:
        """Ends a loop."""
        raise _Break

    def run_continue(self, node: ast.Continue) -> None:
        """Ends a pass of a loop."""
        raise _Continue

    def run_try(self, node: ast.Try) -> None:
        """What is tried; a handler only where an import inside the directory leads to nothing."""
        try:
            self.run(node.body)
        except Unreadable as error:
            if not isinstance(error.__cause__, ImportError) or not node.handlers:
                raise
            self.run(node.handlers[0].body)
        else:
            self.run(node.orelse)
        self.run(node.finalbody)

    def run_import(self, node: ast.Import) -> None:
        """`import a.b` and `import a.b as c`."""
        for alias in node.names:
            module = self.reading.imported(alias.name, self.path, (), 0)
            first, *rest = alias.name.split(".")
            for part in rest if alias.asname else ():
                module = self.attribute(module, part)
            self.scope.names[alias.asname or first] = module

    def run_importfrom(self, node: ast.ImportFrom) -> None:
        """`from a import b`."""
        names = tuple(alias.name for alias in node.names)
        module = self.reading.imported(node.module or "", self.path, names, node.level)
        for alias in node.names:
            if alias.name != "*":
                self.scope.names[alias.asname or alias.name] = self.attribute(module, alias.name)
            elif isinstance(module, ModuleType) and module is not spec:
                self.scope.names.update(_public(module))
            elif module is spec:
                self.scope.names.update({name: known.of_dsl(name) for name in known.DSL})

    def run_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """A function, and what its decorators make of it."""
        decorators = [self.value(decorator) for decorator in node.decorator_list]
        self.scope.names[node.name] = self.decorated(self.written(node), decorators, node.decorator_list)

    run_asyncfunctiondef = run_functiondef

    def run_classdef(self, node: ast.ClassDef) -> None:
        """A class, whose body is gone through, and what its decorators make of it."""
        decorators = [self.value(decorator) for decorator in node.decorator_list]
        bases = [self.value(base) for base in node.bases]
        scope = Scope({}, self.scope.enclosing(), is_class=True)
        if self.at_module:
            self.reading.position = Origin(str(self.path), node.lineno)
        Frame(self.reading, self.path, self.module, scope).run(node.body)
        cls = Written(node, self.path, self.module, self.scope.enclosing(), scope.names, bases=bases)
        self.scope.names[node.name] = self.decorated(cls, decorators, node.decorator_list)

    def run_return(self, node: ast.Return) -> None:
        """Gives a function's value."""
        raise _Return(self.value(node.value) if node.value is not None else None)

    # functions

    def written(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Written:
        """The function that a definition makes."""
        arguments = node.args
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = list(zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True))
        pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
        defaults = {argument.arg: self.default(value) for argument, value in pairs}
        return Written(node, self.path, self.module, self.scope.enclosing(), defaults=defaults)

    def default(self, node: ast.expr) -> Any:
        """The value of a default, or why it cannot be told, which matters only to whoever calls the function."""
        try:
            return self.value(node)
        except Unreadable as error:
            return error

    def decorated(self, definition: Written, decorators: Sequence[Any], nodes: Sequence[ast.expr]) -> Any:
        """A definition after its decorators, the last of which comes first; those of other libraries leave it as is."""
        made: Any = definition
        for decorator, node in zip(reversed(decorators), reversed(nodes), strict=True):
            if isinstance(decorator, StandIn):
                continue
            with self.at(node.lineno):
                made = self.apply(decorator, [made], {})
        return made

    def called(self, function: Any, arguments: list[Any], keywords: dict[str, Any], node: ast.Call) -> Any:
        """What a call gives; the DSL is told its line as Python tells it."""
        callee = node.func
        line = callee.end_lineno if isinstance(callee, ast.Attribute) else node.lineno
        with self.at(line or node.lineno):
            return self.apply(function, arguments, keywords)

    def apply(self, function: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """What a value gives when it is called."""
        if isinstance(function, Partial):
            return self.apply(function.function, [*function.arguments, *arguments], {**function.keywords, **keywords})
        if isinstance(function, StandIn):
            return self.foreign(function, arguments, keywords)
        if isinstance(function, Native):
            if function.function is getattr:
                return self.attribute(arguments[0], plain(arguments[1]))
            return known.call(function.function, arguments, keywords)
        if isinstance(function, Written) and isinstance(function.node, (ast.FunctionDef, ast.Lambda)):
            return self.returned(function, arguments, keywords)
        what = function.__name__ if isinstance(function, Written) else f"a {type(function).__name__}"
        raise Unreadable(f"calls {what}")

    def returned(self, function: Written, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """What a function of the config gives: its body is gone through."""
        assert isinstance(function.node, (ast.FunctionDef, ast.Lambda))
        names = _arguments(function.node.args, function.defaults, arguments, keywords)
        frame = Frame(self.reading, function.path, function.module, Scope(names, function.scope))
        if isinstance(function.node, ast.Lambda):
            return frame.value(function.node.body)
        self.reading.depth += 1
        if self.reading.depth > _MAX_DEPTH:
            raise Unreadable(f"calls {function.__name__} without end")
        try:
            frame.run(function.node.body)
        except _Return as given:
            return given.value
        finally:
            self.reading.depth -= 1
        return None

    # names

    def bind(self, target: ast.expr, value: Any) -> None:
        """Gives a value to a name, to several, to a field of the DSL's objects, or to an item."""
        if isinstance(target, ast.Name):
            self.scope.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            if not isinstance(value, (list, tuple)) or len(value) != len(target.elts):
                raise Unreadable("unpacks what does not fit")
            for inside, item in zip(target.elts, value, strict=True):
                self.bind(inside, item)
        elif isinstance(target, ast.Attribute):
            self.set_attribute(self.value(target.value), target.attr, value)
        elif isinstance(target, ast.Subscript) and isinstance(base := self.value(target.value), (dict, list)):
            base[plain(self.value(target.slice))] = value
            bounded(base)
        else:
            raise Unreadable("assigns to what is not read")

    def set_attribute(self, owner: Any, name: str, value: Any) -> None:
        """Sets a field of a config or a patch; attributes of other libraries are none of a config's business."""
        if isinstance(owner, RECORDS) and name in known.fields(owner):
            setattr(owner, name, value)
        elif not isinstance(owner, StandIn) and not (isinstance(owner, Written) and name == "__doc__"):
            raise Unreadable(f"sets {name} of a {type(owner).__name__}")


def _public(module: ModuleType) -> dict[str, Any]:
    """What `from module import *` gives."""
    listed = vars(module).get("__all__")
    if isinstance(listed, (list, tuple)):
        return {name: vars(module)[name] for name in listed}
    return {name: value for name, value in vars(module).items() if not name.startswith("_")}


def _arguments(
    parameters: ast.arguments, defaults: Any, arguments: list[Any], keywords: dict[str, Any]
) -> dict[str, Any]:
    """Parameter -> value, as Python binds them.

    Raises:
        Unreadable: the arguments do not fit.
    """
    positional = [one.arg for one in (*parameters.posonlyargs, *parameters.args)]
    names = dict(zip(positional, arguments, strict=False))
    if len(arguments) > len(positional):
        if parameters.vararg is None:
            raise Unreadable("gives too many arguments")
        names[parameters.vararg.arg] = tuple(arguments[len(positional) :])
    elif parameters.vararg is not None:
        names[parameters.vararg.arg] = ()
    every = {*positional, *(one.arg for one in parameters.kwonlyargs)}
    more = {name: value for name, value in keywords.items() if name not in every}
    if parameters.kwarg is not None:
        names[parameters.kwarg.arg] = more
    elif more:
        raise Unreadable(f"gives an argument {next(iter(more))} that is not taken")
    given = {**defaults, **names, **{name: value for name, value in keywords.items() if name in every}}
    if missing := every - given.keys():
        raise Unreadable(f"does not give {min(missing)}")
    return given
