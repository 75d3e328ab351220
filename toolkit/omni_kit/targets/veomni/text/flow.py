"""Follows the values of a head's forward, path by path: what reaches the loss function and the output."""

import ast
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from omni_kit.pysource.eval import Domain, Frame, Function, Native, Scope, Unsupported
from omni_kit.pysource.eval.python import BUILTINS
from omni_kit.pysource.source import SourceFile, dotted

_MOST = 512
"""Paths through one forward."""
_COPIES = frozenset({"contiguous", "clone"})
_TRANSPOSES = frozenset({"T", "mT"})
_FUNCTIONS = {"t": 0, "transpose": 2, "swapaxes": 2}


@dataclass(frozen=True)
class Term:
    """A value by how it is made.

    Attributes:
        made: "parameter", "name", "attribute", "item", "operation", "call", "logits" or "loss".
        parts: names and other values.
    """

    made: str
    parts: tuple[Any, ...] = ()

    def attribute(self, name: str) -> "Term":
        """Return an attribute of it."""
        return Term("attribute", (self, name))

    def holds(self, other: "Term") -> bool:
        """Return whether another value is part of how it is made."""
        return any(one == other for one in _within(self))

    @property
    def holds_logits(self) -> bool:
        """Return whether the logits are part of how it is made."""
        return any(map(_is_logits, _within(self)))


SELF = Term("parameter", ("self",))
LABELS = Term("parameter", ("labels",))
LOGITS = Term("logits")
"""Output of lm_head for the hidden states."""
LOSS = Term("loss")
"""Result of the loss function."""
HEAD = SELF.attribute("lm_head")
REST = "**"
"""The keyword that stands for the arguments that a forward passes on."""


@dataclass
class Path:
    """One way through a forward.

    Attributes:
        labels: whether labels are given.
        heads: the expressions that compute the logits, each with that of the hidden states.
        losses: the calls of the loss function, each with its arguments.
        before: how many logits were computed before the first call of the loss function.
        uses: the expressions that take the logits, each with its result.
        scales: the expressions that multiply or divide the logits by a number of the model.
        result: what is returned.
    """

    labels: bool
    heads: list[tuple[ast.expr, ast.expr]] = field(default_factory=list)
    losses: list[tuple[ast.Call, list[Any], dict[str, Any]]] = field(default_factory=list)
    before: int = 0
    uses: list[tuple[ast.AST, Any]] = field(default_factory=list)
    scales: list[ast.BinOp] = field(default_factory=list)
    result: Any = None

    @property
    def logits(self) -> Term:
        """The logits, scaled or not, that the loss function and the output have to take."""
        return Term("logits", tuple(map(factor, self.scales)))


def factor(scale: ast.BinOp) -> str:
    """Return the code that follows the logits in an expression that scales them."""
    return f"{'/' if isinstance(scale.op, ast.Div) else '*'} {ast.unparse(scale.right)}"


def paths(source: SourceFile, forward: ast.FunctionDef) -> list[Path]:
    """Return every way through a forward that ends in a value, with labels and without.

    Raises:
        Unsupported: one of them cannot be followed, or there are too many.
    """
    return [path for labels in (True, False) for path in _taken(source, forward, labels)]


@cache
def _numbers(source: SourceFile) -> frozenset[str]:
    """Return the attributes that modules of a file take from their config, and from nowhere else."""
    given: dict[str, set[bool]] = {}
    for node in ast.walk(source.tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            name = dotted(target) or ""
            if isinstance(node, ast.Assign) and name.startswith("self.") and name.count(".") == 1:
                given.setdefault(name[5:], set()).add((dotted(node.value) or "").startswith("config."))
    return frozenset(name for name, values in given.items() if values == {True})


def _taken(source: SourceFile, forward: ast.FunctionDef, labels: bool) -> Iterator[Path]:
    open_ends: list[list[bool]] = [[]]
    for _ in range(_MOST):
        if not open_ends:
            return
        domain = _Flow(Path(labels), open_ends.pop(), _numbers(source))
        try:
            domain.path.result = _entered(source, forward, domain)
        except _Raised:
            pass
        else:
            yield domain.path
        answers = list(domain.answers.values())
        open_ends += [[*answers[:place], not answers[place]] for place in range(len(domain.prefix), len(answers))]
    raise Unsupported("has too many branches to be followed")


def _entered(source: SourceFile, forward: ast.FunctionDef, domain: "_Flow") -> Any:
    _, *others = [*forward.args.posonlyargs, *forward.args.args]
    given = {one.arg: Term("parameter", (one.arg,)) for one in [*others, *forward.args.kwonlyargs]}
    rest = {REST: Term("parameter", (REST,))} if forward.args.kwarg is not None else {}
    function = Function(forward, source.path, source.module, Scope({}))
    frame = Frame(domain, source.path, source.module, Scope({}))
    return frame.entered(function, [SELF], {**given, **rest})


class _Raised(Unsupported):
    """The path ends in an exception that the code raises."""


class _Flow(Domain):
    """The values of one path.

    Args:
        prefix: the answers to the first conditions that nothing decides.
        numbers: the attributes of modules that are values of the config.
    """

    def __init__(self, path: Path, prefix: Sequence[bool], numbers: frozenset[str]) -> None:
        super().__init__()
        self.path = path
        self.numbers = numbers
        self.prefix = prefix
        self.answers: dict[str, bool] = {}

    def name(self, name: str, frame: Frame) -> Any:
        """See `Domain`."""
        return super().name(name, frame) if name in BUILTINS else Term("name", (name,))

    def attribute(self, base: Any, name: str, frame: Frame) -> Any:
        """See `Domain`."""
        return self._seen(frame.at, Term("attribute", (base, name)), base)

    def set_attribute(self, base: Any, name: str, value: Any, frame: Frame) -> None:
        """See `Domain`."""
        if _is_logits(value):
            self.path.uses.append((frame.at, None))

    def item(self, base: Any, key: Any, frame: Frame) -> Any:
        """See `Domain`."""
        return self._seen(frame.at, Term("item", (base, key)), base, key)

    def set_item(self, base: Any, key: Any, value: Any, frame: Frame) -> None:
        """See `Domain`."""
        if base == LABELS:
            raise Unsupported("changes labels in place")
        self._seen(frame.at, None, base, key, value)

    def operation(self, name: str, operands: list[Any], frame: Frame) -> Any:
        """See `Domain`."""
        if name in {"is_", "is_not"} and None in operands:
            return self._is_none(next(one for one in operands if one is not None)) == (name == "is_")
        if name == "matmul" and operands[1] == _transposed() and isinstance(frame.at, ast.BinOp):
            return self._logits(frame.at, frame.at.left)
        scales = name in {"mul", "truediv"} and operands[0] == self.path.logits and self._is_number(operands[1])
        if scales and isinstance(frame.at, ast.BinOp):
            self.path.scales.append(frame.at)
            return self.path.logits
        if name == "add" and any(isinstance(one, tuple) for one in operands) and not any(map(_is_logits, operands)):
            return Term("operation", (name, *operands))  # a longer tuple
        return self._seen(frame.at, Term("operation", (name, *operands)), *operands)

    def _is_number(self, value: Any) -> bool:
        """Return whether a value is a constant, or an attribute of the model that its config gives."""
        if isinstance(value, int | float):
            return True
        if not isinstance(value, Term) or value.made != "attribute":
            return False
        owner, name = value.parts
        return owner == SELF.attribute("config") or (owner.holds(SELF) and name in self.numbers)

    def _is_none(self, value: Any) -> bool:
        if value == LABELS:
            return not self.path.labels
        if not isinstance(value, Term) or value in (SELF, LOSS) or _is_logits(value) or value.made == "operation":
            return False
        return self._decided(Term("operation", ("is_", value, None)))

    def truth(self, value: Any, frame: Frame) -> bool:
        """See `Domain`: what nothing decides is tried both ways, the same in every place of a path."""
        if _is_logits(value) or value in (LOSS, LABELS):
            raise Unsupported("depends on the numbers of a tensor")
        return self._decided(value)

    def _decided(self, condition: Any) -> bool:
        key, place = repr(condition), len(self.answers)
        default = self.prefix[place] if place < len(self.prefix) else True
        return self.answers.setdefault(key, default)

    def unpacked(self, value: Any, count: int, frame: Frame) -> list[Any]:
        """See `Domain`."""
        if not isinstance(value, Term):
            return super().unpacked(value, count, frame)
        return [self.item(value, place, frame) for place in range(count)]

    def formatted(self, value: Any, frame: Frame) -> Any:
        """See `Domain`: texts are for people."""
        return ""

    def context(self, node: ast.expr, frame: Frame) -> AbstractContextManager[Any]:
        """See `Domain`."""
        return nullcontext()

    def raised(self, text: str, frame: Frame) -> Unsupported:
        """See `Domain`."""
        return _Raised(text)

    def call(self, function: Any, arguments: list[Any], keywords: dict[str, Any], frame: Frame, node: ast.expr) -> Any:
        """See `Domain`."""
        if isinstance(function, Function):
            return super().call(function, arguments, keywords, frame, node)
        if not isinstance(function, Term):
            given = [*arguments, *keywords.values()]
            reads = isinstance(function, Native) and function.function is getattr
            if reads or not any(isinstance(one, Term) for one in given):
                return super().call(function, arguments, keywords, frame, node)
            return self._seen(node, Term("call", (ast.unparse(node), *given)), *given)
        if isinstance(node, ast.Call) and function == SELF.attribute("loss_function"):
            self.path.before = self.path.before or len(self.path.heads)
            self.path.losses.append((node, arguments, keywords))
            return LOSS
        if isinstance(node, ast.Call) and self._computes_logits(function, arguments, keywords):
            return self._logits(node, node.args[0] if node.args else node.keywords[0].value)
        return self._called(function, arguments, keywords, node)

    def _called(self, function: Term, arguments: list[Any], keywords: dict[str, Any], node: ast.expr) -> Any:
        owner, name = function.parts if function.made == "attribute" else (None, str(function.parts[-1]))
        if name in _COPIES and not arguments and not _is_logits(owner):
            return owner
        if owner == LABELS and str(name).endswith("_"):
            raise Unsupported("changes labels in place")
        result = Term("call", (function, tuple(arguments), keywords))
        return self._seen(node, result, *arguments, *keywords.values())

    def _computes_logits(self, function: Term, arguments: list[Any], keywords: dict[str, Any]) -> bool:
        if function in (HEAD, HEAD.attribute("forward")):
            return len(arguments) + len(keywords) == 1
        name, given = str(function.parts[-1]), [*arguments, *keywords.values()]
        if len(given) != 2 or function.made not in {"name", "attribute"}:
            return False
        weight = HEAD.attribute("weight")
        return (name == "linear" and given[1] == weight) or (name == "matmul" and given[1] == _transposed())

    def _logits(self, node: ast.expr, hidden: ast.expr) -> Term:
        self.path.heads.append((node, hidden))
        return LOGITS

    def _seen(self, node: ast.AST, result: Any, *given: Any) -> Any:
        """Return the result of an expression; where it takes the logits, that is noted."""
        if isinstance(result, Term) and _transposes_head(result):
            return _transposed()
        if any(_is_logits(one) for value in given for one in _within(value)):
            self.path.uses.append((node, result))
        return result


def _transposed() -> Term:
    return Term("attribute", (HEAD.attribute("weight"), "T"))


def _transposes_head(result: Term) -> bool:
    """Return whether a value is the weight of lm_head with its axes swapped."""
    weight = HEAD.attribute("weight")
    if result.made == "attribute":
        return result.parts[0] == weight and result.parts[1] in _TRANSPOSES
    if result.made != "call" or not isinstance(result.parts[0], Term) or result.parts[0].made != "attribute":
        return False
    (owner, name), arguments = result.parts[0].parts, result.parts[1]
    return owner == weight and _FUNCTIONS.get(str(name)) == len(arguments) and not result.parts[2]


def _is_logits(value: Any) -> bool:
    return isinstance(value, Term) and value.made == "logits"


def _within(value: Any) -> Iterator[Any]:
    """Yield a value, and all that it is made of."""
    left = [value]
    while left:
        one = left.pop()
        yield one
        if isinstance(one, Term):
            left += reversed(one.parts)
        elif isinstance(one, list | tuple):
            left += reversed(one)
        elif isinstance(one, dict):
            left += reversed(one.values())
