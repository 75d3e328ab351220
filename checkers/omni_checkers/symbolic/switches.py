"""Switches that one function always turns one way, and another function the other way."""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping

from omni_checkers.engine.files import walked


def switched(ours: ast.AST, theirs: ast.AST) -> Iterator[ast.keyword]:
    """Arguments by name that are True or False, where `theirs` gives the other one, and nothing else, by that name.

    Whom they are given to is not asked: a kernel takes what plain code takes, under the same names.
    """
    known = _given(theirs)
    for name, given in _given(ours).items():
        values = [_constant(one) for one in known.get(name, ())]
        yield from (
            one for one in given if values and isinstance(value := _constant(one), bool) and {*values} == {not value}
        )


def _given(function: ast.AST) -> Mapping[str, list[ast.keyword]]:
    found: defaultdict[str, list[ast.keyword]] = defaultdict(list)
    for node in walked(function):
        if isinstance(node, ast.keyword) and node.arg is not None:
            found[node.arg].append(node)
    return found


def _constant(given: ast.keyword) -> object:
    """The value; None for what is worked out."""
    value = given.value.value if isinstance(given.value, ast.Constant) else None
    return value if isinstance(value, bool) else None
