"""Routers that multiply in float32 although autocast would lower that again.

Autocast casts the inputs of a product whatever the code has cast them to. VeOmni's own integrations disable it there.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from omni_kit.pysource.nodes import calls, last_name, within
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.targets.veomni.text.editing import Edit, span

_LINEAR, _FLOAT32 = "linear", {"torch.float32", "torch.float"}
_SIMPLE = (ast.Assign, ast.AnnAssign, ast.Return, ast.Expr)


@dataclass(frozen=True)
class Product:
    """One product in float32 that autocast can lower.

    Attributes:
        statement: the statement that computes it.
        tensor: the name of a tensor that is multiplied, which tells the device.
    """

    statement: ast.stmt
    tensor: str

    def guarded(self, source: SourceFile) -> Edit:
        """Return the edit that disables autocast around the statement."""
        start, end = span(source, self.statement)
        lines = source.text.encode()[start:end].decode().split("\n")
        body = "\n".join([lines[0], *(line[self.statement.col_offset :] for line in lines[1:])])
        block = "# Modification: autocast would lower a product that upstream computes in float32.\n"
        block += f"with torch.autocast(device_type={self.tensor}.device.type, enabled=False):\n"
        block += "\n".join(f"    {line}" if line.strip() else line for line in body.split("\n"))
        return Edit.lines(source, self.statement, self.statement, block)


def products(function: ast.FunctionDef) -> list[Product]:
    """Return the products in float32 of a function that no `autocast` surrounds."""
    guarded = {id(inner) for block in within(function, ast.With) if _disables(block) for inner in ast.walk(block)}
    found = []
    for statement in within(function, *_SIMPLE):
        for call in calls(statement, _LINEAR):
            tensor = _tensor(call)
            if id(call) not in guarded and tensor:
                found.append(Product(statement, tensor))
    return found


def _disables(block: ast.With) -> bool:
    return any(
        isinstance(item.context_expr, ast.Call) and "autocast" in (last_name(item.context_expr.func) or "")
        for item in block.items
    )


def _tensor(call: ast.Call) -> str:
    """Return the name of the input of a product of which every factor is cast to float32; empty for another product."""
    factors = [*call.args[:2], *(one.value for one in call.keywords if one.arg in ("input", "weight"))]
    if len(factors) != 2 or not all(_is_cast(one) for one in factors):
        return ""
    first = factors[0]
    while isinstance(first, ast.Call | ast.Attribute | ast.Subscript):
        first = first.func if isinstance(first, ast.Call) else first.value
    return first.id if isinstance(first, ast.Name) and first.id not in ("self", "torch") else ""


def _is_cast(node: ast.expr) -> bool:
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    given = {dotted(one) for one in (*node.args, *(keyword.value for keyword in node.keywords))}
    return node.func.attr == "float" or (node.func.attr in ("type", "to") and bool(given & _FLOAT32))


def guarded_methods(source: SourceFile, owners: list[str]) -> Iterator[tuple[str, ast.FunctionDef]]:
    """Class and method of these classes whose products need a guard."""
    for owner in dict.fromkeys(owners):
        node = source.classes.get(owner)
        for item in node.body if node is not None else ():
            if isinstance(item, ast.FunctionDef) and products(item):
                yield owner, item
