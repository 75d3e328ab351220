"""A loop in a method of the authors', told without its object: state is variables, methods are what they do."""

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from omni_kit.pysource.eval import Unsupported
from omni_kit.upstream.repositories.sampler_step.flow import Substituted
from omni_kit.upstream.repositories.sampler_step.inlining import answered, statements
from omni_kit.upstream.repositories.sampler_step.members import (
    MADE,
    SELF,
    arguments_of,
    buffered,
    constructor,
    is_held,
    is_property,
    joined,
    methods_of,
    named,
    of_self,
    own_names,
    sets_of,
    stored,
    variables_of,
)

_DEEPEST = 8
_SIMPLE = (ast.Name, ast.Constant)


@dataclass(frozen=True)
class Owner:
    """The class whose method has a loop.

    Attributes:
        name: the class.
        given: the arguments of its constructor.
    """

    name: str
    given: frozenset[str]


def opened(cls: ast.ClassDef, method: ast.FunctionDef) -> tuple[ast.FunctionDef, Owner]:
    """Return the function that does what making an object and calling its method does.

    Raises:
        Unsupported: it cannot be determined without the object; why.
    """
    init = constructor(cls)
    methods = {**methods_of(cls), MADE: init}
    made = arguments_of(init)
    own = arguments_of(method)
    twice = {one.arg for one, _ in made} & ({one.arg for one, _ in own} | stored(method.body))
    if twice:
        raise Unsupported(f"also takes or sets {', '.join(sorted(twice))}, an argument of {cls.name}")
    state = _State(cls.name, methods, variables_of(methods, {one.arg for one, _ in made}, set()))
    state.known = {*state.variables.values(), *named(method.body), *(one.arg for one, _ in (*made, *own))}
    body = [*state.block(statements(init.body)), *state.block(statements(method.body))]
    function = ast.FunctionDef(f"{cls.name}.{method.name}", joined([*own, *made]), body, [], None, None)
    owner = Owner(cls.name, frozenset(one.arg for one, _ in made))
    return ast.fix_missing_locations(ast.copy_location(function, method)), owner


def emptied(function: ast.FunctionDef, held: str, cls: ast.ClassDef) -> ast.FunctionDef:
    """A function that makes an object and keeps it in a variable, without the object.

    Raises:
        Unsupported: it cannot be determined without it; why.
    """
    methods = {**methods_of(cls), MADE: constructor(cls)}
    whole: ast.FunctionDef = Substituted({held: ast.Name(SELF, ast.Load())}).visit(copy.deepcopy(function))
    used = named(whole.body) | {one.arg for one, _ in arguments_of(function, bound=False)}
    state = _State(cls.name, methods, variables_of(methods, set(), used))
    state.known = {*state.variables.values(), *used}
    whole.body = state.block(statements(whole.body))
    return ast.fix_missing_locations(whole)


@dataclass
class _State:
    """The object, while its methods are told."""

    name: str
    methods: Mapping[str, ast.FunctionDef]
    variables: Mapping[str, str]
    known: set[str] = field(default_factory=set)
    depth: int = 0

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """Return statements without the object."""
        return [one for node in body for one in self._statement(node)]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        if isinstance(node, ast.Expr) and "super().__init__" in ast.unparse(node):
            return []
        if isinstance(node, ast.Expr) and (kept := buffered(node.value)) is not None:
            node = ast.Assign([ast.Attribute(ast.Name(SELF, ast.Load()), kept[0], ast.Store())], kept[1])
        if isinstance(node, ast.For | ast.If | ast.With):
            return self._compound(node)
        if isinstance(node, ast.Assign) and is_held(node) and isinstance(node.value, ast.Call):
            return self.called(self.methods[MADE], node.value, None)
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.While | ast.Try):
            raise Unsupported(f"has a `{type(node).__name__.lower()}` in line {node.lineno}")
        told = _Told(self)
        called = node.value if isinstance(node, ast.Assign | ast.Expr) else None
        alone = isinstance(node, ast.Expr) or (isinstance(node, ast.Assign) and len(node.targets) == 1)
        if alone and isinstance(called, ast.Call) and (method := self._method(called)) is not None:
            target = told.visit(copy.deepcopy(node.targets[0])) if isinstance(node, ast.Assign) else None
            return [*told.before, *self.called(method, called, target)]
        whole = told.visit(copy.deepcopy(node))
        same = isinstance(whole, ast.Assign) and ast.unparse(whole.targets[0]) == ast.unparse(whole.value)
        return told.before if same else [*told.before, whole]

    def _compound(self, node: ast.For | ast.If | ast.With) -> list[ast.stmt]:
        told, whole = _Told(self), copy.copy(node)
        if isinstance(whole, ast.For):
            whole.iter = told.visit(copy.deepcopy(whole.iter))
        elif isinstance(whole, ast.If):
            whole.test = told.visit(copy.deepcopy(whole.test))
        whole.body = self.block(whole.body) or [ast.Pass()]
        if not isinstance(whole, ast.With):
            whole.orelse = self.block(whole.orelse)
        return [*told.before, whole]

    def _method(self, call: ast.Call) -> ast.FunctionDef | None:
        return self.methods.get(of_self(call.func))

    def called(self, method: ast.FunctionDef, call: ast.Call, target: ast.expr | None) -> list[ast.stmt]:
        """Return the statements of a call, with its result in the target."""
        before, body = self._told(method, call)
        with self._deeper(method):
            return [*before, *self.block(answered(body, target))]

    def value(self, method: ast.FunctionDef, call: ast.Call, told: "_Told") -> ast.expr:
        """Return the value of a call in an expression; the statements that it needs are added before."""
        before, body = self._told(method, call)
        with self._deeper(method):
            if len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
                told.before += before
                return told.visit(body[0].value)  # type: ignore[no-any-return]
            name = f"{method.name.strip('_')}_answer"
            told.before += [*before, *self.block(answered(body, ast.Name(name, ast.Store())))]
        return ast.Name(name, ast.Load())

    @contextmanager
    def _deeper(self, method: ast.FunctionDef) -> Iterator[None]:
        if self.depth > _DEEPEST:
            raise Unsupported(f"calls {method.name} from within itself")
        self.depth += 1
        yield
        self.depth -= 1

    def _told(self, method: ast.FunctionDef, call: ast.Call) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """Return the statements that give a method its arguments, and its body in the words of who calls it."""
        told, given = _Told(self), self._given(method, call)
        body, before = statements(copy.deepcopy(method.body)), list[ast.stmt]()
        own = stored(body)
        places: dict[str, ast.expr] = {name: ast.Name(self._local(method, name), ast.Load()) for name in own}
        for name, value in given.items():
            value = told.visit(copy.deepcopy(value))
            if name not in own and isinstance(value, _SIMPLE) and not named([value]) & self._changed(method):
                places[name] = value
                continue
            places[name] = ast.Name(self._local(method, name), ast.Load())
            before.append(ast.Assign([ast.Name(self._local(method, name), ast.Store())], value))
        return [*told.before, *before], [Substituted(places).visit(one) for one in body]

    def _local(self, method: ast.FunctionDef, name: str) -> str:
        """Return a name for a variable of a method that no other method uses, which may call it or be called."""
        others = (one for one in self.methods.values() if one is not method)
        taken = name in self.known or any(name in own_names(one) for one in others)
        return f"{method.name.strip('_')}_{name}" if taken else name

    def _changed(self, method: ast.FunctionDef) -> set[str]:
        """Return the variables of the object that a method sets, or one that it calls may set."""
        later = {name: one for name, one in self.methods.items() if one is method or name != MADE}
        return {self.variables[name] for name, _ in sets_of(later)}

    def _given(self, method: ast.FunctionDef, call: ast.Call) -> dict[str, ast.expr]:
        pairs = arguments_of(method)
        if any(isinstance(one, ast.Starred) for one in call.args) or any(one.arg is None for one in call.keywords):
            raise Unsupported(f"calls {method.name} with any arguments")
        found = {one.arg: value for (one, _), value in zip(pairs, call.args, strict=False)}
        found |= {one.arg: one.value for one in call.keywords if one.arg is not None}
        for one, default in pairs:
            if one.arg not in found and default is None:
                raise Unsupported(f"calls {method.name} without {one.arg}")
            found.setdefault(one.arg, default or ast.Constant(None))
        return found


class _Told(ast.NodeTransformer):
    """An expression without the object; `before` is what has to be done first."""

    def __init__(self, state: _State) -> None:
        self.state = state
        self.before: list[ast.stmt] = []

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A method is told by what it does."""
        method = self.state.methods.get(of_self(node.func))
        return self.state.value(method, node, self) if method is not None else self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replace an attribute of the object by a variable.

        Raises:
            Unsupported: nothing sets it.
        """
        name = of_self(node)
        if not name:
            return self.generic_visit(node)
        method = self.state.methods.get(name)
        if method is not None and is_property(method):
            return self.state.value(method, ast.Call(node, [], []), self)
        if name not in self.state.variables:
            raise Unsupported(f"reads self.{name}, which {self.state.name} does not set")
        return ast.Name(self.state.variables[name], node.ctx)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """The object itself goes nowhere.

        Raises:
            Unsupported: it receives to somebody.
        """
        if node.id == SELF:
            raise Unsupported(f"passes its {self.state.name} to other code")
        return node

    def _inside(self, node: ast.AST) -> ast.AST:
        """Inline a scope of its own: its statements cannot be moved before it."""
        inner = _Told(self.state)
        found = inner.generic_visit(node)
        if inner.before:
            raise Unsupported(f"has several side effects in one expression in line {getattr(node, 'lineno', '?')}")
        return found

    visit_Lambda = visit_ListComp = visit_GeneratorExp = visit_SetComp = visit_DictComp = _inside  # noqa: N815
