"""Toys of diffusion transformers: legal for diffusers' own classes, small, and with no two dimensions alike."""

import inspect
from typing import Any

import diffusers
import pytest
import torch

from omni_kit.errors import BadInput
from omni_kit.toys.batches.denoiser import TARGET, denoiser_inputs, samples_of
from omni_kit.toys.configs.denoiser import toy_denoiser
from omni_kit.upstream.diffusers.classes import is_diffusers_class

FED = ["WanTransformer3DModel", "QwenImageTransformer2DModel"]
BUILT = [
    "FluxTransformer2DModel",
    "SD3Transformer2DModel",
    "HunyuanVideoTransformer3DModel",
    "SkyReelsV2Transformer3DModel",
]


def defaults(name: str) -> dict[str, Any]:
    parameters = list(inspect.signature(getattr(diffusers, name).__init__).parameters.values())[1:]
    return {parameter.name: parameter.default for parameter in parameters}


def toy(name: str, **changes: Any) -> dict[str, Any]:
    return toy_denoiser({**defaults(name), **changes})


def build(name: str, device: str = "meta", **changes: Any) -> Any:
    with torch.device(device):
        return getattr(diffusers, name).from_config(toy(name, **changes))


@pytest.mark.parametrize("name", [*FED, *BUILT])
def test_the_toy_of_a_default_config_is_built_and_small(name: str) -> None:
    model = build(name)

    assert sum(parameter.numel() for parameter in model.parameters()) < 2_000_000
    assert all(len(part) == 2 for part in model.children() if isinstance(part, torch.nn.ModuleList))


@pytest.mark.parametrize("name", FED)
def test_no_two_dimensions_are_alike(name: str) -> None:
    config = toy(name)
    inner = config["num_attention_heads"] * config["attention_head_dim"]
    widths = [config[key] for key in ("text_dim", "joint_attention_dim", "ffn_dim", "freq_dim") if key in config]
    sizes = [config["attention_head_dim"], config["in_channels"], inner, *widths]

    assert len({size * times for size in sizes for times in (1, 2, 6)}) == 3 * len(sizes)  # 6: what modulates a block
    assert config["num_attention_heads"] not in sizes


def test_rope_axes_are_even_differ_and_fill_the_head() -> None:
    axes = toy("QwenImageTransformer2DModel")["axes_dims_rope"]

    assert sum(axes) == toy("QwenImageTransformer2DModel")["attention_head_dim"]
    assert len(set(axes)) == 3
    assert not any(axis % 2 for axis in axes)
    rope = build("WanTransformer3DModel", "cpu").rope
    assert rope.t_dim != rope.h_dim


def test_channels_keep_their_relation() -> None:
    """Packed patches of what goes out; the same as what goes out; or more, where a picture comes in beside it."""
    qwen, wan = toy("QwenImageTransformer2DModel"), toy("WanTransformer3DModel")
    from_picture = toy("WanTransformer3DModel", in_channels=36)

    assert qwen["in_channels"] == 4 * qwen["out_channels"]
    assert wan["in_channels"] == wan["out_channels"]
    assert from_picture["in_channels"] > from_picture["out_channels"] == wan["out_channels"]


def test_axes_that_do_not_fill_a_head_lack_one_and_those_that_are_more_are_positions() -> None:
    lacking = toy_denoiser({"attention_head_dim": 128, "axes_dims_rope": (32, 32)})["axes_dims_rope"]
    positions = toy_denoiser({"attention_head_dim": 40, "rope_axes_dim": (256, 256)})["rope_axes_dim"]

    assert len(lacking) == 3
    assert sum(lacking) == toy_denoiser({"attention_head_dim": 128})["attention_head_dim"]
    assert positions == (256, 256)


def test_a_learned_sigma_and_a_picture_with_its_mask_keep_their_relations() -> None:
    sigma = toy_denoiser({"in_channels": 4, "out_channels": 8, "patch_size": 2})
    picture = toy_denoiser({"in_channels": 36, "latent_channels": 16, "out_channels": 16, "patch_size": (1, 2, 2)})

    assert sigma["out_channels"] == 2 * sigma["in_channels"]
    assert picture["in_channels"] == 2 * picture["latent_channels"] + 4


def test_sizes_without_a_default_are_given() -> None:
    config = toy_denoiser({"in_channels": None, "out_channels": None, "patch_size": None, "caption_channels": None})

    assert config["in_channels"] == config["out_channels"]
    assert config["patch_size"] == 2
    assert config["caption_channels"] is None  # a model may look at texts without projecting them
    assert toy_denoiser({"patch_size": None, "num_vector_embeds": None})["patch_size"] is None


def test_captions_are_projected_to_the_width_of_the_whole() -> None:
    captions = toy_denoiser({"caption_channels": 4096, "cross_attention_dim": 2048})
    alone = toy_denoiser({"caption_channels": None, "cross_attention_dim": 2048})

    assert captions["cross_attention_dim"] == 80
    assert alone["cross_attention_dim"] == 28


def test_heads_that_are_grouped_stay_so() -> None:
    assert toy_denoiser({"num_attention_heads": 24, "num_kv_heads": 8})["num_kv_heads"] == 2
    assert toy_denoiser({"num_attention_heads": 24, "num_kv_heads": 24})["num_kv_heads"] == 4


def test_there_is_a_width_for_every_argument() -> None:
    config = toy_denoiser({f"part{index}_dim": 1024 for index in range(40)})

    assert len(set(config.values())) == 40
    assert not any(width % 8 for width in config.values())


def test_counts_of_axes_stay_and_wide_patches_shrink() -> None:
    toy = toy_denoiser({"dims": 2, "pos_dim": 3, "patch_size": 2, "patch_mixer_dim": 512, "patch_dim": 4})
    assert toy_denoiser({"patch_size": 16})["patch_size"] == 4
    assert (toy["dims"], toy["pos_dim"], toy["patch_size"], toy["patch_dim"]) == (2, 3, 2, 4)
    assert toy["patch_mixer_dim"] < 128


def test_decisions_are_kept() -> None:
    config = toy("WanTransformer3DModel", qk_norm=None, cross_attn_norm=False, eps=1e-5, patch_size=(2, 2, 2))

    assert config["qk_norm"] is None
    assert config["cross_attn_norm"] is False
    assert (config["eps"], config["patch_size"]) == (1e-5, (2, 2, 2))
    assert toy("QwenImageTransformer2DModel", zero_cond_t=True)["zero_cond_t"] is True
    assert toy("SD3Transformer2DModel", dual_attention_layers=(0, 1, 2, 12))["dual_attention_layers"] == (0, 1)


@pytest.mark.parametrize("name", FED)
def test_the_samples_differ_in_size_and_in_every_element(name: str) -> None:
    first, second = samples_of(denoiser_inputs(build(name, "cpu")))

    assert first["hidden_states"].shape != second["hidden_states"].shape
    assert first["encoder_hidden_states"].shape[1] != second["encoder_hidden_states"].shape[1]
    assert not torch.equal(first["timestep"], second["timestep"])
    for sample in (first, second):
        for key in ("hidden_states", "encoder_hidden_states", TARGET):
            assert len(set(sample[key].flatten().tolist())) == sample[key].numel()
        rounded = sample["timestep"].to(torch.bfloat16).to(sample["timestep"].dtype)
        assert torch.equal(rounded, sample["timestep"])


def test_a_mask_hides_some_text_and_sizes_are_those_of_the_patches() -> None:
    for sample in samples_of(denoiser_inputs(build("QwenImageTransformer2DModel", "cpu"))):
        mask = sample["encoder_hidden_states_mask"]
        assert mask.any()
        assert not mask.all()
        assert int(sample["img_shapes"].prod(-1).sum()) == sample["hidden_states"].shape[1]


class Unknown(torch.nn.Module):
    """A model that wants what no rule makes."""

    def __init__(self) -> None:
        super().__init__()
        self.config: dict[str, Any] = {"in_channels": 6}
        self.proj = torch.nn.Linear(6, 6)

    def forward(self, hidden_states: torch.Tensor, kv_cache: Any) -> tuple[torch.Tensor]:
        return (self.proj(hidden_states),)


class Unwilling(Unknown):
    """A model that takes nothing."""

    def forward(self, hidden_states: torch.Tensor, kv_cache: Any = None) -> tuple[torch.Tensor]:
        raise ValueError("not\ntoday")


def test_what_no_rule_is_known_for_is_said() -> None:
    with pytest.raises(BadInput, match="requires 'kv_cache', which no rule covers"):
        denoiser_inputs(Unknown())
    with pytest.raises(BadInput, match=r"accepts no inputs that could be derived: ValueError: not\stoday"):
        denoiser_inputs(Unwilling())


@pytest.mark.parametrize(
    ("name", "expected"),
    [("WanTransformer3DModel", True), ("WanTransformer3DConditionModel", False), ("qwen3_moe", False), ("", False)],
)
def test_classes_of_diffusers_are_known_without_importing_it(name: str, expected: bool) -> None:
    assert is_diffusers_class(name) == expected


def test_positions_that_only_a_checkpoint_sizes_get_room() -> None:
    assert toy_denoiser({"pos_embed_max_size": None, "num_patches": None}) == {
        "pos_embed_max_size": 36, "num_patches": 36**2,
    }  # fmt: skip
    assert toy_denoiser({"pos_embed_max_size": None}) == {"pos_embed_max_size": None}


@pytest.mark.parametrize(("name", "value", "small"), [
    ("channel_mult", (1, 2, 4, 8), (1, 2, 2, 2)),
    ("dim_mults", [1, 2], [1, 2]),
    ("block_out_channels", [320, 640, 1280], [64, 128, 128]),
    ("ffn_multipliers", [4.0, 8.0], [4.0, 8.0]),
    ("attention_resolutions", [32, 16, 8], [32, 16, 8]),
    ("hidden_size", [1152, 2048], [80, 48]),
    ("hidden_size", [1152, 1152], [80, 80]),
    ("depth", [28, 2], [2, 2]),
    ("num_heads", (16, 2), (4, 2)),
])  # fmt: skip
def test_the_levels_of_a_u_net_are_narrow(name: str, value: Any, small: Any) -> None:
    assert toy_denoiser({name: value}) == {name: small}


@pytest.mark.parametrize(("levels", "side"), [(3, 8), (4, 8), (6, 32)])
def test_a_picture_can_be_halved_on_each_level(levels: int, side: int) -> None:
    assert toy_denoiser({"image_size": 256, "ch_mult": [1] * levels})["image_size"] == side
