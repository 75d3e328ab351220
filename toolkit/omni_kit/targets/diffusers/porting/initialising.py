"""Without the authors' initial weights: a checkpoint gives every parameter. What is computed and stored stays."""

import re
from collections.abc import Collection, Sequence

import libcst as cst

from omni_kit.targets.diffusers.porting.parts import Part, Parts
from omni_kit.targets.diffusers.porting.syntax import (
    Removal,
    after_docstring,
    body_of,
    chain,
    code,
    expression,
    method,
    statement,
    with_body,
    with_method,
)
from omni_kit.targets.diffusers.porting.visiting import visited, walk

_INIT = re.compile(r"(^|\.)(init\.\w+_|(trunc_|kaiming_|xavier_|orthogonal_|lecun_)?(normal|uniform|constant)_)$")
_IN_PLACE = re.compile(r"\.(zero|fill|mul|div|copy|normal|uniform|add|clamp)_$")
_DATA = re.compile(r"\.(weight|bias)\.data$")
_APPLY = "self.apply"
_IS_NORM = re.compile(r"(weight|spectral)_norm|parametri[sz]")  # after which layers have other parameters
_NAMED = re.compile(r"^_?(init(ialize|ialise)?|reset)_(weights?|parameters|params)$")


def without_initial_weights(parts: Parts) -> None:
    """Take the statements that give parameters their first values out of every class, and fixes parameters that are
    never trained as buffers.
    """
    others = _initialising(parts)
    for part in parts.parts:
        if part.cls is not None:
            cleaned = with_method(_cleaned(part.cls, others), "__init__", lambda init: visited(init, _WithoutData()))
            part.node = visited(cleaned, _Stored())
        elif isinstance(part.node, cst.FunctionDef) and ".data = " in code(part.node):  # a function that makes layers
            part.node = visited(part.node, _WithoutData())
    gone = others - frozenset[str]().union(*(_attributes(part, others) for part in parts.parts))
    asked = [_attributes(part, gone) for part in parts.parts]
    for at, part in enumerate(parts.parts):
        left = _without_unused(part.cls, frozenset().union(*asked), others) if part.cls is not None else part.node
        if left is not part.node:
            part.node = left
            asked[at] = _attributes(part, gone)


def _initialising(parts: Parts) -> frozenset[str]:
    """Return the names of methods that give parameters their first values, and store nothing, in every class that has
    them: what one class calls of another.
    """
    every = [(one, part.cls) for part in parts.parts if part.cls is not None for one in body_of(part.cls)
             if isinstance(one, cst.FunctionDef) and _NAMED.match(one.name.value)]  # fmt: skip
    names = frozenset(one.name.value for one, _ in every)
    while more := {one.name.value for one, cls in every if one.name.value in names
                   and (_computed(body_of(one)) or not _initialises(one, cls, names))}:  # fmt: skip
        names -= more
    return names


def _cleaned(node: cst.ClassDef, others: frozenset[str]) -> cst.ClassDef:
    init = method(node, "__init__")
    if init is None:
        return node
    body: list[cst.BaseStatement] = []
    for one in body_of(init):
        call = _call(one)
        name = chain(call.func) if call is not None else ""
        own = method(node, name.removeprefix("self.")) if name.startswith("self.") else None
        if call is not None and own is not None and not call.args and _initialises(own, node, others):
            body += _computed(body_of(own))
        elif not _is_initial(one, node, others) or _is_copy(one):
            body.append(one)
    if not body:
        return node
    return with_method(node, "__init__", lambda one: one.with_changes(body=cst.IndentedBlock(body)))


def _call(node: cst.CSTNode) -> cst.Call | None:
    """Return the call that a statement is."""
    small = node.body[0] if isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1 else None
    value = small.value if isinstance(small, cst.Expr) else None
    return value if isinstance(value, cst.Call) else None


def _initialises(own: cst.FunctionDef, node: cst.ClassDef, others: frozenset[str]) -> bool:
    """Return whether a method does nothing but give parameters their first values, itself or with `others`."""
    text = code(own)
    if _IS_NORM.search(text):
        return False
    rest = body_of(own)[after_docstring(body_of(own)) :]
    others |= {one.name.value for one in rest if isinstance(one, cst.FunctionDef)
               and all(_is_first(inner, node, others) for inner in body_of(one))}  # fmt: skip
    return ("init" in text or _APPLY in text) and bool(rest) and all(_is_first(one, node, others) for one in rest)


def _is_first(one: cst.CSTNode, node: cst.ClassDef, others: frozenset[str]) -> bool:
    """Return whether a statement gives a parameter a value, or prepares one."""
    if isinstance(one, cst.FunctionDef):
        return True
    if isinstance(one, cst.If):
        other = one.orelse
        return all(_is_first(inner, node, others) for inner in _inner(one)) and (
            other is None or _is_first(other, node, others)
        )
    if isinstance(one, cst.For | cst.With | cst.Else):
        return all(_is_first(inner, node, others) for inner in _inner(one))
    if isinstance(one, cst.SimpleStatementLine):
        small = one.body[0]
        plain = isinstance(small, cst.Assign) and all(isinstance(t.target, cst.Name) for t in small.targets)
        return plain or isinstance(small, cst.Pass | cst.Raise | cst.Assert) or _is_initial(one, node, others)
    return False


def _inner(node: cst.If | cst.For | cst.With | cst.Else) -> Sequence[cst.CSTNode]:
    return node.body.body


def _is_initial(one: cst.CSTNode, node: cst.ClassDef, others: frozenset[str]) -> bool:
    """Return whether a statement is a call that gives a parameter a value."""
    if isinstance(one, cst.If | cst.For | cst.With):
        return _is_first(one, node, others) and any(
            _is_initial(inner, node, others) for inner in walk(one) if inner is not one
        )
    call = _call(one)
    name = _name(call.func) if call is not None else ""
    if call is None or not name:
        return False
    of_another = name.count(".") != 1 or not name.startswith("self.")
    if of_another and name.rpartition(".")[2] in others:
        return True
    if name == _APPLY:
        given = chain(call.args[0].value) if call.args else ""
        if _IS_NORM.search(given):
            return False
        own = method(node, given.removeprefix("self.")) if given.startswith("self.") else None
        return own is None or _initialises(own, node, others)
    own = method(node, name.removeprefix("self.")) if name.startswith("self.") and name.count(".") == 1 else None
    if own is not None:
        return own is not method(node, "__init__") and name != "self.forward" and _initialises(own, node, others)
    return bool(
        _INIT.search(name) or (_IN_PLACE.search(name) and ("weight" in name or "bias" in name or "data" in name))
    )


def _name(node: cst.CSTNode) -> str:
    """The dotted name of what is called, whatever is subscripted on the way."""
    if isinstance(node, cst.Attribute):
        base = _name(node.value)
        return f"{base}.{node.attr.value}" if base else ""
    if isinstance(node, cst.Subscript):
        return _name(node.value)
    if isinstance(node, cst.Call):
        return _name(node.func)
    return node.value if isinstance(node, cst.Name) else ""


def _is_copy(one: cst.CSTNode) -> bool:
    call = _call(one)
    return call is not None and bool(re.fullmatch(r"self\.\w+(\.data)?\.copy_", chain(call.func)))


def _computed(body: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
    """Return the statements that store what is computed, positions say, with what they need."""
    kept: list[cst.BaseStatement] = []
    needed: set[str] = set()
    for one in reversed(body):
        small = one.body[0] if isinstance(one, cst.SimpleStatementLine) else None
        targets = {name.value for target in small.targets for name in walk(target) if isinstance(name, cst.Name)} \
            if isinstance(small, cst.Assign) else set()  # fmt: skip
        if (
            _is_copy(one)
            or targets & needed
            or (isinstance(one, cst.If) and any(_is_copy(inner) for inner in walk(one)))
        ):
            kept.insert(0, one)
            needed |= {name.value for name in walk(one) if isinstance(name, cst.Name)}
    return kept


class _WithoutData(Removal):
    """Without `layer.weight.data = ...`: while weights are loaded, parameters take no data of another device."""

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        """Return the statement, unless it sets the data of a weight or a bias."""
        small = updated_node.body[0]
        sets = isinstance(small, cst.Assign) and all(_DATA.search(code(one.target)) for one in small.targets)
        return cst.RemoveFromParent() if sets else updated_node


class _Stored(cst.CSTTransformer):
    """Parameters that are never trained are buffers; those whose first values are gone begin with zeros."""

    def __init__(self) -> None:
        self.buffers: set[str] = set()

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:  # noqa: N802
        """Make what is None before it becomes a buffer one from the beginning: a plain attribute cannot become one."""
        return visited(updated_node, _NoneFirst(self.buffers)) if self.buffers else updated_node

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement:
        """`self.x = nn.Parameter(..., requires_grad=False)`."""
        small = updated_node.body[0]
        if not isinstance(small, cst.Assign) or not isinstance(call := small.value, cst.Call):
            return updated_node
        target = chain(small.targets[0].target)
        given = {one.keyword.value: one.value for one in call.args if one.keyword is not None}
        fixed = "requires_grad" in given and code(given["requires_grad"]) == "False"
        if chain(call.func) != "nn.Parameter" or not fixed or not re.fullmatch(r"self\.\w+", target):
            return updated_node
        self.buffers.add(target)
        value = given.get("data") or call.args[0].value
        made = statement(f'self.register_buffer("{target.removeprefix("self.")}", {code(value)}, persistent=True)')
        return made.with_changes(leading_lines=updated_node.leading_lines)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """`nn.Parameter(torch.empty(...))`."""
        inner = updated_node.args[0].value if updated_node.args else None
        if chain(updated_node.func) != "nn.Parameter" or not isinstance(inner, cst.Call):
            return updated_node
        if chain(inner.func) not in ("torch.empty", "torch.Tensor"):
            return updated_node
        if chain(inner.func) == "torch.Tensor" and any(isinstance(one.value, cst.List) for one in inner.args):
            return updated_node  # of values, and of no shape
        zeros = inner.with_changes(func=expression("torch.zeros"))
        return updated_node.with_changes(args=[updated_node.args[0].with_changes(value=zeros), *updated_node.args[1:]])


class _NoneFirst(cst.CSTTransformer):
    def __init__(self, buffers: Collection[str]) -> None:
        self.buffers = buffers

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement:
        """`self.x = None`."""
        small = updated_node.body[0]
        if not isinstance(small, cst.Assign) or code(small.value) != "None":
            return updated_node
        target = chain(small.targets[0].target)
        if target not in self.buffers:
            return updated_node
        made = statement(f'self.register_buffer("{target.removeprefix("self.")}", None)')
        return made.with_changes(leading_lines=updated_node.leading_lines)


def _without_unused(node: cst.ClassDef, asked: Collection[str], others: frozenset[str]) -> cst.ClassDef:
    """Return the class without methods that gave first values, where nobody asks for them any more."""
    body = [one for one in body_of(node) if not (
        isinstance(one, cst.FunctionDef) and one.name.value not in asked and one.name.value != "__init__"
        and _initialises(one, node, others)
    )]  # fmt: skip
    return with_body(node, body) if len(body) < len(body_of(node)) else node


def _attributes(part: Part, gone: Collection[str]) -> set[str]:
    """Return the attributes that a part reads or calls, in methods other than those that are gone."""
    nodes = body_of(part.cls) if part.cls is not None else [part.node]
    left = [one for one in nodes if not (isinstance(one, cst.FunctionDef) and one.name.value in gone)]
    heads = [*part.cls.bases, *part.cls.decorators] if part.cls is not None else []
    return {inner.attr.value for one in (*left, *heads, *part.before) for inner in walk(one)
            if isinstance(inner, cst.Attribute)}  # fmt: skip
