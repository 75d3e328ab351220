"""Attributes and calls along one path."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.symbolic import library
from omni_checkers.symbolic.evaluation import Evaluation
from omni_checkers.symbolic.paths import Oracle, TooManyPaths
from omni_checkers.symbolic.program import Module
from omni_checkers.symbolic.signals import Raised
from omni_checkers.symbolic.tensors import Tiny
from omni_checkers.symbolic.values import (
    Call,
    Class,
    Function,
    Opaque,
    Partial,
    Record,
    Scope,
    Symbol,
    Value,
    show,
)

_STEPS = 20_000
_NOWHERE = Module("", Path(), False)


class Calls(Evaluation):
    """Reads attributes and calls functions; what expressions and statements mean is its subclasses'."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.module = _NOWHERE
        self.scope = Scope()
        self.line = 0
        self.last_line = 0
        self.last_module: Module | None = None
        self._steps = 0

    def step(self) -> None:
        """Counts one step of the path.

        Raises:
            TooManyPaths: the path has had more steps than are looked at.
        """
        self._steps += 1
        if self._steps > _STEPS:
            raise TooManyPaths("too many steps")

    def attribute(self, owner: Value, name: str, line: int) -> Value:
        """owner.name, as stored on this path, as defined, or as a library's."""
        attached = self.attached(owner, name)
        if attached is not library.UNKNOWN:
            return attached
        if isinstance(owner, Module):
            return self.module_attribute(owner, name)
        if isinstance(owner, Symbol):
            return Symbol(f"{owner.name}.{name}")
        if owner is None:
            raise Raised(f"AttributeError: 'NoneType' object has no attribute '{name}'", line, self.module)
        if isinstance(owner, Record):
            try:
                return owner.attribute(name)
            except KeyError:
                raise Raised(f"AttributeError: {owner.name} has no attribute '{name}'", line, self.module) from None
        if isinstance(owner, Class):
            return self.class_attribute(owner, name)
        if isinstance(owner, Call) and isinstance(owner.function, Class):
            return self.instance_attribute(owner, owner.function, name)
        if isinstance(owner, Call) and name in owner.kwargs:
            return owner.kwargs[name]
        if isinstance(owner, Tiny) and name in {"shape", "ndim"}:
            return owner.shape if name == "shape" else len(owner.shape)
        if isinstance(owner, (str, list, dict, tuple, set, frozenset, Call, Tiny, re.Pattern, re.Match)):
            return Partial(library.METHOD, (owner, name))
        return Opaque(f"{show(owner)}.{name}")

    def instance_attribute(self, owner: Call, cls: Class, name: str) -> Value:
        """An attribute of an instance of a class of the package: methods are bound, properties are called."""
        found = self.class_attribute(cls, name)
        if not isinstance(found, Function) or found.decorated("staticmethod"):
            return owner.kwargs.get(name, found) if isinstance(found, Opaque) else found
        if found.decorated("property"):
            return self.execute(found, [owner], {})
        return Function(found.module, found.node, found.closure, (cls if found.decorated("classmethod") else owner,))

    def attached(self, owner: Value, name: str) -> Value:
        """What this path stored last on owner.name; UNKNOWN where it stored nothing."""
        key = owner if isinstance(owner, (Class, Symbol, Module, Call)) else show(owner)
        found = self.attributes.get((key, name))
        return found.value if found is not None else library.UNKNOWN

    def class_attribute(self, owner: Class, name: str) -> Value:
        """An attribute of a class or of the bases that can be read."""
        last = owner
        for last in self._line(owner):
            stored = self.attached(last, name) if last is not owner else library.UNKNOWN
            found = stored if stored is not library.UNKNOWN else self._own_attribute(last, name)
            if found is not library.UNKNOWN:
                return found
        return Opaque(f"{last}.{name}")

    def _own_attribute(self, owner: Class, name: str) -> Value:
        """What the body of a class binds to a name, or UNKNOWN."""
        for item in owner.node.body:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name == name:
                return Function(owner.module, item, self.names_of(owner.module))
            targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                assigned = getattr(item, "value", None)
                return self.in_module(owner.module, assigned) if assigned is not None else Opaque(f"{owner}.{name}")
        return owner.name if name == "__name__" else library.UNKNOWN

    def _line(self, owner: Class) -> Iterator[Class]:
        """A class and the bases above it that can be read, each once: a name that is bound again may lead back."""
        seen: list[Class] = []
        while owner not in seen:
            yield owner
            seen.append(owner)
            owner = next((base for base in self.bases(owner) if isinstance(base, Class)), owner)

    def bases(self, owner: Class) -> list[Value]:
        """The bases of a class as values; Symbol for one of a library."""
        return [self.in_module(owner.module, base) for base in owner.node.bases]

    def in_module(self, module: Module, node: ast.expr) -> Value:
        """An expression evaluated among a module's names."""
        before = self.module, self.scope
        self.module, self.scope = module, self.names_of(module)
        try:
            return self.value(node)
        finally:
            self.module, self.scope = before

    def call(self, function: Value, args: list[Value], kwargs: dict[str, Value], node: ast.AST | None) -> Value:
        """Calls a value: this package's functions are executed, everything else is recorded."""
        self.step()
        line = getattr(node, "lineno", 0)
        if isinstance(function, Function):
            return self.execute(function, args, kwargs)
        if isinstance(function, Partial):
            if function.function is library.METHOD:
                return self.method(function.args[0], function.args[1], args, kwargs, line)
            return self.call(function.function, [*function.args, *args], {**dict(function.kwargs), **kwargs}, node)
        if isinstance(function, Symbol):
            known = library.call(self, function.name, args, kwargs, line)
            if known is not library.UNKNOWN:
                return known
            owner, _, name = function.name.rpartition(".")
            constant = self.program.outside(owner) if owner else None
            if constant is not None:
                return self.method(constant, name, args, kwargs, line)
        made = Call(function, tuple(args), kwargs, line)
        self.record(made)
        if isinstance(function, Class):
            self.initialise(made, function)
        return made

    def initialise(self, instance: Call, cls: Class) -> None:
        """Runs `__init__` of a class of the package."""
        init = self.class_attribute(cls, "__init__")
        if isinstance(init, Function):
            self.execute(init, [instance, *instance.args], dict(instance.kwargs))

    def method(self, owner: Value, name: str, args: list[Value], kwargs: dict[str, Value], line: int) -> Value:
        """A method of a built-in container or string; recorded where it is not known."""
        known = library.method(self, owner, name, args, kwargs)
        if known is not library.UNKNOWN:
            return known
        made = Call(Opaque(f"{show(owner)}.{name}"), tuple(args), kwargs, line)
        self.record(made)
        return made
