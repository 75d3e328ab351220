"""One spelling for what torch and Python let people write in several ways."""

import ast
from collections.abc import Callable
from typing import Any

from omni_checkers.engine.files import remembered
from omni_kit.pysource.source import dotted

# Names of one operation, by the name that stands for all of them. Source: torch's documentation of its aliases.
_NAMES = {
    "absolute": "abs",
    "clip": "clamp",
    "concat": "cat",
    "concatenate": "cat",
    "divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "swapaxes": "transpose",
    "swapdims": "transpose",
    "view": "reshape",
}
_DTYPES = {"float": "float32", "half": "float16", "double": "float64", "long": "int64", "int": "int32"}
_CASTS = _DTYPES | {"bfloat16": "bfloat16"}
# Functions of torch that a tensor has as methods, with the same arguments behind it.
_METHODS = frozenset(
    {
        "abs",
        "all",
        "amax",
        "amin",
        "any",
        "argmax",
        "argmin",
        "argsort",
        "bmm",
        "chunk",
        "clamp",
        "cos",
        "cumsum",
        "diff",
        "div",
        "exp",
        "flatten",
        "flip",
        "gather",
        "log",
        "log_softmax",
        "masked_fill",
        "matmul",
        "max",
        "mean",
        "min",
        "mul",
        "norm",
        "outer",
        "permute",
        "pow",
        "prod",
        "relu",
        "repeat_interleave",
        "reshape",
        "roll",
        "round",
        "rsqrt",
        "sigmoid",
        "sin",
        "softmax",
        "sort",
        "split",
        "sqrt",
        "square",
        "squeeze",
        "std",
        "sub",
        "sum",
        "tanh",
        "tensor_split",
        "tile",
        "topk",
        "transpose",
        "tril",
        "triu",
        "unbind",
        "unsqueeze",
        "var",
    }
)
# Operations that give the same values in another shape.
SHAPES = frozenset(
    {"chunk", "flatten", "permute", "reshape", "split", "squeeze", "tensor_split", "transpose", "unbind", "unsqueeze"}
)
# Operations that give other values.
OPERATIONS = frozenset({"expand", "repeat", *_METHODS}) - SHAPES
# Methods of a tensor that give one tensor, and no tuple.
ONE_TENSOR = frozenset({"contiguous", "expand", "repeat", "to", "type_as", "view", "view_as", *_METHODS}) - {
    "chunk",
    "max",
    "min",
    "sort",
    "split",
    "tensor_split",
    "topk",
    "unbind",
}
SPACES = {"torch", "F", "functional", "nn.functional", "torch.nn.functional"}
_COMMUTING = {"transpose"}
_TURNED = {ast.IsNot: ast.Is, ast.NotEq: ast.Eq}
_SIDES = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}


@remembered
def plain(node: ast.AST) -> ast.AST:
    """A statement or expression in one spelling, as a tree that shares its leaves: methods for functions, one name for
    aliases.
    """
    spelt = _spelt(node)
    if isinstance(node, ast.expr):
        _as_read(spelt)
    return spelt


def _as_read(node: ast.AST) -> None:
    """Makes an expression one that is read: the head of a loop has names that are set."""
    if isinstance(node, (ast.Attribute, ast.List, ast.Name, ast.Starred, ast.Subscript, ast.Tuple)):
        node.ctx = ast.Load()
    if isinstance(node, (ast.List, ast.Tuple)):
        for part in node.elts:
            _as_read(part)
    elif isinstance(node, ast.Starred):
        _as_read(node.value)


def _spelt(node: ast.AST) -> ast.AST:
    """A copy in which what is inside is spelt first; only statements keep their lines, which `ast.unparse` asks for."""
    copy = type(node)(**{name: _part(getattr(node, name, None)) for name in node._fields})
    if isinstance(copy, ast.stmt):
        ast.copy_location(copy, node)
    respell = _RESPELT.get(type(node))
    return copy if respell is None else respell(copy)


def _part(part: Any) -> Any:
    if isinstance(part, ast.AST):
        return part if _is_spelt(part) else _spelt(part)
    return [_part(one) for one in part] if type(part) is list else part


def _is_spelt(node: ast.AST) -> bool:
    """Whether a node has one spelling alone, which nobody changes: both trees may have it."""
    if isinstance(node, ast.Name):
        return isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Constant) or not node._fields


def _call(node: ast.Call) -> ast.AST:
    if isinstance(node.func, ast.Attribute):
        takes_a_tensor = bool(node.args) and not isinstance(node.args[0], ast.Starred)
        if takes_a_tensor and node.func.attr in _METHODS and dotted(node.func.value) in SPACES:
            first, *rest = node.args
            node = ast.Call(ast.Attribute(first, node.func.attr, ast.Load()), rest, node.keywords)
        return _method(node)
    if isinstance(node.func, ast.Name) and node.func.id in {"max", "min"} and len(node.args) > 1:
        node.args = sorted(node.args, key=ast.unparse)
    return node


def _attribute(node: ast.Attribute) -> ast.AST:
    node.attr = _NAMES.get(node.attr, node.attr)
    if isinstance(node.value, ast.Name) and node.value.id == "torch":
        node.attr = _DTYPES.get(node.attr, node.attr)
    return node


def _choice(node: ast.IfExp) -> ast.AST:
    match node.test:
        case ast.Compare(left, [op], [right]) if type(op) in _TURNED:
            test = ast.Compare(left, [_TURNED[type(op)]()], [right])
            return ast.IfExp(test, node.orelse, node.body)
        case ast.UnaryOp(ast.Not(), test):
            return ast.IfExp(test, node.orelse, node.body)
    return node


def _comparison(node: ast.Compare) -> ast.AST:
    match node:
        case ast.Compare(left, [op], [right]) if type(op) in _SIDES:
            return ast.Compare(right, [_SIDES[type(op)]()], [left])
    return node


def _operation(node: ast.BinOp) -> ast.AST:
    match node:
        case ast.BinOp(left, ast.Div(), ast.Constant(float() | int() as number)) if (
            number and (1 / number) * number == 1
        ):
            return ast.BinOp(left, ast.Mult(), ast.Constant(_number(1 / number)))
        case ast.BinOp(left, ast.Mult(), right) if type(left) is type(right) and ast.unparse(left) == ast.unparse(
            right
        ):
            return ast.Call(ast.Attribute(left, "pow", ast.Load()), [ast.Constant(2)], [])
        case ast.BinOp(left, ast.Pow(), right):
            return ast.Call(ast.Attribute(left, "pow", ast.Load()), [right], [])
        case ast.BinOp(  # of offsets, which have one dimension
            ast.Subscript(behind, ast.Slice(ast.Constant(1), None, None)),
            ast.Sub(),
            ast.Subscript(before, ast.Slice(None, ast.UnaryOp(ast.USub(), ast.Constant(1)), None)),
        ) if ast.unparse(behind) == ast.unparse(before):
            return ast.Call(ast.Attribute(behind, "diff", ast.Load()), [], [])
        case ast.BinOp(left, ast.MatMult(), right):
            return ast.Call(ast.Attribute(left, "matmul", ast.Load()), [right], [])
    return node


def _number(value: Any) -> Any:
    """A whole number as an int: 0.0 and 0 fill alike."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _method(node: ast.Call) -> ast.AST:
    """A method's call by the name that stands for its aliases, with its arguments in one form."""
    match node:
        case ast.Call(ast.Attribute(inner, name), [], []) if name in _CASTS:
            return ast.Call(ast.Attribute(inner, "to", ast.Load()), [_torch(_CASTS[name])], [])
        case ast.Call(ast.Attribute(inner, "type_as"), [other], []):
            return ast.Call(ast.Attribute(inner, "to", ast.Load()), [ast.Attribute(other, "dtype", ast.Load())], [])
        case ast.Call(ast.Attribute(ast.Call(ast.Attribute(inner, "contiguous"), [], []), "reshape")):
            return ast.Call(ast.Attribute(inner, "reshape", ast.Load()), node.args, node.keywords)
        case ast.Call(ast.Attribute(inner, "square"), [], []):
            return ast.Call(ast.Attribute(inner, "pow", ast.Load()), [ast.Constant(2)], [])
        case ast.Call(ast.Attribute(inner, "size"), [place], []):
            return ast.Subscript(ast.Attribute(inner, "shape", ast.Load()), place, ast.Load())
        case ast.Call(ast.Attribute(inner, "size"), [], []):
            return ast.Attribute(inner, "shape", ast.Load())
        case ast.Call(ast.Attribute(_, name), [_, _], []) if name in _COMMUTING:
            node.args = sorted(node.args, key=ast.unparse)
        case ast.Call(ast.Attribute(_, name), args, [*_, ast.keyword("dim", place)]) if name in _METHODS and not args:
            # The dimension is what most of them take first.
            return ast.Call(node.func, [place], node.keywords[:-1])
    return node


def _torch(name: str) -> ast.expr:
    return ast.Attribute(ast.Name("torch", ast.Load()), name, ast.Load())


_RESPELT: dict[type[ast.AST], Callable[[Any], ast.AST]] = {
    ast.Attribute: _attribute,
    ast.BinOp: _operation,
    ast.Call: _call,
    ast.Compare: _comparison,
    ast.IfExp: _choice,
}
