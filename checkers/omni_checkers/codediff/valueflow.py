"""Data flow of a function independent of its names: compares two functions by their computations.

Each expression gets a number; two have the same one if they apply the same operations to the same values. Names of
locals do not count, nor do casts and copies, the order of terms, factors, conditions and keywords, or the order of
statements that do not touch each other.
"""

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from omni_checkers.codediff.edits import Change
from omni_checkers.codediff.fingerprint import fingerprint, leaves, names_stored, unparse_cached
from omni_checkers.codediff.normalize import COMMUTING, SHAPES, SPACES, align_axes, normalize
from omni_checkers.engine.files import remembered, within

# They return the values that they are called on, wherever in a chain they stand.
SAME_VALUES = frozenset({"contiguous", "clone", "cpu", "detach", "to"})
_SYMMETRIC = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)
# Steps whose order with others means nothing, or nothing that can be told.
_FREE = SHAPES | {"again", "each", "either", "expand", "set", "type_as", "unflatten", "view"}
# Steps that may be taken before or after a factor.
_LINEAR = frozenset({"bmm", "cumsum", "diff", "einsum", "linear", "matmul", "mean", "sum", "Mult", "Div"})
# Steps, and values that both functions make, below a value that is compared; more were rewritten.
_STEPS = 12
_COMMUTING = {one.__name__ for one in COMMUTING}


class Number(int):
    """The number of a value, the same in all functions."""

    __slots__ = ()


Slot = str
Env = dict[str | int, Number]
_numbers: dict[tuple[Any, ...], Number] = {}
_made_of: list[tuple[Any, ...]] = []


def _of(*parts: Any) -> Number:
    """Return the number of what is made of these parts."""
    known = _numbers.get(parts)
    if known is None:
        known = _numbers[parts] = Number(len(_made_of))
        _made_of.append(parts)
    return known


_UNSET = _of("unset")


def same_values(ours: ast.AST, theirs: ast.AST) -> bool:
    """Return whether two statements compute the same, as far as each tells alone.

    An axis may be counted from either end, and an argument may go by its place or by its name.
    """
    if _value_of(ours) == _value_of(theirs):
        return True
    theirs = align_axes(ours, theirs)
    named = {one.arg for tree in (ours, theirs) for one in within(tree, ast.keyword) if _says_twice(one)}
    return _value_of(ours, named) == _value_of(theirs, named)


def rearranged(ours: ast.AST, theirs: ast.AST) -> bool:
    """Return whether two statements are made of the same names, numbers and operations, and compute something else."""
    return Counter(leaves(ours)) == Counter(leaves(theirs)) and _value_of(ours) != _value_of(theirs)


def _value_of(node: ast.AST, named: Collection[str | None] = ()) -> Number:
    return Flow(named).value(normalize(node), {})


def _says_twice(one: ast.keyword) -> bool:
    """Return whether an argument is given by the name that it has: `mask=mask`."""
    return isinstance(one.value, ast.Name) and one.arg == one.value.id


@dataclass(frozen=True)
class Use:
    """A call, an operation or a return, and the values that it takes.

    Attributes:
        name: of what is called: that of a method without what it is called on, which is a value.
        slots: place or keyword -> value.
        line: of the statement that it stands in.
    """

    name: str
    slots: dict[Slot, Number]
    value: Number
    line: int


class Flow:
    """The values of one function.

    Args:
        named: names whose values go by their names wherever they are arguments.

    Attributes:
        uses: every call, operation and return, in order.
        made: value -> the first expression that makes it.
        lines: value -> the line of that.
        results: line -> the value that its statement assigns or returns.
        choices: value -> the values of which it is one, where a condition decides.
    """

    def __init__(self, named: Collection[str | None] = ()) -> None:
        self._line, self._named = 0, named
        self.uses: list[Use] = []
        self.made: dict[Number, ast.AST] = {}
        self.lines: dict[Number, int] = {}
        self.results: dict[int, Number] = {}
        self.choices: dict[Number, frozenset[Number]] = {}
        self._names: dict[Number, str] = {}

    def text(self, value: Number) -> str | None:
        """Return the first name of a value, or the expression that made it; None if the function has no such value."""
        made = self.made.get(value)
        return self._names.get(value) or (unparse_cached(made) if made is not None else None)

    def run(self, function: ast.FunctionDef) -> None:
        """Go through a function."""
        self._line, args = function.lineno, function.args
        named = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
        self._run(function.body, {one.arg: _of("parameter", one.arg) for one in named})

    def _run(self, body: Sequence[ast.stmt], env: Env) -> bool:
        """Goes through statements; says whether the end of them is reached."""
        return all(self._statement(statement, env) for statement in body)

    def _statement(self, node: ast.stmt, env: Env) -> bool:
        self._line = node.lineno
        match node:
            case ast.Assign(targets, value):
                found = self.results[node.lineno] = self._normal(value, env)
                for target in targets:
                    self._bind(target, found, env, value)
            case ast.AnnAssign(target, _, ast.expr() as value):
                self._bind(target, self._normal(value, env), env, value)
            case ast.AugAssign(target, op, value):
                whole = ast.BinOp(target, op, value)
                self._bind(target, self._normal(whole, env), env, whole)
            case ast.Return(ast.Tuple(values)):
                self._use("return", {str(place): self._normal(value, env) for place, value in enumerate(values)})
                return False
            case ast.Return(value):
                if value is not None:
                    self.results[node.lineno] = self._normal(value, env)
                    self._use("return", {"0": self.results[node.lineno]})
                return False
            case ast.Raise():
                return False
            case ast.If(test, body, orelse):
                return self._branches(self._normal(test, env), body, orelse, env)
            case ast.For(target, iterator, body):
                self._loop(body, env, (target, self._normal(iterator, env)))
            case ast.While(test, body):
                self._loop(body, env, None)
            case ast.With(items, body):
                for item in items:
                    found = self._normal(item.context_expr, env)
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, found, env, item.context_expr)
                return self._run(body, env)
            case ast.Try(body):
                return self._run(body, env)
            case ast.Expr(value):
                self._normal(value, env)
        return True

    def _normal(self, node: ast.expr, env: Env) -> Number:
        """Return the value of an expression, whichever way of several it is written in."""
        return self.value(normalize(node), env)

    def _branches(self, test: Number, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt], env: Env) -> bool:
        then, other = dict(env), dict(env)
        ends = self._run(body, then), self._run(orelse, other)
        if not any(ends):
            return False
        if not all(ends):
            env.update(then if ends[0] else other)
            return True
        for name in dict.fromkeys([*then, *other]):
            one, two = then.get(name, _UNSET), other.get(name, _UNSET)
            env[name] = one
            if one != two:
                env[name] = _of("either", test, one, two)
                choices = (self.choices.get(each, frozenset({each})) for each in (one, two))
                self.choices[env[name]] = frozenset[Number]().union(*choices)
        return True

    def _loop(self, body: Sequence[ast.stmt], env: Env, head: tuple[ast.expr, Number] | None) -> None:
        changed = {name for statement in body for name in names_stored(statement)}
        for name in env.keys() & changed:
            env[name] = _of("again", env[name])
        if head is not None:
            self._bind(head[0], _of("each", head[1]), env, head[0])
        self._run(body, env)

    def _bind(self, target: ast.expr, value: Number, env: Env, made_of: ast.expr) -> None:
        match target:
            case ast.Name(name):
                env[name] = value
                if not isinstance(self.made.get(value), ast.Name):
                    self._names.setdefault(value, name)
            case ast.Tuple(targets) | ast.List(targets):
                whole = made_of.elts if isinstance(made_of, (ast.Tuple, ast.List)) else []
                same = len(whole) == len(targets)
                for place, one in enumerate(targets):
                    part = self.value(whole[place], dict(env)) if same else _of("item", value, place)
                    self._bind(one, part, env, whole[place] if same else made_of)
            case ast.Starred(inner):
                self._bind(inner, _of("rest", value), env, inner)
            case ast.Attribute(inner) | ast.Subscript(inner):
                held = self.value(inner, env)
                where = self.value(target.slice, env) if isinstance(target, ast.Subscript) else target.attr
                self._use("set", {"of": held, "value": value})
                if isinstance(inner, ast.Name):
                    env[inner.id] = _of("set", held, where, value)
                elif isinstance(target, ast.Attribute):
                    env[fingerprint(target)] = value

    def value(self, node: ast.AST, env: Env) -> Number:
        """Return the number of the value of code in one spelling, where names have these values."""
        number = self._number(node, env)
        if number not in self.made:
            self.made[number], self.lines[number] = node, self._line
        return number

    def _number(self, node: ast.AST, env: Env) -> Number:
        match node:
            case ast.Name(name):
                return env[name] if name in env else _of("name", name)
            case ast.Constant(value):
                return _of("constant", type(value).__name__, value)
            case ast.Attribute(inner, name):
                whole = fingerprint(node)
                return env[whole] if whole in env else _of("attribute", self.value(inner, env), name)
            case ast.Call():
                return self._call(node, env)
            case ast.BinOp(left, op, right):
                return self._operation(type(op).__name__, self.value(left, env), self.value(right, env))
            case ast.BoolOp(op, values):
                return _of(type(op).__name__, *sorted(self.value(one, env) for one in values))
            case ast.Compare(left, [op], [right]) if isinstance(op, _SYMMETRIC):
                return _of(type(op).__name__, *sorted([self.value(left, env), self.value(right, env)]))
            case ast.Dict(keys, values):
                named = [self.value(key, env) if key is not None else _UNSET for key in keys]
                return _of("dict", *sorted(zip(named, [self.value(one, env) for one in values], strict=True)))
            case ast.Assign([ast.Tuple(targets)], ast.Tuple(values)) if len(targets) == len(values):
                pairs = zip(targets, values, strict=True)
                return _of("assign", *sorted((self.value(one, env), self.value(other, env)) for one, other in pairs))
            case ast.Subscript(inner, index):
                slots = {"of": self.value(inner, env), "at": self.value(index, env)}
                return self._use("[]", slots)
            case ast.NamedExpr(target, value):
                found = self.value(value, env)
                self._bind(target, found, env, value)
                return found
            case ast.Lambda():
                return _of("lambda", fingerprint(node))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node, dict(env))
        parts = [self._part(getattr(node, name, None), env) for name in node._fields if name != "ctx"]
        return _of(type(node).__name__, *parts)

    def _part(self, part: object, env: Env) -> Any:
        if isinstance(part, (ast.expr, ast.keyword, ast.comprehension)):
            return self.value(part, env)
        if isinstance(part, list):
            return tuple(self._part(one, env) for one in part)
        return type(part).__name__ if isinstance(part, ast.AST) else part

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, env: Env) -> Number:
        made: list[Any] = []
        for one in node.generators:
            held = self.value(one.iter, env)
            self._bind(one.target, _of("each", held), env, one.target)
            made += [held, *(self.value(test, env) for test in one.ifs)]
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        return _of(type(node).__name__, *made, *(self.value(one, env) for one in results))

    def _call(self, node: ast.Call, env: Env) -> Number:
        name, slots = unparse_cached(node.func), dict[Slot, Number]()
        match node.func:
            case ast.Attribute(inner, method) if method in SAME_VALUES:
                return self.value(inner, env)
            case ast.Attribute(inner, method) if unparse_cached(inner) in SPACES:
                name = method
            case ast.Attribute(inner, method) if not name.startswith("self."):
                name, slots["on"] = f".{method}", self.value(inner, env)
            case ast.Name(function) if function in env:
                name, slots["on"] = "()", env[function]
        by_name = [one for one in node.args if isinstance(one, ast.Name) and one.id in self._named]
        by_place = [one for one in node.args if one not in by_name] if by_name else node.args
        slots |= {str(place): self.value(argument, env) for place, argument in enumerate(by_place)}
        slots |= {one.id: self.value(one, env) for one in by_name}
        slots |= {keyword.arg or "**": self.value(keyword.value, env) for keyword in node.keywords}
        return self._use(name, slots)

    def _operation(self, name: str, left: Number, right: Number) -> Number:
        """Return an operation on two values; terms and factors are one sum or product, in whatever order."""
        slots = {"left": left, "right": right}
        if name not in _COMMUTING:
            return self._use(name, slots)
        terms = [term for one in slots.values() for term in (_made_of[one][1:] if _made_of[one][0] == name else (one,))]
        value = _of(name, *sorted(terms))
        self.uses.append(Use(name, slots, value, self._line))
        return value

    def _use(self, name: str, slots: dict[Slot, Number]) -> Number:
        value = _of("use", name, *sorted(slots.items()))
        self.uses.append(Use(name, slots, value, self._line))
        return value


@remembered
def flow_of(function: ast.FunctionDef) -> Flow:
    """Return the values of a function."""
    flow = Flow()
    flow.run(function)
    return flow


def split_up(ours: ast.FunctionDef, line: int, theirs: ast.FunctionDef, original_line: int) -> bool:
    """Return whether our code computes in several statements one statement of the original.

    Args:
        line: of the first of them.
    """
    mine, original = flow_of(ours), flow_of(theirs)
    wanted = original.results.get(original_line, -1)
    return wanted in mine.made and mine.results.get(line) != wanted


def misplaced(ours: ast.FunctionDef, theirs: ast.FunctionDef) -> Iterator[Change]:
    """Yield every place of ours that gets a value which the original computes, too, and uses elsewhere; or one that is
    made of the same steps in another order.
    """
    mine, original = flow_of(ours), flow_of(theirs)
    same = {use.value for use in mine.uses} & {use.value for use in original.uses}
    shared = mine.made.keys() & original.made.keys()
    told = set[tuple[str, int]]()
    for name in dict.fromkeys(use.name for use in mine.uses):
        here = [use for use in mine.uses if use.name == name and use.value not in same]
        there = [use for use in original.uses if use.name == name and use.value not in same]
        for use in here if there else ():
            like = [(other, pair) for other in there if (pair := _apart(use, other, mine.choices))]
            if len(like) != 1:
                continue
            ((other, (given, due)),) = like
            instead, wanted = mine.text(given), original.text(due)
            alone = sum(bool(_apart(one, other, mine.choices)) for one in here) == 1
            exchanged = original.text(given) and mine.text(due) and len(use.slots) > 1
            if alone and instead and wanted and exchanged:
                yield Change("misplaced-value", _in_words(use, instead, wanted), use.line, other.line)
            elif alone and instead and wanted and not exchanged and (pair := _reordered(given, due, shared)):
                one, two = pair
                if one in mine.made and two in original.made:
                    texts = unparse_cached(mine.made[one]), unparse_cached(original.made[two])
                    what = f"'{texts[0]}' takes the steps of '{texts[1]}' in another order"
                    if (what, original.lines[two]) not in told:  # one edit, seen where its value is used twice
                        told.add((what, original.lines[two]))
                        yield Change("reordered-steps", what, mine.lines[one], original.lines[two])


def _in_words(use: Use, instead: str, wanted: str) -> str:
    """Two values that are written alike are made of other values."""
    if use.name == "return":
        return f"'{instead}' is returned instead of '{wanted}'"
    other = "another value of that name" if instead == wanted else f"'{wanted}'"
    return f"'{instead}' goes into {use.name.lstrip('.')} instead of {other}"


def _apart(one: Use, other: Use, choices: Mapping[Number, frozenset[Number]]) -> tuple[Number, Number] | None:
    """Return the only values in which two uses differ; None if there is not exactly one.

    A value that is the other's under some condition does not differ.
    """
    if one.slots.keys() != other.slots.keys():
        return None
    pairs = [(value, other.slots[slot]) for slot, value in one.slots.items()]
    if one.name in _COMMUTING:
        mine, theirs = Counter(one.slots.values()), Counter(other.slots.values())
        pairs = list(zip((mine - theirs).elements(), (theirs - mine).elements(), strict=True))
    apart = [(value, due) for value, due in pairs if due not in {value, *choices.get(value, ())}]
    return apart[0] if len(apart) == 1 else None


def _reordered(given: Number, due: Number, shared: Collection[Number]) -> tuple[Number, Number] | None:
    """Return the innermost values that are made of the same steps in another order; None if there are none."""
    while True:
        one, other = _made_of[given], _made_of[due]
        pairs = list(zip(_values(one), _values(other), strict=False))
        apart = [pair for pair in pairs if pair[0] != pair[1]]
        if _head(one) != _head(other) or len(apart) != 1 or apart[0][0] in shared or apart[0][1] in shared:
            break
        given, due = apart[0]
    ours, theirs = _steps(given, shared), _steps(due, shared)
    if ours != theirs:
        return None
    names = {str(one[one[0] == "use"]).rpartition(".")[2] for one in ours if isinstance(one, tuple)}
    told = len(names) > 1 and ours.total() <= _STEPS and not names & _FREE and not names <= _LINEAR
    return (given, due) if told else None


def _steps(value: Number, shared: Collection[Number]) -> Counter[Any]:
    """Return the operations that make a value, down to values that both functions make, and those."""
    found, todo = Counter[Any](), [value]
    while todo and found.total() <= _STEPS:
        one = todo.pop()
        parts = _made_of[one]
        inner = list(_values(parts))
        if one in shared or not inner:
            found[one] += 1
        else:
            found[_head(parts)] += 1
            todo += inner
    return found


def _head(parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return an operation without its values."""
    return tuple(None if isinstance(one, Number) else _head(one) if isinstance(one, tuple) else one for one in parts)


def _values(parts: Sequence[Any]) -> Iterator[Number]:
    for part in parts:
        if isinstance(part, Number):
            yield part
        elif isinstance(part, tuple):
            yield from _values(part)
