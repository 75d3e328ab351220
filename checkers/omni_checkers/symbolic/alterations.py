"""Where copied code says something else than what it was copied from, by one small thing, or leaves a line out."""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import pairwise, zip_longest

from omni_checkers.engine.files import walked
from omni_checkers.symbolic.arrangement import rearranged
from omni_checkers.symbolic.spelling import OPERATIONS, plain

_IGNORED = frozenset({"ctx", "kind", "type_comment", "annotation", "returns"})
_OPERATORS = (ast.operator, ast.cmpop, ast.boolop, ast.unaryop)
_COMMUTING = (ast.Add, ast.Mult, ast.BitOr, ast.BitAnd)
# In one statement: more small things than these were meant.
_FEW = 3
# Lines that are left out together: more were left out on purpose.
_BLOCK = 3
# Nodes of a statement that is known again wherever it stands.
_LONG = 8
_SHOWN = 90


@dataclass(frozen=True)
class Difference:
    """One small thing that a copy says otherwise.

    Attributes:
        what: in words.
        kept: what is left of an expression whose cast, factor or index is lost; None for other differences.
        gone: the conditions that were joined to what is kept.
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


@dataclass(frozen=True)
class Line:
    """A statement without what is inside it: an assignment, or the head of a block.

    Attributes:
        kind: of the whole statement.
        inside: the statements of the block, as text.
    """

    node: ast.AST
    number: int
    kind: type[ast.stmt]
    inside: tuple[str, ...] = ()

    @cached_property
    def text(self) -> str:
        """The statement as text, whatever its spacing."""
        return said(self.node)

    @cached_property
    def plain(self) -> ast.AST:
        """The statement in one spelling."""
        return plain(self.node)


@dataclass(frozen=True)
class Copy:
    """A function, and the one that it was copied from."""

    ours: ast.FunctionDef
    theirs: ast.FunctionDef

    @cached_property
    def mine(self) -> list[Line]:
        """The lines of the copy."""
        return lines_of(self.ours)

    @cached_property
    def original(self) -> list[Line]:
        """The lines of the original."""
        return lines_of(self.theirs)

    @cached_property
    def _mine(self) -> list[str]:
        return [line.text for line in self.mine]

    @cached_property
    def _originals(self) -> list[str]:
        return [line.text for line in self.original]

    @cached_property
    def likeness(self) -> float:
        """How much of the original the copy still has, from 0 to 1."""
        same = sum(last - first for tag, first, last, _, _ in self._blocks if tag == "equal")
        return same / max(1, len(self.original))

    @cached_property
    def _blocks(self) -> Sequence[tuple[str, int, int, int, int]]:
        return SequenceMatcher(None, self._mine, self._originals, autojunk=False).get_opcodes()

    @cached_property
    def _texts(self) -> tuple[set[str], set[str]]:
        return set(self._mine), set(self._originals)

    def altered(self) -> Iterator[tuple[Line, Line, list[Difference]]]:
        """Lines that stand in the place of one of the original's and differ from it by small things.

        A number, an operator, an attribute of the same object, an argument, a factor, a cast or an index that is lost,
        arguments that are exchanged. What was written anew, added, or named otherwise is no alteration.
        """
        known = {node.id for node in walked(self.theirs) if isinstance(node, ast.Name)} | parameters(self.theirs)
        aliases = dict(_aliases(self.original))
        for here, there in self._replaced():
            found = list(_differences(here.node, there.node, known, aliases))
            if found:
                found = list(_differences(here.plain, there.plain, known, aliases))
            if len(found) > 1 and rearranged(here.node, there.node):
                found = [
                    Difference(f"'{here.text[:_SHOWN]}' has the parts of '{there.text[:_SHOWN]}' in another order")
                ]
            if 0 < len(found) <= _FEW and None not in found and self._in_place(here, there):
                yield here, there, [one for one in found if one is not None]

    @cached_property
    def _apart(self) -> tuple[set[str], set[str]]:
        """The texts that only the copy has, and those that only the original has, in whatever spelling."""
        mine, original = self._texts
        ours = {line.text: said(line.plain) for line in self.mine if line.text not in original}
        theirs = {line.text: said(line.plain) for line in self.original if line.text not in mine}
        both = set(ours.values()) & set(theirs.values())
        new, lost = ({text for text, spelt in one.items() if spelt not in both} for one in (ours, theirs))
        return new, lost

    def _replaced(self) -> Iterator[tuple[Line, Line]]:
        """Lines of one kind between the same lines; and, wherever they stand, long ones that set the same name."""
        new, lost = self._apart
        seen: set[tuple[int, int]] = set()
        for here, there in self._standing():
            seen.add((here.number, there.number))
            yield here, there
        gone = [line for line in self.original if line.text in lost and _long(line)]
        for here in (line for line in self.mine if line.text in new and _long(line)):
            like = [there for there in gone if _sets(there) == _sets(here) != ""]
            if len(like) == 1 and (here.number, like[0].number) not in seen:
                yield here, like[0]

    def _standing(self) -> Iterator[tuple[Line, Line]]:
        new, lost = self._apart
        for tag, first, last, start, end in self._blocks:
            if tag == "replace":
                for here in self.mine[first:last]:
                    for there in self.original[start:end]:
                        if here.kind is there.kind and here.text in new and there.text in lost:
                            yield here, there

    def _in_place(self, here: Line, there: Line) -> bool:
        """Whether two lines do the same: blocks share a statement, and short lines stand in a function that is kept."""
        if here.inside or there.inside:
            return bool(set(here.inside) & set(there.inside))
        return self.likeness >= 0.5 or len(walked(there.node)) >= _LONG

    def exchanged(self) -> Iterator[tuple[Line, Line]]:
        """Two lines that follow each other, the other way round than in the original, where one needs the other."""
        ours = Counter(pairwise(self._mine))
        theirs = Counter(pairwise(self._originals))
        for first, second in pairwise(self.original):
            way, back = (first.text, second.text), (second.text, first.text)
            turned = ours[way] < theirs[way] and ours[back] > theirs[back]
            if turned and _depend(first.node, second.node):
                place = next(number for number, pair in enumerate(pairwise(self._mine)) if pair == back)
                yield self.mine[place], first
                return

    def unset(self) -> Iterator[Line]:
        """Lines that change a name from what it was, and that the copy lacks between one that sets it and one that
        reads it, both of the original.
        """
        mine = self._texts[0]
        for number, line in enumerate(self.original):
            name = _changed(line.node)
            if not name or line.text in mine:
                continue
            before = [one for one in self.original[:number] if name in _written(one.node)]
            after = next((one for one in self.original[number + 1 :] if name in names_read(one.node)), None)
            if not before or after is None or not {before[-1].text, after.text} <= mine:
                continue
            start, end = self._mine.index(before[-1].text), self._mine.index(after.text)
            if start < end and not any(name in _written(one.node) for one in self.mine[start + 1 : end]):
                yield line

    def left_out(self) -> Iterator[list[Line]]:
        """Lines of the original that the copy does not have, a few at a time, between lines that it has."""
        mine = self._texts[0]
        for tag, _, _, start, end in self._blocks:
            block = self.original[start:end]
            moved = any(line.text in mine and not _asks(line) for line in block)
            if tag == "insert" and len(block) <= _BLOCK and not moved:
                yield block

    @cached_property
    def _made(self) -> set[str]:
        """The names that lines of the copy alone set."""
        original = self._texts[1]
        return {name for line in self.mine if line.text not in original for name in _written(line.node)}

    def rewritten(self) -> Iterator[tuple[Line, Line]]:
        """Lines that stand where the original sets the same name to another value, in words that the original knows."""
        known = {node.id for node in walked(self.theirs) if isinstance(node, ast.Name)} | parameters(self.theirs)
        for tag, first, last, start, end in self._blocks:
            if tag == "replace" and last - first == end - start == 1:
                here, there = self.mine[first], self.original[start]
                read = names_read(here.node)
                if _sets(here) == _sets(there) != "" and read <= known and not read & self._made:
                    yield here, there


def _long(line: Line) -> bool:
    return line.kind is ast.Assign and len(walked(line.node)) >= _LONG


def _asks(line: Line) -> bool:
    """Whether a line is a condition, which may be asked again."""
    return issubclass(line.kind, (ast.If, ast.While))


def _sets(line: Line) -> str:
    return said(line.node.targets[0]) if isinstance(line.node, ast.Assign) else ""


def lines_of(function: ast.FunctionDef) -> list[Line]:
    """The statements of a function, those inside others, too; what only speaks or raises is left out."""
    return list(_lines(function.body))


def _lines(body: Sequence[ast.stmt]) -> Iterator[Line]:
    for statement in _plain(body):
        match statement:
            case ast.Expr(ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Pass() | ast.Raise() | ast.Assert():
                continue
            case ast.Expr(ast.Call(ast.Attribute(ast.Name(name)))) if "log" in name or name == "warnings":
                continue
            case ast.FunctionDef() | ast.ClassDef():
                continue
            case ast.If() | ast.While():
                inside = tuple(said(inner) for inner in statement.body)
                yield Line(statement.test, statement.lineno, type(statement), inside)
            case ast.For():
                head = ast.Tuple([statement.target, statement.iter], ast.Load())
                yield Line(head, statement.lineno, ast.For, tuple(said(inner) for inner in statement.body))
            case ast.With() | ast.Try():
                pass
            case ast.AnnAssign(target, _, value) if value is not None:
                yield Line(ast.Assign([target], value, lineno=statement.lineno), statement.lineno, ast.Assign)
            case _:
                yield Line(statement, statement.lineno, type(statement))
        for field in ("body", "orelse", "finalbody"):
            yield from _lines(getattr(statement, field, []))


def _plain(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements; what is named only to be returned is returned."""
    returned = False
    for statement, after in zip_longest(body, body[1:]):
        match statement, after:
            case _ if returned:
                returned = False
            case ast.Assign([ast.Name(name)], value), ast.Return(ast.Name(other)) if name == other:
                returned = True
                yield ast.copy_location(ast.Return(value), statement)
            case _:
                yield statement


def _written(node: ast.AST) -> set[str]:
    """The local names that a line sets, or changes by a method that ends in an underscore."""
    match node:
        case ast.Expr(ast.Call(ast.Attribute(ast.Name(name), method))) if method.endswith("_"):
            return {name}
        case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
            return {
                inner.id for inner in walked(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store)
            }
    return set()


def names_read(node: ast.AST) -> set[str]:
    """The local names whose values code takes."""
    found = {inner.id for inner in walked(node) if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Load)}
    return found | (
        {node.target.id} if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) else set()
    )


def _changed(node: ast.AST) -> str:
    """The name that a line makes of what it was before; "" for other lines, and for other views of the same values."""
    match node:
        case ast.AugAssign(ast.Name(name)):
            return name
        case ast.Assign([ast.Name(name)], value) if name in names_read(value):
            return name
    return ""


def _depend(first: ast.AST, second: ast.AST) -> bool:
    """Whether two lines mean something else the other way round."""
    written, read = (_written(first), _written(second)), (names_read(first), names_read(second))
    return bool(written[0] & read[1] or written[1] & read[0] or written[0] & written[1])


def _aliases(lines: Sequence[Line]) -> Iterator[tuple[str, str]]:
    """Names that the original gives to what has a name already."""
    for line in lines:
        match line.node:
            case ast.Assign([ast.Name(name)], ast.Name(other)):
                yield name, other


def _differences(ours: object, theirs: object, known: set[str], aliases: dict[str, str]) -> Iterator[Difference | None]:
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
                    yield from _differences(getattr(ours, field, None), getattr(theirs, field, None), known, aliases)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            yield from _differences(one, other, known, aliases)
    elif ours != theirs:
        yield None


def _calls(ours: ast.Call, theirs: ast.Call, known: set[str], aliases: dict[str, str]) -> Iterator[Difference | None]:
    """Differences of two calls; keywords go by their names, and one that only ours has is no difference."""
    match ours.func, theirs.func:
        case ast.Attribute(here, one), ast.Attribute(there, other) if one != other and {one, other} <= OPERATIONS:
            if said(here) == said(there):
                yield _instead(ours.func, theirs.func)  # which takes other arguments
                return
    if not (_makes_output(ours) and _makes_output(theirs)):
        yield from _differences(ours.func, theirs.func, known, aliases)
    mine = {keyword.arg: keyword.value for keyword in ours.keywords}
    for keyword in theirs.keywords:
        if keyword.arg in mine:
            yield from _differences(mine[keyword.arg], keyword.value, known, aliases)
        elif not (isinstance(keyword.value, ast.Constant) and keyword.value.value is None):
            yield _lost(ours, keyword.arg or f"**{said(keyword.value)}", theirs)
    given, wanted = [said(value) for value in ours.args], [said(value) for value in theirs.args]
    if len(given) < len(wanted):
        gone = [arg for arg in wanted if arg not in given]
        by_name = set(map(said, mine.values()))
        if [arg for arg in wanted if arg in given] == given:
            yield from (_lost(ours, arg, theirs) for arg in gone if arg not in by_name)
        else:
            yield None
    elif given != wanted and sorted(given) == sorted(wanted):
        yield Difference(f"the arguments of {said(theirs.func)} are exchanged")
    else:
        for value, original in zip(ours.args, theirs.args, strict=False):
            yield from _differences(value, original, known, aliases)


def _lost(ours: ast.Call, argument: str, theirs: ast.Call) -> Difference:
    return Difference(f"'{argument}' is not given to {said(theirs.func)}", call=ours, argument=argument)


def _makes_output(call: ast.Call) -> bool:
    return "Output" in said(call.func).rpartition(".")[2]


def _small(
    ours: ast.AST, theirs: ast.AST, known: set[str], aliases: dict[str, str]
) -> tuple[bool, list[Difference | None]]:
    """Whether two trees can be judged as a whole, and then how they differ."""
    if said(ours) == said(theirs):
        return True, []
    if _is_literal(ours) and _is_literal(theirs):
        return True, [] if _same_number(ours, theirs) else [_instead(ours, theirs)]
    match ours, theirs:
        case ast.Name(one), ast.Name(other):
            same = one == aliases.get(other) or other == aliases.get(one)
            return True, [] if same else [_instead(ours, theirs) if one in known else None]
        case ast.Attribute(mine, one), ast.Attribute(yours, other) if one != other and said(mine) == said(yours):
            return True, [_instead(ours, theirs)]
        case ast.Constant(str()), ast.Name():
            return True, [_instead(ours, theirs)]
        case ast.Tuple(mine, ast.Store()), ast.Tuple(yours, ast.Store()) if _moved(mine, yours):
            return True, [_instead(ours, theirs)]
        case ast.Subscript(mine, ast.Constant()), ast.Subscript(yours, _) if said(mine) == said(yours):
            return True, [_instead(ours, theirs)]
        case (ast.Tuple(mine), ast.Tuple(yours)) | (ast.List(mine), ast.List(yours)):
            if sorted(map(said, mine)) == sorted(map(said, yours)):
                return True, [_instead(ours, theirs)]
        case ast.BinOp(left, one, right), ast.BinOp(first, other, second) if type(one) is type(other):
            if said(left) == said(second) and said(right) == said(first):
                return True, [] if isinstance(one, _COMMUTING) else [_instead(ours, theirs)]
        case _, _ if isinstance(ours, _OPERATORS) and isinstance(theirs, _OPERATORS):
            return True, [_instead(ours, theirs)]
    if any(said(ours) == said(part) for part in _parts(theirs)):
        joined = theirs.values if isinstance(theirs, ast.BoolOp) else []
        gone = tuple(said(part) for part in joined if said(part) != said(ours))
        return True, [Difference(f"'{said(theirs)}' is '{said(ours)}' here", kept=ours, gone=gone)]
    if isinstance(ours, ast.UnaryOp) and said(ours.operand) == said(theirs):
        return True, [_instead(ours, theirs)]
    return False, []


def _moved(ours: Sequence[ast.expr], theirs: Sequence[ast.expr]) -> bool:
    """Whether a name takes another of the values than before."""
    places = {said(name): place for place, name in enumerate(theirs)}
    return len(ours) == len(theirs) and any(places.get(said(name), place) != place for place, name in enumerate(ours))


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


def said(node: ast.AST) -> str:
    """The text of a node, whatever its spacing; remembered on the node."""
    text: str | None = node.__dict__.get("_said")
    if text is None:
        text = type(node).__name__ if isinstance(node, _OPERATORS) else ast.unparse(node)
        node.__dict__["_said"] = text
    return text


def parameters(function: ast.FunctionDef) -> set[str]:
    """The names of the parameters of a function, without those for the rest."""
    arguments = function.args
    return {argument.arg for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)}
