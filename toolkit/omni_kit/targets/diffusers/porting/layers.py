"""The layers of attention under diffusers' names, where they are made and where they are asked for."""

import ast
from collections.abc import Collection, Sequence

import libcst as cst

from omni_kit.targets.diffusers.porting.projections import IN_TURN, Order, Projections
from omni_kit.targets.diffusers.porting.syntax import chain, code, expression, own_attribute, statement, with_method
from omni_kit.targets.diffusers.porting.visiting import visited

_PARTS = ("to_q", "to_k", "to_v")


def with_layers(node: cst.ClassDef, found: Projections) -> cst.ClassDef:
    """Return the class with its layers under diffusers' names."""
    node = with_method(node, "__init__", lambda init: _renamed_init(init, found))
    node = visited(node, Layers(found))
    dropout = _dropout(node) if found.out else None
    return visited(node, _WithDropout(*dropout)) if dropout is not None else node


def _dropout(node: cst.ClassDef) -> tuple[str, str] | None:
    """Return the dropout right behind the layer that takes the answer, and its share."""
    tree = ast.parse(code(node))
    made = {ast.unparse(one.targets[0]): one.value for one in ast.walk(tree)
            if isinstance(one, ast.Assign) and isinstance(one.value, ast.Call)
            and ast.unparse(one.value.func) == "nn.Dropout" and len(one.value.args) == 1}  # fmt: skip
    asked = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and ast.unparse(one.func) in made]
    if len(asked) != 1 or len(asked[0].args) != 1:
        return None
    name, given = ast.unparse(asked[0].func), ast.unparse(asked[0].args[0])
    before = [one for one in ast.walk(tree) if isinstance(one, ast.Assign) and one.lineno < asked[0].lineno
              and ast.unparse(one.targets[0]) == given]  # fmt: skip
    answer = ast.unparse(before[-1].value) if before else given
    read = sum(isinstance(one, ast.Attribute) and ast.unparse(one) == name for one in ast.walk(tree))
    share = made[name]
    assert isinstance(share, ast.Call)
    return (name, ast.unparse(share.args[0])) if answer.startswith("self.to_out[1]") and read == 2 else None


class _WithDropout(cst.CSTTransformer):
    """The dropout as the second of the layers that take the answer."""

    def __init__(self, name: str, share: str) -> None:
        self.name, self.share = name, share

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        """Remove its construction, and assignments of a variable to itself."""
        small = original_node.body[0]
        target = code(small.targets[0].target) if isinstance(small, cst.Assign) else ""
        changed = updated_node.body[0]
        same = isinstance(changed, cst.Assign) and small is not changed and code(changed.value) == target
        return cst.RemoveFromParent() if target and (target == self.name or same) else updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """Replace a call of it by its argument."""
        if code(original_node.func) == self.name:
            return updated_node.args[0].value
        if code(updated_node) == "nn.Dropout(0.0)":
            return expression(f"nn.Dropout({self.share})")
        return updated_node


def _renamed_init(init: cst.FunctionDef, found: Projections) -> cst.FunctionDef:
    return visited(init, _Made(found))


class _Made(cst.CSTTransformer):
    """The statements that make layers."""

    def __init__(self, found: Projections) -> None:
        self.found = found

    def leave_SimpleStatementLine(  # noqa: N802
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> "cst.SimpleStatementLine | cst.FlattenSentinel[cst.SimpleStatementLine]":
        """Return one fused layer becomes three, and what takes the answer gets a dropout behind it."""
        small = updated_node.body[0]
        if not isinstance(small, cst.Assign) or not (name := own_attribute(small.targets[0].target)):
            return updated_node
        parts = {self.found.fused: _PARTS, self.found.paired: _PARTS[1:]}.get(name)
        if parts is not None and isinstance(small.value, cst.Call):
            single = code(visited(small.value, _Part(str(len(parts)))))
            lines = [statement(f"self.{part} = {single}") for part in parts]
            first = lines[0].with_changes(leading_lines=updated_node.leading_lines)
            return cst.FlattenSentinel([first, *lines[1:]])  # type: ignore[list-item]
        if name == self.found.out:
            made = f"self.to_out = nn.ModuleList([{code(small.value)}, nn.Dropout(0.0)])"
            return statement(made).with_changes(leading_lines=updated_node.leading_lines)  # type: ignore[return-value]
        return updated_node


def _joined(order: Order, parts: Sequence[str]) -> str:
    """Queries, keys and values as the fused layer gave them."""
    if order.in_turn:
        return f"torch.cat([{', '.join(parts)}], dim=-1)"
    if order.innermost:
        return f"torch.stack([{', '.join(parts)}], dim=-1).flatten(-2)"
    heads, size = (ast.unparse(one) if one is not None else "-1" for one in (order.heads, order.size))
    sizes = f"({heads}, {size})"
    grouped = ", ".join(f"{part}.unflatten(-1, {sizes})" for part in parts)
    return f"torch.stack([{grouped}], dim=-2).flatten(-3)"


class _Part(cst.CSTTransformer):
    """A width without its factor of three, or two: only the layer's own second argument has one."""

    def __init__(self, times: str) -> None:
        self.times = times

    def leave_Arg(self, original_node: cst.Arg, updated_node: cst.Arg) -> cst.Arg:  # noqa: N802
        """Simplify that argument."""
        return updated_node.with_changes(value=_without(updated_node.value, self.times))


def _without(node: cst.BaseExpression, times: str) -> cst.BaseExpression:
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, cst.Multiply):
        return node
    for one, other in ((node.left, node.right), (node.right, node.left)):
        if isinstance(one, cst.Integer) and one.value == times:
            return other
    left = _without(node.left, times)
    return (
        node.with_changes(left=left) if left is not node.left else node.with_changes(right=_without(node.right, times))
    )


class Layers(cst.CSTTransformer):
    """Renames the layers where they are used.

    Args:
        holders: whose they are: `self`, or what holds the module that has them.
    """

    def __init__(self, found: Projections, holders: Collection[str] = ("self",)) -> None:
        self.found, self.holders = found, holders

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> cst.BaseExpression:  # noqa: N802
        """Return a layer with another name."""
        _, name = self._layer(updated_node)
        return (
            updated_node.with_changes(attr=cst.Name(self.found.renamed[name]))
            if name in self.found.renamed
            else updated_node
        )

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.BaseSmallStatement:  # noqa: N802
        """`q, k, v = self.qkv(x).chunk(3, dim=-1)` needs no joining."""
        value, target = original_node.value, updated_node.targets[0].target
        chunked = (
            isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute) and value.func.attr.value == "chunk"
        )
        plain = chunked and self.found.order.in_turn
        if not plain or not isinstance(target, cst.Tuple) or len(target.elements) != 3:
            return updated_node
        assert isinstance(value, cst.Call)
        assert isinstance(value.func, cst.Attribute)
        inner = value.func.value
        holder, name = self._layer(inner.func) if isinstance(inner, cst.Call) else ("", "")
        if not isinstance(inner, cst.Call) or not name or name != self.found.fused:
            return updated_node
        return updated_node.with_changes(value=expression(", ".join(_each(holder, _PARTS, inner))))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """Return the fused layer, and the one that takes the answer."""
        holder, name = self._layer(original_node.func)
        if name and name == self.found.fused:
            return expression(_joined(self.found.order, _each(holder, _PARTS, updated_node)))
        if name and name == self.found.paired:
            return expression(_joined(IN_TURN, _each(holder, _PARTS[1:], updated_node)))
        if name and name == self.found.out:
            (inner,) = _each(holder, ["to_out[0]"], updated_node)
            return expression(f"{holder}.to_out[1]({inner})")
        return updated_node

    def _layer(self, node: cst.CSTNode) -> tuple[str, str]:
        """Return whose a layer is, and its name."""
        if not isinstance(node, cst.Attribute) or (holder := chain(node.value)) not in self.holders:
            return "", ""
        return holder, node.attr.value


def _each(holder: str, layers: Sequence[str], call: cst.Call) -> list[str]:
    """Return calls of layers with the arguments of another call."""
    given = ", ".join(code(one) for one in call.args)
    return [f"{holder}.{one}({given})" for one in layers]
