"""Whether a model of upstream can run with its sequence cut among processes, as far as its source tells."""

import re

from omni_kit.targets.veomni.text.sites import Site
from omni_kit.upstream.transformers.models import UpstreamModel

# Parameters of layers that mix neighbouring tokens otherwise than by attention: convolutions over time, and states.
_MIXES_TOKENS = re.compile(
    r"(conv1d|short_conv|\.conv)\.weight$|A_log$|dt_bias$|time_decay$|\.D$|recurrent_param$|rg_lru"
)
_ATTENDS = re.compile(r"(full|sliding|chunked|compressed_\w+)_?\w*attention|attention")


def cut_sequences(model: UpstreamModel, sites: list[Site]) -> tuple[bool, str, str]:
    """Whether Ulysses fits: (it does, the reason, the evidence).

    VeOmni's collator cuts inputs and position ids, its attention functions exchange heads for tokens, and its loss
    function adds up over the group (`veomni.ops.kernels.attention`, `veomni.ops.kernels.cross_entropy`): what goes
    past these sees a part of the sequence only.
    """
    source = model.source
    place = source.where(source.tree)
    mixing = next((p for p in model.skeleton.parameters if _MIXES_TOKENS.search(p.name)), None)
    if mixing is not None:
        return False, f"{mixing.owner} mixes neighbouring tokens, of which a process has a part only", mixing.where
    types = model.find("layer_types", "layers_block_type")
    listed = types.value if types is not None and isinstance(types.value, (list, tuple)) else ()
    odd = [kind for kind in listed if not _ATTENDS.fullmatch(str(kind))]
    if types is not None and odd:
        return False, f"layers of type {odd[0]} are no attention over tokens, which VeOmni would spread", types.evidence
    settings = model.config.cls.source
    if "is_flash_attention_requested" in settings.text:
        place = settings.where(settings.tree)
        return False, "its config refuses flash attention, which VeOmni's is made of, for some settings", place
    if "ALL_ATTENTION_FUNCTIONS" not in source.text:
        return False, "attention does not go through transformers' registry, where VeOmni puts its own", place
    if not re.search(r"_supports_flash_attn\w*\s*=\s*True", source.text):
        return False, "upstream does not declare flash attention, which VeOmni's is made of", place
    if not any(parameter.owner == "Linear" and "*" in parameter.pattern for parameter in model.skeleton.parameters):
        return False, "its layers have no nn.Linear, from which VeOmni's attention takes its dtype", place
    loss = next((site for site in sites if site.site == "causal-lm-loss"), None)
    if loss is None or loss.decision == "skip":
        return False, "the loss is upstream's own, over the part of the sequence that a process has", place
    if not re.search(r"\bposition_ids\b", source.text):
        return False, "no position_ids are taken, so every process would count from zero", place
    return (
        True,
        "position ids and inputs arrive already cut for sequence parallelism",
        "VeOmni's SequenceParallelCollator",
    )
