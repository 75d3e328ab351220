"""How WanPipeline is run by SGLang: its components' configs, and what DenoisingStage and DecodingStage ask."""

from dataclasses import dataclass, field

import torch
from sglang.multimodal_gen.configs.models import DiTConfig, VAEConfig
from sglang.multimodal_gen.configs.models.vaes.wanvae import WanVAEConfig
from sglang.multimodal_gen.configs.pipeline_configs.base import ModelTaskType, PipelineConfig
from wan_t2v.dit_config import WanT2vDiTConfig


@dataclass
class WanT2vPipelineConfig(PipelineConfig):
    """WanPipeline of diffusers 0.37.0."""

    task_type: ModelTaskType = ModelTaskType.T2V
    should_use_guidance: bool = False  # its denoiser takes none
    enable_autocast: bool = False
    # Encoders compute in the denoiser's precision, as diffusers loads them: their outputs are its inputs.
    text_encoder_precisions: tuple[str, ...] = ("bf16",)
    vae_tiling: bool = False
    vae_sp: bool = False
    dit_config: DiTConfig = field(default_factory=WanT2vDiTConfig)
    vae_config: VAEConfig = field(default_factory=WanVAEConfig)
    # SGLang has this class in sglang/multimodal_gen/runtime/models/dits/wanvideo.py: the plugin's is loaded by its own name.
    transformer_class_override: str | None = "WanT2vDiT"

    def validate_server_args(self, server_args) -> None:
        """Raise for a kind of parallelism that this denoiser does not support."""
        super().validate_server_args(server_args)
        for name in ("tp_size",):
            if (getattr(server_args, name, 1) or 1) > 1:
                raise ValueError(f"WanT2vDiT has diffusers’ linear layers, which are not split: {name} has to be 1")

    def shard_latents_for_sp(self, batch, latents):
        """All of them: WanT2vDiT shares tokens by itself."""
        return latents, False

    def get_pos_prompt_embeds(self, batch):
        """The prompt's encoder_hidden_states."""
        return batch.prompt_embeds[0]

    def get_neg_prompt_embeds(self, batch):
        """The negative prompt's encoder_hidden_states."""
        return batch.negative_prompt_embeds[0]

    def prepare_pos_cond_kwargs(self, batch, device, rotary_emb, dtype):
        """The denoiser's other inputs, for the prompt."""
        return batch.extra["wan_t2v"]["positive"]

    def prepare_neg_cond_kwargs(self, batch, device, rotary_emb, dtype):
        """The denoiser's other inputs, for the negative prompt."""
        return batch.extra["wan_t2v"]["negative"]

    def prepare_latent_shape(self, batch, batch_size, num_frames):
        """The shape of the noise that LatentPreparationStage draws (diffusers/pipelines/wan/pipeline_wan.py:325)."""
        return (
            batch_size,
            self.dit_config.arch_config.in_channels,
            (batch.num_frames - 1) // self.vae_config.arch_config.scale_factor_temporal + 1,
            int(batch.height) // self.vae_config.arch_config.scale_factor_spatial,
            int(batch.width) // self.vae_config.arch_config.scale_factor_spatial,
        )

    def get_latent_dtype(self, prompt_dtype):
        """Noise is float32, regardless of the denoiser's dtype."""
        return torch.float32

    def prepare_sigmas(self, sigmas, num_inference_steps):
        """None: the scheduler computes its own steps."""
        return sigmas

    def get_decode_scale_and_shift(self, device, dtype, vae):
        """Latents are decoded as latents / scale + shift; mean and deviation (diffusers/pipelines/wan/pipeline_wan.py:652)."""
        arch = self.vae_config.arch_config
        shape = (1, -1, 1, 1, 1)
        mean, deviation = (
            torch.as_tensor(values, device=device).view(shape).to(device, dtype)
            for values in (arch.latents_mean, arch.latents_std)
        )
        return 1.0 / deviation, mean

    def post_denoising_loop(self, latents, batch):
        """Latents already are a grid."""
        return latents


def register() -> None:
    """Tells SGLang of WanPipeline and its configs."""
    from sglang.multimodal_gen.registry import register_pipeline
    from wan_t2v.pipeline import WanT2vPipeline
    from wan_t2v.sampling_params import WanT2vSamplingParams

    register_pipeline(
        WanT2vPipeline,
        overwrite=True,
        sampling_param_cls=WanT2vSamplingParams,
        pipeline_config_cls=WanT2vPipelineConfig,
        hf_model_paths=[],
        model_detectors=[lambda known_as: known_as == "wanpipeline"],
    )
