"""Recipes read without torch, against the real conversion_mapping."""

import re
from pathlib import Path
from typing import Any

import pytest

from omni_kit.errors import BadInput
from omni_kit.pysource.library import Library
from omni_kit.upstream.transformers.recipes.book import RecipeBook
from omni_kit.upstream.transformers.recipes.reading import recipe_book
from omni_kit.upstream.transformers.recipes.transform import Transform

KEYS = (
    "model.layers.3.mlp.experts.17.up_proj.weight",
    "model.layers.0.mlp.experts.gate_up_proj",
    "model.layers.2.block_sparse_moe.gate.weight",
    "encoder.layer.3.attention.query.weight",
    "mlp.e_score_correction_bias",
    "visual.blocks.1.attn.qkv.weight",
)


@pytest.fixture(scope="module")
def book(library: Library) -> RecipeBook:
    return recipe_book(library)


@pytest.fixture(scope="module")
def real() -> dict[str, Any]:
    from transformers import conversion_mapping

    table: dict[str, Any] = conversion_mapping._build_checkpoint_conversion_mapping()
    return table


def probes(transform: Any) -> list[str]:
    """Keys that the transform is about, made from its own patterns."""
    plain = [re.sub(r"[\\^$]|\(.*?\)", "", source) for source in transform._original_source_patterns]
    return [*KEYS, *(f"a.{source}.z".replace("*", "5") for source in plain), *(s.replace("*", "5") for s in plain)]


def test_has_every_entry(book: RecipeBook, real: dict[str, Any]) -> None:
    assert book.entries.keys() == real.keys()
    assert all(len(book.entries[name]) == len(real[name]) for name in real)


def test_renames_keys_as_transformers_does(book: RecipeBook, real: dict[str, Any]) -> None:
    for name, transforms in real.items():
        for theirs, ours in zip(transforms, book.entries[name], strict=True):
            for key in probes(theirs):
                renamed, matched = theirs.rename_source_key(key)
                assert ours.rename(key) == (renamed if matched is not None else None), (name, key)


def test_operations_keep_their_arguments(book: RecipeBook) -> None:
    recipe = book.resolve([("", "Qwen3VLMoeModel", "qwen3_vl_moe")])
    assert recipe is not None
    operations = {str(op) for t in recipe.transforms for op in t.operations}
    assert operations == {"Transpose(1, 2, check_dims=True)"}


def test_alias_is_named(book: RecipeBook) -> None:
    recipe = book.resolve([("", "OlmoeForCausalLM", "olmoe")])
    assert recipe is not None
    assert (recipe.resolved_from, recipe.alias_of, recipe.shadowed_alias) == (("model_type:olmoe",), "qwen2_moe", None)


def test_shadowed_alias_is_named(book: RecipeBook) -> None:
    """ernie4_5_moe is listed as an alias, and has a recipe of its own that differs: the alias does not count."""
    recipe = book.resolve([("", "Ernie4_5_MoeForCausalLM", "ernie4_5_moe")])
    assert recipe is not None
    assert (recipe.alias_of, recipe.shadowed_alias) == (None, "qwen2_moe")


def test_class_comes_before_model_type() -> None:
    by_class, by_type = (Transform("WeightRenaming", (name,), (name,)) for name in ("c", "t"))
    book = RecipeBook({"XModel": (by_class,), "x": (by_type,)}, {}, "0")
    recipe = book.resolve([("", "XModel", "x")])
    assert recipe is not None
    assert recipe.resolved_from == ("class:XModel",)
    assert recipe.transforms == (by_class,)


def test_submodel_recipes_are_scoped() -> None:
    book = RecipeBook({"text": (Transform("WeightRenaming", ("a",), ("b",)),)}, {}, "0")
    recipe = book.resolve([("", "Outer", "outer"), ("model.text", "Text", "text")])
    assert recipe is not None
    assert recipe.route("model.text.a").names == ("model.text.b",)
    assert recipe.route("other.a").names == ("other.a",)


def test_no_entry_is_no_recipe(book: RecipeBook) -> None:
    assert book.resolve([("", "LlamaForCausalLM", "llama")]) is None


def test_older_transformers_is_said(tmp_path: Path) -> None:
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "__init__.py").write_text('__version__ = "4.57.0"\n')
    with pytest.raises(BadInput, match=r"4\.57\.0 has no conversion_mapping"):
        recipe_book(Library("transformers", tmp_path / "transformers"))


def test_a_recipe_that_reads_the_patterns_of_another_is_read(tmp_path: Path) -> None:
    """transformers 5.24 makes one recipe of those of another whose original patterns begin otherwise."""
    (tmp_path / "transformers").mkdir()
    (tmp_path / "transformers" / "conversion_mapping.py").write_text(
        "from .core_model_loading import WeightRenaming\n\n\n"
        "def _build_checkpoint_conversion_mapping():\n"
        "    first = [WeightRenaming(source_patterns=r'a\\.', target_patterns='b.'), WeightRenaming('c', 'd')]\n"
        "    rest = [one for one in first if not one._original_source_patterns[0].startswith('a')]\n"
        "    return {'first': first, 'second': rest}\n",
        encoding="utf-8",
    )
    entries = recipe_book(Library("transformers", tmp_path / "transformers")).entries
    assert [one.sources for one in entries["second"]] == [("c",)]
    assert len(entries["first"]) == 2
