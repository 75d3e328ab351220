"""A constructor with an argument that is a dataclass takes what the dataclass holds."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.diffusers.signatures import Argument, arguments
from omni_kit.upstream.repositories.names import Defined, absolute, resolve

_FACTORIES: dict[str, Any] = {"list": [], "dict": {}, "tuple": ()}


@dataclass(frozen=True)
class Settings:
    """A dataclass that a constructor takes.

    Attributes:
        argument: what the constructor calls it.
        cls: the dataclass.
        fields: what it holds, in order.
        others: the other arguments of the constructor.
    """

    argument: str
    cls: ClassRef
    fields: dict[str, Argument]
    others: dict[str, Argument] = field(default_factory=dict)

    @property
    def made_inside(self) -> frozenset[str]:
        """The fields that the dataclass makes itself, objects of another class among them: no config has them."""
        return frozenset(one.name for one in self.fields.values() if not one.required and one.default is UNKNOWN)


def settings_of(cls: ClassRef) -> Settings | None:
    """Return the dataclass that one argument of a constructor is.

    None if none is one, or if another argument has the name of a field.
    """
    found = cls.method("__init__")
    if found is None:
        return None
    home, init = found
    given = arguments(cls)
    for name, nodes in _said(init).items():
        for node in nodes:
            if (made := _dataclass(home.source, node)) is not None:
                fields = {one.name: one for one in _fields(made)}
                others = {other: one for other, one in given.items() if other != name}
                return None if fields.keys() & others.keys() else Settings(name, made, fields, others)
    return None


def fields_of(cls: ClassRef, method: str) -> dict[str, list[str]]:
    """Return the arguments of a method that are dataclasses of the authors, each with the names of its fields."""
    found = cls.method(method)
    if found is None:
        return {}
    given = found[1].args
    annotated = [one for one in (*given.posonlyargs, *given.args, *given.kwonlyargs) if one.annotation is not None]
    made = ((one.arg, _dataclass(found[0].source, one.annotation)) for one in annotated)
    return {name: [field.name for field in _fields(one)] for name, one in made if one is not None}


def _dataclass(source: SourceFile, node: ast.expr | None) -> ClassRef | None:
    """Return the authors' dataclass that an annotation, or what is called, names; None for anything else."""
    meant = resolve(source, dotted(_plain(node)) or "") if node is not None else None
    if not isinstance(meant, Defined) or not isinstance(meant.node, ast.ClassDef):
        return None
    return ClassRef(meant.source, meant.node) if is_dataclass(meant.source, meant.node) else None


def _said(init: ast.FunctionDef) -> dict[str, list[ast.expr]]:
    """Return what the arguments of a constructor are, as their annotations say and as their defaults are made; later
    arguments that may be null left out.
    """
    given = init.args
    positional = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(positional) - len(given.defaults)), *given.defaults, *given.kw_defaults]
    found: dict[str, list[ast.expr]] = {}
    for one, default in [*zip([*positional, *given.kwonlyargs], defaults, strict=True)][1:]:
        called = default.func if isinstance(default, ast.Call) else None
        if default is None or called is not None or not found:
            found[one.arg] = [node for node in (one.annotation, called) if node is not None]
    return found


def _plain(node: ast.expr) -> ast.expr:
    """`X` of `X | None` and of `Optional[X]`, and of a text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return ast.parse(node.value, mode="eval").body
    if isinstance(node, ast.BinOp):
        return node.left
    return node.slice if isinstance(node, ast.Subscript) else node


def is_dataclass(source: SourceFile, node: ast.ClassDef) -> bool:
    """Return whether a class is made by the decorator."""
    plain = (one.func if isinstance(one, ast.Call) else one for one in node.decorator_list)
    return any(absolute(source, one) == "dataclasses.dataclass" for one in plain)


def _fields(cls: ClassRef) -> Iterator[Argument]:
    for entry in reversed([one for one in cls.mro if isinstance(one, ClassRef)]):
        for item in entry.node.body:
            if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                annotation = ast.unparse(item.annotation)
                if not annotation.startswith(("ClassVar", "typing.ClassVar")):
                    where = entry.source.where(item)
                    yield Argument(item.target.id, _default(item.value), item.value is None, annotation, where)


def _default(node: ast.expr | None) -> Any:
    """Return the literal that a field is by default; UNKNOWN without one."""
    if isinstance(node, ast.Call) and (dotted(node.func) or "").endswith("field"):
        given = {one.arg: one.value for one in node.keywords}
        if "default_factory" in given:
            factory = given["default_factory"]
            if isinstance(factory, ast.Lambda):
                return _default(factory.body)
            return _FACTORIES.get(dotted(factory) or "", UNKNOWN)
        return _default(given.get("default"))
    return literal(node)
