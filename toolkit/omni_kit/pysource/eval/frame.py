"""Statements, one after the other, in the scope of a module, of a class or of a function."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from omni_kit.pysource.eval.domain import Domain
from omni_kit.pysource.eval.expressions import Expressions, handler, readable
from omni_kit.pysource.eval.python import BUILTINS, OPERATORS, listed
from omni_kit.pysource.eval.values import (
    Definition,
    Exhausted,
    Function,
    Scope,
    Unsupported,
    bounded,
    is_iterable,
    is_plain,
)
from omni_kit.pysource.signatures import bind, double_star, named, star


class Return(Exception):
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
        domain: what is said of values that are not plain.
        path, module: the file, and its dotted name.
        scope: where names are looked up and stored.
        home: what the domain requires to know of the place; a function has that of its definition.
    """

    def __init__(self, domain: Domain, path: Path, module: str, scope: Scope, home: Any = None) -> None:
        self.domain, self.path, self.module, self.scope, self.home = domain, path, module, scope, home
        self.at = ast.Pass()

    def run(self, body: Sequence[ast.stmt]) -> None:
        """Goes through statements.

        Raises:
            Unsupported: the effect of one of them cannot be determined.
        """
        for node in body:
            try:
                self.runner(node)(node)
            except (Return, _Break, _Continue):
                raise
            except Exception as error:
                raise self.located(error, node) from error

    def runner(self, node: ast.stmt) -> Callable[[Any], None]:
        """Return the function that evaluates a statement.

        Raises:
            Unsupported: nothing does.
        """
        self.domain.spend()
        found: Callable[[Any], None] | None = getattr(self, handler("run", type(node).__name__), None)
        if found is None:
            raise Unsupported(f"contains an unsupported statement ({type(node).__name__.lower()})")
        return found

    def located(self, error: Exception, node: ast.AST) -> Unsupported:
        """Return the error with the line of the statement, unless one further in has it already."""
        kind = Exhausted if isinstance(error, (RecursionError, MemoryError)) else Unsupported
        found = error if isinstance(error, Unsupported) else kind(self.domain.failed(error, node))
        if found.path is None:
            found.path, found.line = self.path, getattr(node, "lineno", None)
        return found

    def inner(self) -> "Frame":
        """Return a comprehension's own scope."""
        return self.framed(self.path, self.module, Scope({}, self.scope.enclosing(), "comprehension"), self.home)

    def framed(self, path: Path, module: str, scope: Scope, home: Any) -> "Frame":
        """Return a frame for other code, of the same domain."""
        return Frame(self.domain, path, module, scope, home)

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
        """`a += value`; a list or a set grows in place."""
        before, value = self.value(node.target), self.value(node.value)
        self.at = node
        self.bind(node.target, self.updated(node, before, value))

    def updated(self, node: ast.AugAssign, before: Any, value: Any) -> Any:
        """Return the value that `before op= value` assigns; collections change in place."""
        if not is_plain(before):
            return self.domain.updated(OPERATORS[type(node.op)], before, value, self)
        if isinstance(before, list) and isinstance(node.op, ast.Add) and is_iterable(value):
            before.extend(listed(value))
            return bounded(before)
        result = self.operation(node.op, [before, value], node)
        if isinstance(before, (list, set, dict)) and type(result) is type(before):
            kept = result.copy()
            before.clear()
            before.extend(kept) if isinstance(before, list) else before.update(kept)
            return before
        return result

    def run_delete(self, node: ast.Delete) -> None:
        """`del name` and `del dict[key]`."""
        for target in node.targets:
            if isinstance(target, ast.Subscript) and type(base := self.value(target.value)) is dict:
                del base[self.key(self.value(target.slice))]
            elif isinstance(target, ast.Name) and target.id in self.scope.names:
                readable(self.scope.names.pop(target.id))
                if self.scope.kind == "function":
                    self.scope.names[target.id] = Unsupported(f"uses {target.id}, which is deleted")
            else:
                raise Unsupported("deletes something other than a name")

    def run_assert(self, node: ast.Assert) -> None:
        """A claim, which must hold."""
        if not self.may_hold(node.test):
            raise Unsupported("fails an assertion")

    def run_raise(self, node: ast.Raise) -> None:
        """An error."""
        raise self.domain.raised(ast.unparse(node.exc) if node.exc is not None else "an error", self)

    def run_if(self, node: ast.If) -> None:
        """The branch that is taken."""
        self.run(node.body if self.truth(node.test) else node.orelse)

    def run_for(self, node: ast.For) -> None:
        """Every pass of a loop over known items."""
        for item in self.items(node.iter):
            self.bind(node.target, item)
            if not self.goes_on(node.body):
                return
        self.run(node.orelse)

    def run_while(self, node: ast.While) -> None:
        """Every pass of a loop as long as its condition holds."""
        while self.truth(node.test):
            if not self.goes_on(node.body):
                return
        self.run(node.orelse)

    def goes_on(self, body: Sequence[ast.stmt]) -> bool:
        """Return one pass of a loop; whether another one may follow."""
        try:
            self.run(body)
        except _Continue:
            return True
        except _Break:
            return False
        return True

    def run_break(self, node: ast.Break) -> None:
        """End a loop."""
        raise _Break

    def run_continue(self, node: ast.Continue) -> None:
        """End a pass of a loop."""
        raise _Continue

    def run_with(self, node: ast.With) -> None:
        """Evaluate the body inside the domain's context managers."""
        with ExitStack() as stack:
            for item in node.items:
                entered = stack.enter_context(self.domain.context(item.context_expr, self))
                if item.optional_vars is not None:
                    self.bind(item.optional_vars, entered)
            self.run(node.body)

    def run_try(self, node: ast.Try) -> None:
        """Evaluate the try body; a handler if the domain selects one."""
        try:
            self.run_tried(node)
        finally:
            self.run(node.finalbody)

    def run_tried(self, node: ast.Try) -> None:
        """All but the `finally` of a `try`."""
        try:
            self.run(node.body)
        except Unsupported as error:
            if not node.handlers or not self.domain.handles(error, node):
                raise
            self.run(node.handlers[0].body)
        else:
            self.run(node.orelse)

    def run_match(self, node: ast.Match) -> None:
        """The first case that matches; patterns are constants, alternatives and names."""
        subject = self.value(node.subject)
        for case in node.cases:
            if self.matches(case.pattern, subject, node) and (case.guard is None or self.truth(case.guard)):
                return self.run(case.body)
        return None

    def matches(self, pattern: ast.pattern, value: Any, node: ast.Match) -> bool:
        """Return whether a value matches a pattern, whose names it is given."""
        if isinstance(pattern, ast.MatchOr):
            return any(self.matches(one, value, node) for one in pattern.patterns)
        if isinstance(pattern, ast.MatchAs):
            if pattern.pattern is not None and not self.matches(pattern.pattern, value, node):
                return False
            if pattern.name is not None:
                self.scope.names[pattern.name] = value
            return True
        if isinstance(pattern, ast.MatchValue):
            return self.is_true(self.operation(ast.Eq(), [value, self.value(pattern.value)], node))
        if isinstance(pattern, ast.MatchSingleton):
            return self.is_true(self.operation(ast.Is(), [value, pattern.value], node))
        raise Unsupported("matches an unsupported pattern")

    def run_import(self, node: ast.Import) -> None:
        """`import a.b` and `import a.b as c`."""
        self.at = node
        for alias in node.names:
            module = self.domain.imported(alias.name, (), 0, self)
            first, *rest = alias.name.split(".")
            for part in rest if alias.asname else ():
                module = self.attribute(module, part)
            self.scope.names[alias.asname or first] = module

    def run_importfrom(self, node: ast.ImportFrom) -> None:
        """`from a import b`."""
        self.at = node
        names = tuple(alias.name for alias in node.names)
        module = self.domain.imported(node.module or "", names, node.level, self)
        for alias in node.names:
            found = self.domain.attribute(module, alias.name, self)
            self.scope.names |= found if alias.name == "*" else {alias.asname or alias.name: found}

    def run_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """A function, and what its decorators make of it."""
        decorators = [self.value(decorator) for decorator in node.decorator_list]
        made = self.domain.decorated(self.written(node), decorators, node.decorator_list, self)
        self.scope.names[node.name] = made

    run_asyncfunctiondef = run_functiondef

    def run_classdef(self, node: ast.ClassDef) -> None:
        """A class, and what its decorators make of it."""
        decorators = [self.value(decorator) for decorator in node.decorator_list]
        cls = self.written_class(node)
        self.scope.names[node.name] = self.domain.decorated(cls, decorators, node.decorator_list, self)

    def written_class(self, node: ast.ClassDef) -> Any:
        """Return the class that a definition makes, before its decorators: its body is gone through."""
        bases = [self.value(base) for base in node.bases]
        if any(isinstance(one, (ast.Global, ast.Nonlocal)) for one in _of_scope(node.body)):
            raise Unsupported("has a class that assigns names of other scopes")
        scope = Scope({}, self.scope.enclosing(), "class")
        with self.domain.defining(node, self):
            self.framed(self.path, self.module, scope, None).run(node.body)
        return Function(node, self.path, self.module, self.scope.enclosing(), members=scope.names, bases=bases)

    def run_return(self, node: ast.Return) -> None:
        """Give a function's value."""
        raise Return(self.value(node.value) if node.value is not None else None)

    # functions

    def written(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> Function:
        """Return the function that a definition makes."""
        made = Function(node, self.path, self.module, self.scope.enclosing(), self.domain.home(self))
        made.defaults = self.defaults(node.args)
        return made

    def defaults(self, arguments: ast.arguments) -> dict[str, Any]:
        """Map each parameter to its default, or to the Unsupported that a call without the argument raises.

        Raises:
            Unsupported: a default of plain values alone cannot be evaluated, where Python itself may raise.
        """
        positional = [*arguments.posonlyargs, *arguments.args]
        pairs = list(zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True))
        pairs += [(a, d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is not None]
        found: dict[str, Any] = {}
        for argument, node in pairs:
            try:
                found[argument.arg] = self.value(node)
            except Unsupported as error:
                if self._uses_plain_values_alone(node):
                    raise
                found[argument.arg] = error
        return found

    def _uses_plain_values_alone(self, node: ast.expr) -> bool:
        parts = list(ast.walk(node))
        own = {part.arg for part in parts if isinstance(part, ast.arg)}
        own |= {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
        read = {part.id for part in parts if isinstance(part, ast.Name)} - own
        holders = [(name, self.scope.holder(name)) for name in read]
        own_names = type(self.domain).name is not Domain.name
        known = (is_plain(one.names[name]) if one else name in BUILTINS or not own_names for name, one in holders)
        return all(known)

    def entered(self, function: Function, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        """Evaluate a function's body with arguments, and return its result.

        Raises:
            Unsupported: the arguments do not fit, or the body cannot be determined.
        """
        names = self.bound(function, [*function.bound, *arguments], keywords)
        scope = Scope(names, function.scope, "function")
        frame = self.framed(function.path, function.module, scope, function.home)
        self.domain.depth -= 1
        try:
            if self.domain.depth < 0:
                raise Exhausted(f"calls {function.__name__} without end")
            if isinstance(function.node, ast.Lambda):
                return frame.value(function.node.body)
            assert isinstance(function.node, (ast.FunctionDef, ast.AsyncFunctionDef))
            frame.run(function.node.body)
        except Return as given:
            return given.value
        finally:
            self.domain.depth += 1
        return None

    def bound(self, function: Function, arguments: list[Any], keywords: dict[str, Any]) -> dict[str, Any]:
        """Parameter -> value, as Python binds them.

        Raises:
            Unsupported: the arguments do not fit.
        """
        taken = function.signature
        try:
            given = bind(taken, arguments, keywords)
        except TypeError as error:
            raise Unsupported(f"calls {function.__name__} with arguments that do not match its signature") from error
        names = {**function.defaults, **given.arguments}
        if missing := named(taken).keys() - names.keys():
            raise Unsupported(f"does not give {min(missing)}")
        stars: dict[str | None, Any] = {star(taken): (), double_star(taken): {}}
        given_stars = {name: value for name, value in stars.items() if name is not None}
        return {**_locals(function.node), **given_stars, **names}

    # names

    def bind(self, target: ast.expr, value: Any) -> None:
        """Give a value to a name, to several, to an attribute, or to an item."""
        if isinstance(target, ast.Name):
            self.scope.names[target.id] = value
        elif isinstance(target, (ast.Tuple, ast.List)):
            self._unpacked(target, self.domain.unpacked(value, len(target.elts), self))
        elif isinstance(target, ast.Attribute):
            base = self.value(target.value)
            self.at = target
            self.domain.set_attribute(base, target.attr, value, self)
        elif isinstance(target, ast.Subscript):
            base, key = self.value(target.value), self.value(target.slice)
            self.at = target
            if isinstance(base, (dict, list)) and is_plain(key):
                base[self.key(key) if not isinstance(key, slice) else key] = value
                bounded(base)
            else:
                self.domain.set_item(base, key, value, self)
        else:
            raise Unsupported("assigns to an unsupported target")

    def _unpacked(self, target: ast.Tuple | ast.List, values: list[Any]) -> None:
        starred = [place for place, inside in enumerate(target.elts) if isinstance(inside, ast.Starred)]
        if starred and len(values) >= len(target.elts) - 1:
            end = len(values) - (len(target.elts) - starred[0] - 1)
            values = [*values[: starred[0]], values[starred[0] : end], *values[end:]]
        if len(values) != len(target.elts):
            raise Unsupported("unpacks a value of another length")
        for inside, item in zip(target.elts, values, strict=True):
            self.bind(inside.value if isinstance(inside, ast.Starred) else inside, item)


def evaluate(
    node: ast.expr, domain: Domain, names: Mapping[str, Any] | None = None, path: Path = Path(), home: Any = None
) -> Any:
    """Return the value of an expression that stands alone.

    Args:
        names: what the names in it mean, before the domain is asked.
        home: see `Frame`.

    Raises:
        Unsupported: the value cannot be determined.
    """
    frame = Frame(domain, path, "", Scope(dict(names or {})), home)
    domain.depth -= 1
    try:
        if domain.depth < 0:
            raise Unsupported("recurses without end")
        return frame.value(node)
    except Exception as error:
        raise frame.located(error, node) from error
    finally:
        domain.depth += 1


@cache
def _locals(function: Definition) -> Mapping[str, Unsupported]:
    """Return the names that a function assigns: until it does, they have no value, whatever is outside.

    Raises:
        Unsupported: it assigns names of other scopes, or gives its values one by one.
    """
    body = [function.body] if isinstance(function, ast.Lambda) else function.body
    own = list(_of_scope(body))
    for node in own:
        if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal)):
            raise Unsupported(f"calls a function with an unsupported argument ({type(node).__name__})")
    found = {node.id for node in own if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load)}
    found |= {node.name for node in own if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))}
    found |= {node.name for node in own if isinstance(node, (ast.ExceptHandler, ast.MatchAs)) and node.name}
    aliases = [alias for node in own if isinstance(node, (ast.Import, ast.ImportFrom)) for alias in node.names]
    found |= {alias.asname or alias.name.partition(".")[0] for alias in aliases}
    return {name: Unsupported(f"uses {name} before it is assigned") for name in found}


def _of_scope(nodes: Sequence[ast.AST]) -> Iterator[ast.AST]:
    """Yield the nodes of a scope; of a comprehension what it assigns in the scope around it, of definitions their
    names.
    """
    for node in nodes:
        yield node
        if isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            yield from (one.target for one in ast.walk(node) if isinstance(one, ast.NamedExpr))
            yield from (one for one in ast.walk(node) if isinstance(one, (ast.Yield, ast.YieldFrom, ast.Await)))
        elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from _of_scope(list(ast.iter_child_nodes(node)))
