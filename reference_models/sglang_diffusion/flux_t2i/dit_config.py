"""The architecture of FluxTransformer2DModel, as its config.json says it."""

from dataclasses import dataclass, field

from sglang.multimodal_gen.configs.models.dits.base import DiTArchConfig, DiTConfig


@dataclass
class FluxT2iDiTArchConfig(DiTArchConfig):
    """Every argument of diffusers' FluxTransformer2DModel; three more that SGLang reads are derived."""

    patch_size: int = 1
    in_channels: int = 64
    out_channels: object = None
    num_layers: int = 19
    num_single_layers: int = 38
    attention_head_dim: int = 128
    num_attention_heads: int = 24
    joint_attention_dim: int = 4096
    pooled_projection_dim: int = 768
    guidance_embeds: bool = False
    axes_dims_rope: tuple = (16, 56, 56)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.hidden_size = self.num_attention_heads * self.attention_head_dim
        self.num_channels_latents = self.in_channels


@dataclass
class FluxT2iDiTConfig(DiTConfig):
    """FluxTransformer2DModel in SGLang."""

    arch_config: FluxT2iDiTArchConfig = field(default_factory=FluxT2iDiTArchConfig)
    prefix: str = "flux_t2i"
