"""Parts that the constructors of a model make, by name, and all classes that it consists of."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import dotted

_MOST_CLASSES = 200


@dataclass(frozen=True)
class Part:
    """Attribute of self that a constructor assigns by calling a class.

    Attributes:
        class_name: as written ("nn.Conv3d").
        names: the variables among the arguments of the call, attributes by their last name.
        where: file:line.
    """

    name: str
    class_name: str
    names: frozenset[str]
    where: str


def parts_of(cls: ClassRef) -> list[Part]:
    """Return the parts that the constructor of a class makes, in the order of its lines."""
    found = cls.method("__init__")
    return list(_parts(*found)) if found is not None else []


def _parts(home: ClassRef, init: ast.FunctionDef) -> Iterator[Part]:
    nodes = sorted((node for node in ast.walk(init) if isinstance(node, ast.Assign)), key=lambda node: node.lineno)
    for node in nodes:
        target, call = node.targets[0], node.value
        if not isinstance(target, ast.Attribute) or dotted(target.value) != "self" or not isinstance(call, ast.Call):
            continue
        name = dotted(call.func) or ""
        if name.rpartition(".")[2][:1].isupper():
            yield Part(target.attr, name, frozenset(_variables(call)), home.source.where(node))


def _variables(call: ast.Call) -> Iterator[str]:
    for argument in (*call.args, *(keyword.value for keyword in call.keywords)):
        for node in ast.walk(argument):
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.Attribute):
                yield node.attr


def built_classes(cls: ClassRef) -> list[tuple[ClassRef, ClassRef]]:
    """Return the classes of the library that the constructors of a class name, and theirs: each once, nearest first.

    Returns:
        Pairs of the class that names another, and that other.
    """
    found: dict[ast.ClassDef, tuple[ClassRef, ClassRef]] = {}
    todo = [cls]
    while todo and len(found) < _MOST_CLASSES:
        current = todo.pop(0)
        for name in _named(current):
            resolved = current.source.resolve_class(name)
            if resolved is not None and resolved[1] not in found:
                found[resolved[1]] = current, ClassRef(*resolved)
                todo.append(found[resolved[1]][1])
    return list(found.values())


def _named(cls: ClassRef) -> Iterator[str]:
    """Yield the class names that the class body keeps and the constructor calls, by their capital letter."""
    kept = [node for node in cls.node.body if isinstance(node, (ast.Assign, ast.AnnAssign))]
    for node in [*kept, *_constructing(cls)]:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id[:1].isupper():
                yield inner.id


def _constructing(cls: ClassRef) -> list[ast.FunctionDef]:
    """Return the constructor, and the methods of the class that it calls."""
    init = cls.defines("__init__")
    calls = (node.func for node in ast.walk(init) if isinstance(node, ast.Call)) if init is not None else ()
    names = [func.attr for func in calls if isinstance(func, ast.Attribute) and dotted(func.value) == "self"]
    methods = [cls.defines(name) for name in dict.fromkeys(names)]
    return [node for node in (init, *methods) if node is not None]
