"""In the precision of what a function receives, where authors cast to the half precision that their model has."""

import libcst as cst

from omni_kit.targets.diffusers.porting.any_device import first_tensor, may_be_tensors
from omni_kit.targets.diffusers.porting.syntax import (
    after_docstring,
    body_of,
    chain,
    code,
    expression,
    names_used,
    statement,
)
from omni_kit.targets.diffusers.porting.visiting import walk
from omni_kit.upstream.repositories.traits import HALVES, IS_HALF

_DTYPES = ("input_dtype", "model_dtype", "given_dtype")


class InAnyPrecision(cst.CSTTransformer):
    """In the precision of what a function receives, where authors cast to the half precision that their model has."""

    def __init__(self) -> None:
        self.given: list[str] = []
        self.halves: list[list[str]] = []  # arguments that are half precision by default
        self.kept = ""
        self.changed = False

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:  # noqa: N802
        """A function in another one has the outer one's."""
        self.halves.append([one.name.value for one in (*node.params.params, *node.params.kwonly_params)
                            if one.default is not None and IS_HALF.match(code(one.default))])  # fmt: skip
        if not self.given:
            self.kept = next(name for name in _DTYPES if name not in names_used(node))
        self.given.append(self.given[0] if self.given else first_tensor(node) or _cast(node))

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:  # noqa: N802
        """Keep the precision from before the argument changes."""
        first = self.given.pop()
        self.halves.pop()
        if self.given or not self.changed:
            return updated_node
        self.changed = False
        body = body_of(updated_node)
        at = after_docstring(body)
        kept = statement(f"{self.kept} = {first}.dtype")
        return updated_node.with_changes(body=cst.IndentedBlock([*body[:at], kept, *body[at:]]))

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """`x.half()`, and `x.to(torch.bfloat16)`."""
        func = updated_node.func
        if not self.given or not self.given[0] or not isinstance(func, cst.Attribute):
            return updated_node
        name, args = func.attr.value, updated_node.args
        if name in HALVES and not args:
            self.changed = True
            return expression(f"{code(func.value)}.to({self.kept})")
        halves = {half for names in self.halves for half in names}
        texts = [code(one.value) for one in args] if name in ("to", "type") else []
        own = [bool(IS_HALF.match(text)) or text in halves for text in texts]
        if not any(own):
            return updated_node
        self.changed = True
        given = [
            one.with_changes(value=cst.Name(self.kept)) if half else one for one, half in zip(args, own, strict=True)
        ]
        return updated_node.with_changes(func=func.with_changes(attr=cst.Name("to")), args=given)


def _cast(node: cst.FunctionDef) -> str:
    """Return the first argument in what a function casts to half precision: `x` of `(norm(x) * y).half()`."""
    calls = [one for one in walk(node.body) if isinstance(one, cst.Call)]
    called = {chain(one.func) for one in calls}
    halved = [one.func for one in calls if isinstance(one.func, cst.Attribute) and _halves(one, one.func.attr.value)]
    cast = [one.value for one in halved]
    read = {one.value for value in cast for one in walk(value) if isinstance(one, cst.Name)}
    return next((name for name in may_be_tensors(node) if name in read - called), "")


def _halves(call: cst.Call, name: str) -> bool:
    return name in HALVES or any(IS_HALF.match(code(one.value)) for one in call.args)
