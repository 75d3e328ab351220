"""Submodules of a model: their classes and attribute names."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from omni_checkers.engine.files import walked
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import methods
from omni_kit.pysource.reads import attributes_set
from omni_kit.pysource.source import dotted

_LEAF_NAMES = frozenset({"weight", "bias", "running_mean", "running_var"})
_GENERAL = frozenset({"Module", "ModelMixin", "ConfigMixin", "PushToHubMixin"})


@dataclass(frozen=True)
class Built:
    """The modules of a model, as far as its code names them.

    Attributes:
        classes: the model's class, those above it and those that they name, and so on.
        complete: nothing is built of classes that cannot be read.
    """

    classes: tuple[ClassRef, ...]
    complete: bool

    @property
    def class_names(self) -> set[str]:
        """The names of all classes."""
        return {cls.node.name for cls in self.classes}

    @property
    def attributes(self) -> set[str]:
        """The names that modules and parameters are kept by."""
        return set(_LEAF_NAMES).union(*(attributes_set(cls.node) | _keys(cls.node) for cls in self.classes))


def built(model: ClassRef) -> Built:
    """Follow the names in a model's methods through files of diffusers and of the integration."""
    found: dict[ast.ClassDef, ClassRef] = {}
    todo, complete = [model], True
    while todo:
        cls = todo.pop()
        if cls.node in found:
            continue
        found[cls.node] = cls
        above = [entry for entry in cls.mro[1:] if isinstance(entry, ClassRef)]
        todo += [entry for entry in above if entry.node.name not in _GENERAL and _holds_modules(entry)]
        for name, part in _named(cls):
            if part is not None:
                todo.append(part)
            else:
                complete = complete and not name.startswith("transformers.")
    return Built(tuple(found.values()), complete)


def _holds_modules(cls: ClassRef) -> bool:
    return any(item.name == "__init__" for item in methods(cls.node)) or bool(attributes_set(cls.node))


def _named(cls: ClassRef) -> Iterator[tuple[str, ClassRef | None]]:
    """Yield the classes that methods of a class name; None for those that are not read."""
    names = {
        node.id
        for function in methods(cls.node)
        for node in walked(function)
        if (isinstance(node, ast.Name) and node.id[:1].isupper()) or (isinstance(node, ast.Name) and "_" in node.id)
    }
    names |= {name for item in cls.node.body if isinstance(item, ast.Assign) for name in _capital(item.value)}
    todo = set(names)
    while todo:
        name = todo.pop()
        resolved = cls.source.resolve_class(name)
        if resolved is not None:
            yield name, ClassRef(*resolved)
        elif (constant := cls.source.constants.get(name)) is not None:  # a table of classes
            todo |= _capital(constant) - names
            names |= todo
        elif (function := cls.source.resolve_function(name)) is not None:
            for inner in _capital(function[1]):
                if (made := function[0].resolve_class(inner)) is not None:
                    yield inner, ClassRef(*made)
        else:
            yield cls.source.origin(ast.Name(name)), None


def _capital(node: ast.AST) -> set[str]:
    return {one.id for one in walked(node) if isinstance(one, ast.Name) and one.id[:1].isupper()}


def _keys(node: ast.ClassDef) -> set[str]:
    """Return names of modules that are given as text: keys of tables, arguments of `add_module` and the like."""
    return {
        one.value
        for function in methods(node)
        for one in walked(function)
        if isinstance(one, ast.Constant) and isinstance(one.value, str) and one.value.isidentifier()
    }


def held(model: ClassRef, attribute: str) -> ClassRef | None:
    """Return the class of a model's attribute; of a list, the class of its items. None if it cannot be read."""
    init = model.method("__init__")
    for node in walked(init[1]) if init is not None else ():
        if isinstance(node, ast.Assign) and any(dotted(target) == f"self.{attribute}" for target in node.targets):
            for call in (one for one in walked(node.value) if isinstance(one, ast.Call)):
                found = init[0].source.resolve_class(dotted(call.func) or "") if init is not None else None
                if found is not None:
                    return ClassRef(*found)
    return None
