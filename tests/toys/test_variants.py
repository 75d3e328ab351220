"""Variants of a config, by rule."""

import ast
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from omni_kit.pysource.reads import attributes_read
from omni_kit.toys.configs.rope import PARTIAL, ROPE
from omni_kit.toys.configs.values import Declared
from omni_kit.toys.configs.variants import LAYERS, MOVED, SWITCHED, TIED, TOGETHER, Extent, Source, Variants, chosen
from omni_kit.upstream.transformers.fields import ConfigField, FieldsRead, Use, fields_read

TOY: dict[str, Any] = {
    "model_type": "toy", "num_hidden_layers": 2, "num_experts": 10, "num_experts_per_tok": 3, "head_dim": 16,
    "rms_norm_eps": 1e-6, "router_aux_loss_coef": 0.01, "attention_dropout": 0.1, "initializer_range": 0.02,
    "norm_topk_prob": False, "tie_word_embeddings": False, "use_cache": True, "unread": True,
    "layer_types": ["full", "sliding"], "mlp_only_layers": [], "sparse_step": 1, "hidden_act": "silu", "window": None,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
}  # fmt: skip
CODE = """
class Layer:
    def __init__(self, config, layer_idx):
        self.top_k = config.num_experts_per_tok
        if layer_idx not in config.mlp_only_layers and (layer_idx + 1) % config.sparse_step == 0:
            self.mlp = Experts(config.num_experts)
        self.act = ACT2FN[config.hidden_act]
        self.kind = config.layer_types[layer_idx]
        self.width = getattr(config, "head_dim", None) or 8
        self.eps, self.cache, self.ties = config.rms_norm_eps, config.use_cache, config.tie_word_embeddings
        self.rope = config.rope_parameters
        self.window = config.window if self.kind == "sliding" else None
        if config.norm_topk_prob:
            self.scale = getattr(config, "scale_by_depth", False)
"""
READ = fields_read([ast.parse(CODE)])
DECLARED = Declared(
    {"window": frozenset({int, type(None)})}, tables={"ACT2FN": ["silu", "relu", "gelu"]}, kinds=("full", "other"),
)  # fmt: skip
ROPES = {"yarn": ("factor", "original_max_position_embeddings"), "longrope": ("short_factor", "long_factor")}


def made(toy: Mapping[str, Any] = TOY, read: FieldsRead = READ, **rest: Any) -> Variants:
    return chosen(Source(toy, read, DECLARED, ROPES, rest.pop("spoken", "")), lambda config: "", **rest)


def of_names(*names: str) -> FieldsRead:
    return FieldsRead({name: ConfigField(name) for name in names}, frozenset(), frozenset())


def test_each_field_gets_values_by_its_use() -> None:
    found = made().configs
    expected: dict[str, dict[str, Any]] = {
        "norm_topk_prob=True": {"norm_topk_prob": True}, "tie_word_embeddings=True": {TIED: True},
        "num_experts_per_tok=4": {"num_experts_per_tok": 4}, "head_dim=24": {"head_dim": 24},
        "hidden_act=gelu": {"hidden_act": "gelu"}, "mlp_only_layers=[0]": {"mlp_only_layers": [0]},
        "sparse_step=2": {"sparse_step": 2}, "window=5": {"window": 5}, "scale_by_depth=True": {"scale_by_depth": True},
        "layer_types=['sliding', 'full']": {"layer_types": ["sliding", "full"]},
        "layer_types=['sliding', 'sliding']": {"layer_types": ["sliding", "sliding"]},
        "mlp_only_layers=[0], sparse_step=2": {"mlp_only_layers": [0], "sparse_step": 2},
    }  # fmt: skip
    for name, changed in expected.items():
        assert found[name] == {**TOY, **changed}, name
    assert not {"unread=False", "use_cache=False"} & set(found)


def test_what_was_not_varied_is_known() -> None:
    fields = {one.name: one for one in made().fields}
    assert fields["use_cache"].why == "scenarios call the model with it"
    assert fields["hidden_act"].tried == ("hidden_act=gelu",)
    assert fields["scale_by_depth"].toy == "absent"
    assert "unread" not in fields


def test_the_first_value_that_upstream_accepts_is_taken() -> None:
    def even(config: Mapping[str, Any]) -> str:
        return "uneven heads" if config["head_dim"] % 16 else "" if config["hidden_act"] == "silu" else "no such act"

    found = chosen(Source(TOY, READ, DECLARED, ROPES), even)
    assert "head_dim=32" in found.configs
    assert "head_dim=24" not in found.configs
    assert found.refused == {"hidden_act=gelu": "no such act"}
    assert {one.name: one.why for one in found.fields}[
        "hidden_act"
    ] == "upstream refuses it: hidden_act=gelu: no such act"


def test_together_leaves_out_what_is_refused() -> None:
    asked = []

    def accepts(config: Mapping[str, Any]) -> str:
        asked.append(config)
        return "no such act" if config["hidden_act"] != "silu" else ""

    found = chosen(Source(TOY, READ, DECLARED, ROPES), accepts, Extent.together)
    assert found.configs.keys() == {TOGETHER, LAYERS}
    every, layers = found.configs[TOGETHER], found.configs[LAYERS]
    assert (every["norm_topk_prob"], every["head_dim"], every["hidden_act"]) == (True, 24, "silu")
    assert (layers["mlp_only_layers"], layers["sparse_step"]) == ([0], 2)
    assert len(asked) < 15


def test_numbers_move_from_their_defaults_and_chance_does_not() -> None:
    moved = made().configs[MOVED]
    assert moved["rms_norm_eps"] == 0.03
    assert moved["rope_parameters"]["rope_theta"] > 12500
    same = ("attention_dropout", "initializer_range", "num_hidden_layers", "layer_types")
    assert {key: moved[key] for key in same} == {key: TOY[key] for key in same}


def test_numbers_move_apart_and_away_from_zero() -> None:
    toy = {"model_type": "toy", "norm_eps": 1e-6, "qk_eps": 1e-6, "first": 1.0, "second": 1.0, "off": 0.0}
    moved = made(toy, of_names(*toy)).configs[MOVED]
    values = {name: value for name, value in moved.items() if isinstance(value, float)}
    assert len({*values.values(), 0.0, 1.0, 1e-6}) == len(values) + 3

    def refuses(config: Mapping[str, Any]) -> str:
        return "off stays 0" if config["off"] else ""

    found = chosen(Source(toy, of_names(*toy), DECLARED, {}), refuses, Extent.numbers).configs
    assert [{key: one[key] == toy[key] for key in values} for one in found.values()] == [
        {key: key == "off" for key in values}
    ]


def test_numbers_that_are_off_are_turned_on() -> None:
    toy = {"model_type": "toy", "scale": 2.0, "cap": None, "coef": 0, "window": None, "count": 0, "unread": None}
    optional = frozenset({float, type(None)})
    types: dict[str, frozenset[Any]] = {
        "cap": optional,
        "coef": frozenset({float, int}),
        "window": frozenset({int}),
        "unread": optional,
    }
    read = of_names("scale", "cap", "coef", "window", "count")

    def refuses(config: Mapping[str, Any]) -> str:
        return "no cap" if config["cap"] else ""

    source = Source(toy, read, Declared(types), {})
    free, capless = (chosen(source, why, Extent.numbers).configs for why in (lambda config: "", refuses))
    assert {name for name, value in free[MOVED].items() if value != toy[name]} == {"scale", "cap", "coef"}
    assert free[MOVED]["cap"] != free[MOVED]["coef"]
    assert [{name for name, value in one.items() if value != toy[name]} for one in capless.values()] == [{"scale"}]


def test_twelve_layers_have_a_kind_each() -> None:
    many = made().configs["12 layers and 12 experts"]
    assert (many["num_hidden_layers"], many["num_experts"], len(many["layer_types"])) == (12, 12, 12)
    assert many["layer_types"][:3] == ["full", "sliding", "full"]


WHOLE: dict[str, Any] = {
    "model_type": "whole", "tie_word_embeddings": False,
    "text_config": {**TOY, "model_type": "text"},
    "talker": {"model_type": "speaks", "inner": {"model_type": "inner", "norm_topk_prob": False}},
    "quantization": {"norm_topk_prob": True},
}  # fmt: skip


def test_a_config_within_a_config_is_varied_by_itself() -> None:
    found = made(WHOLE).configs
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
    found = made(WHOLE, spoken="text_config").configs
    assert "text_config: norm_topk_prob=True" in found
    assert not [name for name in found if name.startswith("talker")]


def test_positions_are_scaled_in_every_way_that_the_library_knows() -> None:
    found = made().configs
    assert found["rope yarn"]["rope_parameters"]["original_max_position_embeddings"] == 8
    assert len(found["rope longrope"]["rope_parameters"]["short_factor"]) == TOY["head_dim"] // 2
    scaled = {**TOY, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}}
    names = {name for name in made(scaled).configs if name.startswith("rope ")}
    assert names == {"rope default", "rope longrope"}
    by_kind = {**TOY, "rope_parameters": {"full": {"rope_theta": 1e4}}}
    assert "rope yarn of full" in made(by_kind).configs


def test_the_toy_stays_as_it_is() -> None:
    before = repr(TOY)
    for config in made().configs.values():
        config["rope_parameters"]["rope_theta"] = 0
    assert repr(TOY) == before


def test_names_alone_are_enough() -> None:
    found = made(TOY, of_names("norm_topk_prob", "window"))
    assert "norm_topk_prob=True" in found.configs


def test_what_code_asks_of_a_config() -> None:
    code = 'self.a = config.a + self.config.b\nc = getattr(text_config, "c", 1)\nother.d\nhasattr(other, "e")\n'
    assert attributes_read(ast.parse(code), "config") == {"a", "b", "c"}


def test_switches_are_turned_together_without_any_number() -> None:
    found = chosen(Source(TOY, READ, DECLARED, ROPES), lambda _: "", Extent.switches).configs.get(SWITCHED, TOY)
    changed = {name for name, value in found.items() if TOY.get(name) != value}
    assert all(isinstance(found[name], bool) for name in changed)
    assert TIED not in changed


def test_numbers_come_with_partial_rotary_embeddings_where_a_rope_reads_them() -> None:
    toy = {**TOY, ROPE: {"rope_type": "default", "rope_theta": 10000.0, PARTIAL: 1.0}}
    read = replace(READ, fields={**READ.fields, ROPE: ConfigField(ROPE)})
    names = [*chosen(Source(toy, read, DECLARED, ROPES), lambda _: "", Extent.numbers).configs]
    assert [PARTIAL in name for name in names] == [False, True]
    plain = {name: value for name, value in TOY.items() if name != ROPE}
    assert [*chosen(Source(plain, READ, DECLARED, {}), lambda _: "", Extent.numbers).configs] == [MOVED]


def test_a_number_a_layer_is_another_one_in_each() -> None:
    toy = {"model_type": "lit", "num_hidden_layers": 2, "top_k": 3, "wide": [8, 8], "rope": [1, 1], "places": [1, 2, 3]}
    fields = {name: ConfigField(name) for name in toy if name != "model_type"}
    fields["top_k"].uses.add(Use.by_layer)
    declared = Declared({"top_k": frozenset({int, list})})
    found = chosen(Source(toy, FieldsRead(fields, frozenset(), frozenset()), declared), lambda config: "").configs
    assert {"top_k=[2, 3]", "top_k=4", "wide=[7, 8]", "rope=[0, 1]"} <= found.keys()
    assert not any(name.startswith("places") for name in found)
