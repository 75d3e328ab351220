"""Which value goes where in a function, whatever its names are called: two functions compared by what they compute.

Each expression gets a number; two have the same one if they apply the same operations to the same values. Names of
locals do not count, nor do casts and copies, nor the order of statements that do not touch each other.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from omni_checkers.engine.files import within
from omni_checkers.symbolic.arrangement import COMMUTING, SAME_VALUES
from omni_checkers.symbolic.lines import code, said
from omni_checkers.symbolic.spelling import SPACES, plain

Number = int
Slot = str
Env = dict[str, Number]


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


@dataclass
class Numbers:
    """Numbers of values, shared by the functions that are compared."""

    _known: dict[tuple[Any, ...], Number] = field(default_factory=dict)

    def of(self, *parts: Any) -> Number:
        """The number of what is made of these parts."""
        return self._known.setdefault(parts, len(self._known))


class Flow:
    """The values of one function.

    Attributes:
        uses: every call, operation and return, in order.
        choices: value -> the values of which it is one, where a condition decides.
    """

    def __init__(self, function: ast.FunctionDef, numbers: Numbers) -> None:
        self._numbers, self._line = numbers, function.lineno
        self.uses: list[Use] = []
        self._names: dict[Number, str] = {}
        self._made: dict[Number, ast.expr] = {}
        self.choices: dict[Number, frozenset[Number]] = {}
        args = function.args
        named = [*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg))]
        self._run(function.body, {one.arg: numbers.of("parameter", one.arg) for one in named})

    def text(self, value: Number) -> str | None:
        """The first name of a value, or the expression that made it; None where the function has no such value."""
        made = self._made.get(value)
        return self._names.get(value) or (said(made) if made is not None else None)

    def _run(self, body: Sequence[ast.stmt], env: Env) -> bool:
        """Goes through statements; says whether the end of them is reached."""
        return all(self._statement(statement, env) for statement in body)

    def _statement(self, node: ast.stmt, env: Env) -> bool:
        self._line = node.lineno
        match node:
            case ast.Assign(targets, value):
                found = self._spelt(value, env)
                for target in targets:
                    self._bind(target, found, env, value)
            case ast.AnnAssign(target, _, ast.expr() as value):
                self._bind(target, self._spelt(value, env), env, value)
            case ast.AugAssign(target, op, value):
                whole = ast.BinOp(target, op, value)
                self._bind(target, self._spelt(whole, env), env, whole)
            case ast.Return(ast.Tuple(values)):
                self._use("return", {str(place): self._spelt(value, env) for place, value in enumerate(values)})
                return False
            case ast.Return(value):
                if value is not None:
                    self._use("return", {"0": self._spelt(value, env)})
                return False
            case ast.Raise():
                return False
            case ast.If(test, body, orelse):
                return self._branches(self._spelt(test, env), body, orelse, env)
            case ast.For(target, iterator, body):
                self._loop(body, env, (target, self._spelt(iterator, env)))
            case ast.While(test, body):
                self._loop(body, env, None)
            case ast.With(items, body):
                for item in items:
                    found = self._spelt(item.context_expr, env)
                    if item.optional_vars is not None:
                        self._bind(item.optional_vars, found, env, item.context_expr)
                return self._run(body, env)
            case ast.Try(body):
                return self._run(body, env)
            case ast.Expr(value):
                self._spelt(value, env)
        return True

    def _spelt(self, node: ast.expr, env: Env) -> Number:
        """The value of an expression, whichever way of several it is written in."""
        spelt = plain(node)
        assert isinstance(spelt, ast.expr)
        return self._value(spelt, env)

    def _branches(self, test: Number, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt], env: Env) -> bool:
        then, other = dict(env), dict(env)
        ends = self._run(body, then), self._run(orelse, other)
        if not any(ends):
            return False
        if not all(ends):
            env.update(then if ends[0] else other)
            return True
        for name in {*then, *other}:
            one, two = then.get(name, -1), other.get(name, -1)
            if one != two:
                env[name] = self._numbers.of("either", test, one, two)
                self.choices[env[name]] = frozenset().union(*(self.choices.get(each, {each}) for each in (one, two)))
            elif one >= 0:
                env[name] = one
        return True

    def _loop(self, body: Sequence[ast.stmt], env: Env, head: tuple[ast.expr, Number] | None) -> None:
        changed = {name for statement in body for name in _stored(statement)}
        for name in changed & env.keys():
            env[name] = self._numbers.of("again", env[name])
        if head is not None:
            self._bind(head[0], self._numbers.of("each", head[1]), env, head[0])
        self._run(body, env)

    def _bind(self, target: ast.expr, value: Number, env: Env, made_of: ast.expr) -> None:
        match target:
            case ast.Name(name):
                env[name] = value
                if not isinstance(self._made.get(value), ast.Name):
                    self._names.setdefault(value, name)
            case ast.Tuple(targets) | ast.List(targets):
                whole = made_of.elts if isinstance(made_of, (ast.Tuple, ast.List)) else []
                same = len(whole) == len(targets)
                for place, one in enumerate(targets):
                    part = self._value(whole[place], dict(env)) if same else self._numbers.of("item", value, place)
                    self._bind(one, part, env, whole[place] if same else made_of)
            case ast.Starred(inner):
                self._bind(inner, self._numbers.of("rest", value), env, inner)
            case ast.Attribute(inner) | ast.Subscript(inner):
                held = self._value(inner, env)
                where = self._value(target.slice, env) if isinstance(target, ast.Subscript) else target.attr
                self._use("set", {"of": held, "value": value})
                if isinstance(inner, ast.Name):
                    env[inner.id] = self._numbers.of("set", held, where, value)
                elif isinstance(target, ast.Attribute):
                    env[code(target)] = value

    def _value(self, node: ast.expr, env: Env) -> Number:
        number = self._number(node, env)
        self._made.setdefault(number, node)
        return number

    def _number(self, node: ast.expr, env: Env) -> Number:
        of = self._numbers.of
        match node:
            case ast.Name(name):
                return env[name] if name in env else of("name", name)
            case ast.Constant(value):
                return of("constant", type(value).__name__, value)
            case ast.Attribute(inner, name):
                whole = code(node)
                return env[whole] if whole in env else of("attribute", self._value(inner, env), name)
            case ast.Call():
                return self._call(node, env)
            case ast.BinOp(left, op, right):
                sides = [self._value(left, env), self._value(right, env)]
                if isinstance(op, COMMUTING):
                    sides.sort()
                return self._use(type(op).__name__, dict(zip(("left", "right"), sides, strict=True)))
            case ast.Subscript(inner, index):
                slots = {"of": self._value(inner, env), "at": self._value(index, env)}
                return self._use("[]", slots)
            case ast.NamedExpr(target, value):
                found = self._value(value, env)
                self._bind(target, found, env, value)
                return found
            case ast.Lambda():
                return of("lambda", code(node))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node, dict(env))
        parts = [self._part(getattr(node, name, None), env) for name in node._fields if name != "ctx"]
        return of(type(node).__name__, *parts)

    def _part(self, part: object, env: Env) -> Any:
        if isinstance(part, ast.expr):
            return self._value(part, env)
        if isinstance(part, list):
            return tuple(self._part(one, env) for one in part)
        return type(part).__name__ if isinstance(part, ast.AST) else part

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp, env: Env) -> Number:
        made: list[Any] = []
        for one in node.generators:
            held = self._value(one.iter, env)
            self._bind(one.target, self._numbers.of("each", held), env, one.target)
            made += [held, *(self._value(test, env) for test in one.ifs)]
        results = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        return self._numbers.of(type(node).__name__, *made, *(self._value(one, env) for one in results))

    def _call(self, node: ast.Call, env: Env) -> Number:
        name, slots = said(node.func), dict[Slot, Number]()
        match node.func:
            case ast.Attribute(inner, method) if method in SAME_VALUES:
                return self._value(inner, env)
            case ast.Attribute(inner, method) if code(inner) in SPACES:
                name = method
            case ast.Attribute(inner, method) if not name.startswith("self."):
                name, slots["on"] = f".{method}", self._value(inner, env)
            case ast.Name(function) if function in env:
                name, slots["on"] = "()", env[function]
        slots |= {str(place): self._value(argument, env) for place, argument in enumerate(node.args)}
        slots |= {keyword.arg or "**": self._value(keyword.value, env) for keyword in node.keywords}
        return self._use(name, slots)

    def _use(self, name: str, slots: dict[Slot, Number]) -> Number:
        value = self._numbers.of("use", name, *sorted(slots.items()))
        self.uses.append(Use(name, slots, value, self._line))
        return value


@dataclass(frozen=True)
class Exchange:
    """A place that gets another value than in the original, where both functions make both values.

    Attributes:
        ours, theirs: the uses.
        slot: which value of them it is.
        instead, wanted: the value that it gets, and the original's, as text.
    """

    ours: Use
    theirs: Use
    slot: Slot
    instead: str
    wanted: str

    @property
    def what(self) -> str:
        """In words; two values that are written alike are made of other values."""
        if self.ours.name == "return":
            return f"'{self.instead}' is returned in the place of '{self.wanted}'"
        goes = f"'{self.instead}' goes into {self.ours.name.lstrip('.')}"
        other = "another value of that name" if self.instead == self.wanted else f"'{self.wanted}'"
        return f"{goes} in the place of {other}"


def exchanges(ours: ast.FunctionDef, theirs: ast.FunctionDef) -> Iterator[Exchange]:
    """Every place of ours that gets a value which the original makes, too, and gives elsewhere."""
    numbers = Numbers()
    mine, original = (Flow(function, numbers) for function in (ours, theirs))
    known = {use.value for use in original.uses}
    same = {use.value for use in mine.uses} & known
    for name in dict.fromkeys(use.name for use in mine.uses):
        here = [use for use in mine.uses if use.name == name and use.value not in same]
        there = [use for use in original.uses if use.name == name and use.value not in same]
        for use in here:
            like = [(other, slot) for other in there if (slot := _apart(use, other, mine.choices))]
            if len(like) != 1:
                continue
            ((other, slot),) = like
            given, due = use.slots[slot], other.slots[slot]
            instead, wanted = mine.text(given), original.text(due)
            alone = sum(bool(_apart(one, other, mine.choices)) for one in here) == 1
            if alone and instead and wanted and original.text(given) and mine.text(due):
                yield Exchange(use, other, slot, instead, wanted)


def _apart(one: Use, other: Use, choices: Mapping[Number, frozenset[Number]]) -> Slot:
    """The only slot in which two uses differ; empty where there is not exactly one.

    A value that is the other's under some condition does not differ.
    """
    if one.slots.keys() != other.slots.keys():
        return ""
    apart = [slot for slot, value in one.slots.items() if other.slots[slot] not in {value, *choices.get(value, ())}]
    return apart[0] if len(apart) == 1 and len(one.slots) > 1 else ""


def _stored(node: ast.AST) -> Iterator[str]:
    return (inner.id for inner in within(node, ast.Name) if isinstance(inner.ctx, ast.Store))
