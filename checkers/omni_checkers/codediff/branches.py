"""The two branches of one condition: what both should do alike, or differently."""

import ast
from collections.abc import Iterator, Sequence

from omni_checkers.codediff.fingerprint import fingerprint, unpacks
from omni_checkers.engine.files import within

_CHECKPOINTS = ("_gradient_checkpointing_func", "checkpoint")


def handed_otherwise(function: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """Return the calls that checkpoint a block with wrong arguments, and the fault as the end of a sentence.

    Judged is an `if` that checkpoints a block in one branch and calls it in the other.
    """
    if not any(_checkpointed(function)):
        return
    for node in within(function, ast.If):
        held = [call for part in node.body for call in _checkpointed(part)]
        if len(held) != 1 or not held[0].args or unpacks(held[0]):
            continue
        block = ast.unparse(held[0].args[0]).removesuffix(".__call__")
        plain = [call for part in node.orelse for call in _calls(part) if ast.unparse(call.func) == block]
        if len(plain) == 1 and not unpacks(plain[0]):
            yield from ((held[0], what) for what in _differences(held[0].args[1:], plain[0]))


def _differences(held: list[ast.expr], plain: ast.Call) -> Iterator[str]:
    handed = [ast.unparse(one) for one in held]
    by_place = [ast.unparse(one) for one in plain.args]
    values = [*plain.args, *(word.value for word in plain.keywords)]
    left = [text for one in values if not isinstance(one, ast.Constant) and (text := ast.unparse(one)) not in handed]
    yield from (f"{text} is passed to the block normally, but not while it is checkpointed" for text in left)
    if not left and handed[: len(by_place)] != by_place and sorted(handed) == sorted(map(ast.unparse, values)):
        yield "the block gets the same in another order while it is checkpointed"


def _checkpointed(node: ast.AST) -> Iterator[ast.Call]:
    for call in _calls(node):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in _CHECKPOINTS:
            yield call


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return within(node, ast.Call)


def undivided(function: ast.FunctionDef) -> Iterator[tuple[ast.Assign, ast.Assign]]:
    """Yield a name that both branches of a condition set to the same, where another name that both set is set to
    another.

    Judged are branches that hand names out: every name that both set is set to a name or an attribute.
    """
    for node in within(function, ast.If):
        if node.orelse:
            one, other = _handed(node.body), _handed(node.orelse)
            both = [name for name in one if name in other]
            plain = all(
                isinstance(found[name].value, (ast.Name, ast.Attribute)) for found in (one, other) for name in both
            )
            same = [name for name in both if fingerprint(one[name].value) == fingerprint(other[name].value)]
            if plain and len(same) == 1 < len(both):
                yield one[same[0]], other[same[0]]


def _handed(body: Sequence[ast.stmt]) -> dict[str, ast.Assign]:
    return {name: node for node in body if isinstance(node, ast.Assign) and (name := _name_set(node))}


def _name_set(node: ast.Assign) -> str:
    return node.targets[0].id if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name) else ""
