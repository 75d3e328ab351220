"""Every MoE type of the installed transformers that can be built small: does the verdict say where the elements went?

Every parameter holds a ramp, so every element is different. What the verdict says of the file, applied to the file, and
what it says of the module, applied to the module, must give the same canonical tensors.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from omni_kit.layout import LayoutVerdict, check_layout
from omni_kit.layout.taxonomy import Disk, Memory
from omni_kit.layout.verdict import Subtree

SMALL = {
    "hidden_size": 64, "intermediate_size": 40, "moe_intermediate_size": 24, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_experts": 4, "num_local_experts": 4,
    "n_routed_experts": 4, "moe_num_experts": 4, "num_experts_per_tok": 2, "num_experts_per_token": 2,
    "vocab_size": 128,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
    "kv_lora_rank": 16, "q_lora_rank": 24, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16,
    "shared_expert_intermediate_size": 32, "moe_topk": 2, "moe_k": 2, "top_k_experts": 2,
    "max_position_embeddings": 128,
}  # fmt: skip
TYPES = (
    "afmoe", "aria_text", "cohere2_moe", "deepseek_v2", "deepseek_v3", "ernie4_5_moe", "exaone_moe", "flex_olmo",
    "glm4_moe", "glm4_moe_lite", "glm4v_moe_text", "gpt_oss", "hy_v3", "jamba", "jetmoe", "llama4_text", "minimax",
    "minimax_m2", "mistral4", "mixtral", "nemotron_h", "olmoe", "openai_privacy_filter", "phimoe", "qwen2_moe",
    "qwen3_5_moe_text", "qwen3_moe", "qwen3_next", "qwen3_vl_moe_text", "solar_open", "granitemoe",
)  # fmt: skip
# What the measured map of layouts says; every other type here is split by expert on disk and canonical in memory.
EXPECTED = {
    "aria_text": (Disk.fused_transposed, Memory.transposed),
    "glm4v_moe_text": (Disk.fused, Memory.canonical),
    "gpt_oss": (Disk.fused_transposed_interleaved, Memory.transposed_interleaved),
    "granitemoe": (Disk.fused_renamed, Memory.canonical_renamed),
    "jetmoe": (Disk.fused_renamed, Memory.canonical_renamed),
    "llama4_text": (Disk.fused_transposed, Memory.transposed),
    "mistral4": (Disk.fused, Memory.canonical),
    "nemotron_h": (Disk.per_expert_no_gate, Memory.no_gate),
    "openai_privacy_filter": (Disk.fused_transposed_bias, Memory.transposed_bias),
    "qwen3_vl_moe_text": (Disk.fused, Memory.canonical),
}


# Names in memory that moved in newer versions.
NEWER = {
    "granitemoe": (Disk.fused_renamed, Memory.canonical),
    "aria_text": (Disk.fused_transposed, Memory.transposed),
}


def build(model_type: str) -> Any:
    """A small model of the type with a ramp in every parameter."""
    import torch
    import transformers
    from transformers import AutoConfig
    from transformers.models.auto import modeling_auto

    values = AutoConfig.for_model(model_type).to_dict()
    values = {k: SMALL[k] if k in SMALL and type(v) is int else v for k, v in values.items()}
    for name in ("layer_types", "mlp_layer_types", "layers_block_type"):
        if isinstance(values.get(name), list):
            values[name] = values[name][:4]
    values.pop("model_type")
    config = type(AutoConfig.for_model(model_type)).from_dict(values)
    tables = (modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, modeling_auto.MODEL_MAPPING_NAMES)
    named = next(table[model_type] for table in tables if model_type in table)
    model = getattr(transformers, named if isinstance(named, str) else named[0])._from_config(config)
    start = 0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.arange(start, start + parameter.numel(), dtype=torch.float32).view(parameter.shape))
            start += parameter.numel()
    assert start < 1 << 24, "integers beyond this are not exact in fp32"
    return model


@pytest.mark.parametrize("model_type", TYPES)
def test_verdict_is_where_the_elements_are(model_type: str, tmp_path: Path) -> None:
    model = build(model_type)
    model.save_pretrained(tmp_path)
    verdict = check_layout(str(tmp_path))
    assert verdict.ok, verdict.findings
    trees = [tree for tree in verdict.subtrees if tree.role == "main"]
    expected = EXPECTED.get(model_type, (Disk.per_expert, Memory.canonical))
    found = {(tree.disk, tree.memory) for tree in trees}
    assert found in ({expected}, {NEWER.get(model_type, expected)})
    disk = {k: v for shard in sorted(tmp_path.glob("*.safetensors")) for k, v in load_file(shard).items()}
    memory = {k: v.detach().numpy() for k, v in model.named_parameters()}
    for tree in trees:
        for layer in tree.layers:
            from_disk = dict(zip(("gate_up", "down"), canonical_from_disk(tree, layer, disk), strict=True))
            from_memory = dict(
                zip(("gate_up", "down"), canonical_from_memory(verdict, tree, layer, memory), strict=True)
            )
            for part in from_disk:
                np.testing.assert_array_equal(from_disk[part], from_memory[part], err_msg=f"{tree.prefix} {part}")


def canonical_from_disk(tree: Subtree, layer: int, tensors: dict[str, np.ndarray]) -> Iterator[np.ndarray]:
    """(gate_up [E, 2I, H], down [E, H, I]) by what the verdict says of the file; without a gate, (up, down)."""
    box = tree.prefix.replace("*", str(layer), 1)
    if tree.disk in {Disk.per_expert, Disk.per_expert_no_gate}:
        stacks = [np.stack([tensors[f"{box}.{e}.{leaf}"] for e in range(tree.num_experts)]) for leaf in tree.names]
        if tree.disk is Disk.per_expert_no_gate:
            yield from stacks
        else:
            yield np.concatenate(stacks[:2], axis=1)
            yield stacks[2]
        return
    pair = [tensors[f"{box}.{leaf}"] for leaf in tree.names]
    if tree.disk in {Disk.fused_transposed, Disk.fused_transposed_bias, Disk.fused_transposed_interleaved}:
        pair = [tensor.transpose(0, 2, 1) for tensor in pair]
    if tree.disk is Disk.fused_transposed_interleaved:
        pair[0] = np.concatenate([pair[0][:, 0::2], pair[0][:, 1::2]], axis=1)
    yield from pair


def canonical_from_memory(
    verdict: LayoutVerdict, tree: Subtree, layer: int, parameters: dict[str, np.ndarray]
) -> Iterator[np.ndarray]:
    """The same by what it says of the module."""
    assert verdict.accounting is not None
    box = tree.prefix.replace("*", str(layer), 1)
    fed = [name for key, names in verdict.accounting.feeds.items() if key.startswith(f"{box}.") for name in names]
    found = {
        re.sub(r"\.weight$", "", name).rpartition(".")[2]: parameters[name]
        for name in fed
        if parameters[name].ndim == 3
    }
    first = next(name for name in ("gate_up_proj", "fc1", "input_linear", "up_proj") if name in found)
    second = next(name for name in ("down_proj", "fc2", "output_linear") if name in found)
    pair = [found[first], found[second]]
    if tree.memory.startswith("transposed"):
        pair = [tensor.transpose(0, 2, 1) for tensor in pair]
    if tree.memory is Memory.transposed_interleaved:
        pair[0] = np.concatenate([pair[0][:, 0::2], pair[0][:, 1::2]], axis=1)
    yield from pair
