"""Attention that authors wrote several times, for packages that may not be there: the one that runs is kept."""

import ast
import re
from collections.abc import Callable, Iterator
from functools import partial

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.pysource.reads import literal
from omni_kit.pysource.signatures import defaults, signature
from omni_kit.standins import stand_ins
from omni_kit.targets.diffusers.porting.replaced_functions import changed_functions
from omni_kit.upstream.repositories.attention import SDPA, functions_in
from omni_kit.upstream.repositories.closure import Closure, bound_in, completed, names_in
from omni_kit.upstream.repositories.names import Defined, resolve

_KERNEL = re.compile(r"attention|attn")
# Questions of libraries for devices and packages, which are not there.
_IS_THERE = re.compile(r"(^|\.)is_(torch_)?(npu|xla|mlu|musa|xpu|hpu|flash_attn\w*|xformers)_available$")
_SAME = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot)
_PRODUCTS = ("matmul", "bmm", "einsum", "baddbmm")


def chosen(closure: Closure) -> Closure:
    """Return the closure with one branch of every choice between ways to attend, and without what nobody needs then."""

    def decide(one: Defined, function: ast.FunctionDef) -> ast.FunctionDef | None:
        choice = _Choice(partial(_decided, home=one), partial(_is_flag, home=one, function=function))
        choice.visit(function)
        return function if choice.done else None

    own = (one for one in closure.definitions if isinstance(one.node, ast.ClassDef | ast.FunctionDef))
    return with_changed(closure, changed_functions(own, decide))


def with_changed(closure: Closure, changed: dict[Defined, Defined]) -> Closure:
    """Return the closure with other definitions, what these need, and without what nobody needs then."""
    if not changed:
        return closure
    found = reached(closure, changed)
    for one in [one for one in changed.values() if one in found.uses]:
        completed(found, one)
    return found


def reached(closure: Closure, changed: dict[Defined, Defined]) -> Closure:
    """Return the closure with other definitions, and without those that the model's class does not come to any more."""
    every = {one: changed.get(one, one) for one in closure.definitions}
    named = {one: {part for name in names_in(node.node) for part in _parts(name)} for one, node in every.items()}
    needed, wanted = set(), [closure.definitions[-1]]
    while wanted:
        one = wanted.pop()
        if one not in needed:
            needed.add(one)
            meant = [resolve(one.source, name) for name in named[one]]
            meant += [other for name, other in closure.uses[one].items() if _among(name, named[one])]
            wanted += [other for other in meant if isinstance(other, Defined) and other in every]
    kept = [every[one] for one in closure.definitions if one in needed]
    uses = {every[one]: {name: every[other] for name, other in closure.uses[one].items() if _among(name, named[one])}
            for one in kept}  # fmt: skip
    foreign = {every[one]: {name: meant for name, meant in closure.foreign[one].items() if _among(name, named[one])}
               for one in kept}  # fmt: skip
    return Closure(kept, uses, foreign)


def _among(name: str, named: set[str]) -> bool:
    """Return whether a name is written, also where something is asked of it."""
    return name in named or any(one.startswith(f"{name}.") for one in named)


class _Choice(ast.NodeTransformer):
    """Keeps one branch of an `if` of which every branch attends, or refuses to."""

    def __init__(self, decided: Callable[[ast.expr], bool | None], is_flag: Callable[[ast.expr], bool]) -> None:
        self.decided, self.is_flag = decided, is_flag
        self.done = False

    def visit_If(self, node: ast.If) -> ast.AST | list[ast.stmt]:
        """Return the branch that runs: as the code says; else one that calls torch's kernel or a known one; else the
        first. Nothing runs where another forward needs a package that may not be there.
        """
        if self.decided(node.test) is False and not node.orelse and all(map(_replaces_forward, node.body)):
            self.done = True
            return ast.Pass()
        branches = _branches(node)
        attending = [body for _, body in branches if _kernels(body)]
        apart = len({*map(_kernels, attending)}) == len(attending) > 1
        tests = [test for test, _ in branches if test is not None]
        flags = all(self.decided(test) is not None or self.is_flag(test) for test in tests)
        runs = self._that_runs(branches)
        of_file = not any(getattr(one, "id", "") == "self" for test in tests for one in ast.walk(test))
        known = apart or (of_file and runs is not None and len(attending) > 1)  # a method may set an attribute later
        if not known or not flags or any(not _kernels(body) and not _refuses(body) for _, body in branches):
            self.generic_visit(node)
            node.orelse = [] if [*map(type, node.orelse)] == [ast.Pass] else node.orelse
            return node
        self.done = True
        known_here = (one for one in attending if _packages(one) & stand_ins())
        body = runs or next((one for one in attending if SDPA in _text(one)), next(known_here, attending[0]))
        return [inner for one in body for inner in _listed(self.visit(one))]

    def _that_runs(self, branches: list[tuple[ast.expr | None, list[ast.stmt]]]) -> list[ast.stmt] | None:
        """Return the first branch that attends and whose condition, as all before it, is known."""
        for test, body in branches:
            said = True if test is None else self.decided(test)
            if said is None:
                return None
            if said and _kernels(body):
                return body
        return None


def _replaces_forward(node: ast.stmt) -> bool:
    """Return whether a statement makes another method forward: one that calls the kernel of a package."""
    return isinstance(node, ast.Assign) and [*map(ast.unparse, node.targets)] == ["self.forward"]


def _listed(node: ast.AST | list[ast.stmt] | None) -> list[ast.stmt]:
    return node if isinstance(node, list) else [node] if isinstance(node, ast.stmt) else []


def _branches(node: ast.If) -> list[tuple[ast.expr | None, list[ast.stmt]]]:
    found: list[tuple[ast.expr | None, list[ast.stmt]]] = [(node.test, node.body)]
    rest = node.orelse
    while len(rest) == 1 and isinstance(rest[0], ast.If):
        found.append((rest[0].test, rest[0].body))
        rest = rest[0].orelse
    return [*found, (None, rest)] if rest else found


def _text(body: list[ast.stmt]) -> str:
    return "\n".join(map(ast.unparse, body))


def _kernels(body: list[ast.stmt]) -> frozenset[str]:
    """Return the attention kernels of statements: by name, absolute where one of them imports it; "own" if attention is
    written out.
    """
    nodes = [node for one in body for node in ast.walk(one)]
    names = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
    imported = {alias.asname or alias.name: f"{node.module}.{alias.name}" for node in nodes
                if isinstance(node, ast.ImportFrom) for alias in node.names}  # fmt: skip
    plain = (name for name in names if "(" not in name and not name.startswith("self."))
    found = {imported.get(name, name) for name in plain if _KERNEL.search(name.lower())}
    products = sum(name.rpartition(".")[2] in _PRODUCTS for name in names)
    products += sum(isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult) for node in nodes)
    weighed = any(name.rpartition(".")[2] == "softmax" for name in names)
    return frozenset(found | ({"own"} if weighed and products >= 2 else set()))


def _packages(body: list[ast.stmt]) -> set[str]:
    """Return the packages of the kernels that statements call by absolute names."""
    return {name.partition(".")[0] for name in _kernels(body) if "." in name}


def _is_flag(test: ast.expr, home: Defined, function: ast.FunctionDef) -> bool:
    """Return whether a test reads attributes and what files define alone: nothing that a call receives."""
    names = {one.id for one in ast.walk(test) if isinstance(one, ast.Name)}
    return not (names - {"self"}) & bound_in(function)


def _parts(name: str) -> Iterator[str]:
    """`ops`, `ops.Mask` and `ops.Mask.of` of the last: any of them may be what a definition means."""
    parts = name.split(".")
    yield from (".".join(parts[:cut]) for cut in range(1, len(parts) + 1))


def _refuses(body: list[ast.stmt]) -> bool:
    return bool(body) and isinstance(body[-1], ast.Raise)


def _decided(test: ast.expr, home: Defined) -> bool | None:
    """Return the value of a test without optional packages and GPU; None if it is unknown."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        said = _decided(test.operand, home)
        return None if said is None else not said
    if isinstance(test, ast.BoolOp):
        parts = [_decided(one, home) for one in test.values]
        decisive = isinstance(test.op, ast.Or)
        if decisive in parts:
            return decisive
        return None if None in parts else not decisive
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], _SAME):
        one, other = (_value(side, home) for side in (test.left, test.comparators[0]))
        if UNKNOWN in (one, other):
            return None
        return (one == other) is not isinstance(test.ops[0], ast.NotEq | ast.IsNot)
    value = _value(test, home)
    return None if value is UNKNOWN else bool(value)


def _value(node: ast.expr, home: Defined) -> object:
    """Return a literal, or what a flag of a file or an attribute of a class is set to by default."""
    if (plain := literal(node)) is not UNKNOWN:
        return plain
    if isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == "self":
        return _attribute(home, node.attr)
    if isinstance(node, ast.Call) and _IS_THERE.search(ast.unparse(node.func)):
        return False
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "hasattr" and len(node.args) == 2:
        return literal(node.args[1]) == SDPA or UNKNOWN
    if isinstance(node, ast.Name):
        meant = resolve(home.source, node.id)
        return _flag(node.id, meant) if isinstance(meant, Defined) else UNKNOWN
    return UNKNOWN


def _flag(name: str, meant: Defined) -> object:
    """Return the value of a flag when torch alone is installed."""
    body = [meant.node]
    if isinstance(meant.node, ast.Try):
        imports = any(isinstance(one, ast.Import | ast.ImportFrom) for one in ast.walk(meant.node))
        body = [one for handler in meant.node.handlers for one in handler.body] if imports else []
    elif isinstance(meant.node, ast.If):
        said = _decided(meant.node.test, meant)
        body = [] if said is None else meant.node.body if said else meant.node.orelse
    values = [one.value for one in body if isinstance(one, ast.Assign) and
              any(getattr(target, "id", "") == name for target in one.targets)]  # fmt: skip
    return _value(values[-1], meant) if values else UNKNOWN


def _attribute(home: Defined, name: str) -> object:
    inits = [one for one in functions_in(home) if one.name == "__init__"]
    values = [one.value for init in inits for one in ast.walk(init) if isinstance(one, ast.Assign)
              for target in one.targets if ast.unparse(target) == f"self.{name}"]  # fmt: skip
    if len(values) != 1:
        return UNKNOWN
    given = defaults(signature(inits[0]))
    value = given.get(values[0].id, values[0]) if isinstance(values[0], ast.Name) else values[0]
    return _value(value, home) if value is not None else UNKNOWN
