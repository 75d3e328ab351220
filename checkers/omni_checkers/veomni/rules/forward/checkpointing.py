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
    """A block gets the same while it is checkpointed as it gets otherwise.

    Judged is an `if` that checkpoints a block in one branch and calls it in the other: the two hand over the same
    values, and what goes by place in the same order. A number or None in the place of one is a value like others.

    Why: long runs checkpoint and short tries do not. Training then computes something else than what was tried, such as
    attention without the mask that was made for it, and nothing says so.

    Fine when: what is left out is what the block would take anyhow.
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
