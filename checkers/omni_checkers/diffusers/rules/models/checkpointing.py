"""The rule about how blocks are checkpointed: DFU125."""

from omni_checkers.codediff.branches import handed_otherwise
from omni_checkers.diffusers.examples import LUMEN, TRANSFORMER, changed
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import methods

_CALL = "self._gradient_checkpointing_func(block, hidden_states, rotary)"


class CheckpointedAsItIsCalled(Rule):
    """Pass checkpointed blocks the same arguments.

    The rule compares the two branches of an `if` that calls a block directly or through checkpointing. Both must pass
    the same values in the same order. A number or None instead of a value counts as a difference.

    Why: inference and tests run the other branch. Training with checkpointing computes something else, or fails at its
    first step.

    Fine when: the missing argument equals the block's default.
    """

    id = "DFU125"
    name = "checkpointed-as-it-is-called"
    target = "diffusers"
    failure_modes = ("fused-path-drops-arg",)
    BAD = (changed(TRANSFORMER, (_CALL, _CALL.replace(", rotary", ""))),)
    GOOD = ({TRANSFORMER: LUMEN[TRANSFORMER]},)

    def check(self, classes: list[ClassRef]) -> Findings:
        for cls in classes:
            for function in methods(cls.node):
                yield from (at(cls.source, call, what) for call, what in handed_otherwise(function))
