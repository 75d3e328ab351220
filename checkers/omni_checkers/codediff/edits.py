"""Differences between two trees of which one was copied from the other: each small edit, or that there is more."""

import ast
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import final

from omni_checkers.codediff.fingerprint import OPERATORS, fingerprint, unparse_cached
from omni_checkers.codediff.normalize import COMMUTING, OPERATIONS

_IGNORED = frozenset({"ctx", "kind", "type_comment", "annotation", "returns"})


@final
@dataclass(frozen=True)
class Change:
    """A place where a copy does something else than its original.

    Attributes:
        kind: "altered-statement", "misplaced-value", "reordered-steps", "other-elements", "turned-switch",
            "discarded-result" or "exchanged-statements".
        what: in words.
        line, original_line: of the statements.
    """

    kind: str
    what: str
    line: int
    original_line: int


@dataclass(frozen=True)
class Edit:
    """One small thing that a copy says differently.

    Attributes:
        what: in words.
        kept: what is left of an expression whose cast, factor or index is lost; None for other edits.
        gone: the fingerprints of the conditions that were joined to what is kept.
        call: the copy's call that lacks an argument; None for other edits.
        argument: that argument: a parameter's name, or the text of the value.
        about_text: it replaces a text that people read, or the name of a class.
    """

    what: str
    kept: ast.AST | None = None
    gone: tuple[int, ...] = ()
    call: ast.Call | None = None
    argument: str = ""
    about_text: bool = False


@dataclass(frozen=True)
class TreeDiff:
    """Compares a tree with the one that it was copied from.

    Attributes:
        known: the names that the original's function mentions: another name is no small edit.
        aliases: a second name of a value -> its first.
    """

    known: AbstractSet[str]
    aliases: Mapping[str, str]

    def edits(self, ours: object, theirs: object) -> Iterator[Edit | None]:
        """Yield each edit; None for one that is not small."""
        if isinstance(ours, ast.AST) and isinstance(theirs, ast.AST):
            if fingerprint(ours) == fingerprint(theirs):
                return
            small = self._small(ours, theirs)
            if small is not None:
                yield from small
            elif type(ours) is not type(theirs):
                yield None
            elif isinstance(ours, ast.Call) and isinstance(theirs, ast.Call):
                yield from self._calls(ours, theirs)
            else:
                for field in ours._fields:
                    if field not in _IGNORED:
                        yield from self.edits(getattr(ours, field, None), getattr(theirs, field, None))
        elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
            for one, other in zip(ours, theirs, strict=True):
                yield from self.edits(one, other)
        elif ours != theirs:
            yield None

    def _calls(self, ours: ast.Call, theirs: ast.Call) -> Iterator[Edit | None]:
        """Edits of a call; keywords go by their names, and one that only ours has is no edit."""
        match ours.func, theirs.func:
            case ast.Attribute(here, one), ast.Attribute(there, other) if one != other and {one, other} <= OPERATIONS:
                if fingerprint(here) == fingerprint(there):
                    yield _replaced(ours.func, theirs.func)  # which has other parameters
                    return
        if not (_makes_output(ours) and _makes_output(theirs)):
            yield from self.edits(ours.func, theirs.func)
        mine = {keyword.arg: keyword.value for keyword in ours.keywords}
        for keyword in theirs.keywords:
            if keyword.arg in mine:
                yield from self.edits(mine[keyword.arg], keyword.value)
            elif not (isinstance(keyword.value, ast.Constant) and keyword.value.value is None):
                yield _lost(ours, keyword.arg or f"**{unparse_cached(keyword.value)}", theirs)
        given, wanted = [*map(fingerprint, ours.args)], [*map(fingerprint, theirs.args)]
        if len(given) < len(wanted):
            known_here = {*given, *map(fingerprint, mine.values())}
            if [arg for arg in wanted if arg in given] == given:
                lost = [value for value in theirs.args if fingerprint(value) not in known_here]
                yield from (_lost(ours, unparse_cached(value), theirs) for value in lost)
            else:
                yield None
        elif given != wanted and sorted(given) == sorted(wanted):
            yield Edit(f"the arguments of {unparse_cached(theirs.func)} are exchanged")
        else:
            for value, original in zip(ours.args, theirs.args, strict=False):
                yield from self.edits(value, original)

    def _small(self, ours: ast.AST, theirs: ast.AST) -> list[Edit | None] | None:
        """Return the edits of two trees that are judged as a whole; None if their parts have to be."""
        if _is_literal(ours) and _is_literal(theirs):
            return [] if _same_number(ours, theirs) else [_replaced(ours, theirs)]
        match ours, theirs:
            case ast.Name(one), ast.Name(other):
                if one == self.aliases.get(other) or other == self.aliases.get(one):
                    return []
                return [_replaced(ours, theirs) if one in self.known else None]
            case (ast.Attribute(mine, one), ast.Attribute(yours, other)) | (
                ast.Subscript(mine, ast.Constant() as one),
                ast.Subscript(yours, other),
            ) if one != other and fingerprint(mine) == fingerprint(yours):
                return [_replaced(ours, theirs)]
            case ast.Constant(str()), ast.Name():
                return [_replaced(ours, theirs)]
            case ast.Tuple(mine, ast.Store()), ast.Tuple(yours, ast.Store()) if _moved(mine, yours):
                return [_replaced(ours, theirs)]
            case (ast.Tuple(mine), ast.Tuple(yours)) | (ast.List(mine), ast.List(yours)):
                if sorted(map(fingerprint, mine)) == sorted(map(fingerprint, yours)):
                    return [_replaced(ours, theirs)]
            case ast.BinOp(left, op, right), ast.BinOp(first, other, second) if type(op) is type(other):
                if fingerprint(left) == fingerprint(second) and fingerprint(right) == fingerprint(first):
                    return [] if isinstance(op, COMMUTING) else [_replaced(ours, theirs)]
            case _ if isinstance(ours, OPERATORS) and isinstance(theirs, OPERATORS):
                return [_replaced(ours, theirs)]
        code = fingerprint(ours)
        if any(code == fingerprint(part) for part in _parts(theirs)):
            joined = map(fingerprint, theirs.values if isinstance(theirs, ast.BoolOp) else ())
            gone = tuple(part for part in joined if part != code)
            what = f"'{unparse_cached(theirs)}' is '{unparse_cached(ours)}' here"
            return [Edit(what, kept=ours, gone=gone)]
        if isinstance(ours, ast.UnaryOp) and fingerprint(ours.operand) == fingerprint(theirs):
            return [_replaced(ours, theirs)]
        return None


def _lost(ours: ast.Call, argument: str, theirs: ast.Call) -> Edit:
    return Edit(f"'{argument}' is not passed to {unparse_cached(theirs.func)}", call=ours, argument=argument)


def _makes_output(call: ast.Call) -> bool:
    return "Output" in unparse_cached(call.func).rpartition(".")[2]


def _moved(ours: Sequence[ast.expr], theirs: Sequence[ast.expr]) -> bool:
    """Return whether a name takes another of the values than before."""
    places = {fingerprint(name): place for place, name in enumerate(theirs)}
    return len(ours) == len(theirs) and any(
        places.get(fingerprint(name), place) != place for place, name in enumerate(ours)
    )


def _is_literal(node: ast.AST) -> bool:
    match node:
        case ast.Constant() | ast.UnaryOp(ast.USub(), ast.Constant()):
            return True
    return False


def _same_number(ours: ast.AST, theirs: ast.AST) -> bool:
    """Return whether two literals are one number, such as 0 and 0.0; a truth value is none."""
    values = [getattr(node, "value", None) for node in (ours, theirs)]
    return all(type(value) in (int, float) for value in values) and values[0] == values[1]


def _parts(node: ast.AST) -> list[ast.expr]:
    """Return the operands that an expression would leave without its outermost operation."""
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


def _replaced(ours: ast.AST, theirs: ast.AST) -> Edit:
    texts = (getattr(ours, "value", None), getattr(theirs, "value", None))
    about_text = any(isinstance(text, str) and not (text.isidentifier() and text.islower()) for text in texts)
    return Edit(f"'{unparse_cached(ours)}' instead of '{unparse_cached(theirs)}'", about_text=about_text)
