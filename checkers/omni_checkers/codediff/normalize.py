"""One spelling for what torch and Python allow in several, and equal values in spite of the rest."""

import ast
from collections.abc import Callable
from typing import Any

from omni_checkers.codediff.fingerprint import by_code, fingerprint, unparse_cached
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
_METHODS = frozenset({
    "abs", "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "bmm", "chunk", "clamp", "cos", "cumsum",
    "diff", "div", "exp", "flatten", "flip", "gather", "log", "log_softmax", "masked_fill", "matmul", "max", "mean",
    "min", "mul", "norm", "outer", "permute", "pow", "prod", "relu", "repeat_interleave", "reshape", "roll", "round",
    "rsqrt", "sigmoid", "sin", "softmax", "sort", "split", "sqrt", "square", "squeeze", "std", "sub", "sum", "tanh",
    "tensor_split", "tile", "topk", "transpose", "tril", "triu", "unbind", "unsqueeze", "var",
})  # fmt: skip
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
COMMUTING = (ast.Add, ast.Mult, ast.BitOr, ast.BitAnd)
_TURNED = {ast.IsNot: ast.Is, ast.NotEq: ast.Eq}
_SIDES = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}


@by_code
def normalize(node: ast.AST) -> ast.AST:
    """Return code in one spelling: methods for functions, one name for aliases.

    What has one spelling alone is shared with the original tree, which stays as it is.
    """
    return _normalized(node)


def _normalized(node: ast.AST) -> ast.AST:
    fields = node.__dict__
    spelt = {name: _part(fields.get(name)) for name in node._fields}
    if any(part is not fields.get(name) for name, part in spelt.items()):
        made = type(node)(**spelt)
        if isinstance(made, ast.stmt):
            ast.copy_location(made, node)  # which `ast.unparse` asks for
        node = made
    respell = _RESPELT.get(type(node))
    return node if respell is None else respell(node)


def _part(part: Any) -> Any:
    if isinstance(part, ast.AST):
        return part if not part._fields or isinstance(part, (ast.Name, ast.Constant)) else _normalized(part)
    if type(part) is list:
        made = [_part(one) for one in part]
        return made if any(one is not other for one, other in zip(made, part, strict=True)) else part
    return part


def _call(node: ast.Call) -> ast.AST:
    if isinstance(node.func, ast.Attribute):
        takes_a_tensor = bool(node.args) and not isinstance(node.args[0], ast.Starred)
        if takes_a_tensor and node.func.attr in _METHODS and dotted(node.func.value) in SPACES:
            first, *rest = node.args
            node = ast.Call(ast.Attribute(first, node.func.attr, ast.Load()), rest, node.keywords)
        return _method(node)
    if isinstance(node.func, ast.Name) and node.func.id in {"max", "min"} and len(node.args) > 1:
        return ast.Call(node.func, sorted(node.args, key=unparse_cached), node.keywords)
    return node


def _attribute(node: ast.Attribute) -> ast.AST:
    name = _NAMES.get(node.attr, node.attr)
    if isinstance(node.value, ast.Name) and node.value.id == "torch":
        name = _DTYPES.get(name, name)
    return node if name == node.attr else ast.Attribute(node.value, name, node.ctx)


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
        case ast.BinOp(left, ast.Mult(), right) if fingerprint(left) == fingerprint(right):
            return _method_of(left, "pow", ast.Constant(2))
        case ast.BinOp(left, ast.Pow(), right):
            return _method_of(left, "pow", right)
        case ast.BinOp(  # of offsets, which have one dimension
            ast.Subscript(behind, ast.Slice(ast.Constant(1), None, None)),
            ast.Sub(),
            ast.Subscript(before, ast.Slice(None, ast.UnaryOp(ast.USub(), ast.Constant(1)), None)),
        ) if fingerprint(behind) == fingerprint(before):
            return _method_of(behind, "diff")
        case ast.BinOp(left, ast.MatMult(), right):
            return _method_of(left, "matmul", right)
    return node


def _number(value: Any) -> Any:
    """Return a whole number as an int: 0.0 and 0 fill alike."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _method(node: ast.Call) -> ast.AST:
    """Return a method's call by the name that stands for its aliases, with its arguments in one form."""
    match node:
        case ast.Call(ast.Attribute(inner, name), [], []) if name in _CASTS:
            dtype = ast.Attribute(ast.Name("torch", ast.Load()), _CASTS[name], ast.Load())
            return _method_of(inner, "to", dtype)
        case ast.Call(ast.Attribute(inner, "type_as"), [other], []):
            return _method_of(inner, "to", ast.Attribute(other, "dtype", ast.Load()))
        case ast.Call(ast.Attribute(ast.Call(ast.Attribute(inner, "contiguous"), [], []), "reshape")):
            return ast.Call(ast.Attribute(inner, "reshape", ast.Load()), node.args, node.keywords)
        case ast.Call(ast.Attribute(inner, "square"), [], []):
            return _method_of(inner, "pow", ast.Constant(2))
        case ast.Call(ast.Attribute(inner, "size"), [place], []):
            return ast.Subscript(ast.Attribute(inner, "shape", ast.Load()), place, ast.Load())
        case ast.Call(ast.Attribute(inner, "size"), [], []):
            return ast.Attribute(inner, "shape", ast.Load())
        case ast.Call(ast.Attribute(_, "transpose"), [_, _], []):
            return ast.Call(node.func, sorted(node.args, key=unparse_cached), [])
        case ast.Call(ast.Attribute(_, name), args, [*_, ast.keyword("dim", place)]) if name in _METHODS and not args:
            # The dimension is what most of them take first.
            return ast.Call(node.func, [place], node.keywords[:-1])
    return node


def _method_of(inner: ast.expr, name: str, *args: ast.expr) -> ast.Call:
    return ast.Call(ast.Attribute(inner, name, ast.Load()), list(args), [])


_RESPELT: dict[type[ast.AST], Callable[[Any], ast.AST]] = {
    ast.Attribute: _attribute,
    ast.BinOp: _operation,
    ast.Call: _call,
    ast.Compare: _comparison,
    ast.IfExp: _choice,
}


# Their arguments are sizes, one of which may be left to be inferred.
_SIZES = frozenset({"reshape", "view"})
# Some of their arguments are axes, and no other argument of theirs is a number below zero.
_AXES = frozenset({
    "all", "amax", "amin", "any", "argmax", "argmin", "argsort", "cat", "chunk", "cumsum", "diff", "flatten", "flip",
    "gather", "index_select", "mean", "movedim", "norm", "permute", "prod", "repeat_interleave", "scatter", "select",
    "size", "softmax", "sort", "split", "squeeze", "stack", "std", "sum", "topk", "transpose", "unbind", "unflatten",
    "unsqueeze", "var",
})  # fmt: skip
_AXIS_NAMES = frozenset({"axis", "dim", "dim0", "dim1", "dims"})
_INFERRED = -1


def align_axes(ours: ast.AST, theirs: ast.AST) -> ast.AST:
    """Return `theirs` with the axes and sizes that may be the same written as in `ours`.

    These may be the same: an axis counted from the front, and one counted from the back, of a tensor with two axes or
    more; a size, and one that is left to be inferred; tensors in a list, and the same in a tuple.
    """
    aligned: ast.AST = _aligned(ours, theirs)
    return aligned


def _aligned(ours: Any, theirs: Any) -> Any:
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [_aligned(one, other) for one, other in zip(ours, theirs, strict=True)]
    if not isinstance(ours, ast.AST) or type(ours) is not type(theirs):
        return theirs
    fields = {name: _aligned(getattr(ours, name, None), getattr(theirs, name, None)) for name in theirs._fields}
    made = ast.copy_location(type(theirs)(**fields), theirs)
    match ours, made:
        case ast.keyword(_, one), ast.keyword(name, other) if name in _AXIS_NAMES and _same_axis(one, other):
            made.value = one
        case ast.Call(_, mine), ast.Call(ast.Attribute(_, name), args) if len(mine) == len(args):
            apart = [place for place, one in enumerate(mine) if fingerprint(one) != fingerprint(args[place])]
            for place in apart:
                one, other = mine[place], args[place]
                inferred = apart == [place] and _INFERRED in (_integer(one), _integer(other))
                same = _same_axis(one, other) or _same_tensors(one, other)
                if (name in _SIZES and inferred) or (name in _AXES and same):
                    args[place] = one
    return made


def _same_axis(one: ast.expr, other: ast.expr) -> bool:
    """Return whether there is a number of axes, two or more, with which both are the same one."""
    first, second = _integer(one), _integer(other)
    if first is None or second is None:
        return False
    back, front = sorted((first, second))
    return back < 0 <= front and front - back > 1


def _same_tensors(one: ast.expr, other: ast.expr) -> bool:
    """Return whether one is a list and the other a tuple of the same."""
    match one, other:
        case (ast.List(ours), ast.Tuple(theirs)) | (ast.Tuple(ours), ast.List(theirs)):
            return [*map(fingerprint, ours)] == [*map(fingerprint, theirs)]
    return False


def _integer(node: ast.expr) -> int | None:
    match node:
        case ast.UnaryOp(ast.USub(), ast.Constant(int(value))):
            return -value
        case ast.Constant(int(value)):
            return value
    return None
