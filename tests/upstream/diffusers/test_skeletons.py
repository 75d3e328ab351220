"""Skeletons of diffusers' models against what it builds on the meta device."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from omni_kit.errors import BadInput
from omni_kit.pysource.library import find_library
from omni_kit.upstream.diffusers.classes import transformer_names
from omni_kit.upstream.diffusers.models import component_model
from tests.diffusers_models import model_class, shallow_config, shapes_on_meta

DIFFUSERS = find_library("diffusers")
# Shared attention and classes' own; tables of norms and activations; packed, 2-D and 3-D patches; experts; two streams.
EXACT = [
    "CogVideoXTransformer3DModel", "CosmosTransformer3DModel", "Flux2Transformer2DModel", "FluxTransformer2DModel",
    "HiDreamImageTransformer2DModel", "HunyuanVideoTransformer3DModel", "LTX2VideoTransformer3DModel",
    "MochiTransformer3DModel", "PixArtTransformer2DModel", "QwenImageTransformer2DModel", "SanaTransformer2DModel",
    "WanAnimateTransformer3DModel", "WanTransformer3DModel", "ZImageTransformer2DModel",
]  # fmt: skip
OTHERS = ["AutoencoderKL", "AutoencoderKLWan", "UNet2DConditionModel", "FluxControlNetModel", "AutoencoderDC"]
# What functions compute in numbers keeps no shape that could be read.
COMPUTED = ("pos_embed.pos_embed", "patch_embedding.pos_embed")
WORDS = ("layer_norm", "rms_norm", "rms_norm_across_heads", "ada_norm_single", "gelu", "silu", "geglu", "swiglu")


def agrees(name: str, config: dict[str, Any]) -> None:
    """Every tensor of the real model is found, with its shape, for certain, and no other."""
    skeleton = component_model(DIFFUSERS, name, config).skeleton
    truth = shapes_on_meta(name, config)
    found = {p.name: truth.get(p.name) if p.name in COMPUTED else p.shape for p in skeleton.parameters}
    assert found == truth
    assert all(parameter.certain for parameter in skeleton.parameters)
    assert skeleton.unresolved == ()


@pytest.mark.parametrize("name", EXACT)
def test_transformers_equal_the_meta_device(name: str) -> None:
    agrees(name, shallow_config(name))


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_equal_the_meta_device(name: str) -> None:
    agrees(name, {})


def test_values_of_the_config_decide_what_is_built() -> None:
    config = shallow_config("WanTransformer3DModel")
    for change in ({"image_dim": 52, "added_kv_proj_dim": 5120}, {"qk_norm": None}, {"cross_attn_norm": False}):
        agrees("WanTransformer3DModel", {**config, **change})


def test_what_cannot_be_read_is_said() -> None:
    """Oobleck wraps its convolutions in weight_norm, which makes other tensors of them."""
    unresolved = component_model(DIFFUSERS, "AutoencoderOobleck", {}).skeleton.unresolved
    assert unresolved[0][0] == "encoder.conv1"
    assert unresolved[0][1].startswith("weight_norm(nn.Conv1d(")


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("WanTransformer9DModel", {}, "has no class WanTransformer9DModel"),
        ("WanTransformerBlock", {}, "is not a model"),
        ("WanTransformer3DModel", {"num_layers": "two"}, "num_layers is 'two'"),
        ("WanTransformer3DModel", {"num_layers": 10**9}, "not within 1000"),
        ("WanTransformer3DModel", {"eps": float("nan")}, "eps is nan"),
        ("WanTransformer3DModel", {"patch_size": {"t": 1}}, "patch_size is"),
    ],
)
def test_what_can_be_no_model_is_refused(name: str, values: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput, match=words):
        component_model(DIFFUSERS, name, values)


def variations(name: str) -> Iterator[dict[str, Any]]:
    """A shallow model, and the same with each argument changed alone."""
    base = shallow_config(name)
    yield base
    for parameter in list(inspect.signature(model_class(name).__init__).parameters.values())[1:]:
        default = parameter.default
        if isinstance(default, bool):
            others: tuple[Any, ...] = (not default,)
        elif isinstance(default, int):
            others = (default * 2,) if not parameter.name.endswith("layers") else (3,)
        else:
            others = (24, *WORDS) if default is None else WORDS if isinstance(default, str) else ()
        yield from ({**base, parameter.name: value} for value in others)


@pytest.mark.sweep
@pytest.mark.parametrize("name", transformer_names(DIFFUSERS))
def test_every_transformer_in_every_variation_that_can_be_built(name: str) -> None:
    built = 0
    for config in variations(name):
        try:
            shapes_on_meta(name, config)
        except Exception:  # whatever a class raises for arguments that do not go together
            continue
        agrees(name, config)
        built += 1
    assert built
