"""The domain of symbolic values: names that lead out of the package, values that are not known, labelled tensors."""

import ast
import builtins
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from omni_checkers.symbolic import library
from omni_checkers.symbolic.frame import PathFrame
from omni_checkers.symbolic.paths import Oracle
from omni_checkers.symbolic.program import Module, Program
from omni_checkers.symbolic.values import (
    UNKNOWN,
    Bound,
    Call,
    Class,
    Defaults,
    Function,
    Modelled,
    Opaque,
    Partial,
    Raised,
    Record,
    Scope,
    Symbol,
    Value,
    hashable,
    is_key,
    show,
)
from omni_kit.pysource.eval import Domain, Frame, Unsupported
from omni_kit.pysource.nodes import within
from omni_kit.pysource.scopes import LazyNames
from omni_kit.pysource.signatures import decorators

_STEPS, _DEPTH = 150_000, 12
_NOWHERE = Module("", Path(), False)
_NEGATED = {"not in": "in", "ne": "eq", "is_not": "is_"}


@dataclass(frozen=True)
class Attached:
    """A value that was stored on an attribute, and where."""

    value: Value
    module: Module
    line: int


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
    """The result of calling a function on one path.

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


class Evaluator(Domain):
    """One path through a program.

    Args:
        program: the package whose files may be read; what lies outside it becomes a Symbol.
        oracle: decides conditions that are not known.
    """

    def __init__(self, program: Program, oracle: Oracle) -> None:
        super().__init__(_STEPS, _DEPTH)
        self.program, self.oracle = program, oracle
        self.scopes: dict[Module, Scope] = {}
        self.attributes: dict[tuple[Value, str], Attached] = {}
        self.effects: list[Effect] = []
        self.imports: dict[str, int] = {}
        self.last_line = 0
        self.last_module: Module | None = None
        self.top = PathFrame(self, Path(), "", Scope({}), _NOWHERE)
        """The frame of whoever asks from outside."""

    # modules

    @property
    def importing(self) -> bool:
        """Return whether the code that is gone through stands in no function."""
        return self.depth == _DEPTH

    def frame(self, module: Module, scope: Scope) -> PathFrame:
        """Return code among the names of a module."""
        return PathFrame(self, module.path, module.name, scope, module)

    def run_module(self, module: Module) -> Scope:
        """Imports a module: all its statements, in order. One that is being imported gives what it has so far."""
        if module not in self.scopes:
            scope = self.scopes[module] = Scope({})
            self.frame(module, scope).run(self.program.body(module))
        return self.scopes[module]

    def names_of(self, module: Module) -> Scope:
        """Return the names of a module; its statements are executed only for names that are asked for."""
        if module not in self.scopes:
            bindings = self.program.bindings(module)
            if "*" in bindings:
                return self.run_module(module)
            scope = self.scopes[module] = Scope({})
            scope.names = LazyNames(bindings, self.frame(module, scope).run)
        return self.scopes[module]

    def call_function(self, function: Value, args: Sequence[Value], kwargs: Mapping[str, Value]) -> Outcome:
        """Calls a function to its end and says what came of it."""
        raised = value = None
        try:
            value = self.call(function, list(args), dict(kwargs), self.top, None)
        except Raised as error:
            raised, self.last_line, self.last_module = error.text, error.line or 0, error.module
        return Outcome(value, raised, self.last_line, self.last_module, dict(self.attributes), tuple(self.effects))

    def returned(self, node: ast.Return, frame: PathFrame) -> None:
        """Remembers where the last value was returned."""
        self.last_line, self.last_module = node.lineno, frame.home

    def imported(self, name: str, names: tuple[str, ...], level: int, frame: Frame) -> Value:
        """See `Domain`."""
        node = ast.ImportFrom(name, [], level)
        if names:
            return Import(self.program.absolute(frame.home, node))
        self.module_named(name, None, frame)
        return self.module_named(name.partition(".")[0], None, frame)

    def module_named(self, module_name: str, name: str | None, frame: Frame) -> Value:
        """Return the object that `import module_name` or `from module_name import name` binds.

        Raises:
            Raised: the package has no such module, or the module no such name.
        """
        module = self.program.module(module_name)
        if module is None:
            if self.program.contains(module_name):
                raise Raised(f"ModuleNotFoundError: {module_name}", frame)
            return Symbol(module_name if name is None else f"{module_name}.{name}")
        value = module if name is None else self.module_attribute(module, name, frame)
        line = getattr(frame.at, "lineno", 0)
        self.imports.setdefault(value.name if isinstance(value, Module) else module_name, line)
        return value

    def module_attribute(self, module: Module, name: str, frame: Frame) -> Value:
        """Return a name of a module, or a module inside it.

        Raises:
            Raised: the module has neither.
        """
        scope = self.names_of(module)
        if name in scope.names:
            return scope.names[name]
        inner = self.program.module(f"{module.name}.{name}")
        if inner is not None:
            return inner
        raise Raised(f"ImportError: {module.name} has no {name}", frame)

    # names and attributes

    def name(self, name: str, frame: Frame) -> Value:
        """See `Domain`."""
        if name in {"__name__", "__package__"}:
            return frame.home.name if name == "__name__" else frame.home.package
        return Symbol(f"builtins.{name}") if hasattr(builtins, name) else Opaque(name)

    def attribute(self, base: Value, name: str, frame: Frame) -> Value:
        """See `Domain`: as stored on this path, as defined, or as a library's."""
        attached = self.attached(base, name)
        if attached is not UNKNOWN:
            return attached
        match base:
            case Import():
                return self._from_import(base, name, frame)
            case Module():
                return self.module_attribute(base, name, frame)
            case Symbol():
                return Symbol(f"{base.name}.{name}")
            case None:
                raise Raised(f"AttributeError: 'NoneType' object has no attribute '{name}'", frame)
            case Record():
                return self._of_record(base, name, frame)
            case Class():
                return self.class_attribute(base, name)
            case Call(function=Class()):
                return self._of_instance(base, base.function, name, frame)
            case Call() if name in base.kwargs:
                return base.kwargs[name]
            case Modelled() if (found := base.attribute(name)) is not UNKNOWN:
                return found
            case (
                str()
                | list()
                | dict()
                | tuple()
                | set()
                | frozenset()
                | Call()
                | Modelled()
                | re.Pattern()
                | re.Match()
            ):
                return Bound(base, name)
        return Opaque(f"{show(base)}.{name}")

    def _from_import(self, source: "Import", name: str, frame: Frame) -> Value:
        if name != "*":
            return self.module_named(source.module, name, frame)
        inner = self.program.module(source.module)
        return dict(self.run_module(inner).names) if inner is not None else {}

    def _of_record(self, record: Record, name: str, frame: Frame) -> Value:
        try:
            return record.attribute(name)
        except KeyError:
            raise Raised(f"AttributeError: {record.name} has no attribute '{name}'", frame) from None

    def _of_instance(self, owner: Call, cls: Class, name: str, frame: Frame) -> Value:
        """Return an attribute of an instance of a class of the package: methods are bound, properties are called."""
        found = self.class_attribute(cls, name)
        if not isinstance(found, Function) or "staticmethod" in decorators(found.node):
            return owner.kwargs.get(name, found) if isinstance(found, Opaque) else found
        if "property" in decorators(found.node):
            return self.call(found, [owner], {}, frame, None)
        bound = (cls if "classmethod" in decorators(found.node) else owner,)
        return Function(
            found.node, found.path, found.module, found.scope, found.home, defaults=found.defaults, bound=bound
        )

    def attached(self, owner: Value, name: str) -> Value:
        """Return the value that this path stored last on owner.name; UNKNOWN without one."""
        found = self.attributes.get((_owner(owner), name)) if self.attributes else None
        return found.value if found is not None else UNKNOWN

    def class_attribute(self, owner: Class, name: str) -> Value:
        """Return an attribute of a class or of the bases that can be read."""
        last = owner
        for last in self._line(owner):
            stored = self.attached(last, name) if last is not owner else UNKNOWN
            found = stored if stored is not UNKNOWN else self._own_attribute(last, name)
            if found is not UNKNOWN:
                return found
        return Opaque(f"{last}.{name}")

    def _own_attribute(self, owner: Class, name: str) -> Value:
        """Return the value that the body of a class binds to a name, or UNKNOWN."""
        for item in owner.node.body:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)) and item.name == name:
                return self.frame(owner.module, self.names_of(owner.module)).written(item)
            targets = item.targets if isinstance(item, ast.Assign) else [getattr(item, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                assigned = getattr(item, "value", None)
                return self.in_module(owner.module, assigned) if assigned is not None else Opaque(f"{owner}.{name}")
        return owner.name if name == "__name__" else UNKNOWN

    def _line(self, owner: Class) -> Iterator[Class]:
        """Yield a class and the bases above it that can be read, each once: a name that is bound again may lead
        back.
        """
        seen: list[Class] = []
        while owner not in seen:
            yield owner
            seen.append(owner)
            owner = next((base for base in self.bases(owner) if isinstance(base, Class)), owner)

    def bases(self, owner: Class) -> list[Value]:
        """Return the bases of a class as values; Symbol for one of a library."""
        return [self.in_module(owner.module, base) for base in owner.node.bases]

    def in_module(self, module: Module, node: ast.expr) -> Value:
        """Return an expression evaluated among a module's names."""
        return self.frame(module, self.names_of(module)).value(node)

    def set_attribute(self, base: Value, name: str, value: Value, frame: Frame) -> None:
        """See `Domain`: for the rest of this path; an attribute of a module becomes its name, too."""
        if isinstance(base, Module):
            self.names_of(base).names[name] = value
        self.attributes[_owner(base), name] = Attached(value, frame.home, getattr(frame.at, "lineno", 0))

    def item(self, base: Value, key: Value, frame: Frame) -> Value:
        """See `Domain`: any of a dict's values where the key is not known."""
        if isinstance(base, Modelled) and (found := base.item(key)) is not UNKNOWN:
            return found
        if isinstance(base, dict):
            key = hashable(key)
            if key in base:
                return base[key]
            if isinstance(base, Defaults):
                base[key] = self.call(base.factory, [], {}, frame, None)
                return base[key]
            if is_key(key):
                raise KeyError(key)
            if base:
                values = list(base.values())
                return values[self.oracle.choose(f"{show(key)} in {show(list(base))}", len(values))]
        if isinstance(key, slice):
            return Opaque(ast.unparse(frame.at))
        return Opaque(f"{show(base)}[{show(key)}]")

    def set_item(self, base: Value, key: Value, value: Value, frame: Frame) -> None:
        """See `Domain`: an effect where the container is not a dict that is known."""
        if isinstance(base, dict):
            base[hashable(key)] = value
        else:
            self.effects.append(Effect(Stored(base, key, value), frame.home, getattr(frame.at, "lineno", 0)))

    # operations

    def operation(self, name: str, operands: list[Value], frame: Frame) -> Value:
        """See `Domain`: Opaque where it is not known.

        Raises:
            Raised: it looks for something in None.
        """
        if name in {"in", "not in"} and operands[1] is None:
            raise Raised("TypeError: argument of type 'NoneType' is not iterable", frame)
        found = library.operation(name, operands)
        if found is not UNKNOWN:
            return found
        if name in _NEGATED:
            return not frame.is_true(self.operation(_NEGATED[name], operands, frame))
        return Opaque(f" {name} ".join(map(show, operands)) if len(operands) > 1 else f"{name} {show(operands[0])}")

    def truth(self, value: Value, frame: Frame) -> bool:
        """See `Domain`: the oracle says where it is not known."""
        if library.is_own(value):
            return True
        if isinstance(value, Symbol) and value.name == "typing.TYPE_CHECKING":
            return False
        return self.oracle.choose(show(value), 2) == 0

    def items(self, value: Value, frame: Frame) -> list[Value]:
        """See `Domain`: one unknown item of what is not known."""
        return [Opaque(f"item of {show(value)}")]

    def unpacked(self, value: Value, count: int, frame: Frame) -> list[Value]:
        """See `Domain`."""
        if isinstance(value, (str, *library.CONTAINERS)):
            return super().unpacked(value, count, frame)
        return [Opaque(f"{show(value)}[{place}]") for place in range(count)]

    @contextmanager
    def context(self, node: ast.expr, frame: Frame) -> Iterator[Value]:
        """See `Domain`."""
        yield Opaque(f"enter({show(frame.value(node))})")

    def raised(self, text: str, frame: Frame) -> Raised:
        """See `Domain`."""
        return Raised(text if text != "an error" else "raise", frame)

    def handles(self, error: Unsupported, node: ast.Try) -> bool:
        """See `Domain`."""
        return isinstance(error, Raised)

    def decorated(self, definition: Value, decorators: list[Value], nodes: list[ast.expr], frame: Frame) -> Value:
        """See `Domain`: a decorator of this package is called; a library's is recorded and changes nothing."""
        for decorator, node in zip(reversed(decorators), reversed(nodes), strict=True):
            made = self.call(decorator, [definition], {}, frame, node)
            builtin = isinstance(decorator, Symbol) and decorator.name.startswith("builtins.")
            if isinstance(definition, Function) and (
                builtin or (isinstance(decorator, Function) and isinstance(made, (Function, Class)))
            ):
                definition = made
        return definition

    # calls

    def call(
        self, function: Value, arguments: list[Value], keywords: dict[str, Value], frame: Frame, node: ast.expr | None
    ) -> Value:
        """See `Domain`: this package's functions are executed, everything else is recorded."""
        self.spend()
        if isinstance(function, Function):
            if self.depth <= 0 or _is_generator(function.node):
                return Opaque(f"{function.__name__}(...)")
            return frame.entered(function, arguments, keywords)
        if isinstance(function, Bound):
            return self.method(function.owner, function.name, arguments, keywords, frame, node)
        if isinstance(function, Partial):
            given = [*function.arguments, *arguments]
            return self.call(function.function, given, {**function.keywords, **keywords}, frame, node)
        if isinstance(function, Symbol):
            known = library.call(self, function.name, arguments, keywords, frame)
            if known is not UNKNOWN:
                return known
            owner, _, name = function.name.rpartition(".")
            constant = self.program.outside(owner) if owner else None
            if constant is not None:
                return self.method(constant, name, arguments, keywords, frame, node)
        made = self._recorded(function, arguments, keywords, frame, node)
        if isinstance(function, Class):
            init = self.class_attribute(function, "__init__")
            if isinstance(init, Function):
                self.call(init, [made, *arguments], dict(keywords), frame, node)
        return made

    def method(
        self,
        owner: Value,
        name: str,
        arguments: list[Value],
        keywords: dict[str, Value],
        frame: Frame,
        node: ast.expr | None,
    ) -> Value:
        """Return a method of a built-in container or string; recorded where it is not known."""
        known = library.method(self, owner, name, arguments, keywords)
        if known is not UNKNOWN:
            return known
        return self._recorded(Opaque(f"{show(owner)}.{name}"), arguments, keywords, frame, node)

    def _recorded(
        self, function: Value, arguments: list[Value], keywords: dict[str, Value], frame: Frame, node: ast.expr | None
    ) -> Call:
        made = Call(function, tuple(arguments), keywords, getattr(node, "lineno", 0))
        self.effects.append(Effect(made, frame.home, made.line))
        return made


@dataclass(frozen=True)
class Import:
    """The module of a from-import, by its absolute name."""

    module: str


def _owner(value: Value) -> Value:
    return value if isinstance(value, (Class, Symbol, Module, Call)) else show(value)


@cache
def _is_generator(node: ast.AST) -> bool:
    return any(within(node, ast.Yield, ast.YieldFrom))
