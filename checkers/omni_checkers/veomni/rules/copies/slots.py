"""VEO428: the same code is next to the same kernel."""

import re
from functools import lru_cache
from pathlib import Path

from omni_checkers.codediff.fingerprint import names_read
from omni_checkers.engine.files import read_file
from omni_checkers.engine.rule import Example, Finding, Findings, Rule, Severity
from omni_checkers.veomni.examples import GPU_CONFIG, REGISTER, patch_config
from omni_checkers.veomni.facts.code_clones import Clones

_SLOT = re.compile(
    r"""\b(\w+)\s*=\s*(?:\w+\.)?OpSlot\(\s*(?:op_name\s*=\s*)?["'](\w+)["'],\s*(?:variant\s*=\s*)?["'](\w+)["']"""
)
_NORM = '''\


config.add_post_import_block(
    """
    from veomni.ops.dispatch import OpSlot

    veomni_rms_norm = OpSlot("rms_norm", "{variant}")
    """
)


@config.override_method("OlmoeRMSNorm.forward", description="a slot for the fused kernel")
def olmoe_rms_norm_forward(self, hidden_states):
    if veomni_rms_norm.use_non_eager_impl:
        return veomni_rms_norm(hidden_states, self.weight, self.variance_epsilon)
    input_dtype = hidden_states.dtype
    hidden_states = hidden_states.to(torch.float32)
    variance = hidden_states.pow(2).mean(-1, keepdim=True)
    hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
    return self.weight * hidden_states.to(input_dtype)
'''


def _both(variant: str) -> Example:
    """Return two plugins with one norm."""
    theirs = patch_config(_NORM.format(variant="standard"))
    ours = patch_config(_NORM.format(variant=variant))
    return {"../cousin/__init__.py": REGISTER, "../cousin/norms.py": theirs, GPU_CONFIG: ours}


class OneCodeHasOneKernel(Rule):
    """Give a kernel slot the variant that other integrations use with the same eager code.

    The rule compares functions that are identical line by line: VeOmni's, and for a plugin the neighbouring ones. It
    reports a slot with the same operation and another variant.

    Why: variants compute different formulas, such as a norm that adds one to its stored weight. The eager code is
    right, and the kernel, which trains, computes something else.

    Fine when: both variants compute the same.
    """

    id = "VEO428"
    name = "one-code-has-one-kernel"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-PG-19",)
    failure_modes = ("kernel-registry-key",)
    BAD = (_both(variant="qwen3_5"),)
    GOOD = (_both(variant="standard"),)

    def check(self, code_clones: list[Clones]) -> Findings:
        for one in code_clones:
            function = one.function
            like = [other for other, _ in one.others if other.codes == function.codes]
            ours = slots_in(function.file)
            for name in sorted(names_read(function.node) & ours.keys()):
                operation, variant, line = ours[name]
                theirs = [(other, slots_in(other.file).get(name)) for other in like]
                known = {slot[1]: other for other, slot in theirs if slot is not None and slot[0] == operation}
                if known and variant not in known:
                    other, own = next((place.file, said) for said, place in known.items())
                    where = f"{other.parent.name}/{other.name}"
                    message = (
                        f"{name} is OpSlot('{operation}', '{variant}'), but the same code has OpSlot('{operation}', "
                        f"'{own}') in {where}"
                    )
                    yield Finding(message, function.file, line)


@lru_cache(maxsize=64)
def _slots(text: str) -> dict[str, tuple[str, str, int]]:
    return {match[1]: (match[2], match[3], text.count("\n", 0, match.start()) + 1) for match in _SLOT.finditer(text)}


def slots_in(file: Path) -> dict[str, tuple[str, str, int]]:
    """Return the slots that a patch config declares: name -> operation, variant, line."""
    return _slots(read_file(file).text)
