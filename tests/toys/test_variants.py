"""Variants of a config, by rule."""

from typing import Any

from omni_kit.pysource.reads import attributes_read
from omni_kit.toys.configs.variants import TIED, variants

TOY: dict[str, Any] = {
    "num_hidden_layers": 2, "num_experts": 10, "num_experts_per_tok": 3, "head_dim": 16, "rms_norm_eps": 1e-6,
    "router_aux_loss_coef": 0.01, "attention_dropout": 0.1, "initializer_range": 0.02, "norm_topk_prob": False,
    "tie_word_embeddings": False, "use_cache": True, "unread": True, "layer_types": ["full", "sliding"],
    "time_step_limit": [0.0, 1.0], "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip
READ = {"norm_topk_prob", "use_cache", "head_dim"}


def test_each_differs_in_one_respect() -> None:
    found = dict(variants(TOY, {*READ, TIED}))
    for name in ("norm_topk_prob=True", "tie_word_embeddings=True", "num_experts_per_tok=4", "head_dim=24"):
        key, _, value = name.partition("=")
        assert found[name] == {**TOY, key: int(value) if value.isdigit() else value == "True"}
    assert not {"unread=False", "use_cache=False"} & set(found)
    assert "tie_word_embeddings=True" not in dict(variants(TOY, READ))  # there is nothing to tie


def test_a_number_that_is_not_given_is() -> None:
    toy = {**TOY, "logit_cap": None, "window": None, "dropout_rate": None}
    found = dict(variants(toy, {*READ, "logit_cap", "window", "dropout_rate"}, {"logit_cap", "dropout_rate", "other"}))
    assert found["logit_cap=0.5"] == {**toy, "logit_cap": 0.5}
    assert not [name for name in found if name.startswith(("window", "dropout_rate", "other"))]
    assert not [name for name in dict(variants(TOY, {*READ, "logit_cap"}, {"logit_cap"})) if "cap" in name]


def test_numbers_move_from_their_defaults_and_chance_does_not() -> None:
    moved = dict(variants(TOY, READ))["no number at its default"]
    assert (moved["rms_norm_eps"], moved["router_aux_loss_coef"]) == (0.03, 0.0125)
    assert moved["rope_parameters"]["rope_theta"] == 12500
    same = ("attention_dropout", "initializer_range", "num_hidden_layers", "layer_types")
    assert {key: moved[key] for key in same} == {key: TOY[key] for key in same}


def test_twelve_layers_have_a_sort_each() -> None:
    many = dict(variants(TOY, READ))["12 layers and 12 experts"]
    assert (many["num_hidden_layers"], many["num_experts"], len(many["layer_types"])) == (12, 12, 12)
    assert many["layer_types"][:3] == ["full", "sliding", "full"]
    assert many["time_step_limit"] == [0.0, 1.0]


WHOLE: dict[str, Any] = {
    "model_type": "whole", "tie_word_embeddings": False,
    "text_config": {**TOY, "model_type": "text"},
    "talker": {"model_type": "speaks", "inner": {"model_type": "inner", "norm_topk_prob": False}},
    "quantization": {"norm_topk_prob": True},
}  # fmt: skip


def test_a_config_within_a_config_is_varied_by_itself() -> None:
    found = dict(variants(WHOLE, {*READ, TIED}))
    turned = found["text_config: norm_topk_prob=True"]
    assert turned["text_config"] == {**WHOLE["text_config"], "norm_topk_prob": True}
    assert {key: turned[key] for key in WHOLE if key != "text_config"} == {
        key: WHOLE[key] for key in WHOLE if key != "text_config"
    }
    assert found["talker: inner: norm_topk_prob=True"]["talker"]["inner"]["norm_topk_prob"] is True
    assert {"text_config: rope yarn", "text_config: head_dim=24", "text_config: 12 layers and 12 experts"} <= set(found)
    assert not [name for name in found if name.startswith("quantization")]  # a group of settings is no config
    # What the whole says, too, is turned in both at once.
    assert found["tie_word_embeddings=True"]["text_config"]["tie_word_embeddings"] is True
    assert "text_config: tie_word_embeddings=True" not in found


def test_only_the_part_that_answers_is_varied() -> None:
    found = dict(variants(WHOLE, READ, spoken="text_config"))
    assert "text_config: norm_topk_prob=True" in found
    assert not [name for name in found if name.startswith("talker")]


def test_positions_are_scaled_where_there_is_one_way_of_rotating() -> None:
    scaled = {name for name, _ in variants(TOY, READ) if name.startswith("rope ")}
    assert scaled == {"rope linear", "rope dynamic", "rope yarn", "rope llama3"}
    already = {**TOY, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4}}
    by_sort = {**TOY, "rope_parameters": {"full": {"rope_theta": 1e4}}}
    for other in (already, by_sort):
        assert not [name for name, _ in variants(other, READ) if name.startswith("rope ")]


def test_the_toy_stays_as_it_is() -> None:
    before = repr(TOY)
    for _, made in variants(TOY, READ):
        made.setdefault("rope_parameters", {})["rope_theta"] = 0
    assert repr(TOY) == before


def test_what_code_asks_of_a_config() -> None:
    import ast

    code = 'self.a = config.a + self.config.b\nc = getattr(text_config, "c", 1)\nother.d\nhasattr(other, "e")\n'
    assert attributes_read(ast.parse(code), "config") == {"a", "b", "c"}
