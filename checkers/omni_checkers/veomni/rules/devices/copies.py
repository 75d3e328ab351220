"""What generated files for several devices copy from each other: VEO706."""

from collections.abc import Iterator

from omni_checkers.codediff.align import ClonePair
from omni_checkers.engine.rule import Example, Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples import GPU_CONFIG, NPU_CONFIG, REGISTER_BOTH, patch_config
from omni_checkers.veomni.facts.generated import Generated
from omni_checkers.veomni.facts.overrides import Override

_BLOCK = """\


@config.override_method("OlmoeSparseMoeBlock.forward", description="without views of the shape")
def olmoe_sparse_moe_block_forward(self, hidden_states):
    tokens = hidden_states.flatten(0, 1)
    _, weights, index = self.gate(tokens)
    weights = weights * {scale}
    mixed = self.experts(tokens, index, weights)
    return mixed.view_as(hidden_states)
"""


def _both(scale: str) -> Example:
    """A model for two devices, whose patches differ in one number."""
    gpu, npu = patch_config(_BLOCK.format(scale="2.0")), patch_config(_BLOCK.format(scale=scale), device="npu")
    return {"__init__.py": REGISTER_BOTH, GPU_CONFIG: gpu, NPU_CONFIG: npu}


class SiblingsSayTheSame(Rule):
    """A patch for another device says what the patch for GPUs says, but for the kernels that it calls.

    Both are compared statement by statement. A finding is a statement that differs by one small thing; what only one
    of them does is what devices are patched for.

    Why: a fault that is mended in one file stays in the other, which nobody runs. The devices then train two models.

    Fine when: the device needs it so; say why in an ignore comment.
    """

    id = "VEO706"
    name = "device-siblings-say-the-same"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-NPU-01", "VEO-NPU-03")
    failure_modes = ("gpu-npu-fork-drift",)
    BAD = (_both(scale="0.5"),)
    GOOD = (_both(scale="2.0"),)

    def check(self, generated: list[Generated]) -> Findings:
        for name, one in _siblings(generated):
            path = one.item.file.path
            for here, there, what in one.altered():
                yield Finding(f"{one.name}: {what} ({name}, line {there.number})", path, here.number)


def _siblings(generated: list[Generated]) -> Iterator[tuple[str, Override]]:
    """Functions that two files of one upstream module both replace, with the name of the first file."""
    first: dict[str | None, Generated] = {}
    found = 0
    for item in generated:
        other = first.setdefault(item.source_module, item)
        if other is not item:
            found += 1
            theirs = {(owner, function.name): function for owner, function in other.patched}
            for owner, function in item.patched:
                if (owner, function.name) in theirs:
                    copy = ClonePair(function, theirs[owner, function.name])
                    yield other.file.path.name, Override(item, owner, copy)
    if not found:
        raise NotApplicable("there is a generated file for one kind of device alone")
