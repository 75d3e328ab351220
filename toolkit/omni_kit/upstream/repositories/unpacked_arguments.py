"""Forwards with one argument that they unpack at once, `x, t = data`: the parts are the arguments."""

import ast

from omni_kit.pysource.classes import ClassRef
from omni_kit.upstream.repositories.constructed import with_texts


def with_unpacked_forward(cls: ClassRef) -> ClassRef:
    """Return a class whose forward takes the parts of its only argument, where it does nothing but unpack that into
    variables; any other class as it is. The lines of its file keep their numbers.
    """
    forward = cls.defines("forward")
    given = forward.args if forward is not None else None
    if forward is None or given is None or len(given.args) != 2 or ast.unparse(given) != _plainly(given):
        return cls
    body = forward.body[1:] if ast.get_docstring(forward) is not None else forward.body
    argument = given.args[1]
    names = _unpacked(body[0], argument.arg) if len(body) > 1 else []
    reads = sum(isinstance(one, ast.Name) and one.id == argument.arg for one in ast.walk(forward))
    if len(names) < 2 or reads != 1:
        return cls
    return with_texts(cls, [(argument, ", ".join(names)), (body[0], "")])


def _plainly(given: ast.arguments) -> str:
    """Return two arguments as they are written where nothing else is taken."""
    return ", ".join(map(ast.unparse, given.args))


def _unpacked(node: ast.stmt, argument: str) -> list[str]:
    """Return the variables into which a statement unpacks an argument; empty for any other statement."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=parts)], value=ast.Name(id=name)) if name == argument:
            names = [one.id for one in parts if isinstance(one, ast.Name)]
            return names if len(names) == len({*names}) == len(parts) else []
    return []
