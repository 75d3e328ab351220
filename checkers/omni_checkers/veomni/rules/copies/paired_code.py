"""VEO423: code repeated for two kinds of input uses each kind's own names."""

import ast

from omni_checkers.codediff.branches import undivided
from omni_checkers.codediff.copied_blocks import forgotten
from omni_checkers.codediff.fingerprint import unparse_cached
from omni_checkers.engine.files import within
from omni_checkers.engine.rule import Finding, Findings, Rule, Severity
from omni_checkers.veomni.examples import GPU_CONFIG, patch_config
from omni_checkers.veomni.facts.generated import Generated
from omni_kit.pysource.source import dotted

_BOTH = """\


@config.override_method("OlmoeModel.mixed", description="two kinds of input")
def olmoe_model_mixed(self, embeds, image_mask, image_embeds, video_mask, video_embeds):
    image_part = embeds.masked_scatter(image_mask, image_embeds)
    video_part = embeds.masked_scatter({mask}, video_embeds)
    return image_part + video_part
"""


_BRANCHES = """\


@config.override_method("OlmoeModel.chosen", description="two kinds of layers")
def olmoe_model_chosen(self, whole, cu_seqlens, max_length, window_cu_seqlens, window_max_length):
    if whole:
        cu_seqlens_now = cu_seqlens
        max_length_now = {length}
    else:
        cu_seqlens_now = window_cu_seqlens
        max_length_now = window_max_length
    return cu_seqlens_now, max_length_now
"""


class TwinsAreChanged(Rule):
    """Change every name in a copied block, and assign branches different values.

    The rule reports a name of the first block in the second one, where all other names were changed and the changed
    name exists. It also reports two branches that set one of several variables to the same value.

    Why: a block was copied and one name was not changed. Images receive the video mask, or keys the values of queries,
    and shapes mostly agree.

    Fine when: both blocks use the same value on purpose.
    """

    id = "VEO423"
    name = "copied-statements-are-changed-throughout"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-PG-39",)
    failure_modes = ("override-signature-drift",)
    BAD = (
        {GPU_CONFIG: patch_config(_BOTH.format(mask="image_mask"))},
        {GPU_CONFIG: patch_config(_BRANCHES.format(length="window_max_length"))},
    )
    GOOD = (
        {GPU_CONFIG: patch_config(_BOTH.format(mask="video_mask"))},
        {GPU_CONFIG: patch_config(_BRANCHES.format(length="max_length"))},
    )

    def check(self, generated: list[Generated]) -> Findings:
        for item in generated:
            members = _members(item)
            for owner, function in item.patched:
                for one in forgotten(function, members):
                    where = f"{owner}.{function.name}" if owner else function.name
                    message = f"{where} has {one.name}, and after line {one.like} one expects {one.wanted}"
                    yield Finding(message, item.file.path, one.line)
                for first, second in undivided(function):
                    message = f"both branches set {unparse_cached(first)}, and differ in the other variables"
                    yield Finding(message, item.file.path, second.lineno)


def _members(item: Generated) -> set[str]:
    """Return the attributes of `self` in a file."""
    return {node.attr for node in within(item.source.tree, ast.Attribute) if dotted(node.value) == "self"}
