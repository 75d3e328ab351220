"""The profile of a model of transformers, derived from its config and its modeling source."""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from omni_kit.pysource.source import SourceFile
from omni_kit.upstream.kinds import Kind, Signs, derive
from omni_kit.upstream.profile import Experts, ModelProfile, Trait
from omni_kit.upstream.skeleton import Parameter, Skeleton
from omni_kit.upstream.transformers.autoclasses import IMAGE_TEXT_TABLE, MULTIMODAL_TABLE, auto_table
from omni_kit.upstream.transformers.config_view import ConfigView
from omni_kit.upstream.transformers.configs import ModelConfig, Value
from omni_kit.upstream.transformers.models import UpstreamModel

EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
_TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts")
EXPERT_WIDTHS = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size", "ffn_hidden_size")
_SHARED = ("n_shared_experts", "num_shared_experts", "shared_expert_intermediate_size", "moe_num_shared_experts")
EXPERT_SIZES = (*_TOP_K, *EXPERT_WIDTHS, *_SHARED)
# Where a config keeps that of its text model, outermost first.
TEXT_PARTS = ("thinker_config", "text_config")
# How classes that answer in tokens of text are called, with few exceptions.
CAUSAL_ENDINGS = ("ForCausalLM", "LMHeadModel")
_MASKED = "MODEL_FOR_MASKED_LM_MAPPING_NAMES"
_ATTENTION = re.compile(r"ALL_ATTENTION_FUNCTIONS|scaled_dot_product_attention|[sS]oftmax\(|AutoModel")
# What a file says that has experts, or builds models whose class only a config names.
_MAY_HAVE_EXPERTS = re.compile(r"[eE]xpert|AutoModel|AutoBackbone|load_backbone")
_NESTED = {"vision_config": "vision", "audio_config": "audio"}


@lru_cache(maxsize=4)
def profile(model: UpstreamModel) -> ModelProfile:
    """Derive the profile from the config and from the modeling source."""
    experts = _experts(model)
    kind, evidence = kind_of(model)
    return ModelProfile(
        model_type=model.config.model_type,
        library=model.library.name,
        library_version=model.library.version,
        architectures=tuple(model.config.architectures or [model.class_name]),
        kind=kind,
        kind_evidence=evidence,
        traits=tuple(_traits(model, experts)),
        experts=experts,
    )


def expert_parameters(skeleton: Skeleton) -> list[Parameter]:
    """Return the stacked expert weights, by pattern: 3-D parameters whose module is a class of experts."""
    return [
        parameter
        for parameter in skeleton.patterns().values()
        if holds_experts(parameter) and parameter.shape is not None and len(parameter.shape) == 3
    ]


def stacked_parameters(skeleton: Skeleton) -> list[Parameter]:
    """Return everything that has a row for each expert, by pattern: the stacked weights, and the biases next to
    them.
    """
    counts = {weight.name.rpartition(".")[0]: weight.shape[0] for weight in expert_parameters(skeleton) if weight.shape}
    return [
        parameter
        for parameter in skeleton.patterns().values()
        if parameter.shape and parameter.shape[0] == counts.get(parameter.name.rpartition(".")[0], 0)
    ]


def holds_experts(parameter: Parameter) -> bool:
    """Return whether a parameter is one of experts, however they are stacked."""
    return "expert" in parameter.owner.lower() or ".experts." in parameter.name


def kind_of(model: UpstreamModel) -> tuple[Kind, str]:
    """Return the kind of a model, and the evidence for it."""
    return derive(
        Signs(
            speaks=_speaks(model),
            silent=_silent(model),
            sees=_has(model, "vision_config", "thinker_config") or _takes(model, "pixel_values", "image_patches"),
            hears=_has(model, "audio_config", "thinker_config") or _takes(model, "input_features", "input_values"),
            experts=_has_experts(model),
        )
    )


def _speaks(model: UpstreamModel) -> str:
    """Return the class that answers in text."""
    names = (model.class_name, *model.heads)
    return next((name for name in names if name.endswith(CAUSAL_ENDINGS)), "")


def _silent(model: UpstreamModel) -> str:
    """Return why a model with such a head does not decode text alone: an encoder, an encoder-decoder, or recurrent.

    Only what attends to its own past counts as a language model here; hybrids of attention and states do.
    """
    model_type, config = model.config.model_type, model.config
    if (found := config.find("is_encoder_decoder")) is not None and found.value is True:
        return f"an encoder-decoder: {found.evidence}"
    if model_type in auto_table(model.library, _MASKED) and not config.get("is_decoder"):
        return f"an encoder: {_MASKED} of {model.library.name} {model.library.version}"
    if not _ATTENTION.search(model.source.text):
        return f"no attention in {model.library.show(model.source.path)}: a state-space or recurrent model"
    return ""


def _has(model: UpstreamModel, *keys: str) -> str:
    """Return the first of these parts that the config has."""
    return next((f"{model.config.origin}: {key}" for key in keys if model.config.has(key)), "")


def _takes(model: UpstreamModel, *names: str) -> str:
    """Return where the forward of a listed multimodal text model takes one of these."""
    tables = (auto_table(model.library, table) for table in (IMAGE_TEXT_TABLE, MULTIMODAL_TABLE))
    forward = model.source.method(model.class_name, "forward")
    if forward is None or all(model.class_name not in table.values() for table in tables):
        return ""
    taken = (one for one in (*forward.args.args, *forward.args.kwonlyargs) if one.arg in names)
    return next((model.source.where(one) for one in taken), "")


def text_config(model: UpstreamModel) -> ModelConfig:
    """Return the config of the part that answers in text: the innermost one of a composite model, or its own."""
    view = model.built_config
    for part in TEXT_PARTS:
        inner = view.get(part) if view.has(part) else None
        view = inner if isinstance(inner, ConfigView) else view
    return view.config


def _experts(model: UpstreamModel) -> Experts | None:
    config = text_config(model)
    count = config.find(*EXPERT_COUNTS)
    if count is None or not isinstance(count.value, int) or count.value < 2 or not _has_experts(model):
        return None
    shared = config.get(*_SHARED)
    return Experts(
        count=count.value,
        top_k=config.get(*_TOP_K),
        intermediate_size=config.get(*EXPERT_WIDTHS),
        shared=1 if isinstance(shared, int) and shared > 64 else int(shared or 0),
    )


def _has_experts(model: UpstreamModel) -> str:
    """Return the first parameter of experts, and where its class makes it.

    A class that cannot be built from this config, as a text model from that of a whole, shows no layers: then the other
    classes of the file count, too. Nothing is built where no file names experts.
    """
    if not any(_MAY_HAVE_EXPERTS.search(source.text) for source in _modeling_files(model.source, set())):
        return ""
    for one in _readable(model):
        found = next((parameter for parameter in one.skeleton.parameters if holds_experts(parameter)), None)
        if found is not None:
            return f"{found.owner} at {found.where}"
    return ""


def _modeling_files(source: SourceFile, seen: set[Path]) -> Iterator[SourceFile]:
    """Yield a file and the files of other models that it imports from, directly or through them."""
    if source.path not in seen:
        seen.add(source.path)
        yield source
        for imported in source.imports.values():
            if ".models." in imported.module and (home := source.home_of(imported)) is not None:
                yield from _modeling_files(home[0], seen)


def _readable(model: UpstreamModel) -> Iterator[UpstreamModel]:
    yield model
    if model.skeleton.unresolved:
        yield from (replace(model, class_name=name) for name in model.heads if name != model.class_name)


def _traits(model: UpstreamModel, experts: Experts | None) -> Iterator[Trait]:
    config = model.config
    if experts is not None:
        found = text_config(model).find(*EXPERT_COUNTS)
        stacked = expert_parameters(model.skeleton)
        place = f"; {stacked[0].owner} at {stacked[0].where}" if stacked else ""
        yield Trait("moe", experts.count, f"{found.evidence if found else ''}{place}")
        if experts.shared:
            yield from _config_trait(text_config(model), "shared-experts", *_SHARED)
    yield from _config_trait(config, "mla", "kv_lora_rank")
    yield from _config_trait(config, "tied-embeddings", "tie_word_embeddings")
    yield from _config_trait(config, "mtp", "num_nextn_predict_layers", "mtp_num_hidden_layers")
    yield from _config_trait(config, "clipped-qkv", "clip_qkv")
    yield from _config_trait(config, "logit-softcap", "final_logit_softcapping")
    yield from _rope_traits(model)
    yield from _layer_traits(model)
    yield from _source_traits(model)
    for key, name in _NESTED.items():
        if config.has(key):
            yield Trait(f"{name}-tower", True, f"{config.origin}: {key}")
    if config.has("talker_config"):
        yield Trait("speech-head", True, f"{config.origin}: talker_config")


def _config_trait(config: ModelConfig, name: str, *keys: str) -> Iterator[Trait]:
    found = config.find(*keys)
    if found is not None and found.value:
        yield Trait(name, found.value, found.evidence)


def _rope_traits(model: UpstreamModel) -> Iterator[Trait]:
    rope = model.find("rope_parameters", "rope_scaling")
    values = rope.value if rope is not None and isinstance(rope.value, dict) else {}
    partial = model.find("partial_rotary_factor", "rotary_pct")
    if rope is not None and "partial_rotary_factor" in values:
        said = model.config.find("rope_parameters", "rope_scaling") is not None
        evidence = rope.evidence if said else model.filled_in_at("partial_rotary_factor", "rope_parameters")
        partial = Value(values["partial_rotary_factor"], evidence)
    if partial is not None and isinstance(partial.value, (int, float)) and partial.value < 1:
        yield Trait("partial-rotary", partial.value, partial.evidence)
    if rope is not None and values.get("mrope_interleaved"):
        yield Trait("interleaved-mrope", True, rope.evidence)


def _layer_traits(model: UpstreamModel) -> Iterator[Trait]:
    types = model.find("layer_types")
    if types is None or not isinstance(types.value, (list, tuple)):
        return
    for name in ("linear-attention", "sliding-attention", "chunked-attention"):
        if name.replace("-", "_") in types.value:
            yield Trait(name, types.value.count(name.replace("-", "_")), types.evidence)


def _source_traits(model: UpstreamModel) -> Iterator[Trait]:
    patterns = model.skeleton.patterns()
    for ending, name in (
        ("q_norm.weight", "qk-norm"),
        (".sinks", "attention-sinks"),
        ("correction_bias", "router-bias"),
    ):
        found = next((p for p in patterns.values() if p.name.endswith(ending)), None)
        if found is not None:
            yield Trait(name, True, found.where)
    for name, node in model.source.classes.items():
        centered = name.endswith("RMSNorm") and _centered(node)
        if centered:
            yield Trait("centered-rmsnorm", True, model.source.where(centered))
            return


def _centered(node: ast.ClassDef) -> ast.AST | None:
    """Return the `1.0 + self.weight` of a norm whose weight is centred on zero."""
    for item in ast.walk(node):
        if (
            isinstance(item, ast.BinOp)
            and isinstance(item.op, ast.Add)
            and isinstance(item.left, ast.Constant)
            and item.left.value == 1
            and "weight" in ast.unparse(item.right)
        ):
            return item
    return None
