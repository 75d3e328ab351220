"""Calls of the authors' DPM-Solver objects, each as one expression: what the authors assign first is written in.

A solver is known by its form: a class with a method `sample` that receives steps, an order, a spacing and a method.
"""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import passed
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.processes.call_arguments import BEGUN, DENOISER, SCALE, STEPS
from omni_kit.upstream.repositories.processes.class_members import constructor_arguments, plain_arguments
from omni_kit.upstream.repositories.processes.sampler_call import AuthorsCall
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sampler_step.members import methods_of
from omni_kit.upstream.repositories.sources import sources_of

_FORM = {"steps", "order", "skip_type", "method"}
_SAMPLE = "sample"
_NETWORK = re.compile(r"^(\w+_)?(model|n?net|network|unet|dit|denoiser|transformer|backbone)(_ema)?$|^ema(_model)?$")
_ITSELF = ("module", "forward")
_SCALE = re.compile(r"(^|_)(cfg|guidance)(_scale)?$|^scale$|^w$")
_CONDITION = re.compile(r"^(un)?cond(ition)?(itional_condition)?$|^uncondition$|^(uc|c)$")
_KEYWORDS = re.compile(r"_kwargs$")
_BUILT_IN = ("len", "float", "int", "range")
_X, _T = "x", "t"
_DEEPEST, _MOST = 12, 12
Function = ast.FunctionDef | ast.Lambda


def solver_calls(reference: Reference) -> list[AuthorsCall]:
    """Return the calls of solvers whose arguments can be read; each expression once."""
    sources = [*sources_of(reference)]
    solvers = [node for source in sources for node in source.classes.values() if _solves(node)]
    found: dict[str, AuthorsCall] = {}
    for source in sources if solvers else ():
        for node, scopes in _sampling(source.tree):
            try:
                one = _Reader(reference, source, scopes, solvers).call(node)
            except (Unsupported, RecursionError):
                continue
            found.setdefault(one.called + one.guided, one)
    return sorted(found.values(), key=lambda one: not one.guided)[:_MOST]


def _solves(cls: ast.ClassDef) -> bool:
    sample = methods_of(cls).get(_SAMPLE)
    return sample is not None and {one.arg for one, _ in plain_arguments(sample)} >= _FORM


def _sampling(tree: ast.AST, scopes: tuple[ast.FunctionDef, ...] = ()) -> Iterator[tuple[ast.Call, "_Scopes"]]:
    """Yield the calls of a method `sample`, each with the functions that it is in: the innermost first."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == _SAMPLE and scopes:
            yield node, scopes
        yield from _sampling(node, (node, *scopes) if isinstance(node, ast.FunctionDef) else scopes)


_Scopes = tuple[ast.FunctionDef, ...]
_Names = Mapping[str, "ast.expr | _Later"]


@dataclass(frozen=True)
class _Later:
    """An expression that is written in where its name is used: with the names that it was assigned with."""

    node: ast.expr
    names: _Names


@dataclass
class _Reader:
    """Writes a call as one expression."""

    reference: Reference
    source: SourceFile
    scopes: _Scopes
    solvers: Sequence[ast.ClassDef]
    parts: dict[str, tuple[str, str]] = field(default_factory=dict)
    guided: bool = False
    guides: bool = False
    inside: int = 0

    def call(self, node: ast.Call) -> AuthorsCall:
        """Return a call.

        Raises:
            Unsupported: no solver, or something that it is passed cannot be read.
        """
        assert isinstance(node.func, ast.Attribute)
        made = self._value(node.func.value, node)
        cls = self._solver(made)
        sample = methods_of(cls)[_SAMPLE]
        texts = []
        for self.guided in (False, True):
            solver = ast.unparse(self._made(made, node))
            texts.append(f"{solver}.{_SAMPLE}({self._sampled(node, sample)})")
        plain, guided = texts
        name = plain.partition("(")[0]
        others = tuple(part for part in self.parts.values() if part[1] != name)
        return AuthorsCall(
            self.source.where(node), *self.parts[name], _SAMPLE, plain, draws=False,
            guided=guided if self.guides and guided != plain else "", parts=others,
        )  # fmt: skip

    def _solver(self, made: ast.expr) -> ast.ClassDef:
        """Return the class of what a call makes: a solver, or a function that returns one."""
        meant = self._defined(made.func) if isinstance(made, ast.Call) else None
        if meant is not None and isinstance(meant.node, ast.FunctionDef):
            ends = [one.value for one in ast.walk(meant.node) if isinstance(one, ast.Return)]
            inner = (
                resolve(meant.source, dotted(ends[-1].func) or "") if ends and isinstance(ends[-1], ast.Call) else None
            )
            meant = inner if isinstance(inner, Defined) else None
        if meant is None or not any(meant.node is one for one in self.solvers):
            raise Unsupported("another class")
        assert isinstance(meant.node, ast.ClassDef)
        return meant.node

    def _sampled(self, node: ast.Call, sample: ast.FunctionDef) -> str:
        order = [one.arg for one, _ in plain_arguments(sample)][1:]
        said = self._passed(node, order)
        told = {order[0]: BEGUN, "steps": STEPS}
        if not told.keys() <= said.keys():
            raise Unsupported("noise or steps are missing")
        return ", ".join(f"{name}={told.get(name) or ast.unparse(self._inlined(value, {}, node))}"
                         for name, value in said.items())  # fmt: skip

    def _made(self, node: ast.expr, at: ast.AST) -> ast.expr:
        """Return a call that makes something of a model, or whose arguments can be read."""
        meant = self._defined(node.func) if isinstance(node, ast.Call) else None
        if not isinstance(node, ast.Call) or meant is None:
            raise Unsupported(ast.unparse(node))
        if isinstance(meant.node, ast.ClassDef):
            given = constructor_arguments(meant.source, meant.node)
        elif isinstance(meant.node, ast.FunctionDef):
            given = plain_arguments(meant.node)
        else:
            raise Unsupported(ast.unparse(node.func))
        order, keywords = [one.arg for one, _ in given], []
        for name, value in self._passed(node, order).items():
            if name == order[0]:
                told = self._model(value, at)
            elif _CONDITION.match(name):
                told = ast.Name(BEGUN) if self.guided else ast.Constant(None)
            elif _KEYWORDS.search(name):
                told = ast.Dict([], [])
            elif _SCALE.search(name):
                told, self.guides = self._scale(), True
            else:
                told = self._inlined(value, {}, at)
            keywords.append(ast.keyword(name, told))
        return ast.Call(self._part(meant), [], keywords)

    def _passed(self, node: ast.Call, order: Sequence[str]) -> dict[str, ast.expr]:
        if any(isinstance(one, ast.Starred) for one in node.args) or any(one.arg is None for one in node.keywords):
            raise Unsupported("passes any arguments on")
        said = passed(node, order)
        if not said.keys() <= {*order}:
            raise Unsupported("passes an unknown argument")
        return said

    def _model(self, node: ast.expr, at: ast.AST) -> ast.expr:
        """Return what a solver calls: the model, a function that calls it, or what a call makes of it."""
        functions = self._functions(node)
        if len(functions) == 1:
            return self._lambda(functions[0], at)
        if self._is_network(node, at):
            return ast.Name(DENOISER)
        value = self._value(node, at)
        if isinstance(value, ast.Lambda):
            return self._lambda(value, at)
        return self._made(value, at) if isinstance(value, ast.Call) else self._fail(node)

    def _lambda(self, function: Function, at: ast.AST) -> ast.Lambda:
        if len(function.args.args) != 2:
            raise Unsupported("a function of more than latents and a time")
        body = self._applied(function, [ast.Name(_X), ast.Name(_T)], at)
        return ast.Lambda(ast.arguments([], [ast.arg(_X), ast.arg(_T)], None, [], [], None, []), body)

    def _applied(self, function: Function, values: Sequence[ast.expr], at: ast.AST) -> ast.expr:
        """Return what a function returns for these arguments; others that it has are never used but by the model."""
        given = [one.arg for one in function.args.args]
        names: dict[str, ast.expr | _Later] = dict(zip(given, values, strict=False))
        if isinstance(function, ast.Lambda):
            return self._inlined(function.body, names, at)
        return self._rest([one for one in function.body if not _is_text(one)], names, function)

    def _rest(self, body: Sequence[ast.stmt], names: dict[str, ast.expr | _Later], at: ast.AST) -> ast.expr:
        first, rest = (body[0], body[1:]) if body else (None, [])
        if isinstance(first, ast.Return) and first.value is not None:
            return self._inlined(first.value, names, at)
        if (
            isinstance(first, ast.If)
            and not first.orelse
            and isinstance(first.body[-1], ast.Return)
            and _scales(first.test)
        ):  # without guidance
            return self._rest(rest, names, at)
        if not isinstance(first, ast.Assign) or not isinstance(first.targets[0], ast.Name) or len(first.targets) > 1:
            raise Unsupported("more than assignments")
        name, later = first.targets[0].id, _Later(first.value, dict(names))
        if not self._asks(first.value, names, at):
            return self._rest(rest, {**names, name: later}, at)
        told = self._inlined(first.value, names, at)
        own = f"_{len([one for one in names if one.startswith('_')])}_{name.strip('_')}"
        inner = self._rest(rest, {**names, name: ast.Name(own), own: ast.Name(own)}, at)
        arguments = ast.arguments([], [ast.arg(own)], None, [], [], None, [])
        return ast.Call(ast.Lambda(arguments, inner), [told], [])

    def _asks(self, node: ast.expr, names: _Names, at: ast.AST) -> bool:
        return any(isinstance(one, ast.Call) and self._asked(one, names, at) for one in ast.walk(node))

    def _asked(self, call: ast.Call, names: _Names, at: ast.AST) -> bool:
        """Return whether a call passes latents to the model, or to a function of the same script that guides."""
        first = call.args[0] if call.args else None
        latents = isinstance(first, ast.Name) and isinstance(one := names.get(first.id), ast.Name) and one.id == _X
        several = len(call.args) + len(call.keywords) > 1
        return latents and several and (bool(self._functions(call.func)) or self._is_network(call.func, at))

    def _inlined(self, node: ast.expr, names: _Names, at: ast.AST, deep: int = 0) -> ast.expr:
        """Return an expression with what its names stand for."""
        if deep > _DEEPEST:
            raise Unsupported("too deep")
        if isinstance(node, ast.Name):
            return self._named(node, names, at, deep)
        if isinstance(node, ast.Constant):
            return node
        if isinstance(node, ast.Call) and self._asked(node, names, at):
            return self._answer(node, names, at)
        if isinstance(node, ast.Attribute):
            if self.inside and _SCALE.search(node.attr):
                return self._scale()
            if node.attr == "device":
                return ast.Attribute(ast.Name(BEGUN), "device")
            meant = resolve(self.source, dotted(node) or "")
            if isinstance(meant, Defined):
                return self._part(meant)
            if isinstance(meant, str) and meant.partition(".")[0] == "torch":
                return ast.parse(meant, mode="eval").body
            return ast.Attribute(self._inlined(node.value, names, at, deep + 1), node.attr)
        if isinstance(node, ast.Lambda | ast.ListComp | ast.GeneratorExp | ast.DictComp | ast.Starred | ast.NamedExpr):
            raise Unsupported(type(node).__name__)
        made = copy(node)
        for name, value in ast.iter_fields(node):
            setattr(made, name, self._field(value, names, at, deep + 1))
        return made

    def _field(self, value: object, names: _Names, at: ast.AST, deep: int) -> object:
        if isinstance(value, list):
            return [self._field(one, names, at, deep) for one in value]
        if isinstance(value, ast.keyword):
            return ast.keyword(value.arg, self._inlined(value.value, names, at, deep))
        return self._inlined(value, names, at, deep) if isinstance(value, ast.expr) else value

    def _named(self, node: ast.Name, names: _Names, at: ast.AST, deep: int) -> ast.expr:
        known = names.get(node.id)
        if isinstance(known, _Later):
            return self._inlined(known.node, known.names, at, deep + 1)
        if known is not None:
            return known
        if node.id == "device":
            return ast.Attribute(ast.Name(BEGUN), "device")
        if self.inside and _SCALE.search(node.id):
            return self._scale()
        if node.id in _BUILT_IN:
            return node
        value = self._value(node, at)
        if value is not node:
            return self._inlined(value, {}, at, deep + 1)
        meant = resolve(self.source, node.id)
        if isinstance(meant, Defined) and not any(_binds(one, node.id) for one in self.scopes):
            return self._part(meant)
        return ast.Name("torch") if meant == "torch" else self._fail(node)

    def _answer(self, call: ast.Call, names: _Names, at: ast.AST) -> ast.expr:
        """Return a call of the model with latents and a time alone, guided as the authors' function guides."""
        others = [*call.args[1:], *(one.value for one in call.keywords)]
        values = [self._inlined(one, names, at) for one in (call.args[0], others[0])]
        self.inside += 1
        ways = [self._applied(one, values, at) for one in self._functions(call.func)]
        self.inside -= 1
        asked = [ast.unparse(one).count(f"{DENOISER}(") for one in ways]
        if not ways:
            return ast.Call(ast.Name(DENOISER), values, [])
        single = {ast.unparse(one): one for one, count in zip(ways, asked, strict=True) if count == 1}
        double = {ast.unparse(one): one for one, count in zip(ways, asked, strict=True) if count > 1}
        if len(single) > 1 or len(double) > 1 or 0 in asked:
            raise Unsupported("guides in several ways")
        self.guides = self.guides or bool(double)
        return next(iter((double if double and (self.guided or not single) else single).values()))

    def _scale(self) -> ast.expr:
        return ast.Name(SCALE) if self.guided else ast.Constant(1.0)

    def _functions(self, node: ast.expr) -> list[Function]:
        """Return the functions of this name in the innermost scope that has any; a lambda is its own."""
        if isinstance(node, ast.Lambda):
            return [node]
        name = node.id if isinstance(node, ast.Name) else ""
        for scope in self.scopes:
            found = [one for one in _within(scope) if isinstance(one, ast.FunctionDef) and one.name == name]
            if found or _binds(scope, name):
                return [] if _binds(scope, name) else [*found]
        return []

    def _is_network(self, node: ast.expr, at: ast.AST) -> bool:
        """Return whether an expression is the model: by its name, and where nothing says that it is another class."""
        while isinstance(node, ast.Attribute) and node.attr in _ITSELF:
            node = node.value
        name = dotted(node) or ""
        if not _NETWORK.match(name) or isinstance(resolve(self.source, name), Defined):
            return False
        made = [one.value.func for scope in self.scopes for one in _within(scope) if isinstance(one, ast.Assign)
                and name in map(ast.unparse, one.targets) and isinstance(one.value, ast.Call)]  # fmt: skip
        kinds = [meant.node for one in made if (meant := self._defined(one)) is not None]
        return all(one is self.reference.cls.node for one in kinds if isinstance(one, ast.ClassDef))

    def _value(self, node: ast.expr, at: ast.AST) -> ast.expr:
        """Return what a name was assigned last before a place, if that is certain there; other nodes as they are."""
        if not isinstance(node, ast.Name):
            return node
        for scope in self.scopes:
            default = next((one for given, one in plain_arguments(scope) if given.arg == node.id), None)
            binds = [one for one in _within(scope) if _stores(one, node.id)]
            before = [one for one in binds if one.lineno < getattr(at, "lineno", 0)]
            if before:
                last = binds[-1]  # functions see what a name is assigned after them
                named = isinstance(last, ast.Assign) and isinstance(last.targets[0], ast.Name) and len(binds) == 1
                if isinstance(last, ast.Assign) and named and _surely(scope, last, at):
                    return last.value
                raise Unsupported(f"{node.id} is assigned where it may not be")
            if default is not None and isinstance(literal(default), int | float | str):
                return default
            if binds or _binds(scope, node.id):
                return node
        return node

    def _defined(self, node: ast.expr) -> Defined | None:
        meant = resolve(self.source, dotted(node) or "")
        return meant if isinstance(meant, Defined) else None

    def _part(self, meant: Defined) -> ast.Name:
        said = (meant.source.module, meant.name)
        if "." in meant.name or self.parts.setdefault(meant.name, said) != said:
            raise Unsupported("two of one name")
        return ast.Name(meant.name)

    def _fail(self, node: ast.AST) -> ast.expr:
        raise Unsupported(ast.unparse(node))


def _scales(node: ast.expr) -> bool:
    """Return whether an expression reads how strongly to guide."""
    names = ((dotted(one) or "").rpartition(".")[2] for one in ast.walk(node) if isinstance(one, ast.expr))
    return any(map(_SCALE.search, names))


def _within(scope: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a function, but not those of functions in it, in the order of its lines."""
    for name in ("body", "orelse", "finalbody", "handlers"):
        for one in getattr(scope, name, ()) if not isinstance(scope, ast.Lambda) else ():
            if isinstance(one, ast.stmt):
                yield one
            if not isinstance(one, ast.FunctionDef | ast.ClassDef):
                yield from _within(one)


def _stores(one: ast.stmt, name: str) -> bool:
    if isinstance(one, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.For | ast.With):
        inner = [one.target] if hasattr(one, "target") else getattr(one, "targets", [])
        inner += [each.optional_vars for each in getattr(one, "items", ()) if each.optional_vars is not None]
        return any(isinstance(each, ast.Name) and each.id == name for target in inner for each in ast.walk(target))
    return False


def _binds(scope: ast.FunctionDef, name: str) -> bool:
    given = [*scope.args.posonlyargs, *scope.args.args, *scope.args.kwonlyargs]
    given += [one for one in (scope.args.vararg, scope.args.kwarg) if one is not None]
    return any(one.arg == name for one in given) or any(_stores(one, name) for one in _within(scope))


def _surely(scope: ast.AST, assigned: ast.stmt, at: ast.AST) -> bool:
    """Return whether a statement has run wherever another place in a function is reached."""
    for name in ("body", "orelse", "finalbody", "handlers"):
        block = getattr(scope, name, ())
        if assigned in block:
            return True
        for one in block:
            inside = [*ast.walk(one)]
            if assigned in inside:
                return at in inside and _surely(one, assigned, at)
    return False


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
