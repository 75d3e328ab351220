"""The keys of the dict that a method returns."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from omni_checkers.engine.files import walked
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import assigned, last_name, returns
from omni_kit.pysource.source import SourceFile, dotted

_DEEPEST = 6


@dataclass
class Keys:
    """Keys, and where each is written.

    Attributes:
        complete: nothing was left out that could not be followed.
    """

    found: dict[str, tuple[SourceFile, ast.AST]] = field(default_factory=dict)
    complete: bool = True


def keys_of(cls: ClassRef, method: str) -> Keys:
    """The keys that a method of a class returns on any of its ways."""
    keys = Keys()
    home = cls.method(method)
    if home is None:
        keys.complete = False
    else:
        _method(cls, home, keys, 0)
    return keys


def _method(cls: ClassRef, home: tuple[ClassRef, ast.FunctionDef], keys: Keys, depth: int) -> None:
    answers = returns(home[1])
    if not answers or depth > _DEEPEST:
        keys.complete = False
    for value in answers:
        _collect(cls, home, value, keys, depth)


def _collect(cls: ClassRef, home: tuple[ClassRef, ast.FunctionDef], value: ast.expr, keys: Keys, depth: int) -> None:
    source = home[0].source
    match value:
        case ast.Dict():
            for key, item in zip(value.keys, value.values, strict=True):
                if key is None:
                    _collect(cls, home, item, keys, depth + 1)
                elif isinstance(key, ast.Constant):
                    keys.found.setdefault(str(key.value), (source, key))
                else:
                    keys.complete = False
        case ast.Call(func=ast.Name(id="dict")):
            for word in value.keywords:
                if word.arg is not None:
                    keys.found.setdefault(word.arg, (source, word.value))
                else:
                    _collect(cls, home, word.value, keys, depth + 1)
            for one in value.args:
                _collect(cls, home, one, keys, depth + 1)
        case ast.BinOp(op=ast.BitOr()):
            _collect(cls, home, value.left, keys, depth)
            _collect(cls, home, value.right, keys, depth)
        case ast.IfExp():
            _collect(cls, home, value.body, keys, depth)
            _collect(cls, home, value.orelse, keys, depth)
        case ast.Name():
            _named(cls, home, value.id, keys, depth)
        case ast.Call(func=ast.Attribute()):
            _called(cls, home, value, keys, depth)
        case ast.Call(func=ast.Name(id=name)) if (found := source.resolve_function(name)) is not None:
            _method(cls, (ClassRef(found[0], cls.node), found[1]), keys, depth + 1)
        case _:
            keys.complete = False


def _called(cls: ClassRef, home: tuple[ClassRef, ast.FunctionDef], call: ast.Call, keys: Keys, depth: int) -> None:
    name, found = last_name(call.func), None
    owner = call.func.value if isinstance(call.func, ast.Attribute) else call.func
    if dotted(owner) == "self":
        found = cls.method(name)
    elif isinstance(owner, ast.Call) and dotted(owner.func) == "super":
        after = (one for one in cls.after(home[0]) if isinstance(one, ClassRef))
        found = next(((one, method) for one in after if (method := one.defines(name)) is not None), None)
    if found is None:
        keys.complete = False
    else:
        _method(cls, found, keys, depth + 1)


def _named(cls: ClassRef, home: tuple[ClassRef, ast.FunctionDef], name: str, keys: Keys, depth: int) -> None:
    """A variable: what it was assigned, and what was put into it."""
    values = [value for value in assigned(home[1], name) if dotted(value) != name]
    if not values or depth > _DEEPEST:
        keys.complete = False
    for value in values if depth <= _DEEPEST else ():
        _collect(cls, home, value, keys, depth + 1)
    for node in walked(home[1]):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and dotted(node.value) == name:
            if isinstance(node.slice, ast.Constant):
                keys.found.setdefault(str(node.slice.value), (home[0].source, node))
            else:
                keys.complete = False
        elif isinstance(node, ast.Call) and dotted(node.func) in (f"{name}.update", f"{name}.setdefault"):
            made = ast.Call(ast.Name("dict", ast.Load()), node.args, node.keywords)
            if last_name(node.func) == "update":
                _collect(cls, home, made, keys, depth + 1)
            elif isinstance(node.args[0], ast.Constant):
                keys.found.setdefault(str(node.args[0].value), (home[0].source, node))


def words_read(function: ast.FunctionDef) -> Iterator[str] | None:
    """The names that a function reads of its `**kwargs`; None where it hands them on, or reads them otherwise."""
    spread = function.args.kwarg
    if spread is None:
        return iter(())
    read: list[str] = []
    known: set[int] = set()
    for node in walked(function):
        owner, name = None, None
        if isinstance(node, ast.Subscript):
            owner, name = node.value, node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop"):
            owner, name = node.func.value, node.args[0] if node.args else None
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
            owner, name = node.comparators[0], node.left
        if isinstance(owner, ast.Name) and owner.id == spread.arg and isinstance(name, ast.Constant):
            read.append(str(name.value))
            known.add(id(owner))
        elif isinstance(node, ast.Delete):
            known |= {id(target) for target in node.targets}
    uses = (node for node in walked(function) if isinstance(node, ast.Name) and node.id == spread.arg)
    return iter(read) if all(id(node) in known for node in uses) else None
