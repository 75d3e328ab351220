"""What a block is handed while it is checkpointed, beside what it is handed otherwise."""

import ast
from collections.abc import Iterator

from omni_checkers.engine.files import within
from omni_checkers.symbolic.lines import spread

_CHECKPOINTS = ("_gradient_checkpointing_func", "checkpoint")


def handed_otherwise(function: ast.AST) -> Iterator[tuple[ast.Call, str]]:
    """The calls that checkpoint a block, and what is wrong with what they hand over; as the end of a sentence.

    Judged is an `if` that checkpoints a block in one branch and calls it in the other.
    """
    if not any(_checkpointed(function)):
        return
    for node in within(function, ast.If):
        held = [call for part in node.body for call in _checkpointed(part)]
        if len(held) != 1 or not held[0].args or spread(held[0]):
            continue
        block = ast.unparse(held[0].args[0]).removesuffix(".__call__")
        plain = [call for part in node.orelse for call in _calls(part) if ast.unparse(call.func) == block]
        if len(plain) == 1 and not spread(plain[0]):
            yield from ((held[0], what) for what in _differences(held[0].args[1:], plain[0]))


def _differences(held: list[ast.expr], plain: ast.Call) -> Iterator[str]:
    handed = [ast.unparse(one) for one in held]
    by_place = [ast.unparse(one) for one in plain.args]
    values = [*plain.args, *(word.value for word in plain.keywords)]
    left = [text for one in values if not isinstance(one, ast.Constant) and (text := ast.unparse(one)) not in handed]
    yield from (f"{text} is handed to the block otherwise, and not while it is checkpointed" for text in left)
    if not left and handed[: len(by_place)] != by_place and sorted(handed) == sorted(map(ast.unparse, values)):
        yield "the block gets the same in another order while it is checkpointed"


def _checkpointed(node: ast.AST) -> Iterator[ast.Call]:
    for call in _calls(node):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name in _CHECKPOINTS:
            yield call


def _calls(node: ast.AST) -> Iterator[ast.Call]:
    return within(node, ast.Call)
