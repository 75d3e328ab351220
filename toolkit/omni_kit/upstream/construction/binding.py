"""The arguments of a call, bound to the names of the function."""

import ast
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal


def argument_names(function: ast.FunctionDef) -> list[str]:
    """The names of the arguments of a function, `self` included, those by name alone last."""
    return [arg.arg for arg in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]


def bind(init: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """What each argument of a function is worth: given, by default, or UNKNOWN."""
    names = [arg.arg for arg in (*init.args.posonlyargs, *init.args.args)]
    scope: dict[str, Any] = dict.fromkeys(argument_names(init), UNKNOWN)
    defaults = [*zip(names[len(names) - len(init.args.defaults) :], init.args.defaults, strict=True)]
    defaults += [(a.arg, d) for a, d in zip(init.args.kwonlyargs, init.args.kw_defaults, strict=True) if d]
    for name, node in defaults:
        scope[name] = literal(node)
    scope.update(zip(names, args, strict=False))
    scope.update({k: v for k, v in kwargs.items() if k in scope})
    if init.args.vararg is not None:
        scope[init.args.vararg.arg] = args[len(names) :]
    if init.args.kwarg is not None:
        scope[init.args.kwarg.arg] = {k: v for k, v in kwargs.items() if k not in scope}
    return scope
