"""Helpers that a constructor makes with packages that are not installed, and that forward does without."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.source import dotted
from omni_kit.standins import stand_ins
from omni_kit.upstream.repositories.closure import closure_of, names_in
from omni_kit.upstream.repositories.constructed import blanked
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.repository import is_importable


@dataclass(frozen=True)
class Helper:
    """An attribute that nothing reads that forward runs.

    Attributes:
        name: the attribute.
        package: what its value needs, and what is not installed.
        statements: its assignment, and the methods that read it.
    """

    name: str
    package: str
    statements: tuple[ast.stmt, ...]


def helpers_of(cls: ClassRef) -> list[Helper]:
    """Return the attributes that a constructor gives a model, and that neither it nor forward reads again."""
    init = cls.defines("__init__")
    entries = _entries(cls, init) if init is not None else []
    if init is None or not entries:
        return []
    run = reached(cls, entries)
    found = []
    for node in ast.walk(init):
        target = dotted(node.targets[0]) if isinstance(node, ast.Assign) and len(node.targets) == 1 else None
        if not isinstance(node, ast.Assign) or target is None or not target.startswith("self."):
            continue
        package = next(_missing(cls, node.value), "")
        if package and not any(_reads(one, target) for one in (init, *run)):
            own = [one for one in cls.node.body if isinstance(one, ast.FunctionDef)]
            methods = [one for one in own if one is not init and _reads(one, target)]
            found.append(Helper(target.removeprefix("self."), package, (node, *methods)))
    return found


def without_helpers(cls: ClassRef) -> ClassRef:
    """Return a class without such helpers; the lines of its file keep their numbers."""
    found = helpers_of(cls)
    if not found:
        return cls
    text = blanked(cls.source.text, (one for helper in found for one in helper.statements))
    source = replace(cls.source, text=text, tree=ast.parse(text))
    return ClassRef(source, source.classes[cls.node.name])


def _entries(cls: ClassRef, init: ast.FunctionDef) -> list[ast.FunctionDef]:
    """Return forward, or the methods that the constructor makes it."""
    made = [one.value for one in ast.walk(init) if isinstance(one, ast.Assign)
            and [dotted(target) for target in one.targets] == ["self.forward"]]  # fmt: skip
    names = ["forward", *((dotted(one) or "").removeprefix("self.") for one in made)]
    return [method[1] for name in names if (method := cls.method(name)) is not None]


def reached(cls: ClassRef, entries: list[ast.FunctionDef]) -> list[ast.FunctionDef]:
    """Return these methods of a class, and those that they come to."""
    found: list[ast.FunctionDef] = []
    wanted = [*entries]
    while wanted:
        one = wanted.pop()
        if one in found:
            continue
        found.append(one)
        names = (dotted(node) or "" for node in ast.walk(one) if isinstance(node, ast.Attribute))
        own = (cls.method(name.removeprefix("self.").partition(".")[0]) for name in names if name.startswith("self."))
        wanted += [method[1] for method in own if method is not None]
    return found


def _reads(function: ast.FunctionDef, target: str) -> bool:
    nodes = (one for one in ast.walk(function) if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Load))
    return any(dotted(one) == target for one in nodes)


def _missing(cls: ClassRef, value: ast.expr) -> Iterator[str]:
    """Yield the packages that an expression needs, and that are neither installed nor have a stand-in."""
    if not isinstance(value, ast.Call):
        return
    for name in names_in(value):
        meant = resolve(cls.source, name)
        if isinstance(meant, Defined) and isinstance(meant.node, ast.ClassDef | ast.FunctionDef):
            packages = list(closure_of(meant).packages())
        else:
            packages = [meant.partition(".")[0]] if isinstance(meant, str) else []
        yield from (one for one in packages if one not in stand_ins() and not is_importable(one))
