"""Other methods of the model that call its forward: they get what the authors' forward returns, no output object."""

import ast
from collections.abc import Collection, Mapping, Sequence

import libcst as cst

from omni_kit.targets.diffusers.porting.syntax import argument_text, chain, code, expression


def calls_forward(method: ast.FunctionDef) -> bool:
    """Return whether a method of a model calls the model."""
    called = {ast.unparse(node.func) for node in ast.walk(method) if isinstance(node, ast.Call)}
    return bool(called & {"self.forward", "self"})


class PlainAnswers(cst.CSTTransformer):
    """Calls that ask forward for a tuple and take the value out of it.

    Attributes:
        names: what the authors call an argument of forward -> what it is called here.
        several: forward returns several values: the tuple is what the authors' own returns.
        keys: those of the mapping that the authors' own returns, in the order of the tuple.
        switches: arguments by which a caller gets something else, as it is.
    """

    def __init__(
        self, names: Mapping[str, str], several: bool, switches: Collection[str], keys: Sequence[str] = ()
    ) -> None:
        self.names, self.several, self.switches, self.keys = names, several, switches, keys

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """`self(x, t=t)`, and `self.forward(x, t=t)`."""
        if chain(updated_node.func) not in ("self", "self.forward"):
            return updated_node
        given = []
        for one in updated_node.args:
            name = one.keyword.value if one.keyword is not None else ""
            if name in self.switches or name == "return_dict":
                return updated_node
            given.append(one.with_changes(keyword=cst.Name(self.names.get(name, name))) if name else one)
        asked = [*map(argument_text, given), "return_dict=False"]
        called = f"{code(updated_node.func)}({', '.join(asked)})"
        if self.keys:
            whole = f"dict(zip({tuple(self.keys)!r}, {called}))"
            return expression(whole if len(self.keys) > 1 else f"{{{self.keys[0]!r}: {called}[0]}}")
        return expression(f"{called}{'' if self.several else '[0]'}")

    def leave_Subscript(  # noqa: N802
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        """`self.forward(x, t)["x"]`, of a mapping with this key alone."""
        made = updated_node.value
        same = isinstance(made, cst.Dict) and not isinstance(original_node.value, cst.Dict) and len(self.keys) == 1
        asks = same and code(updated_node)[len(code(made)) :].strip("[]\"' ") == self.keys[0]
        first = made.elements[0] if asks and isinstance(made, cst.Dict) else None
        return first.value if isinstance(first, cst.DictElement) else updated_node
