"""Profiles of denoisers, against the real classes: signatures, processors, plans, defaults."""

import inspect

import pytest

from omni_kit.pysource.library import find_library
from omni_kit.upstream.diffusers.classes import transformer_names
from omni_kit.upstream.diffusers.models import component_model
from omni_kit.upstream.diffusers.traits import profile
from omni_kit.upstream.profile import ModelProfile
from tests.diffusers_models import model_class

DIFFUSERS = find_library("diffusers")
LOOKED_AT = [
    "FluxTransformer2DModel", "HunyuanVideoTransformer3DModel", "LTXVideoTransformer3DModel", "SD3Transformer2DModel",
    "QwenImageTransformer2DModel", "WanTransformer3DModel",
]  # fmt: skip
# Arguments of forward that are no data: switches, and bags of settings.
NO_DATA = {"return_dict", "attention_kwargs", "joint_attention_kwargs", "controlnet_blocks_repeat"}


def profile_of(name: str, **values: object) -> ModelProfile:
    return profile(component_model(DIFFUSERS, name, values))


def value(found: ModelProfile, name: str) -> object:
    trait = found.trait(name)
    return trait.value if trait is not None else None


@pytest.mark.parametrize("name", LOOKED_AT)
def test_inputs_are_those_of_the_real_forward(name: str) -> None:
    found = profile_of(name)
    taken = list(inspect.signature(model_class(name).forward).parameters.values())[1:]
    assert str(value(found, "latents")).partition(" ")[0] == taken[0].name
    conditions = [p for p in taken[1:] if p.name not in {"timestep", *NO_DATA}]
    expected = [p.name if p.default is p.empty else f"{p.name} (optional)" for p in conditions]
    assert value(found, "conditioning") == expected


@pytest.mark.parametrize("name", LOOKED_AT)
def test_processors_are_those_that_the_real_model_sets(name: str) -> None:
    import torch

    with torch.device("meta"):
        model = model_class(name)(num_layers=1)
    real = {type(module.processor).__name__ for module in model.modules() if getattr(module, "processor", None)}
    named = {trait.value for trait in profile_of(name).traits if trait.name == "attention-processor"}
    assert real - {"AttnProcessor2_0"} <= named


def test_every_plan_for_sharing_a_sequence_is_found_and_no_other() -> None:
    for name in transformer_names(DIFFUSERS):
        plan = getattr(model_class(name), "_cp_plan", None)
        found = value(profile_of(name), "context-parallel")
        if plan is None:
            assert found is None, name
        else:
            assert isinstance(found, dict), name
            assert list(found) == list(plan), name


def test_a_plan_says_what_is_split_and_gathered() -> None:
    plan = value(profile_of("WanTransformer3DModel"), "context-parallel")
    assert isinstance(plan, dict)
    assert plan["rope"] == {"0": "split dim 1 of the result", "1": "split dim 1 of the result"}
    assert plan["blocks.0"] == {"hidden_states": "split dim 1"}
    assert plan["proj_out"] == "gather dim 1"


def test_axes_are_told_before_the_latents_become_something_else() -> None:
    wan = value(profile_of("WanTransformer3DModel"), "latents")
    assert wan == "hidden_states [batch_size, num_channels, num_frames, height, width]"
    assert value(profile_of("HeliosTransformer3DModel"), "latents") == "hidden_states"


def test_patching_and_positions_name_the_parts() -> None:
    found = profile_of("WanTransformer3DModel")
    assert value(found, "patch-size") == (1, 2, 2)
    assert value(found, "patch-embedding") == "patch_embedding: nn.Conv3d"
    assert value(found, "positions") == "rope: WanRotaryPosEmbed"
    assert value(profile_of("SD3Transformer2DModel"), "positions") is None
    assert value(profile_of("FluxTransformer2DModel"), "axes-dims-rope") == (16, 56, 56)


def test_a_given_value_wins_and_says_so() -> None:
    found = profile_of("WanTransformer3DModel", num_layers=30).trait("layers")
    default = profile_of("WanTransformer3DModel").trait("layers")
    assert found is not None
    assert default is not None
    assert (found.value, found.evidence) == (30, "config.json: num_layers")
    assert (default.value, default.evidence.partition(":")[0]) == (
        40,
        "diffusers/models/transformers/transformer_wan.py",
    )


def test_guidance_is_a_trait_only_where_it_is_embedded() -> None:
    assert value(profile_of("FluxTransformer2DModel", guidance_embeds=True), "guidance-embedding") is True
    assert value(profile_of("FluxTransformer2DModel"), "guidance-embedding") is None


def test_originals_are_a_trait_only_where_diffusers_converts_them() -> None:
    wan = value(profile_of("WanTransformer3DModel"), "original-layout")
    assert wan == "from_single_file, by convert_wan_transformer_to_diffusers"
    assert value(profile_of("QwenImageTransformer2DModel"), "original-layout") is None


def test_every_trait_has_evidence_that_points_at_a_line() -> None:
    for name in LOOKED_AT:
        for trait in profile_of(name).traits:
            file, _, line = trait.evidence.partition(":")
            text = (DIFFUSERS.root.parent / file).read_text(encoding="utf-8").splitlines()
            assert text[int(line) - 1].strip(), (name, trait)


@pytest.mark.sweep
@pytest.mark.parametrize("name", transformer_names(DIFFUSERS))
def test_every_transformer_has_a_profile(name: str) -> None:
    found = profile_of(name)
    assert found.trait("latents") is not None
    assert found.trait("attention") is not None
