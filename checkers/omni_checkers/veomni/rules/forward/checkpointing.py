"""VEO429: a block gets the same while it is checkpointed."""

from pathlib import Path

from omni_checkers.codediff.branches import handed_otherwise
from omni_checkers.engine.files import File
from omni_checkers.engine.rule import Finding, Findings, Rule
from omni_checkers.veomni.facts.code_clones import by_hand
from omni_kit.targets.veomni.model_dir import ModelDir

_FORWARD = """\
import torch


def forward(self, tokens, conditions, rotary):
    for block in self.blocks:
        if torch.is_grad_enabled() and self.gradient_checkpointing:
            tokens = self._gradient_checkpointing_func(block, tokens, {held})
        else:
            tokens = block(tokens, conditions, freqs=rotary)
    return tokens
"""


class CheckpointedAsItIsCalled(Rule):
    """Pass checkpointed blocks the same arguments.

    The rule compares the two branches of an `if` that calls a block directly or through checkpointing. Both must pass
    the same values in the same order. A number or None instead of a value counts as a difference.

    Why: long runs use checkpointing and short tests do not. Training then computes something else than the tests did,
    such as attention without its mask, without an error.

    Fine when: the missing argument equals the block's default.
    """

    id = "VEO429"
    name = "checkpointed-as-it-is-called"
    target = "veomni"
    failure_modes = ("fused-path-drops-arg",)
    BAD = (
        {"forward.py": _FORWARD.format(held="conditions, None")},
        {"forward.py": _FORWARD.format(held="rotary, conditions")},
    )
    GOOD = ({"forward.py": _FORWARD.format(held="conditions, rotary")},)

    def check(self, files: dict[Path, File], model_dir: ModelDir) -> Findings:
        for file in files.values():
            if file.tree is not None and by_hand(file.path, model_dir.path):
                for call, what in handed_otherwise(file.tree):
                    yield Finding(what, file.path, call.lineno)
