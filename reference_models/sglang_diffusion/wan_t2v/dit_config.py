"""The architecture of WanTransformer3DModel, as its config.json says it."""

from dataclasses import dataclass, field

from sglang.multimodal_gen.configs.models.dits.base import DiTArchConfig, DiTConfig


@dataclass
class WanT2vDiTArchConfig(DiTArchConfig):
    """Every argument of diffusers' WanTransformer3DModel; three more that SGLang reads are derived."""

    patch_size: tuple = (1, 2, 2)
    num_attention_heads: int = 40
    attention_head_dim: int = 128
    in_channels: int = 16
    out_channels: int = 16
    text_dim: int = 4096
    freq_dim: int = 256
    ffn_dim: int = 13824
    num_layers: int = 40
    cross_attn_norm: bool = True
    qk_norm: str = "rms_norm_across_heads"
    eps: float = 1e-06
    image_dim: object = None
    added_kv_proj_dim: object = None
    rope_max_seq_len: int = 1024
    pos_embed_seq_len: object = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self.hidden_size = self.num_attention_heads * self.attention_head_dim
        self.num_channels_latents = self.in_channels


@dataclass
class WanT2vDiTConfig(DiTConfig):
    """WanTransformer3DModel in SGLang."""

    arch_config: WanT2vDiTArchConfig = field(default_factory=WanT2vDiTArchConfig)
    prefix: str = "wan_t2v"
