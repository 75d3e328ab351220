"""Members of an author's object: its methods, its constructor and its attributes, as read from the class."""

import ast
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import lru_cache

from omni_kit.pysource.eval import Unsupported
from omni_kit.upstream.repositories.sampler_step.inlining import statements

MADE, SELF = "__init__", "self"
_BUFFER = "register_buffer"
Given = tuple[ast.arg, ast.expr | None]
"""An argument with its default."""


def methods_of(cls: ast.ClassDef) -> dict[str, ast.FunctionDef]:
    """Return the methods that a class defines itself."""
    return {one.name: one for one in cls.body if isinstance(one, ast.FunctionDef)}


def constructor(cls: ast.ClassDef) -> ast.FunctionDef:
    """Return an object's constructor, with what the class itself sets; that of a dataclass is written out."""
    own = methods_of(cls).get(MADE)
    made = any("dataclass" in ast.unparse(one) for one in cls.decorator_list)
    fields = [one for one in cls.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name)]
    sets = [(one.targets[0].id, one.value) for one in cls.body if isinstance(one, ast.Assign)
            and isinstance(one.targets[0], ast.Name)]  # fmt: skip
    given: list[Given] = [(ast.arg(SELF), None)]
    for one in fields:
        assert isinstance(one.target, ast.Name)
        if made:
            given.append((ast.arg(one.target.id, one.annotation), one.value))
        if made or one.value is not None:
            sets.append((one.target.id, ast.Name(one.target.id, ast.Load()) if made else one.value or one.annotation))
    body: list[ast.stmt] = [
        ast.Assign([ast.Attribute(ast.Name(SELF, ast.Load()), name, ast.Store())], value) for name, value in sets
    ]
    body += statements(own.body) if own is not None else []
    arguments = own.args if own is not None else joined(given)
    function = ast.FunctionDef(MADE, arguments, body or [ast.Pass()], [], None, None)
    return ast.fix_missing_locations(ast.copy_location(function, cls))


def arguments_of(function: ast.FunctionDef, *, bound: bool = True) -> list[Given]:
    """Return the arguments, each with its default; of a method those behind `self`.

    Raises:
        Unsupported: it takes any.
    """
    given = function.args
    if given.vararg or given.kwarg:
        raise Unsupported(f"{function.name} takes any arguments")
    every = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(every) - len(given.defaults)) + [*given.defaults]
    pairs = [*zip(every, defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return pairs[1:] if bound and not _is_static(function) else pairs


def _is_static(function: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Name) and one.id == "staticmethod" for one in function.decorator_list)


def is_property(function: ast.FunctionDef | None) -> bool:
    """Return whether a method is read as an attribute."""
    decorators = function.decorator_list if function is not None else []
    return any(isinstance(one, ast.Name) and one.id == "property" for one in decorators)


def joined(given: Sequence[Given]) -> ast.arguments:
    """Return arguments as a function has them: those without a default come first."""
    needed, rest = [one for one, value in given if value is None], [one for one in given if one[1] is not None]
    defaults = [value for _, value in rest if value is not None]
    return ast.arguments([], [*needed, *(one for one, _ in rest)], None, [], [], None, defaults)


def named(body: Sequence[ast.AST]) -> set[str]:
    """Return every name in some code."""
    return {one.id for node in body for one in ast.walk(node) if isinstance(one, ast.Name)}


def stored(body: Sequence[ast.AST]) -> set[str]:
    """Return the names that some code gives a value."""
    nodes = (one for node in body for one in ast.walk(node) if isinstance(one, ast.Name))
    return {one.id for one in nodes if isinstance(one.ctx, ast.Store)}


@lru_cache(maxsize=1024)
def own_names(function: ast.FunctionDef) -> Set[str]:
    """Return the names of a function's arguments and variables."""
    return stored(function.body) | {one.arg for one in ast.walk(function.args) if isinstance(one, ast.arg)}


def of_self(node: ast.AST) -> str:
    """Return the attribute of the object; empty for anything else."""
    known = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == SELF
    return node.attr if known else ""  # type: ignore[attr-defined]


def is_held(node: ast.Assign) -> bool:
    """Return whether a statement makes the object."""
    return isinstance(node.targets[0], ast.Name) and node.targets[0].id == SELF


def sets_of(methods: Mapping[str, ast.FunctionDef]) -> Iterator[tuple[str, ast.expr | None]]:
    """Yield each attribute that is set, and what to where that is plain."""
    for function in methods.values():
        nodes = [*ast.walk(function)]
        values = {target: one.value for one in nodes if isinstance(one, ast.Assign) for target in one.targets}
        for node in nodes:
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and of_self(node):
                yield node.attr, values.get(node)
            if (kept := buffered(node)) is not None:
                yield kept


def buffered(node: ast.AST) -> tuple[str, ast.expr] | None:
    """Return the name and value that `self.register_buffer(name, value)` keeps."""
    if isinstance(node, ast.Call) and of_self(node.func) == _BUFFER and len(node.args) > 1:
        name = node.args[0]
        return (name.value, node.args[1]) if isinstance(name, ast.Constant) and isinstance(name.value, str) else None
    return None


def variables_of(methods: Mapping[str, ast.FunctionDef], given: set[str], used: set[str]) -> dict[str, str]:
    """Attribute -> the variable that it becomes: an argument of the constructor, where it is nothing else."""
    sets: dict[str, list[ast.expr | None]] = {}
    for name, value in sets_of(methods):
        sets.setdefault(name, []).append(value)
    nodes = [node for function in methods.values() for node in ast.walk(function)]
    taken = (
        used
        | {one.id for one in nodes if isinstance(one, ast.Name)}
        | {one.arg for one in nodes if isinstance(one, ast.arg)}
    )
    found = {}
    for name, values in sets.items():
        value = values[0]
        alias = value.id if len(values) == 1 and isinstance(value, ast.Name) and value.id in given else ""
        found[name] = alias or (name if name not in taken else f"own_{name}")
    return found
