"""Code that the generated files of several devices share: VEO706."""

from collections.abc import Iterator

from omni_checkers.codediff.align import ClonePair, stands_in
from omni_checkers.engine.rule import Example, Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.veomni.examples import GPU_CONFIG, NPU_CONFIG, REGISTER_BOTH, patch_config
from omni_checkers.veomni.facts.generated import Generated, upstream_function
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
    """Return a model for two devices, whose patches differ in one number."""
    gpu, npu = patch_config(_BLOCK.format(scale="2.0")), patch_config(_BLOCK.format(scale=scale), device="npu")
    return {"__init__.py": REGISTER_BOTH, GPU_CONFIG: gpu, NPU_CONFIG: npu}


class SiblingsSayTheSame(Rule):
    """Keep a patch for another device the same as the GPU patch, except for the kernels that it calls.

    The rule compares both statement by statement and reports a small edit, in the file that also differs from upstream
    at that line, or in the second file. It ignores statements that only one of them has.

    Why: a fix in one file does not reach the other, which few people run. The devices then train two models.

    Fine when: the device needs the difference; give the reason in an ignore comment.
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
        for first, second in _siblings(generated):
            for ours, theirs in ((second, first), (first, second)):
                name = theirs.item.file.path.name
                for here, there, what in ours.altered():
                    mine, other = _is_upstreams(ours, here.number), _is_upstreams(theirs, there.number)
                    if mine < other or (mine == other and ours is second):
                        message = f"{ours.name}: {what} ({name}, line {there.number})"
                        yield Finding(message, ours.item.file.path, here.number)


def _is_upstreams(one: Override, line: int) -> bool:
    """Return whether upstream's function has the statement in a line, too."""
    upstream = upstream_function(one.item, one.owner, one.copy.ours.name)
    return upstream is not None and stands_in(upstream, one.copy.ours, line)


def _siblings(generated: list[Generated]) -> Iterator[tuple[Override, Override]]:
    """Yield functions that two files of one upstream module both replace, each as a copy of the other's."""
    first: dict[str | None, Generated] = {}
    found = 0
    for item in generated:
        other = first.setdefault(item.source_module, item)
        if other is not item:
            found += 1
            theirs = {(owner, function.name): function for owner, function in other.patched}
            for owner, ours in item.patched:
                if (there := theirs.get((owner, ours.name))) is not None:
                    yield Override(other, owner, ClonePair(there, ours)), Override(item, owner, ClonePair(ours, there))
    if not found:
        raise NotApplicable("only one kind of device has a generated file")
