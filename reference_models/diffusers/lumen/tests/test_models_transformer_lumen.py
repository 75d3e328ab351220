"""The transformer by itself: its config, its weights, and its checkpoints."""

import inspect
import json
from pathlib import Path

import torch
from lumen import LumenTransformer2DModel
from lumen.conversion import convert_lumen_transformer_checkpoint_to_diffusers

TOY = json.loads((Path(__file__).parents[1] / "toy_config.json").read_text(encoding="utf-8"))
CONFIG = {name: value for name, value in TOY.items() if not name.startswith("_")}


def small_model() -> LumenTransformer2DModel:
    torch.manual_seed(0)
    model = LumenTransformer2DModel(**CONFIG)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.2)
    return model.eval()


def test_every_argument_is_in_the_config():
    taken = set(inspect.signature(LumenTransformer2DModel.__init__).parameters) - {"self"}
    assert taken <= set(small_model().config)


def test_what_is_saved_comes_back(tmp_path: Path):
    model = small_model()
    model.save_pretrained(tmp_path)
    again = LumenTransformer2DModel.from_pretrained(tmp_path)
    assert {**again.config, "_name_or_path": ""} == {**model.config, "_name_or_path": ""} or json.dumps(
        {key: value for key, value in again.config.items() if key[0] != "_"}, default=list, sort_keys=True
    ) == json.dumps({key: value for key, value in model.config.items() if key[0] != "_"}, default=list, sort_keys=True)
    torch.testing.assert_close(again.state_dict(), model.state_dict(), rtol=0, atol=0, equal_nan=True)


def test_blocks_that_are_named_are_there():
    classes = {type(module).__name__ for module in small_model().modules()}
    assert set(LumenTransformer2DModel._no_split_modules) <= classes
    assert set(LumenTransformer2DModel._repeated_blocks) <= classes


def test_attention_has_processors():
    model = small_model()
    assert model.attn_processors
    model.set_attn_processor(dict(model.attn_processors))


def test_a_conversion_of_what_is_converted_changes_nothing():
    model = small_model()
    assert set(convert_lumen_transformer_checkpoint_to_diffusers(dict(model.state_dict()), config=model.config)) == set(
        model.state_dict()
    )
