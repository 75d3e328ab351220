"""Original authors' layouts, against what diffusers' own loader of single files says of the same tensors."""

from collections.abc import Mapping

import pytest

from omni_kit.pysource.library import find_library
from omni_kit.upstream.diffusers.models import component_model
from omni_kit.upstream.diffusers.originals import converter_of, original_layout
from tests.diffusers_models import WAN, shallow_config, shapes_on_meta

DIFFUSERS = find_library("diffusers")
PREFIX = "model.diffusion_model."
Shapes = Mapping[str, tuple[int, ...] | None]
# What only an original checkpoint has: the tensors that diffusers' function asks for.
ORIGINALS: dict[str, tuple[Shapes, str]] = {
    "flux-dev": (
        {
            "double_blocks.0.img_attn.norm.key_norm.scale": (128,), "guidance_in.in_layer.bias": (3072,),
            "img_in.weight": (3072, 64),
        },
        "FluxTransformer2DModel",
    ),
    "flux-schnell": ({f"{PREFIX}double_blocks.0.img_attn.norm.key_norm.scale": (128,)}, "FluxTransformer2DModel"),
    "flux-2-dev": ({"single_stream_modulation.lin.weight": (9, 9)}, "Flux2Transformer2DModel"),
    "sd3": (
        {"joint_blocks.0.context_block.adaLN_modulation.1.bias": (9216,), "pos_embed": (1, 36864, 1536)},
        "SD3Transformer2DModel",
    ),
    "sd35_medium": (
        {"joint_blocks.0.context_block.adaLN_modulation.1.bias": (9216,), "pos_embed": (1, 147456, 1536)},
        "SD3Transformer2DModel",
    ),
    "wan-t2v-1.3B": (
        {"head.modulation": (1, 2, 1536), "patch_embedding.weight": (1536, 16, 1, 2, 2)},
        "WanTransformer3DModel",
    ),
    "wan-i2v-14B": (
        {"head.modulation": (1, 2, 5120), "patch_embedding.weight": (5120, 36, 1, 2, 2)},
        "WanTransformer3DModel",
    ),
    "wan-animate-14B": (
        {
            "head.modulation": (1, 2, 5120), "patch_embedding.weight": (5120, 36, 1, 2, 2),
            "motion_encoder.dec.direction.weight": (512, 20),
        },
        "WanAnimateTransformer3DModel",
    ),
    "hunyuan-video": (
        {"txt_in.individual_token_refiner.blocks.0.adaLN_modulation.1.bias": (6,)},
        "HunyuanVideoTransformer3DModel",
    ),
    "mochi-1-preview": ({"blocks.0.attn.qkv_x.weight": (9, 9)}, "MochiTransformer3DModel"),
    "ltx-video": ({"patchify_proj.weight": (9, 9)}, "LTXVideoTransformer3DModel"),
    "cosmos-1.0-t2w-7B": (
        {
            "net.x_embedder.proj.1.weight": (4096, 68), "net.extra_pos_embedder.pos_emb_h": (9,),
            "net.blocks.block1.blocks.0.block.attn.to_q.0.weight": (9, 9),
        },
        "CosmosTransformer3DModel",
    ),
    "xl_base": ({"conditioner.embedders.1.model.transformer.resblocks.9.mlp.c_proj.bias": (9,)}, ""),
    "v1": ({"model.diffusion_model.output_blocks.11.0.skip_connection.weight": (9, 9)}, ""),
}  # fmt: skip


def said_by_diffusers(tensors: Shapes) -> str:
    import torch
    from diffusers.loaders.single_file_utils import infer_diffusers_model_type

    return str(
        infer_diffusers_model_type({key: torch.empty(shape or (), device="meta") for key, shape in tensors.items()})
    )


@pytest.mark.parametrize("name", ORIGINALS)
def test_a_format_is_called_as_diffusers_calls_it(name: str) -> None:
    tensors, class_name = ORIGINALS[name]
    assert said_by_diffusers(tensors) == name
    found = original_layout(DIFFUSERS, tensors)
    assert found is not None
    assert (found.name, found.class_name) == (name, class_name)


def test_names_alone_tell_a_format_but_not_its_size() -> None:
    """An index without its shards has no shapes, and the size of the model hangs on them."""
    found = original_layout(DIFFUSERS, dict.fromkeys(ORIGINALS["wan-t2v-1.3B"][0]))
    assert found is not None
    assert (found.name, found.class_name, found.repository) == ("wan", "WanTransformer3DModel", "")
    flux = original_layout(DIFFUSERS, dict.fromkeys(ORIGINALS["flux-schnell"][0]))
    assert flux is not None
    assert flux.class_name == "FluxTransformer2DModel"


def test_conversion_and_config_are_those_of_the_tables() -> None:
    from diffusers.loaders.single_file_model import SINGLE_FILE_LOADABLE_CLASSES
    from diffusers.loaders.single_file_utils import DIFFUSERS_DEFAULT_PIPELINE_PATHS

    found = original_layout(DIFFUSERS, ORIGINALS["wan-t2v-1.3B"][0])
    assert found is not None
    assert found.repository == DIFFUSERS_DEFAULT_PIPELINE_PATHS["wan-t2v-1.3B"]["pretrained_model_name_or_path"]
    for class_name, entry in SINGLE_FILE_LOADABLE_CLASSES.items():
        name = entry["checkpoint_mapping_fn"].__name__
        assert converter_of(DIFFUSERS, class_name)[0] == ("" if name == "<lambda>" else name)


# Their own names are keys of diffusers' table, too.
ALIKE = [
    "Lumina2Transformer2DModel", "LTXVideoTransformer3DModel", "ZImageTransformer2DModel", "SanaTransformer2DModel",
    "PixArtTransformer2DModel", "AuraFlowTransformer2DModel", "WanAnimateTransformer3DModel",
]  # fmt: skip


@pytest.mark.parametrize("name", ["WanTransformer3DModel", *ALIKE])
def test_what_is_in_diffusers_own_layout_is_no_original(name: str) -> None:
    config = shallow_config(name)
    if name in {"LTXVideoTransformer3DModel", "PixArtTransformer2DModel"}:  # the table asks for the twenty-eighth layer
        config = {"num_layers": 28}
    tensors = shapes_on_meta(name, config)
    assert original_layout(DIFFUSERS, tensors, component_model(DIFFUSERS, name, config)) is None
    assert original_layout(DIFFUSERS, tensors) is None


def test_nothing_that_is_known_is_no_original() -> None:
    assert original_layout(DIFFUSERS, {}) is None
    assert original_layout(DIFFUSERS, {"model.layers.0.mlp.gate_proj.weight": (4, 4)}) is None
    own = component_model(DIFFUSERS, "WanTransformer3DModel", WAN)
    assert original_layout(DIFFUSERS, {"nobody.weight": (4,)}, own) is None
