"""On any device: that of what a function receives, or of the model as it is built, where authors say a GPU."""

import ast
import re
from collections.abc import Collection, Mapping, Sequence

import libcst as cst

from omni_kit.pysource.source import dotted
from omni_kit.targets.diffusers.porting.parts import Parts
from omni_kit.targets.diffusers.porting.syntax import after_docstring, body_of, chain, code, expression, statement
from omni_kit.targets.diffusers.porting.visiting import walk
from omni_kit.upstream.repositories.gpu_facts import OF_PROPERTIES, PROPERTIES, WITHOUT_GPU
from omni_kit.upstream.repositories.traits import NEEDS_GPU

_KERNELS = re.compile(r"^([\w.]+\.)?sdpa?_kernel\(")
_OF_GPU = re.compile(r"^torch\.cuda\.(nvtx\.\w+|synchronize|empty_cache|ipc_collect|reset_(peak|max)_\w+)$")
_STREAM, _THIS_STREAM = "torch.cuda.Stream", "torch.cuda.current_stream("
_AVAILABLE = "torch.cuda.is_available()"
_PLACED = re.compile(r"^(cpu|mps|cuda(:\d+)?)$")
_TENSORS = re.compile(r"^torch\.cuda\.(\w+Tensor)$")
_DEVICE, _INDEX = "device", ".get_device()"
_FACTORIES = frozenset(
    f"torch.{name}" for name in ("arange", "linspace", "logspace", "zeros", "ones", "full", "eye", "tensor")
)
_OF_TENSORS = frozenset({"shape", "size", "dim", "ndim", "unsqueeze", "squeeze", "view", "reshape", "permute"})
_OF_FLOATS = "torch.Tensor"  # which takes no other device than the CPU
_PLACES = re.compile(r"\b(device|to|cuda|cpu|type_as|register_buffer|\w+_like|new_\w+)\b")
# What raises where there is no GPU -> what it is there.
_FACTS: Mapping[str, object] = {name: value for name, value in WITHOUT_GPU.items() if ".get_" in name} | {_STREAM: None}


def device_names(parts: Parts) -> frozenset[str]:
    """Return the names that the file gives to a GPU at its top level, also where it is one only if there is one."""
    nodes = (one for part in parts.parts if not isinstance(part.node, cst.ClassDef | cst.FunctionDef)
             for one in walk(part.node))  # fmt: skip
    found: dict[str, list[bool]] = {}
    for one in nodes:
        if isinstance(one, cst.Assign) and len(one.targets) == 1:
            found.setdefault(code(one.targets[0].target), []).append(_is_gpu(one.value, ()))
    return frozenset(name for name, gpus in found.items() if any(gpus))


class OnAnyDevice(cst.CSTTransformer):
    """On the device of what a function receives, or of the model as it is built.

    Args:
        names: what the file calls a GPU.
    """

    def __init__(self, names: Collection[str] = ()) -> None:
        self.names = frozenset(names)
        self.own = list[frozenset[str]]()  # attributes of the classes around, and arguments of the functions
        self.given: list[str] = []
        self.bare: list[bool] = []  # whether a function around is a forward that places nothing
        self.guards = 0

    def visit_ClassDef(self, node: cst.ClassDef) -> None:  # noqa: N802
        """Note the attributes that hold a GPU: `self.device = torch.device("cuda")`."""
        default = {name for one in body_of(node) if isinstance(one, cst.FunctionDef) for name in self._by_default(one)}
        held = (one for one in walk(node) if isinstance(one, cst.Assign) and self._is_gpu(one.value, default))
        self.own.append(frozenset(name for one in held if (name := code(one.targets[0].target)).startswith("self.")))

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:  # noqa: N802
        """Its attributes are gone."""
        self.own.pop()
        return updated_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:  # noqa: N802
        """The first argument that is used as a tensor is one."""
        self.given.append(first_tensor(node) or _beside_gpu(node))
        self.bare.append(node.name.value == "forward" and _is_tensor(self.given[-1], node) and not _places(node))

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:  # noqa: N802
        """Its argument is gone. A GPU by default is the device of that argument."""
        first, _ = self.given.pop(), self.bare.pop()
        if not (named := self._by_default(updated_node)):
            return updated_node
        changed = updated_node.with_changes(params=updated_node.params.visit(_NullByDefault(named)))
        lines = [statement(f"{name} = {first}.device if {name} is None else {name}") for name in named if first]
        body = body_of(changed)
        at = after_docstring(body)
        return changed.with_changes(body=cst.IndentedBlock([*body[:at], *lines, *body[at:]]))

    def visit_If(self, node: cst.If) -> None:  # noqa: N802
        """Code after a look whether there is a GPU stays as it is."""
        self.guards += _AVAILABLE in code(node.test)

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If:  # noqa: N802
        """Return the branch."""
        self.guards -= _AVAILABLE in code(original_node.test)
        return updated_node

    def visit_IfExp(self, node: cst.IfExp) -> None:  # noqa: N802
        """See `visit_If`."""
        self.guards += _AVAILABLE in code(node.test)

    def leave_IfExp(self, original_node: cst.IfExp, updated_node: cst.IfExp) -> cst.IfExp:  # noqa: N802
        """Return the choice."""
        self.guards -= _AVAILABLE in code(original_node.test)
        return updated_node

    def visit_BooleanOperation(self, node: cst.BooleanOperation) -> None:  # noqa: N802
        """See `visit_If`."""
        self.guards += _AVAILABLE in code(node.left)

    def leave_BooleanOperation(  # noqa: N802
        self, original_node: cst.BooleanOperation, updated_node: cst.BooleanOperation
    ) -> cst.BooleanOperation:
        """Return both sides."""
        self.guards -= _AVAILABLE in code(original_node.left)
        return updated_node

    def leave_Expr(  # noqa: N802
        self, original_node: cst.Expr, updated_node: cst.Expr
    ) -> cst.Expr | cst.RemovalSentinel:
        """Without marks for a profiler and without waiting for a GPU."""
        called = updated_node.value.func if isinstance(updated_node.value, cst.Call) else updated_node.value
        return cst.RemoveFromParent() if _OF_GPU.match(chain(called)) else updated_node

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.BaseStatement:
        """Calls of a GPU's stream run where there is a GPU."""
        text = code(updated_node).strip()
        return statement(f"if {_AVAILABLE}:\n    {text}") if text.startswith(_THIS_STREAM) else updated_node

    def leave_With(  # noqa: N802
        self, original_node: cst.With, updated_node: cst.With
    ) -> cst.With | cst.FlattenSentinel[cst.BaseStatement]:
        """Without a choice among torch's kernels of attention, of which most are on a GPU alone."""
        kept = [one for one in updated_node.items if not _KERNELS.search(code(one.item))]
        if kept or not isinstance(updated_node.body, cst.IndentedBlock):
            same = len(kept) == len(updated_node.items)
            return updated_node if same else updated_node.with_changes(items=[*kept[:-1], _last(kept[-1])])
        return cst.FlattenSentinel(updated_node.body.body)

    def leave_Assert(  # noqa: N802
        self, original_node: cst.Assert, updated_node: cst.Assert
    ) -> cst.Assert | cst.RemovalSentinel:
        """Without what it says of a GPU."""
        parts = [one for one in _conjuncts(updated_node.test) if not NEEDS_GPU.search(code(one))]
        if not parts:
            return cst.RemoveFromParent()
        if len(parts) == len(_conjuncts(updated_node.test)):
            return updated_node
        return updated_node.with_changes(test=expression(" and ".join(map(code, parts))))

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:  # noqa: N802
        """`device = x.device` for `device = torch.device("cuda")`, and null where there is no `x`."""
        if not self.given or not self._is_gpu(updated_node.value):
            return updated_node
        return updated_node.with_changes(value=expression(self._here or "None"))

    def leave_Attribute(  # noqa: N802
        self, original_node: cst.Attribute, updated_node: cst.Attribute
    ) -> cst.BaseExpression:
        """`torch.FloatTensor` for `torch.cuda.FloatTensor`; properties of a GPU where there is one."""
        if found := _TENSORS.match(chain(updated_node)):
            return expression(f"torch.{found[1]}")
        asked = updated_node.value.func if isinstance(updated_node.value, cst.Call) else None
        name = updated_node.attr.value
        of_gpu = asked is not None and chain(asked) == PROPERTIES and name in OF_PROPERTIES and not self.guards
        return _if_there_is_one(updated_node, OF_PROPERTIES[name]) if of_gpu else updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """`x.cuda()`, `x.to("cuda")`, `device="cuda"`, facts of a GPU, and tensors that a forward makes on a CPU."""
        func = updated_node.func
        if self.bare and self.bare[-1] and self._here and (made := _made_here(updated_node, self._here)) is not None:
            return made
        if (name := chain(func)) in _FACTS:
            return updated_node if self.guards else _if_there_is_one(updated_node, _FACTS[name])
        if not isinstance(func, cst.Attribute) or chain(func.value) == "torch.cuda" or chain(func) == "torch.cuda":
            return self._placed(updated_node)
        if func.attr.value == "cuda":
            return expression(f"{code(func.value)}.to({self._here})") if self._here else func.value
        placed = self._placed(updated_node, moves=func.attr.value == "to")
        return placed if placed.args or not updated_node.args else func.value

    @property
    def _here(self) -> str:
        return f"{self.given[-1]}.device" if self.given and self.given[-1] else ""

    def _placed(self, call: cst.Call, moves: bool = False) -> cst.Call:
        """Return a call without a GPU among its arguments, of those of `to` also without its name."""
        given: list[cst.Arg] = []
        for at, one in enumerate(call.args):
            is_device = one.keyword.value == _DEVICE if one.keyword is not None else moves and at == 0
            if is_device and code(one.value).endswith(_INDEX):
                given.append(one.with_changes(value=expression(code(one.value).replace(_INDEX, ".device"))))
            elif not is_device or not self._is_gpu(one.value):
                given.append(one)
            elif self._here:
                given.append(one.with_changes(value=expression(self._here)))
        if len(given) == len(call.args) and all(a is b for a, b in zip(given, call.args, strict=True)):
            return call
        if given:
            given[-1] = given[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return call.with_changes(args=given)

    def _by_default(self, node: cst.FunctionDef) -> list[str]:
        """Return the arguments that are a GPU by default."""
        given = (*node.params.params, *node.params.kwonly_params)
        return [one.name.value for one in given if one.default is not None and self._is_gpu(one.default)]

    def _is_gpu(self, node: cst.BaseExpression, names: Collection[str] = ()) -> bool:
        return _is_gpu(node, self.names.union(names, *self.own))


def _places(node: cst.FunctionDef) -> bool:
    return _PLACES.search(code(node.body)) is not None


def _is_tensor(name: str, node: cst.FunctionDef) -> bool:
    """Return whether a function asks an argument for what only tensors have."""
    return any(isinstance(one, cst.Attribute) and chain(one.value) == name and one.attr.value in _OF_TENSORS
               for one in walk(node.body))  # fmt: skip


def _made_here(call: cst.Call, here: str) -> cst.BaseExpression | None:
    """Return a call that makes a tensor with a device; None for any other call."""
    name, arguments = chain(call.func), ", ".join(code(one).rstrip(", ") for one in call.args)
    if name == _OF_FLOATS and len(call.args) == 1 and isinstance(call.args[0].value, cst.List):
        return expression(f"torch.tensor({arguments}, dtype=torch.float32, {_DEVICE}={here})")
    return expression(f"{name}({arguments}, {_DEVICE}={here})") if name in _FACTORIES and arguments else None


class _NullByDefault(cst.CSTTransformer):
    """Null as the default of arguments."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names

    def leave_Param(self, original_node: cst.Param, updated_node: cst.Param) -> cst.Param:  # noqa: N802
        """Of these names; their annotations allow no null."""
        if updated_node.name.value not in self.names:
            return updated_node
        return updated_node.with_changes(default=expression("None"), annotation=None)


def _if_there_is_one(node: cst.BaseExpression, without: object) -> cst.BaseExpression:
    return expression(f"({code(node)} if {_AVAILABLE} else {without!r})")


def _is_gpu(node: cst.BaseExpression, names: Collection[str]) -> bool:
    """Return whether an expression is a GPU, or one of these names of one; also if only where there is one."""
    text = code(node)
    if "cuda" not in text and text not in names:
        return False
    found = ast.parse(f"({text})", mode="eval").body
    return _place(found, names) and (text in names or "cuda" in text)


def _place(node: ast.expr, names: Collection[str]) -> bool:
    """Return whether an expression is a device by name."""
    match node:
        case ast.Constant(value=str(text)):
            return bool(_PLACED.match(text))
        case ast.JoinedStr(values=[ast.Constant(value=str(text)), *_]):
            return text.startswith("cuda")
        case ast.IfExp(body=one, orelse=other):
            return _place(one, names) and _place(other, names)
        case ast.Call(func=called, args=[first, *_]) if dotted(called) == "torch.device":
            return _place(first, names)
        case ast.Call(func=called, args=[]):
            return dotted(called) == "torch.cuda.current_device"
    return ast.unparse(node) in names


def first_tensor(node: cst.FunctionDef) -> str:
    """Return the first argument of a function that is used as a tensor; a constructor has none.

    Something is asked of it, which nothing is of a number; in a forward it may be passed to a part of the module alone.
    """
    nodes = [*walk(node.body)]
    asked = {chain(one.value) for one in nodes if isinstance(one, cst.Attribute)}
    if node.name.value == "forward":
        calls = (one for one in nodes if isinstance(one, cst.Call) and chain(one.func).startswith("self."))
        asked |= {chain(one.value) for call in calls for one in call.args[:1]}
    tensors = [name for name in may_be_tensors(node) if name in asked]
    return tensors[0] if tensors and node.name.value != "__init__" else ""


def _beside_gpu(node: cst.FunctionDef) -> str:
    """Return the first argument with which a function computes what it puts on a GPU: `steps * levels`, after
    `levels = made.cuda()`.
    """
    nodes = [*walk(node.body)]
    there = {code(one.targets[0].target) for one in nodes
             if isinstance(one, cst.Assign) and code(one.value).endswith(".cuda()")}  # fmt: skip
    pairs = [(code(one.left), code(one.right)) for one in nodes if isinstance(one, cst.BinaryOperation)]
    beside = {one for pair in pairs for one, other in (pair, pair[::-1]) if other in there}
    return next((name for name in may_be_tensors(node) if name in beside), "")


def may_be_tensors(node: cst.FunctionDef) -> list[str]:
    """Return the arguments of a function whose annotation, if there is one, allows a tensor."""
    given = node.params.params[1:] if _keeps_for_backward(node) else node.params.params
    return [one.name.value for one in given if _may_be_tensor(one)]


def _keeps_for_backward(node: cst.FunctionDef) -> bool:
    """Return whether the first argument is what torch.autograd.Function hands from forward to backward."""
    static = any(chain(one.decorator) == "staticmethod" for one in node.decorators)
    first = node.params.params[0] if node.params.params else None
    said = code(first.annotation.annotation) if first is not None and first.annotation is not None else ""
    return static and node.name.value in ("forward", "backward") and "Tensor" not in said


def _may_be_tensor(one: cst.Param) -> bool:
    said = code(one.annotation.annotation) if one.annotation is not None else ""
    return one.name.value not in ("self", "cls") and (not said or "Tensor" in said)


def _conjuncts(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the operands of `and`."""
    if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.And):
        return [*_conjuncts(node.left), *_conjuncts(node.right)]
    return [node]


def _last(item: cst.WithItem) -> cst.WithItem:
    return item.with_changes(comma=cst.MaybeSentinel.DEFAULT)
