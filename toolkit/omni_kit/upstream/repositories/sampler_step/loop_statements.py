"""Statements of a sampling loop: which of them matter, and what they say."""

import ast
import copy
import re
from collections.abc import Iterator, Sequence

from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import passed
from omni_kit.upstream.repositories.sampler_step.batches import once
from omni_kit.upstream.repositories.sampler_step.flow import Substituted, reads
from omni_kit.upstream.repositories.traits import HALVES

GUIDED = "guided"
_IS_SCHEDULER = re.compile(r"(^|[._])scheduler$")
_STEP = 3  # an answer, a timestep, latents
_PLACES = frozenset({"shape", "device", "dtype", "ndim", "size"})
_CASTS = frozenset({"to", "type", "float", "double", *HALVES})
_DATA = re.compile(r"(^|_)(loaders?|epochs?|batch|batchs|batches)$|dataloader|dataset", re.IGNORECASE)
_BAR = re.compile(r"tqdm|progress|^track$")


def opened(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, those of contexts and branches among them."""
    for node in body:
        if isinstance(node, ast.With | ast.If):
            yield from opened([*node.body, *getattr(node, "orelse", [])])
        else:
            yield node


def popped_defaults(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Name and default of what a statement takes from arguments: `callback = kwargs.pop("callback", None)`."""
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(attr="pop" | "get"), args=[_, value])
        ):
            yield name, value


class _Depends(ast.NodeVisitor):
    """The variables whose values matter, and not only where and how large they are."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        """See the class."""
        if node.attr not in _PLACES:
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        """See the class."""
        self.found.add(node.id)


def value_variables(node: ast.AST) -> set[str]:
    """Return the variables whose values a node depends on, not only their shapes, devices and dtypes."""
    visitor = _Depends()
    visitor.visit(node)
    return visitor.found


def is_identity(node: ast.stmt) -> bool:
    """Return whether a statement changes nothing: `x = x`."""
    return isinstance(node, ast.Assign) and [ast.unparse(one) for one in node.targets] == [ast.unparse(node.value)]


def sets_attribute(node: ast.stmt) -> bool:
    """Return whether a statement sets an attribute, which the function of its own has none of."""
    return isinstance(node, ast.Assign) and any(isinstance(one, ast.Attribute) for one in node.targets)


def halved_variable(node: ast.stmt) -> str:
    """Return the variable of which a statement keeps half of the channels: `x, _ = x.chunk(2, dim=1)`; else empty."""
    match node:
        case ast.Assign(targets=[ast.Tuple(elts=[ast.Name(id=name), ast.Name()])], value=ast.Call() as call):
            pass
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Subscript(value=ast.Call() as call)):
            pass
        case _:
            return ""
    given = passed(call, ("chunks", "dim") if name in reads(call.func) else ("input", "chunks", "dim"))
    along = (literal(given.get("chunks")), literal(given.get("dim"))) == (2, 1)
    return name if along and ast.unparse(call.func).endswith("chunk") else ""


def is_cast(node: ast.stmt) -> bool:
    """Return whether a statement gives a variable another type, and no other value: `x = x.to(dtype)`."""
    match node:
        case ast.Assign(
            targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(value=ast.Name(id=own), attr=how))
        ):
            return name == own and how in _CASTS
        case ast.If(body=then, orelse=other):
            return all(map(is_cast, [*then, *other]))
    return isinstance(node, ast.Pass)


def calls_in(node: ast.AST) -> list[ast.Call]:
    """Return the calls in a node as it is now: `pysource.nodes` remembers them, and these trees change."""
    return [one for one in ast.walk(node) if isinstance(one, ast.Call)]


def steps_scheduler(call: ast.Call) -> bool:
    """Return whether a scheduler is asked for the next latents, as that of a learning rate is not."""
    func = call.func
    named = isinstance(func, ast.Attribute) and func.attr == "step" and _IS_SCHEDULER.search(ast.unparse(func.value))
    return bool(named) and len(call.args) + len(call.keywords) >= _STEP


def goes_over_data(loop: ast.For) -> bool:
    """Return whether a loop goes over batches, a dataset or epochs, as its names say: it takes no steps of sampling."""
    nodes = [one for part in (loop.target, loop.iter) for one in ast.walk(part)]
    return any(_DATA.search(getattr(one, "id", "") or getattr(one, "attr", "")) for one in nodes)


def is_named(node: ast.expr, name: str) -> bool:
    """Return whether a node is the variable of this name."""
    return isinstance(node, ast.Name) and node.id == name


def joined_parts(node: ast.expr) -> list[ast.expr]:
    """Return the parts of `torch.cat([one, other])`; empty for anything else."""
    first = node.args[0] if isinstance(node, ast.Call) and node.args else None
    name = ast.unparse(node.func).rpartition(".")[2] if isinstance(node, ast.Call) else ""
    return first.elts if name in ("cat", "concat") and isinstance(first, ast.List | ast.Tuple) else []


def expression(text: str) -> ast.expr:
    """Return the parsed expression."""
    return ast.parse(text, mode="eval").body


def joined_if_guided(one: str, other: str, alone: str) -> str:
    """Return an expression for the batch of both where the loop guides, else for one alone."""
    return f"torch.cat([{one}, {other}]) if {GUIDED} else {alone}"


def without_aliases(function: ast.FunctionDef) -> ast.FunctionDef:
    """Return a function that calls members of its object by their own names: `self.net(x)` for `net = self.net`."""
    called = {ast.unparse(one.func).partition(".")[0] for one in calls_in(function)}
    stored = [one.id for one in ast.walk(function) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    aliases: dict[str, ast.expr] = {}
    for node in function.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Attribute(value=ast.Name(id="self")) as value):
                if name in called and stored.count(name) == 1:
                    aliases[name] = value
    return Substituted(aliases).visit(copy.deepcopy(function)) if aliases else function


class WithoutProgressBars(ast.NodeTransformer):
    """Takes progress bars away, wherever they are."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """See the class."""
        self.generic_visit(node)
        shown = bool(_BAR.search(ast.unparse(node.func).rpartition(".")[2])) and len(node.args) > 0
        return node.args[0] if shown else node


class _Once(ast.NodeTransformer):
    """Keeps one of two equal halves of a batch."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """See the class."""
        self.generic_visit(node)
        return once(node)[0]


def once_each(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements with one of two equal halves of each batch."""
    for node in body:
        yield _Once().visit(node)
