"""torch's kernel of attention becomes the library's dispatch, which is told the backend."""

from collections.abc import Collection, Mapping
from itertools import pairwise

import libcst as cst

from omni_kit.targets.diffusers.porting.parts import Parts
from omni_kit.targets.diffusers.porting.syntax import Renamed, chain, code, expression
from omni_kit.targets.diffusers.porting.visiting import visited, walk
from omni_kit.upstream.repositories.attention import SDPA

BACKEND = "backend={0}._attention_backend, parallel_config={0}._parallel_config"
DISPATCH = "dispatch_attention_fn"
_NAMESAKES = {"backend": "kernel", "parallel_config": "parallel"}
_OWN = "self."  # methods of the authors' may have the name of torch's function
_HEADS_FIRST = "transpose(1, 2)"
_SINGLE = {f".unsqueeze(1).{_HEADS_FIRST}": ".unsqueeze(2)", f".{_HEADS_FIRST}.squeeze(1)": ".squeeze(2)"}


def without_namesakes(parts: Parts, functions: Collection[str]) -> None:
    """Give other names to arguments of functions that have those by which the file passes a backend on."""
    changed: dict[str, set[str]] = {}
    for part in parts.parts:
        if isinstance(part.node, cst.FunctionDef) and part.name in functions:
            given = part.node.params
            named = {one.name.value for one in (*given.params, *given.kwonly_params)}
            if own := {*_NAMESAKES} if given.star_kwarg is not None else named & _NAMESAKES.keys():
                changed[part.name] = own
                part.node = visited(part.node, Renamed({name: _NAMESAKES[name] for name in own}))
    for part in parts.parts if changed else ():
        part.node = visited(part.node, _Passed(changed))


class _Passed(cst.CSTTransformer):
    """Passes arguments of functions by their other names."""

    def __init__(self, changed: Mapping[str, Collection[str]]) -> None:
        self.changed = changed

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:  # noqa: N802
        """Return the call."""
        own = self.changed.get(chain(updated_node.func), ())
        names = [one.keyword.value if one.keyword is not None else "" for one in updated_node.args]
        args = [one.with_changes(keyword=cst.Name(_NAMESAKES[name])) if name in own else one
                for name, one in zip(names, updated_node.args, strict=True)]  # fmt: skip
        return updated_node.with_changes(args=args) if own else updated_node


class Dispatched(cst.CSTTransformer):
    """Puts the library's dispatch instead of torch's kernel, and tells functions that compute the backend.

    Args:
        functions: those that compute attention, as they are written.
        holder: what has the backend, where the code stands.
    """

    def __init__(self, functions: set[str], given: str) -> None:
        self.functions = functions
        self.given = given

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """Heads stand before tokens in torch, and behind them here."""
        name = chain(updated_node.func)
        if name in self.functions:
            return _with_arguments(updated_node, self.given)
        if not name.endswith(SDPA) or name.startswith(_OWN):
            return updated_node
        plain = [one for one in updated_node.args if one.keyword is None]
        turned = [_turned(one) for one in updated_node.args[:3]]  # by place, or as query, key and value
        names = ("attn_mask", "dropout_p", "is_causal")
        rest = [one.with_changes(keyword=cst.Name(name)) for one, name in zip(plain[3:], names, strict=False)]
        named = [one for one in updated_node.args[3:] if one.keyword is not None]
        called = updated_node.with_changes(func=cst.Name(DISPATCH), args=[*turned, *rest, *named])
        return expression(f"{code(_with_arguments(called, self.given))}.{_HEADS_FIRST}")

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:  # noqa: N802
        """Unchanged; what is turned twice is seen at the call."""
        return updated_node


class NotTwice(cst.CSTTransformer):
    """`x.transpose(1, 2).transpose(1, 2)` is x; the axis of a single head is put where the dispatch has it."""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """Return the outer of the two, or one that does what both do."""
        inner = updated_node.func.value if isinstance(updated_node.func, cst.Attribute) else None
        if inner is not None and _turns(updated_node) and isinstance(inner, cst.Call) and _turns(inner):
            assert isinstance(inner.func, cst.Attribute)
            return inner.func.value
        if inner is not None and isinstance(inner, cst.Call) and isinstance(inner.func, cst.Attribute):
            whole = code(updated_node)
            for two, one in _SINGLE.items():
                if whole.endswith(two):
                    return expression(f"{whole.removesuffix(two)}{one}")
        return updated_node

    def leave_IndentedBlock(  # noqa: N802
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        """Return a block in which no statement turns what only the next one takes, and turns back."""
        body = list(updated_node.body)
        for at, (one, other) in enumerate(pairwise(body)):
            name = _turned_variable(one)
            if name and _ends(other, name):
                body[at] = visited(one, _Straight())
                body[at + 1] = visited(other, _Straight(name))
        return updated_node.with_changes(body=body)


class _Straight(cst.CSTTransformer):
    """Without the turn of a variable; without the outermost one of a statement's value where no variable is named."""

    def __init__(self, name: str = "") -> None:
        self.name = name

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:  # noqa: N802
        """Return the assignment."""
        value = updated_node.value
        if self.name or not isinstance(value, cst.Call) or not isinstance(value.func, cst.Attribute):
            return updated_node
        return updated_node.with_changes(value=value.func.value)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """Return the variable itself."""
        turned = isinstance(updated_node.func, cst.Attribute) and code(updated_node) == f"{self.name}.{_HEADS_FIRST}"
        return cst.Name(self.name) if self.name and turned else updated_node


def _turned_variable(one: cst.BaseStatement) -> str:
    """Return the variable to which a statement assigns the turned result of the dispatch; empty for any other."""
    small = one.body[0] if isinstance(one, cst.SimpleStatementLine) and len(one.body) == 1 else None
    if not isinstance(small, cst.Assign) or len(small.targets) != 1 or not isinstance(small.value, cst.Call):
        return ""
    inner = small.value.func.value if isinstance(small.value.func, cst.Attribute) else None
    dispatched = isinstance(inner, cst.Call) and chain(inner.func) == DISPATCH
    return chain(small.targets[0].target) if dispatched and _turns(small.value) else ""


def _ends(one: cst.BaseStatement, name: str) -> bool:
    """Return whether a statement turns a variable, and nothing reads it as it was any more."""
    small = one.body[0] if isinstance(one, cst.SimpleStatementLine) and len(one.body) == 1 else None
    assigned = isinstance(small, cst.Assign) and [chain(target.target) for target in small.targets] == [name]
    if "." in name or not (assigned or isinstance(small, cst.Return)):
        return False
    nodes = [*walk(small.value)] if isinstance(small, cst.Assign | cst.Return) and small.value is not None else []
    read = sum(isinstance(node, cst.Name) and node.value == name for node in nodes)
    return read == 1 and any(isinstance(node, cst.Call) and code(node) == f"{name}.{_HEADS_FIRST}" for node in nodes)


def _turns(call: cst.Call) -> bool:
    given = ", ".join(code(one.value) for one in call.args)
    return isinstance(call.func, cst.Attribute) and f"{call.func.attr.value}({given})" == _HEADS_FIRST


def _turned(argument: cst.Arg) -> cst.Arg:
    value = argument.value
    whole = (
        f"({code(value)})" if isinstance(value, cst.BinaryOperation | cst.UnaryOperation | cst.IfExp) else code(value)
    )
    return argument.with_changes(value=expression(f"{whole}.{_HEADS_FIRST}"))


def _with_arguments(call: cst.Call, given: str) -> cst.Call:
    more = cst.parse_expression(f"f({given})")
    assert isinstance(more, cst.Call)
    args = [one.with_changes(comma=cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))) for one in call.args]
    return call.with_changes(args=[*args, *more.args])
