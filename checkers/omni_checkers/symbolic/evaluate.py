"""Executes statements symbolically along one path."""

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from omni_checkers.symbolic.evaluation import Attached
from omni_checkers.symbolic.expressions import Expressions
from omni_checkers.symbolic.paths import Oracle
from omni_checkers.symbolic.program import Module, Program
from omni_checkers.symbolic.signals import Break, Continue, Raised, Return
from omni_checkers.symbolic.values import Call, Class, Function, LazyScope, Opaque, Scope, Symbol, Value, hashable, show

_CALL_DEPTH = 12
# What executes each type of statements.
_HANDLERS = {kind: f"_do_{kind.__name__.lower()}" for kind in ast.stmt.__subclasses__()}


@dataclass(frozen=True)
class Effect:
    """A call or item assignment whose callee or container is not executed."""

    value: Value
    module: Module
    line: int


@dataclass(frozen=True)
class Stored:
    """`container[key] = value` on something that is not executed."""

    container: Value
    key: Value
    value: Value


@dataclass
class Outcome:
    """What calling a function did on one path.

    Attributes:
        value: what it returned; None also where it fell off the end.
        raised: the exception as text where the path ended in one.
        line: of the return or raise.
        attributes: (owner, name) -> what was stored there last.
        effects: calls of library code, in order.
    """

    value: Value = None
    raised: str | None = None
    line: int = 0
    module: Module | None = None
    attributes: Mapping[tuple[Value, str], Attached] = field(default_factory=dict)
    effects: Sequence[Effect] = ()


class Evaluator(Expressions):
    """One path through a program.

    Args:
        program: the package whose files may be read; what lies outside it becomes a Symbol.
        oracle: decides conditions that are not known.
    """

    def __init__(self, program: Program, oracle: Oracle) -> None:
        super().__init__(oracle)
        self.program = program
        self.scopes: dict[Module, Scope] = {}
        self.attributes: dict[tuple[Value, str], Attached] = {}
        self.effects: list[Effect] = []
        self.imports: dict[str, int] = {}
        self.depth = 0

    # modules

    def run_module(self, module: Module) -> Scope:
        """Imports a module: all its statements, in order. One that is being imported gives what it has so far."""
        if module not in self.scopes:
            scope = self.scopes[module] = Scope()
            tree = self.program.parse(module.path) if module.path.is_file() else None
            if tree is not None:
                self.among(module, scope, tree.body)
        return self.scopes[module]

    def names_of(self, module: Module) -> Scope:
        """The names of a module; its statements are executed only for names that are asked for."""
        if module not in self.scopes:
            bindings = self.program.bindings(module)
            if "*" in bindings:
                return self.run_module(module)
            scope = LazyScope(bindings, lambda statements: self.among(module, scope, statements))
            self.scopes[module] = scope
        return self.scopes[module]

    def among(self, module: Module, scope: Scope, statements: Sequence[ast.stmt]) -> None:
        """Executes statements among the names of a module."""
        before = self.module, self.scope
        self.module, self.scope = module, scope
        try:
            self.block(statements)
        finally:
            self.module, self.scope = before

    def call_function(self, function: Value, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Outcome:
        """Calls a function to its end and says what came of it."""
        try:
            value, raised = self.call(function, list(args), dict(kwargs), None), None
        except Raised as error:
            value, raised = None, error.text
            self.last_line, self.last_module = error.line, error.module
        return Outcome(value, raised, self.last_line, self.last_module, dict(self.attributes), tuple(self.effects))

    def imported(self, module_name: str, name: str | None) -> Value:
        """What `import module_name` or `from module_name import name` binds."""
        line = self.line
        module = self.program.module(module_name)
        if module is None:
            if self.program.contains(module_name):
                raise Raised(f"ModuleNotFoundError: {module_name}", 0, self.module)
            return Symbol(module_name if name is None else f"{module_name}.{name}")
        value = module if name is None else self.module_attribute(module, name)
        self.imports.setdefault(value.name if isinstance(value, Module) else module_name, line)
        return value

    def module_attribute(self, module: Module, name: str) -> Value:
        """A name of a module, or a module inside it.

        Raises:
            Raised: the module has neither.
        """
        scope = self.names_of(module)
        if scope.has(name):
            return scope.names[name]
        inner = self.program.module(f"{module.name}.{name}")
        if inner is not None:
            return inner
        raise Raised(f"ImportError: {module.name} has no {name}", 0, self.module)

    # statements

    def block(self, body: Sequence[ast.stmt]) -> None:
        """Executes statements in order; kinds that mean nothing to a path are passed over."""
        for statement in body:
            self.step()
            handler = getattr(self, _HANDLERS.get(type(statement), ""), None)
            if handler is not None:
                handler(statement)

    def _do_import(self, node: ast.Import) -> None:
        self.line = node.lineno
        for alias in node.names:
            value = self.imported(alias.name, None)
            first = alias.name.partition(".")[0]
            self.bind(
                alias.asname or first, value if alias.asname or first == alias.name else self.imported(first, None)
            )

    def _do_importfrom(self, node: ast.ImportFrom) -> None:
        self.line = node.lineno
        module = self.program.absolute(self.module, node)
        for alias in node.names:
            if alias.name == "*":
                inner = self.program.module(module)
                for name, value in list(self.run_module(inner).names.items()) if inner else ():
                    self.bind(name, value)
            else:
                self.bind(alias.asname or alias.name, self.imported(module, alias.name))

    def _do_functiondef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        value: Value = Function(self.module, node, self.scope)
        for decorator in reversed(node.decorator_list):
            value = self.decorate(self.value(decorator), value, decorator)
        self.bind(node.name, value)

    _do_asyncfunctiondef = _do_functiondef

    def decorate(self, decorator: Value, function: Value, node: ast.expr) -> Value:
        """A decorator of this package is called; a library's is recorded and leaves the function as it is."""
        if isinstance(decorator, Function):
            made = self.call(decorator, [function], {}, node)
            return made if isinstance(made, (Function, Class)) else function
        made = self.call(decorator, [function], {}, node)
        return made if isinstance(decorator, Symbol) and decorator.name.startswith("builtins.") else function

    def _do_classdef(self, node: ast.ClassDef) -> None:
        made = Class(self.module, node, node.name)
        for decorator in reversed(node.decorator_list):
            self.decorate(self.value(decorator), made, decorator)
        self.bind(node.name, made)

    def _do_assign(self, node: ast.Assign) -> None:
        value = self.value(node.value)
        for target in node.targets:
            self.store(target, value)

    def _do_annassign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.store(node.target, self.value(node.value))

    def _do_augassign(self, node: ast.AugAssign) -> None:
        left = self.value(node.target)
        self.store(node.target, self.binary(node.op, left, self.value(node.value)))

    def _do_expr(self, node: ast.Expr) -> None:
        self.value(node.value)

    def _do_if(self, node: ast.If) -> None:
        self.block(node.body if self.truth(self.value(node.test)) else node.orelse)

    def _do_for(self, node: ast.For) -> None:
        try:
            for item in self.items(self.value(node.iter)):
                self.store(node.target, item)
                try:
                    self.block(node.body)
                except Continue:
                    continue
        except Break:
            return
        self.block(node.orelse)

    def _do_while(self, node: ast.While) -> None:
        try:
            while self.truth(self.value(node.test)):
                self.step()
                try:
                    self.block(node.body)
                except Continue:
                    continue
        except Break:
            return
        self.block(node.orelse)

    def _do_with(self, node: ast.With) -> None:
        for item in node.items:
            value = self.value(item.context_expr)
            if item.optional_vars is not None:
                self.store(item.optional_vars, Opaque(f"enter({show(value)})"))
        self.block(node.body)

    def _do_try(self, node: ast.Try) -> None:
        try:
            self.block(node.body)
            self.block(node.orelse)
        except Raised as error:
            if not node.handlers:
                raise
            handler = node.handlers[0]
            if handler.name:
                self.bind(handler.name, Opaque(error.text))
            self.block(handler.body)
        finally:
            self.block(node.finalbody)

    def _do_match(self, node: ast.Match) -> None:
        subject = self.value(node.subject)
        for case in node.cases:
            question = f"{show(subject)} matches {ast.unparse(case.pattern)}"
            literal = case.pattern.value if isinstance(case.pattern, ast.MatchValue) else None
            matches = self.compare(ast.Eq(), subject, self.value(literal)) if literal else Opaque(question)
            if isinstance(case.pattern, ast.MatchAs) and case.pattern.pattern is None:
                matches = True
                if case.pattern.name:
                    self.bind(case.pattern.name, subject)
            if self.truth(matches) and (case.guard is None or self.truth(self.value(case.guard))):
                return self.block(case.body)
        return None

    def _do_return(self, node: ast.Return) -> None:
        value = self.value(node.value) if node.value is not None else None
        self.last_line, self.last_module = node.lineno, self.module
        raise Return(value)

    def _do_raise(self, node: ast.Raise) -> None:
        raise Raised(ast.unparse(node.exc) if node.exc else "raise", node.lineno, self.module)

    def _do_assert(self, node: ast.Assert) -> None:
        self.value(node.test)

    def _do_break(self, node: ast.Break) -> None:
        raise Break

    def _do_continue(self, node: ast.Continue) -> None:
        raise Continue

    def _do_delete(self, node: ast.Delete) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                self.scope.names.pop(target.id, None)
            elif isinstance(target, ast.Subscript):
                container, key = self.value(target.value), hashable(self.value(target.slice))
                if isinstance(container, dict):
                    container.pop(key, None)

    # names, attributes, calls

    def bind(self, name: str, value: Value) -> None:
        """Gives a name of the current scope a value."""
        self.scope.names[name] = value

    def store(self, target: ast.expr, value: Value) -> None:
        """Assigns to any target."""
        if isinstance(target, ast.Name):
            self.bind(target.id, value)
        elif isinstance(target, (ast.Tuple, ast.List)):
            self.unpack(target.elts, value)
        elif isinstance(target, ast.Attribute):
            self.set_attribute(self.value(target.value), target.attr, value, target.lineno)
        elif isinstance(target, ast.Subscript):
            self.set_item(self.value(target.value), self.value(target.slice), value, target.lineno)

    def set_attribute(self, owner: Value, name: str, value: Value, line: int) -> None:
        """Stores a value on an attribute, for the rest of this path; one of a module becomes its name, too."""
        if isinstance(owner, Module):
            self.names_of(owner).names[name] = value
        key = owner if isinstance(owner, (Class, Symbol, Module, Call)) else show(owner)
        self.attributes[key, name] = Attached(value, self.module, line)

    def set_item(self, container: Value, key: Value, value: Value, line: int) -> None:
        """container[key] = value; an effect where the container is not a dict or list that is known."""
        if isinstance(container, dict):
            container[hashable(key)] = value
        elif isinstance(container, list) and isinstance(key, int) and key < len(container):
            container[key] = value
        else:
            self.effects.append(Effect(Stored(container, key, value), self.module, line))

    def record(self, call: Call) -> None:
        """Adds a call of what is not executed to the effects."""
        self.effects.append(Effect(call, self.module, call.line))

    def execute(self, function: Function, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Runs a function's body in a scope of its own."""
        if self.depth >= _CALL_DEPTH:
            return Opaque(f"{function.name}(...)")
        before = self.module, self.scope
        scope = Scope(self.bind_arguments(function, [*function.bound, *args], kwargs), function.closure)
        self.module, self.scope = function.module, scope
        self.depth += 1
        try:
            if isinstance(function.node, ast.Lambda):
                return self.value(function.node.body)
            if _is_generator(function.node):
                return Opaque(f"{function.name}(...)")
            self.block(function.node.body)
        except Return as done:
            return done.value
        finally:
            self.depth -= 1
            self.module, self.scope = before
        return None

    def bind_arguments(self, function: Function, args: list[Value], kwargs: dict[str, Value]) -> dict[str, Value]:
        """Parameter -> value; a parameter that is not given and has no default is unknown."""
        spec = function.node.args
        positional = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
        bound: dict[str, Value] = {name: Opaque(f"<{name}>") for name in positional}
        before = self.module, self.scope
        self.module, self.scope = function.module, function.closure
        try:
            for name, default in zip(reversed(positional), reversed(spec.defaults), strict=False):
                bound[name] = self.value(default)
            for arg, given in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
                bound[arg.arg] = self.value(given) if given is not None else Opaque(f"<{arg.arg}>")
        finally:
            self.module, self.scope = before
        bound.update(zip(positional, args, strict=False))
        named = {*positional, *(arg.arg for arg in spec.kwonlyargs)}
        if spec.vararg:
            bound[spec.vararg.arg] = tuple(args[len(positional) :])
        if spec.kwarg:
            bound[spec.kwarg.arg] = {key: value for key, value in kwargs.items() if key not in named}
        bound.update({key: value for key, value in kwargs.items() if key in named})
        return bound


@cache
def _is_generator(node: ast.AST) -> bool:
    return any(isinstance(item, (ast.Yield, ast.YieldFrom)) for item in ast.walk(node))
