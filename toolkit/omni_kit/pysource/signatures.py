"""`inspect.Signature` objects made from source; `Signature.bind` decides in one place whether a call fits."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any

from omni_kit.plurals import counted
from omni_kit.pysource.nodes import remembered
from omni_kit.pysource.source import dotted

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_NAME = re.compile(r"'(\w+)'")
# What `Signature.bind` says, and how findings say it; `{}` is the parameter.
_WORDS = {
    "multiple values": "'{}' is passed twice",
    "got an unexpected keyword": "it has no parameter '{}'",
    "missing a required": "'{}' is not passed",
}


def signature(node: FunctionNode, *, bound: bool = False) -> Signature:
    """Return the signature of a function; defaults and annotations are the expressions that the source has.

    Args:
        bound: of a method, as a caller sees it who has the instance: without the first parameter, unless it is static.
    """
    whole = _signature(node)
    if not bound or not positional(whole) or "staticmethod" in decorators(node):
        return whole
    return whole.replace(parameters=list(whole.parameters.values())[1:])


@remembered
def _signature(node: FunctionNode) -> Signature:
    written = node.args
    found: dict[str, Parameter] = {}

    def add(argument: ast.arg | None, kind: Any, default: ast.expr | None = None) -> None:
        if argument is not None and argument.arg not in found:  # a name twice is an error at import, and not here
            of = [argument.annotation, default]
            annotation, given = (Parameter.empty if one is None else one for one in of)
            found[argument.arg] = Parameter(argument.arg, kind, default=given, annotation=annotation)

    placed = [*written.posonlyargs, *written.args]
    without: list[ast.expr | None] = [None] * (len(placed) - len(written.defaults))
    for place, (argument, default) in enumerate(zip(placed, [*without, *written.defaults], strict=True)):
        only = place < len(written.posonlyargs)
        add(argument, Parameter.POSITIONAL_ONLY if only else Parameter.POSITIONAL_OR_KEYWORD, default)
    add(written.vararg, Parameter.VAR_POSITIONAL)
    for argument, default in zip(written.kwonlyargs, written.kw_defaults, strict=True):
        add(argument, Parameter.KEYWORD_ONLY, default)
    add(written.kwarg, Parameter.VAR_KEYWORD)
    return Signature(list(found.values()))


def decorators(node: ast.AST) -> set[str]:
    """Return the last names of the decorators of a definition, called or not."""
    plain = [one.func if isinstance(one, ast.Call) else one for one in getattr(node, "decorator_list", ())]
    return {(dotted(one) or "").rpartition(".")[2] for one in plain}


def named(signature: Signature) -> dict[str, Parameter]:
    """Return the parameters of a signature that have a name of their own: all but `*args` and `**kwargs`."""
    stars = {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
    return {name: one for name, one in signature.parameters.items() if one.kind not in stars}


def parameters(node: FunctionNode) -> list[str]:
    """Return the names of a function's parameters, without `self`, `cls`, `*args` and `**kwargs`."""
    return [name for name in named(signature(node)) if name not in {"self", "cls"}]


def positional(signature: Signature) -> list[str]:
    """Return the names of the parameters that can be given by position, in order."""
    kinds = {Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD}
    return [name for name, one in signature.parameters.items() if one.kind in kinds]


def required(signature: Signature) -> list[str]:
    """Return the names of the parameters without a default."""
    return [name for name, one in named(signature).items() if one.default is Parameter.empty]


def defaults(signature: Signature) -> dict[str, ast.expr]:
    """Return parameter -> its default, for the parameters that have one."""
    return {name: one.default for name, one in named(signature).items() if one.default is not Parameter.empty}


def star(signature: Signature) -> str | None:
    """Return the name of `*args`; None without one."""
    return next((name for name, one in signature.parameters.items() if one.kind is Parameter.VAR_POSITIONAL), None)


def double_star(signature: Signature) -> str | None:
    """Return the name of `**kwargs`; None without one."""
    return next((name for name, one in signature.parameters.items() if one.kind is Parameter.VAR_KEYWORD), None)


def widened(signature: Signature, names: Iterable[str], anything: bool = False) -> Signature:
    """Return a signature that also accepts these names; with `anything`, every name."""
    found = list(signature.parameters.values())
    rest = [one for one in found if one.kind is Parameter.VAR_KEYWORD]
    new = [name for name in names if name not in signature.parameters]
    more = [Parameter(name, Parameter.KEYWORD_ONLY, default=ast.Constant(None)) for name in new]
    if anything and not rest:
        rest = [Parameter("_", Parameter.VAR_KEYWORD)]
    return signature.replace(parameters=[*(one for one in found if one not in rest), *more, *rest])


def bind(signature: Signature, arguments: Sequence[Any], keywords: Mapping[str, Any], partial: bool = False) -> Any:
    """Return the `BoundArguments` of a call.

    Args:
        partial: the call may give more than is seen of it, so a parameter that is not given is no error.

    Raises:
        TypeError: the call does not fit; the message says why.
    """
    return (signature.bind_partial if partial else signature.bind)(*arguments, **keywords)


def passed(call: ast.Call, order: Iterable[str]) -> dict[str, ast.expr]:
    """Return parameter -> the expression that a call passes for it.

    Args:
        order: the parameters that can be given by position.
    """
    return dict(zip(order, call.args, strict=False)) | {one.arg: one.value for one in call.keywords if one.arg}


def misfit(signature: Signature, count: int, keywords: Iterable[str], partial: bool = False) -> str:
    """Return why a call with `count` arguments by position and these names does not fit; empty if it does.

    What is wrong with the given arguments comes before what is missing.
    """
    given, names = [None] * count, dict.fromkeys(keywords)
    for seen_in_part in (True, False) if not partial else (True,):
        try:
            bind(signature, given, names, seen_in_part)
        except TypeError as error:
            return _worded(str(error), signature, count)
    return ""


def _worded(message: str, signature: Signature, count: int) -> str:
    if message.startswith("too many positional"):
        return f"{counted(count, 'positional argument')} for {counted(positional(signature), 'parameter')}"
    name = _NAME.search(message)
    words = next((said for start, said in _WORDS.items() if message.startswith(start)), None)
    return words.format(name[1]) if words is not None and name is not None else message
