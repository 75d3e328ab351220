"""A constructor that takes an object only to read its attributes: the `args` of a command line, or a loaded config."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from omni_kit.pysource.classes import ClassRef


@dataclass(frozen=True)
class Namespace:
    """An argument of which a class reads attributes, and nothing else.

    Attributes:
        argument: what the constructor calls it.
        fields: attribute -> file:line of a read.
    """

    argument: str
    fields: dict[str, str]


def namespace_of(cls: ClassRef) -> Namespace | None:
    """Return the constructor's first argument if it is a namespace; None where the class uses it in another way.

    To call an attribute, to read an attribute of one, and to pass the object on are other ways. An attribute that has
    the name of another argument could not become an argument itself.
    """
    found = cls.method("__init__")
    if found is None:
        return None
    home, init = found
    positional = [*init.args.posonlyargs, *init.args.args]
    names = [one.arg for one in (*positional, *init.args.kwonlyargs)][1:]
    if len(positional) - len(init.args.defaults) < 2:
        return None
    methods = [item for item in home.node.body if isinstance(item, ast.FunctionDef)]
    uses = [use for method in methods for use in _uses(method, names[0], constructs=method is init)]
    fields = {use.attr: home.source.where(use) for use in uses if use is not None}
    alone = None not in uses and not fields.keys() & set(names)
    return Namespace(names[0], fields) if fields and alone else None


def _uses(method: ast.FunctionDef, argument: str, constructs: bool) -> Iterator[ast.Attribute | None]:
    """The attributes that a method reads of an argument, or of `self.argument`; None for each other use."""
    kept = f"self.{argument}"
    above = {child: node for node in ast.walk(method) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(method):
        own = isinstance(node, ast.Name) and node.id == argument and constructs
        if not own and not (isinstance(node, ast.Attribute) and ast.unparse(node) == kept):
            continue
        parent = above[node]
        if isinstance(parent, ast.Assign) and ast.unparse(parent) == f"{kept} = {argument}":
            continue
        read = isinstance(parent, ast.Attribute) and isinstance(parent.ctx, ast.Load)
        called = isinstance(above.get(parent), ast.Call) and getattr(above[parent], "func", None) is parent
        plain = read and not called and not isinstance(above.get(parent), ast.Attribute)
        yield parent if plain and isinstance(parent, ast.Attribute) else None
