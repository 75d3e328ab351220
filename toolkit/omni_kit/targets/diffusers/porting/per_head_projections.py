"""Queries, keys and values each with heads of its own, where a fused layer's answer was cut up as a whole."""

import ast
import re

import libcst as cst

from omni_kit.targets.diffusers.porting.syntax import code, names_used, statement
from omni_kit.targets.diffusers.porting.visiting import visited

_JOINED = re.compile(r"torch\.cat\(\[(.*)\], dim=-1\)$", re.DOTALL)
_TURN = ".transpose(1, 2)"
_THREE = 3
_ORDER = "permute(2, 0, 3, 1, 4)"


class HeadsApart(cst.CSTTransformer):
    """`qkv = cat([q, k, v]).reshape(b, n, 3, h, d).permute(2, 0, 3, 1, 4)`, taken apart in the next statement."""

    def leave_IndentedBlock(  # noqa: N802
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        """Return the statements of a function."""
        body = _at_once(list(updated_node.body))
        place = 0
        while place < len(body):
            found = _cut(body[place])
            target, parts, rest = found or ("", [], "")
            names, used = _names(target, body[place + 1 :]) if found else ([], 0)
            if names:
                lines = [statement(f"{name} = {part}{rest}") for name, part in zip(names, parts, strict=True)]
                leading = getattr(body[place], "leading_lines", ())
                body[place : place + 1 + used] = [lines[0].with_changes(leading_lines=leading), *lines[1:]]
            place += 1
        return updated_node.with_changes(body=body)


def _at_once(body: list[cst.BaseStatement]) -> list[cst.BaseStatement]:
    """Return joined answers that have a name for one statement only, without that name."""
    for place in range(len(body) - 1):
        first, second = (_assignment(one) for one in body[place : place + 2])
        if first is None or second is None or not _JOINED.match(code(first.value)):
            continue
        base = second.value
        while isinstance(base, cst.Call) and isinstance(base.func, cst.Attribute):
            base = base.func.value
        name = code(first.targets[0].target)
        again = any(name in names_used(one) for one in body[place + 2 :]) and code(second.targets[0].target) != name
        if isinstance(base, cst.Name) and base.value == name and not again:
            whole = visited(body[place + 1], _Put(base, first.value))
            leading = getattr(body[place], "leading_lines", ())
            return _at_once([*body[:place], whole.with_changes(leading_lines=leading), *body[place + 2 :]])
    return body


def _assignment(node: cst.BaseStatement) -> cst.Assign | None:
    small = node.body[0] if isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1 else None
    return small if isinstance(small, cst.Assign) and len(small.targets) == 1 else None


class _Put(cst.CSTTransformer):
    def __init__(self, place: cst.Name, value: cst.BaseExpression) -> None:
        self.place, self.value = place, value

    def leave_Name(self, original_node: cst.Name, updated_node: cst.Name) -> cst.BaseExpression:  # noqa: N802
        return self.value if original_node is self.place else updated_node


class _Turned(cst.CSTTransformer):
    """Without turning heads in front of tokens and back."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:  # noqa: N802
        """Drop the rearrangement where a variable is assigned."""
        if code(updated_node.targets[0].target) not in self.names:
            return updated_node
        assert isinstance(updated_node.value, cst.Call)
        assert isinstance(updated_node.value.func, cst.Attribute)
        return updated_node.with_changes(value=updated_node.value.func.value)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """Drop the call that reverses it."""
        base = updated_node.func.value if isinstance(updated_node.func, cst.Attribute) else None
        again = isinstance(base, cst.Name) and base.value in self.names and code(updated_node).endswith(_TURN)
        return base if again and base is not None else updated_node


class _Reshaped(cst.CSTTransformer):
    """`reshape` for `view`: what another backend answers may are in memory in another order."""

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:  # noqa: N802
        """Of sizes; a view as another dtype stays."""
        func = updated_node.func
        if not isinstance(func, cst.Attribute) or func.attr.value != "view" or not updated_node.args:
            return updated_node
        if re.search(r"torch\.|dtype", code(updated_node.args[0].value)):
            return updated_node
        return updated_node.with_changes(func=func.with_changes(attr=cst.Name("reshape")))


def _turned_twice(node: cst.CSTNode) -> set[str]:
    """Return the variables that are turned when they are made, and turned back wherever they are read."""
    tree = ast.parse(code(node))
    made = [one for one in ast.walk(tree) if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name)]
    turned = [one.targets[0].id for one in made if ast.unparse(one.value).endswith(_TURN)]  # type: ignore[attr-defined]
    stored = [one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)]
    calls = [one.func.value for one in ast.walk(tree) if isinstance(one, ast.Call)
             and isinstance(one.func, ast.Attribute) and ast.unparse(one).endswith(_TURN)]  # fmt: skip
    back = [one.id for one in calls if isinstance(one, ast.Name)]
    read = [one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)]
    return {name for name in turned if stored.count(name) == 1 and read.count(name) == back.count(name)}


def _cut(node: cst.BaseStatement) -> tuple[str, list[str], str] | None:
    """Return the variable, the three parts, and what makes heads of each, with heads in front of tokens."""
    small = node.body[0] if isinstance(node, cst.SimpleStatementLine) and len(node.body) == 1 else None
    if not isinstance(small, cst.Assign) or len(small.targets) != 1:
        return None
    value, chained = small.value, list[str]()
    while isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute):
        if _JOINED.match(code(value)):
            break
        chained.insert(0, f"{value.func.attr.value}({', '.join(code(one).rstrip(', ') for one in value.args)})")
        value = value.func.value
    chained = [one for one in chained if one != "contiguous()"]
    parts = _parts(code(value))
    if len(chained) < 2 or chained[1] != _ORDER or len(parts) != _THREE:
        return None
    sizes = _sizes(chained[0])
    if sizes is None:
        return None
    after = [one for one in chained[2:] if one != "unbind(0)"]
    unbound = len(after) < len(chained[2:])
    target = code(small.targets[0].target)
    several = isinstance(small.targets[0].target, cst.Tuple)
    if unbound != several and (unbound or after):  # without `unbind`, a tuple takes the three of the first axis
        return None
    more = "".join(f".{one}" for one in after)
    return target, parts, f".unflatten(-1, ({sizes})).transpose(1, 2){more}"


def _parts(text: str) -> list[str]:
    if not _JOINED.match(text):
        return []
    tree = ast.parse(text, mode="eval").body
    first = tree.args[0] if isinstance(tree, ast.Call) and tree.args else None
    return [ast.unparse(one) for one in first.elts] if isinstance(first, ast.List) else []


def _sizes(call: str) -> str | None:
    """Return the number and the width of heads."""
    tree = ast.parse(call, mode="eval").body
    assert isinstance(tree, ast.Call)
    given = list(tree.args)
    if getattr(tree.func, "id", "") == "unflatten":
        axis, sizes = given
        given = (
            [ast.Constant(0), ast.Constant(0), *getattr(sizes, "elts", [])] if ast.unparse(axis) in ("2", "-1") else []
        )
    elif getattr(tree.func, "id", "") in ("reshape", "view"):
        given = list(given[0].elts) if len(given) == 1 and isinstance(given[0], ast.Tuple | ast.List) else given
    else:
        return None
    if len(given) != 5 or ast.unparse(given[2]) != str(_THREE):
        return None
    return f"{ast.unparse(given[3])}, -1"


def _names(target: str, following: list[cst.BaseStatement]) -> tuple[list[str], int]:
    """Return the names of the three, and how many following statements define them."""
    if target.startswith("(") or "," in target:
        names = [one.strip() for one in target.strip("()").split(",")]
        return (names, 0) if len(names) == _THREE and all(one.isidentifier() for one in names) else ([], 0)
    if not following:
        return [], 0
    small = following[0].body[0] if isinstance(following[0], cst.SimpleStatementLine) else None
    if not isinstance(small, cst.Assign) or not isinstance(small.targets[0].target, cst.Tuple):
        return [], 0
    names = [code(one.value) for one in small.targets[0].target.elements]
    told = re.sub(r"[()\s]", "", code(small.value))
    forms = (f"{target}[0],{target}[1],{target}[2]", f"{target}.unbind0", f"{target}.unbinddim=0", target)
    later = any(target in names_used(one) for one in following[1:]) and target not in names
    return (names, 1) if told in forms and len(names) == _THREE and not later else ([], 0)


def with_heads_apart(node: cst.BaseStatement) -> cst.BaseStatement:
    """Return a processor with queries, keys and values apart from the start."""
    node = visited(node, HeadsApart(), _Reshaped())
    return visited(node, _Turned(_turned_twice(node)))
