"""The keys of the dict that a method returns."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from omni_checkers.engine.files import walked
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.eval import UNKNOWN, Frame, OpenDomain, Scope, Unsupported
from omni_kit.pysource.nodes import argument, assigned, returns
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

    def put(self, key: ast.expr | None, source: SourceFile, node: ast.AST) -> None:
        """Add a key that is written as a constant; any other leaves the keys incomplete."""
        if isinstance(key, ast.Constant):
            self.found.setdefault(str(key.value), (source, node))
        else:
            self.complete = False

    def add(self, more: Any) -> "Keys":
        """Add the keys of another dict, and return both; anything that is not a dict leaves the keys incomplete."""
        self.complete = self.complete and isinstance(more, Keys) and more.complete
        self.found = {**(more.found if isinstance(more, Keys) else {}), **self.found}
        return self


def keys_of(cls: ClassRef, method: str) -> Keys:
    """Return the keys that a method of a class returns on any of its paths."""
    home = cls.method(method)
    return _Dicts(cls).returned(home) if home is not None else Keys(complete=False)


class _Dicts(OpenDomain):
    """Dicts of which the keys are known; the home of a frame is a function, and the class or file that defines it."""

    def __init__(self, cls: ClassRef) -> None:
        super().__init__(depth=_DEEPEST)
        self.cls = cls

    def returned(self, home: tuple[ClassRef, ast.FunctionDef]) -> Keys:
        """Return the keys of all dicts that a function returns."""
        answers = returns(home[1])
        found = Keys(complete=bool(answers))
        for value in answers:
            found.add(self.keys(value, home))
        return found

    def keys(self, node: ast.expr, home: tuple[ClassRef, ast.FunctionDef]) -> Any:
        """Return the keys of a dict, or an unknown value."""
        frame = _EveryPath(self, home[0].source.path, home[0].source.module, Scope({}), home)
        self.depth -= 1
        try:
            return frame.value(node) if self.depth >= 0 else UNKNOWN
        except Unsupported:
            return UNKNOWN
        finally:
            self.depth += 1

    def name(self, name: str, frame: Frame) -> Any:
        """See `Domain`: the value of a variable, with the items added to it."""
        cls, function = frame.home
        values = [value for value in assigned(function, name) if dotted(value) != name]
        found = Keys(complete=bool(values))
        for value in values:
            found.add(self.keys(value, frame.home))
        for node in walked(function):
            if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) and dotted(node.value) == name:
                found.put(node.slice, cls.source, node)
            elif isinstance(node, ast.Call) and dotted(node.func) == f"{name}.update":
                made = ast.Call(ast.Name("dict", ast.Load()), node.args, node.keywords)
                found.add(self.keys(made, frame.home))
            elif isinstance(node, ast.Call) and dotted(node.func) == f"{name}.setdefault":
                found.put(argument(node, 0, "key"), cls.source, node)
        return found if values or found.found else super().name(name, frame)

    def operation(self, name: str, operands: list[Any], frame: Frame) -> Any:
        """See `Domain`: two dicts together."""
        return Keys().add(operands[0]).add(operands[1]) if name == "or_" else super().operation(name, operands, frame)

    def called(self, call: ast.Call, home: tuple[ClassRef, ast.FunctionDef]) -> tuple[ClassRef, ast.FunctionDef] | None:
        """Return the method or function that a call in a method runs."""
        match call.func:
            case ast.Attribute(ast.Name("self"), name):
                return self.cls.method(name)
            case ast.Attribute(ast.Call(ast.Name("super")), name):
                after = (one for one in self.cls.after(home[0]) if isinstance(one, ClassRef))
                return next(((one, method) for one in after if (method := one.defines(name)) is not None), None)
            case ast.Name(name) if (found := home[0].source.resolve_function(name)) is not None:
                return ClassRef(found[0], self.cls.node), found[1]
        return None


class _EveryPath(Frame):
    """Expressions of which every path counts; the arguments of a call do not change the keys that it returns."""

    domain: _Dicts

    def of_dict(self, node: ast.Dict) -> Keys:
        """Return the keys that a literal spells out or unpacks."""
        found = Keys()
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                found.add(self.domain.keys(value, self.home))
            else:
                found.put(key, self.home[0].source, key)
        return found

    def of_ifexp(self, node: ast.IfExp) -> Keys:
        """Return the keys of both values."""
        return Keys().add(self.domain.keys(node.body, self.home)).add(self.domain.keys(node.orelse, self.home))

    def of_call(self, node: ast.Call) -> Any:
        """Return the keys of `dict(...)`, or those that a method or function returns."""
        if not isinstance(node.func, ast.Name) or node.func.id != "dict":
            home = self.domain.called(node, self.home)
            return self.domain.returned(home) if home is not None else UNKNOWN
        found = Keys()
        for word in node.keywords:
            if word.arg is not None:
                found.put(ast.Constant(word.arg), self.home[0].source, word.value)
        for value in [*(word.value for word in node.keywords if word.arg is None), *node.args]:
            found.add(self.domain.keys(value, self.home))
        return found


def words_read(function: ast.FunctionDef) -> Iterator[str] | None:
    """Return the names that a function reads of its `**kwargs`; None if it passes them on, or reads them otherwise."""
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
