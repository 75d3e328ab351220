"""Finds nodes by type, calls, arguments, assigned and returned values in syntax trees; each tree is walked once."""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

Node = TypeVar("Node", bound=ast.AST)
Answer = TypeVar("Answer")
_LEAVES = (ast.Constant, ast.Global, ast.MatchSingleton, ast.Nonlocal)
# Fields that hold names, numbers and contexts.
_PLAIN = frozenset(
    {"arg", "asname", "attr", "conversion", "ctx", "id", "is_async", "kind", "kwd_attrs", "level", "module", "name"}
    | {"rest", "simple", "tag", "type_comment"}
)
# The fields of each type of nodes that hold nodes.
FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    kind: tuple(name for name in kind._fields if name not in _PLAIN and not issubclass(kind, _LEAVES))
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}


def remembered(function: Callable[[Any], Answer]) -> Callable[[Any], Answer]:
    """Return a function of one node, asked once for each: the answer is kept on the node, and goes with it."""
    key = f"_{function.__module__}.{function.__name__}"

    @wraps(function)
    def asked(node: ast.AST) -> Answer:
        answers = node.__dict__
        if key not in answers:
            answers[key] = function(node)
        answer: Answer = answers[key]
        return answer

    return asked


def rebuilt(node: Node, instead: Callable[[ast.AST], ast.AST | None] = lambda _: None) -> Node:
    """Return a copy of a tree, without what is remembered about it.

    Args:
        instead: what replaces a node; None for a copy of it.
    """
    return cast("Node", _rebuilt(node, instead))


def substituted(node: Node, values: Mapping[str, ast.expr]) -> Node:
    """Return a copy of a tree with expressions instead of names."""

    def value(one: ast.AST) -> ast.AST | None:
        found = values.get(one.id) if isinstance(one, ast.Name) else None
        return rebuilt(found) if found is not None else None

    return rebuilt(node, value)


def _rebuilt(part: Any, instead: Callable[[ast.AST], ast.AST | None]) -> Any:
    if isinstance(part, list):
        return [_rebuilt(one, instead) for one in part]
    if not isinstance(part, ast.AST):
        return part
    other = instead(part)
    if other is not None:
        return other
    made = type(part)(**{name: _rebuilt(getattr(part, name, None), instead) for name in part._fields})
    return ast.copy_location(made, part)


def walked(node: ast.AST) -> list[ast.AST]:
    """Return a node and all below it, in the order of `ast.walk`, without the contexts of names; see `_below`."""
    return [node, *_below(node)]


@remembered
def _below(node: ast.AST) -> list[ast.AST]:
    """Return all below a node, and not itself: a circle would never be freed. Many rules look at the same functions."""
    found = [node]
    for item in found:  # it grows on the way
        parts = item.__dict__
        for name in FIELDS[type(item)]:
            value = parts.get(name)
            if type(value) is list:
                found += value if None not in value else [inner for inner in value if inner is not None]
            elif value is not None:
                found.append(value)
    return found[1:]


def within(node: ast.AST, *kinds: type[Node]) -> Iterator[Node]:
    """Yield the nodes of these types, of a node and all below it: type by type, each in the order of `walked`."""
    for kind in kinds:
        if type(node) is kind:
            yield node
        yield from _by_type(node).get(kind, ())  # type: ignore[misc]


@remembered
def _by_type(node: ast.AST) -> dict[type[ast.AST], list[ast.AST]]:
    """Return all below a node, by type."""
    found: dict[type[ast.AST], list[ast.AST]] = {}
    for inner in _below(node):
        found.setdefault(type(inner), []).append(inner)
    return found


def last_name(node: ast.AST) -> str:
    """Return the last part of a dotted name, or of what is called; empty for anything else."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def calls(node: ast.AST, *names: str) -> Iterator[ast.Call]:
    """Yield the calls below a node of functions or methods of these names; of any without names."""
    return (item for item in within(node, ast.Call) if not names or last_name(item) in names)


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """Return a keyword argument of a call."""
    return next((one.value for one in call.keywords if one.arg == name), None)


def argument(call: ast.Call, position: int, name: str) -> ast.expr | None:
    """Return an argument of a call given either way; None if it is not given, or `*` hides its position."""
    named = keyword(call, name)
    if named is not None or any(isinstance(one, ast.Starred) for one in call.args):
        return named
    return call.args[position] if len(call.args) > position else None


def operand(call: ast.Call) -> tuple[ast.expr | None, int]:
    """Return the tensor that an operation of torch works on, and the number of the operation's own first argument:
    (x, 0) of `x.narrow(1, 0, 2)`, and (x, 1) of `torch.narrow(x, 1, 0, 2)`."""
    if isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) != "torch":
        return call.func.value, 0
    return argument(call, 0, "input"), 1


def returns(function: ast.AST) -> list[ast.expr]:
    """Return the expressions that a function returns, without those of functions inside it."""
    inner = {
        id(node)
        for item in walked(function)
        if item is not function and isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
        for node in within(item, ast.Return)
    }
    return [node.value for node in within(function, ast.Return) if id(node) not in inner and node.value is not None]


def assigned(node: ast.AST, name: str) -> list[ast.expr]:
    """Return what a plain name is assigned below a node, in the order of the lines; without loops and unpacking."""
    found = [(one.lineno, one.value) for one in within(node, ast.Assign) if any(_is(name, t) for t in one.targets)]
    annotated = (one for one in within(node, ast.AnnAssign) if _is(name, one.target))
    found += [(one.lineno, one.value) for one in annotated if one.value is not None]
    return [value for _, value in sorted(found, key=lambda item: item[0])]


def _is(name: str, target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id == name


def constant(node: ast.AST | None) -> object:
    """Return the value of a constant, or of a negative number; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = constant(node.operand)
        return -inner if isinstance(inner, (int, float)) else None
    return node.value if isinstance(node, ast.Constant) else None


def strings(node: ast.AST | None) -> list[str] | None:
    """Return the strings of a list, tuple or set; None for anything else."""
    if not isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return None
    found = [item.value for item in node.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    return found if len(found) == len(node.elts) else None


def names_in(node: ast.AST) -> set[str]:
    """Return the plain names in an expression."""
    return {item.id for item in within(node, ast.Name)}


def docstring_of(body: Sequence[ast.stmt]) -> ast.Expr | None:
    """Return the docstring statement of a body."""
    match body:
        case [ast.Expr(value=ast.Constant(value=str())) as first, *_]:
            return first
    return None


def without_docstring(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Return the statements of a definition after its docstring."""
    return list(body[1:] if docstring_of(body) else body)


def blocks(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements inside a definition, an if, try, with, for or while."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(node, name, None)
        if isinstance(block, list):
            yield block
    for handler in getattr(node, "handlers", ()):
        yield handler.body


def methods(node: ast.ClassDef) -> list[ast.FunctionDef]:
    """Return the methods that stand in a class body itself."""
    return [item for item in node.body if isinstance(item, ast.FunctionDef)]


def line_of(node: ast.AST) -> int:
    """Return the line that a node stands in."""
    return int(getattr(node, "lineno", 0))
