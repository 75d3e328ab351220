"""The structure of pipelines, read from their code."""

import ast

from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import calls, last_name, methods, strings
from omni_kit.pysource.signatures import parameters


def components_of(cls: ClassRef) -> set[str] | None:
    """Return the names of a pipeline's components; None if they are registered in a way that cannot be read."""
    found: set[str] = set()
    for entry in cls.mro:
        init = entry.defines("__init__") if isinstance(entry, ClassRef) else None
        if init is None:
            continue
        for call in calls(init, "register_modules"):
            if any(word.arg is None for word in call.keywords):
                return None
            found |= {word.arg for word in call.keywords if word.arg is not None}
        found |= set(parameters(init)) if isinstance(entry, ClassRef) and entry.derives("DiffusionPipeline") else set()
    return found or None


def call_of(cls: ClassRef) -> ast.FunctionDef | None:
    """Return the pipeline's `__call__` if the class itself defines it; None while it is `unwritten`."""
    return cls.defines("__call__") if unwritten(cls) is None else None


def unwritten(cls: ClassRef) -> ast.Raise | None:
    """Return the statement at the end of `__call__` that raises NotImplementedError, before any denoising step."""
    found = cls.defines("__call__")
    last = found.body[-1] if found is not None else None
    if not isinstance(last, ast.Raise) or last.exc is None:
        return None
    raised = last.exc.func if isinstance(last.exc, ast.Call) else last.exc
    return last if last_name(raised) == "NotImplementedError" else None


def methods_of(cls: ClassRef) -> list[ast.FunctionDef]:
    """Return the methods that a pipeline's class itself defines."""
    return methods(cls.node)


def declared(cls: ClassRef, name: str) -> tuple[ast.expr, list[str]] | None:
    """Return a list of names that stands in the class body itself."""
    found = cls.assigned(name)
    if found is None or found[0].node is not cls.node:
        return None
    names = strings(found[1])
    return (found[1], names) if names is not None else None
