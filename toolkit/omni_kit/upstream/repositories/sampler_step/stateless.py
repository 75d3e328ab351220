"""Functions of a file as they are looked at: those of the authors' objects are told without them."""

import ast
import copy
from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.sampler_step.loop_statements import calls_in, steps_scheduler
from omni_kit.upstream.repositories.sampler_step.members import methods_of, of_self
from omni_kit.upstream.repositories.sampler_step.objects import Owner, emptied, opened

_MODELS = frozenset({"forward"})
_MOST = 4


class Function(NamedTuple):
    """A function as it is looked at.

    Attributes:
        node: its code.
        owner: the class whose method it is.
        closed: why a method could not be told without its object.
        asking: the attributes and methods of its object that are the model or ask it, where the object surely holds it.
    """

    node: ast.FunctionDef
    owner: Owner | None = None
    closed: str = ""
    asking: frozenset[str] = frozenset()


def functions_of(source: SourceFile, models: Mapping[ast.ClassDef, Set[str]] | None = None) -> Iterator[Function]:
    """Yield the functions of a file, and the methods of its classes.

    Args:
        models: classes -> the attributes of their objects that are the model; a method that calls one, by itself or in
            methods that it calls, gets that as an argument.
    """
    inside: dict[int, Function] = {}
    for cls in (node for node in source.tree.body if isinstance(node, ast.ClassDef)):
        methods = methods_of(cls)
        trained = not _MODELS.isdisjoint(methods)  # a model, or what trains and samples with one that it is given
        owned = (models or {}).get(cls, frozenset())
        asking = asking_of(methods, owned)
        for method in methods.values():
            if _loops(method) and (method.name not in _MODELS or owned):
                alone = _alone(source, cls, method)
                given = _asks_given(alone.node, alone.owner)
                stepped = any(map(steps_scheduler, calls_in(method)))
                if asks(method, asking) and not given and (trained or alone.closed or not stepped):
                    held = f"is of {cls.name}, which holds the model itself"
                    inside[id(method)] = Function(_given(method, owned), None, held, asking)
                elif not trained or given:
                    inside[id(method)] = alone
    for function in (node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef)):
        known = inside.get(id(function))
        yield known or Function(_without(source, function) if function in source.tree.body else function)


def asking_of(methods: Mapping[str, ast.FunctionDef], owned: Set[str]) -> frozenset[str]:
    """Return attributes that are the model, and the methods without a loop that call it: themselves, or in others.

    Args:
        owned: the attributes; without any nothing asks.
    """
    found = frozenset(owned)
    for _ in range(_MOST if owned else 0):
        found |= {name for name, one in methods.items() if not _loops(one) and asks(one, found)}
    return found


def asks(node: ast.AST, asking: Set[str]) -> bool:
    """Return whether code calls one of these attributes or methods."""
    return any(of_self(one.func) in asking for one in calls_in(node))


def _given(method: ast.FunctionDef, owned: Set[str]) -> ast.FunctionDef:
    """Return a method with attributes of its object as arguments."""
    told: ast.FunctionDef = _Given(owned).visit(copy.deepcopy(method))
    told.args.kwonlyargs += [ast.arg(name) for name in sorted(owned)]
    told.args.kw_defaults += [None] * len(owned)
    return ast.fix_missing_locations(told)


class _Given(ast.NodeTransformer):
    """A method with variables in place of attributes of its object."""

    def __init__(self, names: Set[str]) -> None:
        self.names = names

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replace one of the attributes."""
        return ast.Name(of_self(node), node.ctx) if of_self(node) in self.names else self.generic_visit(node)


def _asks_given(function: ast.FunctionDef, owner: Owner | None) -> bool:
    """Return whether an argument of the constructor is called: the model that an object was given."""
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return owner is not None and any(isinstance(one, ast.Name) and one.id in owner.given for one in calls)


def _loops(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.For) for node in ast.walk(function))


def _alone(source: SourceFile, cls: ast.ClassDef, method: ast.FunctionDef) -> Function:
    if any(isinstance(resolve(source, dotted(base) or ""), Defined) for base in cls.bases):
        return Function(method, None, f"is of {cls.name}, which is made of another class of theirs")
    try:
        return Function(*opened(cls, method))
    except Unsupported as reason:
        return Function(method, None, str(reason))


def _without(source: SourceFile, function: ast.FunctionDef) -> ast.FunctionDef:
    """Return a function without the objects that it makes and keeps; as it is if that cannot be determined."""
    for _ in range(_MOST if _loops(function) else 0):
        held = next(_held(source, function), None)
        if held is None:
            break
        try:
            function = emptied(function, *held)
        except Unsupported:
            break
    return function


def _held(source: SourceFile, function: ast.FunctionDef) -> Iterator[tuple[str, ast.ClassDef]]:
    """Yield the variables that hold an object of the authors', each with its class."""
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=made)):
                meant = resolve(source, dotted(made) or "")
                cls = meant.node if isinstance(meant, Defined) else None
                if isinstance(meant, Defined) and isinstance(cls, ast.ClassDef) and _fits(source, meant, cls):
                    yield name, cls


def _fits(source: SourceFile, meant: Defined, cls: ast.ClassDef) -> bool:
    """Return whether a class can be told in a file: no model, of no other class, and its names mean the same there."""
    bases = any(isinstance(resolve(meant.source, dotted(base) or ""), Defined) for base in cls.bases)
    names = {one.id for one in ast.walk(cls) if isinstance(one, ast.Name)}
    same = all(resolve(meant.source, name) in (None, resolve(source, name)) for name in names)
    return not bases and same and _MODELS.isdisjoint(methods_of(cls))
