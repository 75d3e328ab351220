"""A pipeline that asks its denoiser once, with twice the batch, told as one that asks twice: as guiders ask."""

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import libcst as cst

from omni_kit.pysource.eval import Unsupported
from omni_kit.pysource.source import dotted
from omni_kit.targets.diffusers.modular.names import tree
from omni_kit.targets.diffusers.modular.pipeline_class import Method, Opened
from omni_kit.targets.diffusers.porting.visiting import visited
from omni_kit.upstream.diffusers.guidance import is_combination

_JOINS = ("cat", "concat", "concatenate")


@dataclass(frozen=True)
class Single:
    """The pipeline's `__call__`, in which the denoiser is asked twice with one batch.

    Attributes:
        positive: the variable that its statements call the answer for the prompt; empty if it is that of the call.
        between: what is done with an answer before both are combined.
    """

    call: Method
    positive: str
    between: tuple[ast.Assign, ...]


def split_cfg_batch(opened: Opened) -> Single:
    """Return the call, told so.

    Raises:
        Unsupported: it does more with what it doubles; what.
    """
    function = opened.call.node
    found = next((one for block in _blocks(function) if (one := _place(block)) is not None), None)
    if found is None:
        raise Unsupported(
            "both outputs come from one call with a doubled batch, which is not split right after the call"
        )
    return _Undoubling(opened, *found).single()


@dataclass(frozen=True)
class _Joined:
    """One place that doubles: what a variable is without it, and against the prompt."""

    node: ast.Assign
    name: str
    alone: str
    against: str
    negative_first: bool


def _blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    for one in ast.walk(node):
        for name in ("body", "orelse"):
            block = getattr(one, name, None)
            if isinstance(block, list):
                yield block


def _place(block: Sequence[ast.stmt]) -> tuple[ast.Assign, tuple[ast.Assign, ...], ast.If] | None:
    """Return the statement that asks, those behind it, and that which halves the answer and combines both."""
    for number, node in enumerate(block):
        if not isinstance(node, ast.If) or len(node.body) < 2 or node.orelse or not _halved(node.body[0]):
            continue
        halves, combined = node.body[0], node.body[1]
        if not isinstance(combined, ast.Assign) or not is_combination(combined.value):
            continue
        answer = _halved(halves)
        before = [one for each in block[:number] if (one := _assigned(each)) is not None and _target(one) == answer]
        if before and isinstance(before[0].value, ast.Subscript) and _target(combined) == answer:
            return before[0], tuple(before[1:]), node
    return None


def _assigned(node: ast.stmt) -> ast.Assign | None:
    """Return an assignment, also one that is all of a `with`."""
    if isinstance(node, ast.With) and len(node.body) == 1:
        node = node.body[0]
    return node if isinstance(node, ast.Assign) else None


def _target(node: ast.Assign) -> str:
    only = node.targets[0]
    return only.id if isinstance(only, ast.Name) else ""


def _halved(node: ast.stmt) -> str:
    """Return the variable that `one, other = both.chunk(2)` splits; empty for other statements."""
    match node:
        case ast.Assign(
            targets=[ast.Tuple(elts=[ast.Name(), ast.Name()])],
            value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="chunk"), args=[ast.Constant(value=2)]),
        ) if all(one.arg == "dim" and ast.unparse(one.value) == "0" for one in node.value.keywords):  # type: ignore[attr-defined]
            return name
    return ""


@dataclass(frozen=True)
class _Undoubling:
    """Makes the change."""

    opened: Opened
    ask: ast.Assign
    between: tuple[ast.Assign, ...]
    combine: ast.If

    @property
    def test(self) -> str:
        """Condition under which the pipeline guides."""
        return ast.unparse(self.combine.test)

    @cached_property
    def joined(self) -> list[_Joined]:
        """Everything that is doubled where the pipeline guides."""
        return [one for block, within in _tested(self.opened.call.node, self.test) for node in block
                if (one := _joined(node, self.test, within=within)) is not None]  # fmt: skip

    @property
    def against(self) -> Mapping[str, str]:
        """Variable -> what is there against the prompt in its place."""
        return {one.name: one.against for one in self.joined if one.against}

    def single(self) -> Single:
        """Return the call, without doubling."""
        halves, combined = self.combine.body[0], self.combine.body[1]
        assert isinstance(halves, ast.Assign)
        assert isinstance(halves.targets[0], ast.Tuple)
        first, second = (ast.unparse(one) for one in halves.targets[0].elts)
        orders = {one.negative_first for one in self.joined if one.against}
        if len(orders) != 1:
            raise Unsupported(
                "both outputs come from one call whose conditional and unconditional halves could not be identified"
            )
        negative, positive = (first, second) if orders == {True} else (second, first)
        assert isinstance(combined, ast.Assign)
        if not _goes_from(combined.value, positive, negative):
            raise Unsupported("its formula uses the halves in reverse order")
        self._check()
        answer = _target(self.ask)
        again = f"{negative} = {ast.unparse(_Other(self.against).visit(copy.deepcopy(self.ask.value)))}"
        lines = [f"with {self._around}:\n    {again}" if self._around else again]
        lines.append(ast.unparse(_Other({positive: answer}).visit(copy.deepcopy(combined))))
        lines += [ast.unparse(one) for one in self.combine.body[2:]]
        inner = "\n".join(f"    {line}" for text in lines for line in text.split("\n"))
        stead = {ast.dump(self.combine): f"if {self.test}:\n{inner}"}
        stead |= {ast.dump(one): "" for one in self.between}
        for one in self.joined:
            same = one.alone == one.name
            stead[ast.dump(one.node)] = "" if same else f"{one.name} = {one.alone}"
        written = visited(self.opened.call.written, _Stead(stead))
        node = ast.parse(cst.Module([written]).code).body[0]
        assert isinstance(node, ast.FunctionDef)
        ast.copy_location(node, self.opened.call.node)
        read = {one.id for rest in self.combine.body[2:] for one in ast.walk(rest) if isinstance(one, ast.Name)}
        return Single(Method(self.opened.call.home, node, written), positive if positive in read else "", self.between)

    @property
    def _around(self) -> str:
        """The context in which the denoiser is asked; empty for none."""
        found = (
            node for node in ast.walk(self.opened.call.node) if isinstance(node, ast.With) and node.body == [self.ask]
        )
        return ", ".join(ast.unparse(one) for node in found for one in node.items)

    def _check(self) -> None:
        """Nothing else knows that there are two of everything.

        Raises:
            Unsupported: something does.
        """
        function, own = self.opened.call.node, {id(one.node) for one in self.joined}
        first = min(one.node.lineno for one in self.joined)
        inside = {id(one) for node in (self.ask, *(each.node for each in self.joined)) for one in ast.walk(node)}
        for node in (one for one in ast.walk(function) if getattr(one, "lineno", 0) >= first):
            if isinstance(node, ast.Call) and id(node) not in inside and _doubles(node):
                raise Unsupported(f"it doubles more than the denoiser's inputs: {ast.unparse(node)[:80]}")
            if isinstance(node, ast.Assign) and id(node) not in own and self._changes(node):
                raise Unsupported(f"it changes {', '.join(sorted(self._changes(node)))} after doubling")
            if isinstance(node, ast.IfExp) and id(node) not in inside and ast.unparse(node.test) == self.test:
                raise Unsupported(f"it does more in its guidance branch: {ast.unparse(node)[:80]}")
        for name in self._read_besides(function, inside):
            raise Unsupported(f"it also reads {name}, which it doubles")
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and (name := self._doubling(node)):
                raise Unsupported(f"it also doubles {name}")

    def _changes(self, node: ast.Assign) -> set[str]:
        names = {one.id for target in node.targets for one in ast.walk(target) if isinstance(one, ast.Name)}
        popped = isinstance(node.value, ast.Call) and (dotted(node.value.func) or "").endswith(".pop")
        return set() if popped else names & self.against.keys()

    def _read_besides(self, function: ast.FunctionDef, inside: set[int]) -> Iterator[str]:
        """Yield variables that are doubled, and read by what neither asks nor calls back."""
        fine = set(inside)
        for node in ast.walk(function):
            harmless = isinstance(node, ast.Attribute) and node.attr in ("dtype", "device")
            popped = isinstance(node, ast.Call) and (dotted(node.func) or "").endswith(".pop")
            fine |= {id(one) for one in ast.walk(node)} if harmless or popped else set()
        last = {one.name: one.node.end_lineno or 0 for one in self.joined}
        for node in ast.walk(function):
            read = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and id(node) not in fine
            if read and isinstance(node, ast.Name) and node.id in self.against and node.lineno > last[node.id]:
                yield node.id

    def _doubling(self, call: ast.Call) -> str:
        """Return the pipeline's own method that is told whether to double, and does so; empty for other calls."""
        name = (dotted(call.func) or "").removeprefix("self.")
        told = [ast.unparse(one) for one in (*call.args, *(each.value for each in call.keywords))]
        method = self.opened.method(name) if self.test in told and "." not in name else None
        tests = [one for one in ast.walk(method.node) if isinstance(one, ast.If)] if method is not None else []
        joins = (
            _joined(node, "", within=True) for one in tests for node in ast.walk(one) if isinstance(node, ast.Assign)
        )
        return name if any(joins) else ""


def _tested(function: ast.FunctionDef, test: str) -> Iterator[tuple[list[ast.stmt], bool]]:
    """Yield the blocks of a function, each with whether it is run only where the pipeline guides."""
    inner = {id(block) for node in ast.walk(function) if isinstance(node, ast.If) and ast.unparse(node.test) == test
             for block in [node.body]}  # fmt: skip
    for block in _blocks(function):
        yield block, id(block) in inner


def _joined(node: ast.stmt, test: str, *, within: bool) -> _Joined | None:
    """Return the tensor that a statement doubles: from two variables, or from itself."""
    if not isinstance(node, ast.Assign) or not (name := _target(node)):
        return None
    value = node.value
    if isinstance(value, ast.IfExp) and test and ast.unparse(value.test) == test:
        pair = _pair(value.body)
        alone = ast.unparse(value.orelse)
        fits = pair is not None and alone in pair
    else:
        pair, alone = (_pair(value), name) if within else (None, "")
        fits = pair is not None and name in pair
    if pair is None or not fits:
        return None
    other = pair[1] if pair[0] == alone else pair[0]
    return _Joined(node, name, alone, "" if pair[0] == pair[1] else other, pair[1] == alone)


def _pair(value: ast.expr) -> tuple[str, str] | None:
    """Return the two parts of a batch; the same one twice where it is repeated."""
    match value:
        case ast.Call(func=ast.Attribute(attr=join), args=[ast.List(elts=[one, other]), *_]) if join in _JOINS:
            return ast.unparse(one), ast.unparse(other)
        case ast.Call(
            func=ast.Attribute(attr=join),
            args=[ast.BinOp(left=ast.List(elts=[one]), op=ast.Mult(), right=ast.Constant(value=2)), *_],
        ) if join in _JOINS:
            return ast.unparse(one), ast.unparse(one)
        case ast.Call(func=ast.Attribute(value=one, attr="repeat"), args=[ast.Constant(value=2), *_]):
            return ast.unparse(one), ast.unparse(one)
    return None


def _doubles(call: ast.Call) -> bool:
    pair = _pair(call)
    name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    along = [ast.unparse(one.value) for one in call.keywords if one.arg == "dim"]
    return (pair is not None and pair[0] == pair[1]) or (
        name in _JOINS and any("negative" in ast.unparse(one) for one in call.args) and along in ([], ["0"])
    )


def _goes_from(value: ast.expr, positive: str, negative: str) -> bool:
    """Return whether a combination goes along the way from the answer against the prompt to that for it."""
    assert isinstance(value, ast.BinOp)
    assert isinstance(value.right, ast.BinOp)
    difference = value.right.right
    assert isinstance(difference, ast.BinOp)
    return (ast.unparse(difference.left), ast.unparse(difference.right)) == (positive, negative)


class _Other(ast.NodeTransformer):
    """Reads other variables."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Return the other one."""
        found = self.names.get(node.id) if isinstance(node.ctx, ast.Load) else None
        return ast.parse(found, mode="eval").body if found else node


class _Stead(cst.CSTTransformer):
    """Puts other statements instead of some; nothing instead of others."""

    def __init__(self, stead: Mapping[str, str]) -> None:
        self.stead = stead

    def _found(self, node: cst.BaseStatement) -> str | None:
        return self.stead.get(ast.dump(tree(node).body[0]))

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement | cst.RemovalSentinel:
        """Return one line."""
        text = self._found(original_node)
        if text is None:
            return updated_node
        found = cst.parse_statement(text) if text else None
        return cst.ensure_type(found, cst.SimpleStatementLine).with_changes(
            leading_lines=updated_node.leading_lines
        ) if found is not None else cst.RemoveFromParent()  # fmt: skip

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.BaseStatement | cst.RemovalSentinel:  # noqa: N802
        """Return a branch; one that nothing is left of goes."""
        if text := self._found(original_node):
            return cst.ensure_type(cst.parse_statement(text), cst.If).with_changes(
                leading_lines=updated_node.leading_lines
            )
        block = updated_node.body
        empty = isinstance(block, cst.IndentedBlock) and not block.body and updated_node.orelse is None
        return cst.RemoveFromParent() if empty else updated_node
