"""Slips in code that was copied: differences that nothing else that was changed explains."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import walked
from omni_checkers.symbolic.alterations import Copy
from omni_checkers.symbolic.differences import Difference
from omni_checkers.symbolic.lines import Line, code, names_read, parameters, said
from omni_checkers.veomni.facts.copies import Override

# Below this, a function was written anew.
_LIKE = 0.6
# They give back what they are called on.
_SAME_VALUE = {"contiguous", "clone", "cpu"}


def altered(one: Override) -> Iterator[tuple[Line, Line, str]]:
    """Statements that say otherwise than the original's in whose place they stand, with the words for it."""
    absent = parameters(one.copy.theirs) - parameters(one.copy.ours) - names_read(one.copy.ours)
    for here, there, differences in one.copy.altered():
        if absent & names_read(there.node):  # what it does not take, it cannot say
            continue
        real = [difference.what for difference in differences if not _meant(one, here, difference)]
        if real and (len(differences) == 1 or all(difference.call for difference in differences)):
            yield here, there, " and ".join(real)


def left_out(one: Override) -> Iterator[Line]:
    """Statements of the original that change a value, and that the copy does not have between lines that it has."""
    found: set[int] = set()
    for lines in one.copy.left_out() if one.copy.likeness >= _LIKE else ():
        lost = [line for line in lines if changes_a_value(one.copy, line)]
        if lost and not _about_absent(one, lines):
            found.add(lost[0].number)
            yield lost[0]
    for line in one.copy.unset():
        if line.number not in found and changes_a_value(one.copy, line) and not _about_absent(one, [line]):
            yield line


def _meant(one: Override, here: Line, difference: Difference) -> bool:
    """Whether a difference follows from what else was changed."""
    if difference.call is not None:
        return _travels(one, difference.call, difference.argument) or _not_taken(one, difference)
    if difference.gone:  # or asked before
        return set(difference.gone) <= {line.code for line in one.copy.mine}
    kept = difference.kept
    return isinstance(kept, ast.Name) and one.is_new(kept.id, here)


def _travels(one: Override, call: ast.Call, argument: str) -> bool:
    """Whether an argument goes with the others that the function and the call do not name."""
    ours, theirs = one.copy.ours, one.copy.theirs
    rest = ours.args.kwarg
    passed = rest is not None and any(k.arg is None and said(k.value) == rest.arg for k in call.keywords)
    return passed and argument in parameters(theirs) - parameters(ours)


def _not_taken(one: Override, difference: Difference) -> bool:
    """Whether what is called has no such parameter in this file, or the rest of the arguments was taken apart."""
    call, argument = difference.call, difference.argument
    callee = one.callees.of(call) if call is not None else None
    if argument.startswith("**"):
        named = one.copy.theirs.args.kwarg
        return named is None or argument != f"**{named.arg}" or (callee is not None and callee.node.args.kwarg is None)
    if callee is None:
        return False
    return argument not in parameters(callee.node) and callee.node.args.kwarg is None


def changes_a_value(copy: Copy, line: Line) -> bool:
    """Whether a statement of the original changes what the copy goes on with."""
    match line.node:
        case ast.AugAssign(target):
            return _read(copy, target)
        case ast.Assign([_], ast.Call(ast.Attribute(_, method))) if method in _SAME_VALUE:
            return False
        case ast.Assign([target], value):
            name = code(target)
            return any(code(inner) == name for inner in walked(value)) and _read(copy, target)
        case ast.Expr(ast.Call(ast.Attribute(inner, name))) if name.endswith("_"):
            return _read(copy, inner)
    return False


def _read(copy: Copy, target: ast.AST) -> bool:
    reads = names_read(copy.ours)
    return any(name in reads for name in _names(target))


def _about_absent(one: Override, lines: list[Line]) -> bool:
    """Whether the lines speak of a class or function of upstream's file that this file does without."""
    source = one.item.source
    here = {*source.classes, *source.functions, *source.imports, *source.constants}
    return any(name[:1].isupper() and name not in here for line in lines for name in _names(line.node))


def _names(node: ast.AST) -> Iterator[str]:
    return (inner.id for inner in walked(node) if isinstance(inner, ast.Name))
