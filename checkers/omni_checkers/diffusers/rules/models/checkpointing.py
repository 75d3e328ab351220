"""The rule about how blocks are checkpointed: DFU125."""

import ast
from collections.abc import Iterator

from omni_checkers.diffusers.examples import LUMEN, TRANSFORMER, changed
from omni_checkers.diffusers.facts.code import at, calls, functions, spread
from omni_checkers.engine.files import walked
from omni_checkers.engine.rule import Findings, Rule
from omni_kit.upstream.python.interpret import ClassRef

_FUNCTION = "_gradient_checkpointing_func"
_CALL = "self._gradient_checkpointing_func(block, hidden_states, rotary)"


class CheckpointedAsItIsCalled(Rule):
    """A block gets the same while it is checkpointed as it gets otherwise.

    Judged is an `if` that checkpoints a block in one branch and calls it in the other: the two hand over the same
    values, whatever their order. A number or None in the place of one is a value like others.

    Why: inference and tests run the other branch. Training with checkpointing computes something else, or fails in the
    first step, hours after the model was merged.

    Fine when: what is left out is what the block would take anyhow.
    """

    id = "DFU125"
    name = "checkpointed-as-it-is-called"
    target = "diffusers"
    failure_modes = ("fused-path-drops-arg",)
    BAD = (changed(TRANSFORMER, (_CALL, _CALL.replace(", rotary", ""))),)
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER]},)

    def check(self, classes: list[ClassRef]) -> Findings:
        for cls in classes:
            for function in functions(cls.node):
                for node, left in _left(function):
                    yield at(
                        cls.source, node, f"{left} is handed to the block otherwise, and not while it is checkpointed"
                    )


def _left(function: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    if not any(True for _ in calls(function, _FUNCTION)):
        return
    for node in (one for one in walked(function) if isinstance(one, ast.If)):
        held = [call for part in node.body for call in calls(part, _FUNCTION)]
        if len(held) != 1 or not held[0].args or spread(held[0]):
            continue
        block = ast.unparse(held[0].args[0])
        plain = [call for part in node.orelse for call in calls(part) if ast.unparse(call.func) == block]
        if len(plain) == 1 and not spread(plain[0]):
            given = {ast.unparse(one) for one in held[0].args[1:]}
            for one in [*plain[0].args, *(word.value for word in plain[0].keywords)]:
                if not isinstance(one, ast.Constant) and ast.unparse(one) not in given:
                    yield held[0], ast.unparse(one)
