"""Functions of a file as they are looked at: those of the authors' objects are told without them."""

import ast
from collections.abc import Iterator

from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.sampler_step.members import methods_of
from omni_kit.upstream.repositories.sampler_step.objects import Owner, emptied, opened

_MODELS = frozenset({"forward"})
_MOST = 4
Function = tuple[ast.FunctionDef, Owner | None, str]
"""A function; the class whose method it is; and why a method could not be told without its object."""


def functions_of(source: SourceFile) -> Iterator[Function]:
    """Yield the functions of a file, and the methods of its classes."""
    inside: dict[int, Function] = {}
    for cls in (node for node in source.tree.body if isinstance(node, ast.ClassDef)):
        methods = methods_of(cls)
        trained = not _MODELS.isdisjoint(methods)  # a model, or what trains and samples with one that it is given
        for method in methods.values():
            if _loops(method) and method.name not in _MODELS:
                alone = _alone(source, cls, method)
                if not trained or _asks_given(*alone[:2]):
                    inside[id(method)] = alone
    for function in (node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef)):
        known = inside.get(id(function))
        yield known or (_without(source, function) if function in source.tree.body else function, None, "")


def _asks_given(function: ast.FunctionDef, owner: Owner | None) -> bool:
    """Return whether an argument of the constructor is called: the model that an object was given."""
    calls = (node.func for node in ast.walk(function) if isinstance(node, ast.Call))
    return owner is not None and any(isinstance(one, ast.Name) and one.id in owner.given for one in calls)


def _loops(function: ast.FunctionDef) -> bool:
    return any(isinstance(node, ast.For) for node in ast.walk(function))


def _alone(source: SourceFile, cls: ast.ClassDef, method: ast.FunctionDef) -> Function:
    if any(isinstance(resolve(source, dotted(base) or ""), Defined) for base in cls.bases):
        return method, None, f"is of {cls.name}, which is made of another class of theirs"
    try:
        return *opened(cls, method), ""
    except Unsupported as reason:
        return method, None, str(reason)


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
