"""Noise levels that a function with a loop receives as an argument: its callers make them."""

import ast
import copy
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.nodes import calls
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import defaults, passed, positional, signature
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.upstream.repositories.names import Defined, resolve
from omni_kit.upstream.repositories.sampler_step.flow import Substituted, reads

SHAPE = "latents.shape"
"""Size of latents, in what a caller passes to the function that makes levels."""
_STEPS = re.compile(r"(steps?|num|count|^n)", re.IGNORECASE)


@dataclass(frozen=True)
class PassedLevels:
    """Levels as a caller makes them.

    Attributes:
        argument: the argument of the function with the loop.
        made: the function that makes them.
        given: its other arguments, as a caller of the loop passes them; sizes of latents in terms of `SHAPE`.
    """

    argument: str
    made: Defined
    given: Mapping[str, str]


def passed_levels(
    function: Defined, wanted: Collection[str], moved: Collection[str], sources: Iterable[SourceFile]
) -> Iterator[PassedLevels]:
    """Yield the ways in which callers make the levels for one of the wanted arguments.

    Args:
        moved: the arguments of the function that its loop changes: latents.
    """
    assert isinstance(function.node, ast.FunctionDef)
    names = positional(signature(function.node))
    for source in (one for one in sources if function.name in one.text):
        scopes = [node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef)]
        for scope in (*scopes, source.tree):
            for call in calls(scope):
                name = dotted(call.func) or ""
                if name.rpartition(".")[2] == function.name and resolve(source, name) == function:
                    yield from _made(source, scope, call, names, wanted, moved)


def passed_expressions(function: ast.FunctionDef, argument: str, source: SourceFile, steps: str) -> Iterator[ast.expr]:
    """Yield what callers in the same file pass as an argument, where they make it of their number of steps alone.

    Args:
        steps: the variable that stands for this number in the expressions.
    """
    names = [one for one in positional(signature(function)) if one != "self"]
    for scope in (node for node in ast.walk(source.tree) if isinstance(node, ast.FunctionDef)):
        taken = {one.arg for one in (*scope.args.args, *scope.args.kwonlyargs)}
        for call in calls(scope):
            if (dotted(call.func) or "").rpartition(".")[2] != function.name.rpartition(".")[2]:
                continue
            if (value := passed(call, names).get(argument)) is None:
                continue
            values = [node.value for node in ast.walk(scope) if isinstance(node, ast.Assign)
                      and ast.unparse(node.targets[0]) == ast.unparse(value)]  # fmt: skip
            value = _Plain().visit(copy.deepcopy(values[0] if len(values) == 1 else value))
            read = reads(value)
            counts = {name for name in read & taken if name.endswith("steps")}
            if len(counts) == 1 and read - counts <= {*source.imports}:
                yield Substituted({counts.pop(): ast.Name(steps, ast.Load())}).visit(value)


class _Plain(ast.NodeTransformer):
    """Leaves out where tensors are and of which type."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Return a call without these arguments."""
        self.generic_visit(node)
        node.keywords = [one for one in node.keywords if one.arg not in ("device", "dtype")]
        return node


def _made(
    source: SourceFile, scope: ast.AST, call: ast.Call, names: list[str], wanted: Collection[str],
    moved: Collection[str],
) -> Iterator[PassedLevels]:  # fmt: skip
    told = passed(call, names)
    for argument in (one for one in wanted if one in told):
        value = told[argument]
        values = [value] if not isinstance(value, ast.Name) else [
            node.value for node in ast.walk(scope)
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == value.id
        ]  # fmt: skip
        for one in (each for each in values if isinstance(each, ast.Call)):
            meant = resolve(source, dotted(one.func) or "")
            if isinstance(meant, Defined) and isinstance(meant.node, ast.FunctionDef):
                given = _given(one, meant.node, call, told, moved)
                if given is not None:
                    yield PassedLevels(argument, meant, given)


def _given(
    made: ast.Call, function: ast.FunctionDef, call: ast.Call, told: Mapping[str, ast.expr], moved: Collection[str]
) -> dict[str, str] | None:
    """Return the arguments of the function that makes levels, but for the number of steps and for defaults.

    None if one is made of what only the caller has.
    """
    taken, found = signature(function), {}
    for name, value in passed(made, positional(taken)).items():
        if size := _size(value, call, told, moved):
            found[name] = size
        elif name == steps_of(function) or (literal(value) is UNKNOWN and name in defaults(taken)):
            continue
        elif literal(value) is UNKNOWN:
            return None
        else:
            found[name] = ast.unparse(value)
    return found


def steps_of(function: ast.stmt) -> str:
    """Return the argument that says how many steps there are."""
    names = [one.arg for one in function.args.args] if isinstance(function, ast.FunctionDef) else []
    return next((name for name in names if _STEPS.search(name)), names[0] if names else "")


def _size(value: ast.expr, call: ast.Call, told: Mapping[str, ast.expr], moved: Collection[str]) -> str:
    """Return `latents.shape[1]` for a size of what the call passes as latents; empty for anything else."""
    match value:
        case ast.Subscript(value=ast.Attribute(value=whole, attr="shape"), slice=axis):
            pass
        case _:
            return ""
    spread = [dotted(one.value) for one in call.keywords if one.arg is None]
    match whole:
        case ast.Subscript(value=ast.Name(id=mapping), slice=ast.Constant(value=str(key))) if mapping in spread:
            known = key in moved
        case _:
            known = any(ast.unparse(whole) == ast.unparse(told[name]) for name in moved if name in told)
    return f"{SHAPE}[{ast.unparse(axis)}]" if known else ""
