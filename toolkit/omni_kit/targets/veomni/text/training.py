"""Variables for the training files of a language model."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omni_kit.targets.protocol import Request
from omni_kit.targets.veomni.text.sequence import other_attention
from omni_kit.targets.veomni.text.sites import Site
from omni_kit.targets.veomni.training import model_place
from omni_kit.upstream.subject import Subject
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.traits import EXPERT_COUNTS

_LONGEST = 4096  # tokens of a packed row
_LENGTHS = ("max_position_embeddings", "n_positions", "max_sequence_length")
_CONVOLUTION, _READ_PAST = "conv1d", "out_proj"  # of state-space mixers: kernels read its weight, and peft refuses it
_OF_EXPERTS = frozenset({"gate_proj", "up_proj", "down_proj"})


@dataclass(frozen=True)
class TrainingContext:
    """The names that the templates of a training may use, next to those of the text context.

    Attributes:
        model_path: directory of the checkpoint; `download`, the command that fetches it, `given`, that SOURCE names it.
        lora_modules: last names of the linear layers that adapters wrap.
        attention: what to compute attention with; empty for VeOmni's default, flash attention.
        loss_of_logits: the loss function gets logits that no fused kernel makes, which VeOmni's default refuses.
        chat_template: "tokenizer" where the checkpoint's tokenizer brings one, VeOmni's "default" otherwise.
        max_seq_len: tokens of a row.
        checkpoints: the model can recompute activations, which VeOmni does by default.
    """

    model_path: str
    download: str
    given: bool
    lora_modules: list[str]
    attention: str
    loss_of_logits: bool
    chat_template: str
    max_seq_len: int
    checkpoints: bool


def training_context(
    subject: Subject,
    model: UpstreamModel,
    request: Request,
    sites: Sequence[Site],
    attending: tuple[UpstreamModel, Sequence[Site]],
    *,
    ahead: bool,
) -> TrainingContext:
    """Return the context of a model's training files.

    Args:
        attending: the model whose layers attend over text, with its sites: itself, or the one inside of it.
        ahead: some tokens see later ones, which flash attention cannot compute.
    """
    place = model_place(subject, request)
    return TrainingContext(
        model_path=place.path,
        download=place.download,
        given=place.given,
        lora_modules=_linear_layers(model),
        attention=_attention(*attending, flash=not ahead),
        chat_template="tokenizer" if _has_chat_template(subject.directory) else "default",
        max_seq_len=_longest(model),
        loss_of_logits=any(site.site == "causal-lm-loss" and site.decision == "adapt" for site in sites),
        checkpoints=re.search(r"supports_gradient_checkpointing\s*=\s*True", model.source.text) is not None,
    )


def _linear_layers(model: UpstreamModel) -> list[str]:
    """Return the last names of the linear layers in blocks, without routers; of a mixture of experts, without the
    experts.

    VeOmni translates the names of experts' projections to stacked parameters, which peft cannot load.
    """
    counted = model.find(*EXPERT_COUNTS)
    by_module = model.skeleton.by_module
    linear = [
        parameter
        for parameter in model.skeleton.patterns().values()
        if parameter.owner == "Linear" and parameter.pattern.endswith(".weight") and "*" in parameter.pattern
    ]
    names = {
        parameter.pattern.removesuffix(".weight").rpartition(".")[2]
        for parameter in linear
        if counted is None or not parameter.shape or parameter.shape[0] != counted.value
    }
    scanning = [leaves for leaves in by_module.values() if _CONVOLUTION in leaves and _READ_PAST in leaves]
    names -= {_READ_PAST} if scanning else set()
    return sorted(names - (_OF_EXPERTS if counted is not None else set()) - {"*"})


def _attention(model: UpstreamModel, sites: Sequence[Site], *, flash: bool) -> str:
    """Return the attention setting that the source supports: empty for flash attention, else upstream's best."""
    if other_attention(sites) is not None:
        return "eager"
    text = model.source.text
    looked_up = "ALL_ATTENTION_FUNCTIONS" in text  # VeOmni registers no class of upstream's tables
    if flash and looked_up and re.search(r"_supports_flash_attn\w*\s*=\s*True", text):
        return ""
    return "sdpa" if re.search(r"_supports_sdpa\s*=\s*True", text) else "eager"


def _longest(model: UpstreamModel) -> int:
    found = model.find(*_LENGTHS)
    limit = found.value if found is not None and isinstance(found.value, int) else _LONGEST
    return min(_LONGEST, limit) if limit > 0 else _LONGEST


def _has_chat_template(directory: Path | None) -> bool:
    """Return whether the tokenizer next to a checkpoint renders conversations."""
    if directory is None:
        return False
    if (directory / "chat_template.jinja").is_file():
        return True
    try:
        settings = json.loads((directory / "tokenizer_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(settings, dict) and bool(settings.get("chat_template"))
