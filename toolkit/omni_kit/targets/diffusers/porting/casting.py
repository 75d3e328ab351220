"""Without methods that only cast parts of a model to half precision or back: diffusers has `.to(dtype)`."""

from collections.abc import Collection, Sequence

import libcst as cst

from omni_kit.targets.diffusers.porting.parts import Parts
from omni_kit.targets.diffusers.porting.syntax import after_docstring, body_of, chain, code, parameters, with_body
from omni_kit.targets.diffusers.porting.visiting import walk
from omni_kit.upstream.repositories.traits import HALVES

_CASTS = {*HALVES, "float", "double", "to", "type"}
_PRECISION = {"dtype", "torch_dtype", "use_fp16"}


def without_casts(parts: Parts) -> None:
    """Leave out the methods of classes that do nothing else and that nothing else in the file calls."""
    functions = {one.name: one.node for one in parts.parts if isinstance(one.node, cst.FunctionDef)}
    casting = {name for name, node in functions.items() if _only_casts(node, ())}
    bodies = [(part, body_of(part.cls)) for part in parts.parts if part.cls is not None]
    found = [one for _, body in bodies for one in body if isinstance(one, cst.FunctionDef)
             and _only_casts(one, casting)]  # fmt: skip
    rest = [one for _, body in bodies for one in body if one not in found]
    rest += [part.node for part in parts.parts if part.cls is None]
    asked = {one.attr.value for line in rest for one in walk(line) if isinstance(one, cst.Attribute)}
    dropped = [one for one in found if one.name.value not in asked]
    for part, body in bodies:
        if any(one in dropped for one in body):
            assert part.cls is not None
            kept = [one for one in body if one not in dropped]
            part.node = with_body(part.cls, kept or [cst.parse_statement("pass")])


def _only_casts(function: cst.FunctionDef, casting: Collection[str]) -> bool:
    """Return whether a function of one argument, and of a dtype, casts and does nothing else.

    Args:
        casting: functions that do so to a module.
    """
    given = function.params.params
    if not given or function.decorators or not {one.name.value for one in parameters(function)} <= _PRECISION:
        return False
    first = given[0].name.value
    body = body_of(function)
    lines = body[after_docstring(body) :]
    return _all_cast(lines, first, casting) and any(
        _is_cast(one, casting) for line in lines for one in walk(line) if isinstance(one, cst.BaseExpression)
    )


def _all_cast(lines: Sequence[cst.BaseStatement], first: str, casting: Collection[str]) -> bool:
    return all(_line_casts(one, first, casting) for one in lines)


def _line_casts(line: cst.CSTNode | None, first: str, casting: Collection[str]) -> bool:
    match line:
        case None | cst.Pass():
            return True
        case cst.SimpleStatementLine():
            return all(_line_casts(one, first, casting) for one in line.body)
        case cst.If() | cst.For():
            inner = [one for one in line.body.body if isinstance(one, cst.BaseStatement)]
            return _all_cast(inner, first, casting) and _line_casts(line.orelse, first, casting)
        case cst.Else():
            return _all_cast([one for one in line.body.body if isinstance(one, cst.BaseStatement)], first, casting)
        case cst.Expr():
            return _is_cast(line.value, casting)
        case cst.Assign():
            kept = all(isinstance(one.target, cst.Attribute) for one in line.targets)
            return kept and (_is_cast(line.value, casting) or chain(line.value).startswith("torch."))
        case cst.Return():
            return line.value is None or code(line.value) == first
    return False


def _is_cast(node: cst.BaseExpression, casting: Collection[str]) -> bool:
    """`x.half()`, and `self.blocks.apply(to_half)`."""
    if not isinstance(node, cst.Call) or not isinstance(node.func, cst.Attribute):
        return False
    name = node.func.attr.value
    if name == "apply":
        return len(node.args) == 1 and code(node.args[0].value) in casting
    return name in _CASTS
