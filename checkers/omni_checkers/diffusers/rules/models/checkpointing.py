"""The rule about how blocks are checkpointed: DFU125."""

from omni_checkers.codediff.branches import handed_otherwise
from omni_checkers.diffusers.examples import LUMEN, TRANSFORMER, changed
from omni_checkers.engine.places import at
from omni_checkers.engine.rule import Findings, Rule
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.nodes import methods

_CALL = "self._gradient_checkpointing_func(block, hidden_states, rotary)"


class CheckpointedAsItIsCalled(Rule):
    """A block gets the same while it is checkpointed as it gets otherwise.

    Judged is an `if` that checkpoints a block in one branch and calls it in the other: the two hand over the same
    values, and what goes by place in the same order. A number or None in the place of one is a value like others.

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
            for function in methods(cls.node):
                yield from (at(cls.source, call, what) for call, what in handed_otherwise(function))
