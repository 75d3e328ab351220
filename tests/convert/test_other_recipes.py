"""Whole conversions with recipes that the installed transformers does not have, in a second one placed beside it."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from omni_kit.convert import convert
from omni_kit.pysource.library import Library, find_library
from omni_kit.upstream.transformers.configs import ModelConfig, config_class
from omni_kit.upstream.transformers.models import upstream_model
from omni_kit.upstream.transformers.recipes.rope import with_heads
from tests.convert.conftest import Stored, Tensors, Toys, assert_equal, load

Beside = Callable[[str], Path]

WRAPPED = """

from .core_model_loading import Interleave, PermuteForRope, Split, Inkling2IndexOffsetWeightRename

_published = _build_checkpoint_conversion_mapping


def _build_checkpoint_conversion_mapping():
    mapping = _published()
    mapping["qwen3_moe"] = [{transforms}]
    return mapping
"""
MERGED = (
    'WeightConverter(["mlp.experts.*.gate_proj.weight", "mlp.experts.*.up_proj.weight"], "mlp.experts.gate_up_proj", '
    "operations=[MergeModulelist(dim=0), Concatenate(dim=1)]), "
    'WeightConverter("mlp.experts.*.down_proj.weight", "mlp.experts.down_proj", operations=[MergeModulelist(dim=0)])'
)
INTERLEAVED = (
    'WeightConverter("mlp.experts.w13_weight", "mlp.experts.gate_up_proj", operations=[Interleave(dim=1)]), '
    'WeightRenaming("mlp.experts.w2_weight", "mlp.experts.down_proj")'
)
UNFUSED = (
    'WeightConverter(["moe.gate_proj.weight", "moe.up_proj.weight"], "mlp.experts.gate_up_proj", '
    'operations=[Concatenate(dim=1)]), WeightRenaming(r"moe\\.down_proj\\.weight", "mlp.experts.down_proj")'
)
TRANSPOSED = ", ".join(
    f'WeightConverter("mlp.experts.{leaf}", "mlp.experts.{leaf}", operations=[Transpose(1, 2, check_dims=True)])'
    for leaf in ("gate_up_proj", "down_proj")
)
ROTARY = (
    'WeightConverter("self_attn.qkv.weight", ["self_attn.q_proj.weight", "self_attn.k_proj.weight", '
    '"self_attn.v_proj.weight"], operations=[Split(dim=0), PermuteForRope(permute_layer_names=["q_proj", "k_proj"])])'
)
COUNTED = 'Inkling2IndexOffsetWeightRename(r"queries\\.(\\d+)", r"layers.\\1.query", offset=1)'


@pytest.fixture
def beside(library: Library, tmp_path: Path) -> Beside:
    """A transformers that is the installed one in all but its recipe for qwen3_moe."""

    def make(transforms: str) -> Path:
        root = tmp_path / "beside" / "transformers"
        root.mkdir(parents=True)
        for item in library.root.iterdir():
            if item.name != "conversion_mapping.py":
                (root / item.name).symlink_to(item)
        text = (library.root / "conversion_mapping.py").read_text()
        (root / "conversion_mapping.py").write_text(text + WRAPPED.replace("{transforms}", transforms))
        return root

    return make


@pytest.fixture
def canonical(toy: Toys, tmp_path: Path) -> Tensors:
    convert(str(toy("qwen3_moe")), tmp_path / "toy", to="canonical")
    return load(tmp_path / "toy")


def boxes(tensors: Tensors) -> list[str]:
    return [name.removesuffix(".gate_up_proj") for name in tensors if name.endswith(".gate_up_proj")]


def interleaved(tensors: Tensors) -> Tensors:
    for box in boxes(tensors):
        gate, up = np.split(tensors.pop(f"{box}.gate_up_proj"), 2, 1)
        tensors[f"{box}.w13_weight"] = np.stack([gate, up], 2).reshape(gate.shape[0], -1, gate.shape[2])
        tensors[f"{box}.w2_weight"] = tensors.pop(f"{box}.down_proj")
    return tensors


def unfused(tensors: Tensors) -> Tensors:
    for box in boxes(tensors):
        moe = box.replace("mlp.experts", "moe")
        gate, up = np.split(tensors.pop(f"{box}.gate_up_proj"), 2, 1)
        tensors |= {f"{moe}.gate_proj.weight": gate, f"{moe}.up_proj.weight": up}
        tensors[f"{moe}.down_proj.weight"] = tensors.pop(f"{box}.down_proj")
    return tensors


def transposed(tensors: Tensors) -> Tensors:
    return {n: t.swapaxes(1, 2) if ".experts." in n else t for n, t in tensors.items()}


@pytest.mark.parametrize(
    ("transforms", "publish"),
    [(INTERLEAVED, interleaved), (UNFUSED, unfused), (TRANSPOSED, transposed)],
    ids=["alternating rows", "stacked but unfused", "transposed"],
)
def test_there_and_back(
    beside: Beside,
    stored: Stored,
    canonical: Tensors,
    tmp_path: Path,
    transforms: str,
    publish: Callable[[Tensors], Tensors],
) -> None:
    library, published = beside(transforms), publish(dict(canonical))
    source = stored("qwen3_moe", published)
    for form in ("canonical", "memory"):
        convert(str(source), tmp_path / form, to=form, transformers=library, verify=True)
        assert_equal(load(tmp_path / form), canonical)
        convert(str(tmp_path / form), tmp_path / f"{form}-hub", to="hub", transformers=library)
        assert_equal(load(tmp_path / f"{form}-hub"), published)


def test_rotary_rows_of_each_head(beside: Beside, stored: Stored, canonical: Tensors, tmp_path: Path) -> None:
    """A fused projection of published rotary order: 4 heads of queries, 2 of keys, 16 rows each."""
    published = dict(canonical)
    for layer in range(3):
        base = f"model.layers.{layer}.self_attn"
        parts = [published.pop(f"{base}.{part}_proj.weight") for part in "qkv"]
        # upstream counts num_attention_heads for keys too: their pairs are of half a head
        mixed = [p.reshape(4, 2, -1, p.shape[1]).swapaxes(1, 2).reshape(p.shape) for p in parts[:2]]
        published[f"{base}.qkv.weight"] = np.concatenate([*mixed, parts[2]])
    library = beside(f"{MERGED}, {ROTARY}")
    source = stored("qwen3_moe", published)
    convert(str(source), tmp_path / "memory", to="memory", transformers=library, verify=True)
    assert_equal(load(tmp_path / "memory"), canonical)
    convert(str(tmp_path / "memory"), tmp_path / "hub", to="hub", transformers=library)
    assert load(tmp_path / "hub")[f"{base}.qkv.weight"].tobytes() == published[f"{base}.qkv.weight"].tobytes()


def test_heads_come_from_the_config(beside: Beside) -> None:
    library = find_library("transformers", beside(ROTARY))
    config = ModelConfig(config_class(library, "qwen3_moe"), {"num_attention_heads": 6}, "config.json")
    recipe = with_heads(upstream_model(library, config))
    assert recipe is not None
    (transform,) = recipe.transforms
    assert dict(transform.operations[1].kwargs) == {"heads": 6, "permuted": (True, True, False), "inverse": False}


def test_a_renaming_that_counts(beside: Beside, stored: Stored, canonical: Tensors, tmp_path: Path) -> None:
    library = beside(f"{MERGED}, {COUNTED}")
    source = stored("qwen3_moe", canonical | {"queries.0": np.ones(2, np.float32)})
    convert(str(source), tmp_path / "memory", to="memory", transformers=library)
    assert "layers.1.query" in load(tmp_path / "memory")
    convert(str(tmp_path / "memory"), tmp_path / "hub", to="hub", transformers=library)
    assert "queries.0" in load(tmp_path / "hub")
