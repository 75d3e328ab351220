"""The config of WanTransformer3DModel: its constructor's arguments in diffusers 0.37.0."""

import inspect
import json
from pathlib import Path
from typing import Any

import diffusers
from diffusers import WanTransformer3DModel
from transformers import PretrainedConfig

_ARGUMENTS = tuple(inspect.signature(WanTransformer3DModel.__init__).parameters)[1:]  # without self


class WanTransformerConfig(PretrainedConfig):
    """What VeOmni builds the transformer from. On disk it is diffusers' own config.json and nothing else."""

    model_type = "WanTransformer3DModel"
    condition_model_type = "WanTransformer3DModelCondition"
    compile_blocks = False  # model.model_config.compile_blocks of a training file: torch.compile of each block

    def __init__(
        self,
        patch_size: tuple[int, ...] = (1, 2, 2),
        num_attention_heads: int = 40,
        attention_head_dim: int = 128,
        in_channels: int = 16,
        out_channels: int = 16,
        text_dim: int = 4096,
        freq_dim: int = 256,
        ffn_dim: int = 13824,
        num_layers: int = 40,
        cross_attn_norm: bool = True,
        qk_norm: str | None = "rms_norm_across_heads",
        eps: float = 1e-06,
        image_dim: int | None = None,
        added_kv_proj_dim: int | None = None,
        rope_max_seq_len: int = 1024,
        pos_embed_seq_len: int | None = None,
        **kwargs,
    ):
        super().__init__(**kwargs)  # first: it rewrites values whose names it knows from language models
        self.patch_size = patch_size
        self.num_attention_heads = num_attention_heads
        self.attention_head_dim = attention_head_dim
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.text_dim = text_dim
        self.freq_dim = freq_dim
        self.ffn_dim = ffn_dim
        self.num_layers = num_layers
        self.cross_attn_norm = cross_attn_norm
        self.qk_norm = qk_norm
        self.eps = eps
        self.image_dim = image_dim
        self.added_kv_proj_dim = added_kv_proj_dim
        self.rope_max_seq_len = rope_max_seq_len
        self.pos_embed_seq_len = pos_embed_seq_len

    def to_diffuser_dict(self) -> dict[str, Any]:
        """What diffusers' constructor is called with."""
        return {name: getattr(self, name) for name in _ARGUMENTS}

    def to_dict(self) -> dict[str, Any]:
        """The config with the names by which diffusers knows its class; without a dtype, which diffusers does not store."""
        values = super().to_dict()
        values["_class_name"] = "WanTransformer3DModel"
        values["_diffusers_version"] = diffusers.__version__
        values.pop("dtype", None)
        values.pop("compile_blocks", None)
        return values

    def save_pretrained(self, save_directory, *args, **kwargs) -> None:
        """Writes the config.json that diffusers would: trainers export this object next to the weights.

        They call those as transformers does: here they get the names by which diffusers finds them.
        """
        values = self.to_diffuser_dict()
        values |= {"_class_name": "WanTransformer3DModel", "_diffusers_version": diffusers.__version__}
        place = Path(save_directory)
        place.mkdir(parents=True, exist_ok=True)
        (place / "config.json").write_text(json.dumps(values, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        _name_as_diffusers(place)


def _name_as_diffusers(place: Path) -> None:
    """Rename the weights next to a config.json, and the names in their index."""
    if not (weights := sorted(place.glob("model*.safetensors"))):
        return
    for file in weights:
        file.rename(place / f"diffusion_pytorch_{file.name}")
    index = place / "model.safetensors.index.json"
    if index.is_file():
        values = json.loads(index.read_text(encoding="utf-8"))
        values["weight_map"] = {key: f"diffusion_pytorch_{file}" for key, file in values["weight_map"].items()}
        (place / f"diffusion_pytorch_{index.name}").write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        index.unlink()
