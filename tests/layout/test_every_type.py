"""Every class with experts of the installed transformers: does the verdict say where the elements went?

Every parameter holds a ramp, so every element is different. Where each element of the file came from is what the
accounting must say; and what the verdict says of the file, applied to the file, must give what it says of the module,
applied to the module.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from omni_kit.layout import LayoutVerdict, check_layout
from omni_kit.layout.subtrees import Subtree
from omni_kit.layout.taxonomy import Disk, Memory, plain
from tests.moe_models import build, every_modeling_file, moe_classes, origins, saved

SPLIT = {(Disk.per_expert, Memory.canonical)}
FUSED = {(Disk.fused, Memory.canonical)}
TRANSPOSED = {(Disk.fused_transposed, Memory.transposed)}
RENAMED = {(Disk.fused_renamed, Memory.canonical_renamed), (Disk.fused_renamed, Memory.canonical)}
INTERLEAVED_ROWS = {(Disk.fused_interleaved_rows, Memory.canonical)}
MODULE_DICT = {(Disk.module_dict, Memory.module_dict)}
NO_GATE = {(Disk.per_expert_no_gate, Memory.no_gate)}
# What transformers writes for a model_type, by the measured map of layouts; for all others SPLIT.
EXPECTED: dict[str, set[tuple[Disk, Memory]]] = {
    "": FUSED, "aria": TRANSPOSED, "aria_text": TRANSPOSED, "llama4": TRANSPOSED, "llama4_text": TRANSPOSED,
    "dbrx": {(Disk.flat_2d, Memory.flat_2d)}, "deepseek_ocr2_text": FUSED, "diffusion_gemma": FUSED,
    "diffusion_gemma_text": FUSED, "doge": {(Disk.retrieval, Memory.retrieval)},
    "ernie4_5_vl_moe": {(Disk.per_expert_two_width, Memory.canonical_two_width)}, "ernie4_5_vl_moe_text": FUSED,
    "gemma4": FUSED, "gemma4_text": FUSED, "glm4v_moe_text": FUSED,
    "gpt_oss": {(Disk.fused_transposed_interleaved, Memory.transposed_interleaved)},
    "granitemoe": RENAMED, "granitemoe_swa": FUSED, "granitemoehybrid": RENAMED, "granitemoeshared": RENAMED,
    "hy_v4": FUSED, "inkling_text": FUSED, "inkling2": INTERLEAVED_ROWS, "inkling2_text": INTERLEAVED_ROWS,
    "jetmoe": RENAMED, "minimax_m3_vl_text": FUSED, "mistral4": FUSED, "muse_spark": FUSED, "muse_spark_text": FUSED,
    "nemo_speechlm": NO_GATE, "nemotron_h": NO_GATE, "nemotron_h_omni": NO_GATE, "nllb-moe": MODULE_DICT,
    "openai_privacy_filter": {(Disk.fused_transposed_bias, Memory.transposed_bias)},
    "qwen3_omni_moe_talker_text": FUSED, "qwen3_omni_moe_text": FUSED | SPLIT, "qwen3_vl_moe": FUSED,
    "qwen3_vl_moe_text": FUSED, "step3p5": FUSED, "step3p7": {(Disk.stacked_unfused, Memory.canonical)},
    "switch_transformers": MODULE_DICT, "vitpose": {(Disk.shared_columns, Memory.none)},
    "vitpose_backbone": {(Disk.shared_columns, Memory.none)}, "zaya": FUSED,
}  # fmt: skip
# No rearrangement of tensors brings these to the canonical form.
UNSUPPORTED = {Disk.module_dict, Disk.flat_2d, Disk.retrieval, Disk.shared_columns}


@pytest.mark.parametrize("module", every_modeling_file())
def test_verdict_is_where_the_elements_are(module: str, tmp_path: Path) -> None:
    for cls in moe_classes(module):
        model = build(cls)
        tensors = saved(model, tmp_path / cls.__name__)
        verdict = check_layout(str(tmp_path / cls.__name__))
        name = cls.__name__
        assert verdict.accounting is not None
        assert verdict.accounting.complete, (name, verdict.findings)
        feeds_are_true(name, verdict, origins(model, tensors))
        assert verdict.subtrees, name
        assert verdict.ok == all(tree.disk not in UNSUPPORTED for tree in verdict.subtrees), (name, verdict.findings)
        layouts_are_true(name, verdict, model, {key: tensor.numpy() for key, tensor in tensors.items()})


def feeds_are_true(name: str, verdict: LayoutVerdict, origins: dict[str, set[str]]) -> None:
    """What the accounting says of a key is where its elements came from; tied parameters are one."""
    assert verdict.accounting is not None
    assert verdict.model is not None
    tied = verdict.model.skeleton.tied
    for key, fed in verdict.accounting.feeds.items():
        if key in origins:
            assert set(fed) <= origins[key], (name, key)
            assert {tied.get(origin, origin) for origin in origins[key]} <= {tied.get(f, f) for f in fed}, (name, key)


def layouts_are_true(name: str, verdict: LayoutVerdict, model: Any, disk: dict[str, np.ndarray]) -> None:
    memory = {key: value.detach().numpy() for key, value in model.named_parameters(remove_duplicate=False)}
    for tree in verdict.subtrees:
        if tree.role == "attention":
            continue
        expected = EXPECTED.get(verdict.model.name if verdict.model else "", SPLIT)
        assert (tree.disk, tree.memory) in expected, (name, tree)
        if tree.disk in UNSUPPORTED:
            continue
        for layer in tree.layers:
            box = tree.prefix.replace("*", str(layer), 1)
            pairs = zip(
                canonical_on_disk(tree, box, disk), canonical_in_memory(verdict, tree, box, memory), strict=True
            )
            for from_disk, from_memory in pairs:
                np.testing.assert_array_equal(from_disk, from_memory, err_msg=f"{name} {box}")


def canonical_on_disk(tree: Subtree, box: str, tensors: dict[str, np.ndarray]) -> Iterator[np.ndarray]:
    """(gate_up [E, 2I, H], down [E, H, I]) by what the verdict says of the file; without a gate, (up, down)."""
    if tree.disk is Disk.per_expert_two_width:
        for half in range(2):
            yield from _stacked(tree, box, tensors, half * tree.num_experts // 2, tree.num_experts // 2)
        return
    if tree.disk in {Disk.per_expert, Disk.per_expert_no_gate}:
        yield from _stacked(tree, box, tensors, 0, tree.num_experts)
        return
    parts = [tensors[f"{box}.{leaf}"] for leaf in tree.names]
    if tree.disk is Disk.stacked_unfused:
        parts = [np.concatenate(parts[:2], axis=1), parts[2]]
    yield from _oriented(parts, str(tree.disk))


def _stacked(tree: Subtree, box: str, tensors: dict[str, np.ndarray], first: int, count: int) -> Iterator[np.ndarray]:
    keys = [[f"{box}.{e}.{leaf}" for e in range(first, first + count)] for leaf in tree.names]
    stacks = [np.stack([tensors[key] for key in found if key in tensors]) for found in keys]
    if len(stacks) == 3:
        yield np.concatenate(stacks[:2], axis=1)
    yield from stacks[2:] if len(stacks) == 3 else stacks


def _oriented(pair: list[np.ndarray], layout: str) -> list[np.ndarray]:
    """A stacked pair in the canonical orientation, gate rows first, by the name of its layout."""
    if "transposed" in layout:
        pair = [tensor.transpose(0, 2, 1) for tensor in pair]
    if "interleaved" in layout:
        pair[0] = np.concatenate([pair[0][:, 0::2], pair[0][:, 1::2]], axis=1)
    return pair


def canonical_in_memory(
    verdict: LayoutVerdict, tree: Subtree, box: str, parameters: dict[str, np.ndarray]
) -> Iterator[np.ndarray]:
    """The same by what it says of the module."""
    assert verdict.accounting is not None
    feeds = verdict.accounting.feeds
    fed = dict.fromkeys(n for key, names in feeds.items() if key.startswith(f"{box}.") for n in names)
    boxes = dict.fromkeys(
        plain(name).rpartition(".")[0] for name in fed if name in parameters and parameters[name].ndim == 3
    )
    for container in boxes:
        found = {plain(n).rpartition(".")[2]: parameters[n] for n in fed if plain(n).rpartition(".")[0] == container}
        first = next(name for name in ("gate_up_proj", "fc1", "input_linear", "up_proj") if name in found)
        second = next(name for name in ("down_proj", "fc2", "output_linear") if name in found)
        yield from _oriented([found[first], found[second]], str(tree.memory))
