"""The arguments of a call, bound to the names of the function."""

import ast
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.eval.values import COLLECTIONS
from omni_kit.pysource.nodes import remembered
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import defaults, named, positional, signature


def argument_names(function: ast.FunctionDef) -> list[str]:
    """Return the names of the arguments of a function, `self` included, those by name alone last."""
    return list(named(signature(function)))


def bind(init: ast.FunctionDef, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the value of each argument of a function: passed, by default, or UNKNOWN."""
    names, worth, collections = _without_arguments(init)
    scope = worth | {name: literal(one) for name, one in collections.items()}
    scope.update(zip(names, args, strict=False))
    scope.update({k: v for k, v in kwargs.items() if k in scope})
    if init.args.vararg is not None:
        scope[init.args.vararg.arg] = args[len(names) :]
    if init.args.kwarg is not None:
        scope[init.args.kwarg.arg] = {k: v for k, v in kwargs.items() if k not in scope}
    return scope


@remembered
def _without_arguments(function: ast.FunctionDef) -> tuple[list[str], dict[str, Any], dict[str, ast.expr]]:
    """Return the parameters by position; what all of them are worth without arguments; defaults that each call has for
    its own, since constructors may change them.
    """
    taken = signature(function)
    given = defaults(taken)
    worth = dict.fromkeys(named(taken), UNKNOWN) | {name: literal(one) for name, one in given.items()}
    return positional(taken), worth, {name: given[name] for name in given if isinstance(worth[name], COLLECTIONS)}
