"""The config of QwenImageTransformer2DModel: its constructor's arguments in diffusers 0.37.0."""

import inspect
import json
from pathlib import Path
from typing import Any

import diffusers
from diffusers import QwenImageTransformer2DModel
from transformers import PretrainedConfig

_ARGUMENTS = tuple(inspect.signature(QwenImageTransformer2DModel.__init__).parameters)[1:]  # without self


class QwenImageTransformerConfig(PretrainedConfig):
    """What VeOmni builds the transformer from. On disk it is diffusers' own config.json and nothing else."""

    model_type = "QwenImageTransformer2DModel"
    condition_model_type = "QwenImageTransformer2DModelCondition"
    compile_blocks = False  # model.model_config.compile_blocks of a training file: torch.compile of each block

    def __init__(
        self,
        patch_size: int = 2,
        in_channels: int = 64,
        out_channels: int | None = 16,
        num_layers: int = 60,
        attention_head_dim: int = 128,
        num_attention_heads: int = 24,
        joint_attention_dim: int = 3584,
        guidance_embeds: bool = False,
        axes_dims_rope: tuple[int, int, int] = (16, 56, 56),
        zero_cond_t: bool = False,
        use_additional_t_cond: bool = False,
        use_layer3d_rope: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)  # first: it rewrites values whose names it knows from language models
        self.patch_size = patch_size
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.num_layers = num_layers
        self.attention_head_dim = attention_head_dim
        self.num_attention_heads = num_attention_heads
        self.joint_attention_dim = joint_attention_dim
        self.guidance_embeds = guidance_embeds
        self.axes_dims_rope = axes_dims_rope
        self.zero_cond_t = zero_cond_t
        self.use_additional_t_cond = use_additional_t_cond
        self.use_layer3d_rope = use_layer3d_rope

    def to_diffuser_dict(self) -> dict[str, Any]:
        """What diffusers' constructor is called with."""
        return {name: getattr(self, name) for name in _ARGUMENTS}

    def to_dict(self) -> dict[str, Any]:
        """The config with the names by which diffusers knows its class; without a dtype, which diffusers does not store."""
        values = super().to_dict()
        values["_class_name"] = "QwenImageTransformer2DModel"
        values["_diffusers_version"] = diffusers.__version__
        values.pop("dtype", None)
        values.pop("compile_blocks", None)
        return values

    def save_pretrained(self, save_directory, *args, **kwargs) -> None:
        """Writes the config.json that diffusers would: trainers export this object next to the weights.

        They call those as transformers does: here they get the names by which diffusers finds them.
        """
        values = self.to_diffuser_dict()
        values |= {"_class_name": "QwenImageTransformer2DModel", "_diffusers_version": diffusers.__version__}
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
