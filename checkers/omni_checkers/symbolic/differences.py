"""How two trees differ, where one was copied from the other: each small thing, and that there is more."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from omni_checkers.symbolic.arrangement import COMMUTING
from omni_checkers.symbolic.lines import OPERATORS, code, said
from omni_checkers.symbolic.spelling import OPERATIONS

_IGNORED = frozenset({"ctx", "kind", "type_comment", "annotation", "returns"})


@dataclass(frozen=True)
class Difference:
    """One small thing that a copy says otherwise.

    Attributes:
        what: in words.
        kept: what is left of an expression whose cast, factor or index is lost; None for other differences.
        gone: the code of the conditions that were joined to what is kept.
        call: the copy's call to which an argument is not given; None for other differences.
        argument: that argument: a parameter's name, or the text of what stood in its place.
        about_text: a text that people read, or the name of a class, stands in the place of another.
    """

    what: str
    kept: ast.AST | None = None
    gone: tuple[str, ...] = ()
    call: ast.Call | None = None
    argument: str = ""
    about_text: bool = False


def differences(ours: object, theirs: object, known: set[str], aliases: dict[str, str]) -> Iterator[Difference | None]:
    """Each difference of two trees; None for one that is no small thing."""
    if isinstance(ours, ast.AST) and isinstance(theirs, ast.AST):
        small, found = _small(ours, theirs, known, aliases)
        if small:
            yield from found
        elif type(ours) is not type(theirs):
            yield None
        elif isinstance(ours, ast.Call) and isinstance(theirs, ast.Call):
            yield from _calls(ours, theirs, known, aliases)
        else:
            for field in ours._fields:
                if field not in _IGNORED:
                    yield from differences(getattr(ours, field, None), getattr(theirs, field, None), known, aliases)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            yield from differences(one, other, known, aliases)
    elif ours != theirs:
        yield None


def _calls(ours: ast.Call, theirs: ast.Call, known: set[str], aliases: dict[str, str]) -> Iterator[Difference | None]:
    """Differences of two calls; keywords go by their names, and one that only ours has is no difference."""
    match ours.func, theirs.func:
        case ast.Attribute(here, one), ast.Attribute(there, other) if one != other and {one, other} <= OPERATIONS:
            if code(here) == code(there):
                yield _instead(ours.func, theirs.func)  # which takes other arguments
                return
    if not (_makes_output(ours) and _makes_output(theirs)):
        yield from differences(ours.func, theirs.func, known, aliases)
    mine = {keyword.arg: keyword.value for keyword in ours.keywords}
    for keyword in theirs.keywords:
        if keyword.arg in mine:
            yield from differences(mine[keyword.arg], keyword.value, known, aliases)
        elif not (isinstance(keyword.value, ast.Constant) and keyword.value.value is None):
            yield _lost(ours, keyword.arg or f"**{said(keyword.value)}", theirs)
    given, wanted = [code(value) for value in ours.args], [code(value) for value in theirs.args]
    if len(given) < len(wanted):
        known_here = {*given, *map(code, mine.values())}
        if [arg for arg in wanted if arg in given] == given:
            yield from (_lost(ours, said(value), theirs) for value in theirs.args if code(value) not in known_here)
        else:
            yield None
    elif given != wanted and sorted(given) == sorted(wanted):
        yield Difference(f"the arguments of {said(theirs.func)} are exchanged")
    else:
        for value, original in zip(ours.args, theirs.args, strict=False):
            yield from differences(value, original, known, aliases)


def _lost(ours: ast.Call, argument: str, theirs: ast.Call) -> Difference:
    return Difference(f"'{argument}' is not given to {said(theirs.func)}", call=ours, argument=argument)


def _makes_output(call: ast.Call) -> bool:
    return "Output" in said(call.func).rpartition(".")[2]


def _small(
    ours: ast.AST, theirs: ast.AST, known: set[str], aliases: dict[str, str]
) -> tuple[bool, list[Difference | None]]:
    """Whether two trees can be judged as a whole, and then how they differ."""
    if code(ours) == code(theirs):
        return True, []
    if _is_literal(ours) and _is_literal(theirs):
        return True, [] if _same_number(ours, theirs) else [_instead(ours, theirs)]
    match ours, theirs:
        case ast.Name(one), ast.Name(other):
            same = one == aliases.get(other) or other == aliases.get(one)
            return True, [] if same else [_instead(ours, theirs) if one in known else None]
        case ast.Attribute(mine, one), ast.Attribute(yours, other) if one != other and code(mine) == code(yours):
            return True, [_instead(ours, theirs)]
        case ast.Constant(str()), ast.Name():
            return True, [_instead(ours, theirs)]
        case ast.Tuple(mine, ast.Store()), ast.Tuple(yours, ast.Store()) if _moved(mine, yours):
            return True, [_instead(ours, theirs)]
        case ast.Subscript(mine, ast.Constant()), ast.Subscript(yours, _) if code(mine) == code(yours):
            return True, [_instead(ours, theirs)]
        case (ast.Tuple(mine), ast.Tuple(yours)) | (ast.List(mine), ast.List(yours)):
            if sorted(map(code, mine)) == sorted(map(code, yours)):
                return True, [_instead(ours, theirs)]
        case ast.BinOp(left, one, right), ast.BinOp(first, other, second) if type(one) is type(other):
            if code(left) == code(second) and code(right) == code(first):
                return True, [] if isinstance(one, COMMUTING) else [_instead(ours, theirs)]
        case _, _ if isinstance(ours, OPERATORS) and isinstance(theirs, OPERATORS):
            return True, [_instead(ours, theirs)]
    if any(code(ours) == code(part) for part in _parts(theirs)):
        joined = theirs.values if isinstance(theirs, ast.BoolOp) else []
        gone = tuple(code(part) for part in joined if code(part) != code(ours))
        return True, [Difference(f"'{said(theirs)}' is '{said(ours)}' here", kept=ours, gone=gone)]
    if isinstance(ours, ast.UnaryOp) and code(ours.operand) == code(theirs):
        return True, [_instead(ours, theirs)]
    return False, []


def _moved(ours: Sequence[ast.expr], theirs: Sequence[ast.expr]) -> bool:
    """Whether a name takes another of the values than before."""
    places = {code(name): place for place, name in enumerate(theirs)}
    return len(ours) == len(theirs) and any(places.get(code(name), place) != place for place, name in enumerate(ours))


def _is_literal(node: ast.AST) -> bool:
    match node:
        case ast.Constant() | ast.UnaryOp(ast.USub(), ast.Constant()):
            return True
    return False


def _same_number(ours: ast.AST, theirs: ast.AST) -> bool:
    """Whether two literals are one number, such as 0 and 0.0; a truth value is none."""
    values = [getattr(node, "value", None) for node in (ours, theirs)]
    return all(type(value) in (int, float) for value in values) and values[0] == values[1]


def _parts(node: ast.AST) -> list[ast.expr]:
    """What an expression would be without its outermost operation."""
    match node:
        case ast.UnaryOp(_, inner) | ast.Subscript(inner, _) | ast.Call(ast.Attribute(inner, _), _, _):
            return [inner]
        case ast.BinOp(left, _, right):
            return [left, right]
        case ast.BoolOp(_, values):
            return values
        case ast.Call(_, [inner, *_], _):
            return [inner]
    return []


def _instead(ours: ast.AST, theirs: ast.AST) -> Difference:
    texts = (getattr(ours, "value", None), getattr(theirs, "value", None))
    about_text = any(isinstance(text, str) and not (text.isidentifier() and text.islower()) for text in texts)
    return Difference(f"'{said(ours)}' in the place of '{said(theirs)}'", about_text=about_text)
