"""Classes across the files of a library: method resolution order, and assignments in class bodies."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from omni_kit.pysource.nodes import remembered
from omni_kit.pysource.source import SourceFile, dotted

# What a function may consist of for its value to be told: anything else could change it unseen.
_FOLLOWED = (
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.If, ast.For, ast.With, ast.Return, ast.Expr, ast.Pass, ast.Assert,
    ast.Import, ast.ImportFrom, ast.Raise,
)  # fmt: skip
# Bases whose own constructors are known and not followed.
_ROOTS = frozenset({"PreTrainedModel", "nn.Module", "torch.nn.Module"})


@dataclass(frozen=True)
class ClassRef:
    """A class, with the file that defines it."""

    source: SourceFile
    node: ast.ClassDef

    @property
    def mro(self) -> "tuple[ClassRef | str, ...]":
        """The class and its bases in Python's order; a base that is not followed is its dotted name."""
        return _mro(self)

    def after(self, cls: "ClassRef") -> "tuple[ClassRef | str, ...]":
        """Return the classes that `super()` in a method of `cls` searches for an instance of this class."""
        names = [_key(entry) for entry in self.mro]
        return self.mro[names.index(_key(cls)) + 1 :] if _key(cls) in names else cls.mro[1:]

    def derives(self, *names: str) -> bool:
        """Return whether a base, through whatever files, has one of these names."""
        return any(_name(entry) in names for entry in self.mro[1:])

    def is_a(self, *names: str) -> bool:
        """Return whether the class has, or derives from, one of these names."""
        return self.node.name in names or self.derives(*names)

    def assigned(self, name: str) -> "tuple[ClassRef, ast.expr] | None":
        """Return the value of a class attribute, and the class that assigns it."""
        for entry in self.mro:
            if isinstance(entry, ClassRef) and (found := _in_body(entry.node, name)) is not None:
                return entry, found
        return None

    def defines(self, name: str) -> ast.FunctionDef | None:
        """Return a method that stands in the class body itself."""
        return _functions(self.node).get(name)

    def method(self, name: str) -> "tuple[ClassRef, ast.FunctionDef] | None":
        """Return a method, and the class that defines it."""
        for entry in self.mro:
            if isinstance(entry, ClassRef) and (found := entry.defines(name)) is not None:
                return entry, found
        return None


@dataclass(frozen=True)
class FunctionRef:
    """A function at the top level, with the file that defines it."""

    source: SourceFile
    node: ast.FunctionDef


@remembered
def _functions(node: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """Return the functions that stand in the body of a class, by name; of two the first one."""
    return {item.name: item for item in reversed(node.body) if isinstance(item, ast.FunctionDef)}


@remembered
def readable(function: ast.FunctionDef) -> bool:
    """Return whether all statements of a function are of types that the interpreter follows."""
    inner = (node for node in ast.walk(function) if isinstance(node, ast.stmt) and node is not function)
    return all(isinstance(node, _FOLLOWED) for node in inner)


@dataclass(frozen=True)
class ClassTable:
    """A dict of classes, or of classes with their arguments.

    Attributes:
        makes: its items are modules, made when they are asked for; otherwise they are the classes themselves.
    """

    source: SourceFile
    node: ast.Dict
    makes: bool

    def find(self, key: object) -> "tuple[ClassRef, ast.Dict | None] | None":
        """Return the class that stands for a key, with its named arguments if it has some; None if it has no such
        class.
        """
        for name, item in zip(self.node.keys, self.node.values, strict=True):
            if not isinstance(name, ast.Constant) or name.value != key:
                continue
            parts = item.elts if isinstance(item, ast.Tuple) else [item]
            found = self.source.resolve_class(dotted(parts[0]) or "") if parts else None
            given = parts[1] if len(parts) == 2 else None
            return (ClassRef(*found), given if isinstance(given, ast.Dict) else None) if found is not None else None
        return None


def _name(entry: ClassRef | str) -> str:
    return entry.node.name if isinstance(entry, ClassRef) else entry.rpartition(".")[2]


def _in_body(node: ast.ClassDef, name: str) -> ast.expr | None:
    for item in node.body:
        if isinstance(item, ast.Assign) and any(isinstance(t, ast.Name) and t.id == name for t in item.targets):
            return item.value
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and item.target.id == name:
            return item.value
    return None


_open: set[object] = set()
"""The classes whose order is being worked out: one that is reached again from its own bases is not followed."""


@cache
def _mro(cls: ClassRef) -> tuple[ClassRef | str, ...]:
    _open.add(_key(cls))
    try:
        bases = list(_bases(cls))
        merged = _merge([*([base, *_above(base)] for base in bases), bases])
        return (cls, *merged)
    finally:
        _open.discard(_key(cls))


def _above(base: ClassRef | str) -> tuple[ClassRef | str, ...]:
    return base.mro[1:] if isinstance(base, ClassRef) else ()


def _bases(cls: ClassRef) -> Iterator[ClassRef | str]:
    for name in cls.source.bases(cls.node):
        found = None if name in _ROOTS else cls.source.resolve_class(name)
        if found is None or found[1] in _open:
            yield name.removeprefix("torch.")
        else:
            yield ClassRef(*found)


def _merge(sequences: Sequence[Sequence[ClassRef | str]]) -> Iterator[ClassRef | str]:
    """C3: the first head that stands in no other tail; if there is none, the first head."""
    left = [list(sequence) for sequence in sequences if sequence]
    while left:
        tails = {_key(entry) for sequence in left for entry in sequence[1:]}
        head = next((s[0] for s in left if _key(s[0]) not in tails), left[0][0])
        yield head
        left = [rest for s in left if (rest := [entry for entry in s if _key(entry) != _key(head)])]


def _key(entry: ClassRef | str) -> object:
    return entry if isinstance(entry, str) else entry.node
