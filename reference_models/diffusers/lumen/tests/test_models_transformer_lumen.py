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
        width = parameter[0].numel() if parameter.dim() > 1 else 25  # wide layers must not let values grow
        torch.nn.init.normal_(parameter, std=width**-0.5)
    return model.eval()


def small_inputs() -> dict:
    generator = torch.Generator("cpu").manual_seed(0)
    return {
        "hidden_states": torch.randn((1, 6, 8, 4), generator=generator),
        "timestep": torch.tensor([250]),
        "encoder_hidden_states": torch.randn((1, 9, 28), generator=generator),
    }


def answered(model: LumenTransformer2DModel) -> torch.Tensor:
    torch.manual_seed(0)
    return model(**small_inputs(), return_dict=False)[0]


def alike(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Compare by the largest value: some CPU kernels depend on the weights' alignment in memory."""
    return bool((one - other).abs().max() <= 1e-4 * max(1.0, float(other.abs().max())))


@torch.no_grad()
def test_it_answers():
    sample = answered(small_model())
    assert sample.shape == (1, 6, 8, 4)
    assert sample.isfinite().all()


def test_checkpointed_blocks_have_the_same_gradients():
    plain, checkpointed = small_model(), small_model()
    checkpointed.enable_gradient_checkpointing()
    for model in (plain, checkpointed):
        answered(model).sum().backward()
    expected = {name: one.grad for name, one in plain.named_parameters() if one.grad is not None}
    found = {name: one.grad for name, one in checkpointed.named_parameters() if one.grad is not None}
    assert expected and found.keys() == expected.keys()
    assert [name for name, one in expected.items() if not alike(found[name], one)] == []


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
    with torch.no_grad():
        assert alike(answered(again.eval()), answered(model))


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
