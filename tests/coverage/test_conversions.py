"""Conversions of authors' checkpoints, compared with those of diffusers itself."""

from functools import reduce

import pytest

from omni_kit.coverage import conversions

torch = pytest.importorskip("torch")


def test_a_conversion_is_compared_with_diffusers_own() -> None:
    """Authors' names are made from diffusers' by turning round three of the renamings of its own function."""
    from diffusers import LTXVideoTransformer3DModel

    sizes = {"num_attention_heads": 2, "attention_head_dim": 8, "cross_attention_dim": 16, "num_layers": 1}
    model = LTXVideoTransformer3DModel(in_channels=4, out_channels=4, caption_channels=12, **sizes)
    theirs = {name: torch.randn_like(tensor) for name, tensor in model.state_dict().items()}
    turned = (("proj_in", "patchify_proj"), ("time_embed", "adaln_single"), ("norm_q", "q_norm"), ("norm_k", "k_norm"))
    authors = {reduce(lambda name, pair: name.replace(*pair), turned, name): theirs[name] for name in theirs}

    found = conversions.own_conversion(authors)
    assert found is not None
    assert (found.class_name, found.numbers) == ("LTXVideoTransformer3DModel", "")
    assert conversions.compared(theirs, found.tensors) == conversions.Difference(len(theirs), [], [], [], [])
    lamps = {name: tensor for name, tensor in theirs.items() if name != "proj_in.weight"}
    lamps["lamp.weight"] = theirs["proj_in.weight"]
    lamps["proj_in.bias"] = theirs["proj_in.bias"] + 1
    lamps["scale_shift_table"] = theirs["scale_shift_table"].flip(0)
    difference = conversions.compared(lamps, found.tensors)
    assert difference.renamed == [("lamp.weight", "proj_in.weight")]
    assert difference.shared == ["scale_shift_table"]
    assert (difference.ours, difference.theirs) == (["proj_in.bias"], ["proj_in.bias"])


@pytest.mark.sweep
def test_a_checkpoint_that_diffusers_does_not_know_has_no_conversion() -> None:
    assert conversions.own_conversion({"lamp.0.weight": torch.zeros(2, 3)}) is None


@pytest.mark.sweep
def test_numbers_of_the_published_model_are_replaced_by_those_of_a_toy() -> None:
    """diffusers' function for Flux splits rows by the published width."""
    from diffusers import FluxTransformer2DModel

    width = 32
    layers = {
        "img_in": (width, 4), "txt_in": (width, 12),
        "time_in.in_layer": (width, 256), "time_in.out_layer": (width, width),
        "vector_in.in_layer": (width, 20), "vector_in.out_layer": (width, width),
        "single_blocks.0.modulation.lin": (3 * width, width), "single_blocks.0.linear1": (7 * width, width),
        "single_blocks.0.linear2": (width, 5 * width),
        "final_layer.linear": (4, width), "final_layer.adaLN_modulation.1": (2 * width, width),
    }  # fmt: skip
    for stream in ("double_blocks.0.img", "double_blocks.0.txt"):
        layers |= {f"{stream}_mod.lin": (6 * width, width), f"{stream}_attn.qkv": (3 * width, width)}
        layers |= {f"{stream}_attn.proj": (width, width), f"{stream}_mlp.0": (4 * width, width)}
        layers |= {f"{stream}_mlp.2": (width, 4 * width)}
    authors = {f"{name}.weight": torch.randn(*shape) for name, shape in layers.items()}
    authors |= {f"{name}.bias": torch.randn(shape[0]) for name, shape in layers.items()}
    for holder in ("double_blocks.0.img_attn.norm", "double_blocks.0.txt_attn.norm", "single_blocks.0.norm"):
        authors |= {f"{holder}.{one}_norm.scale": torch.randn(16) for one in ("query", "key")}

    found = conversions.own_conversion(authors)
    assert found is not None
    assert found.numbers == f"inner_dim = {width} for 3072"
    model = FluxTransformer2DModel(
        in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=12, pooled_projection_dim=20, axes_dims_rope=(4, 6, 6),
    )  # fmt: skip
    assert {name: one.shape for name, one in found.tensors.items()} == {
        name: one.shape for name, one in model.state_dict().items()
    }
