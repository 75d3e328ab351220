"""How FluxPipeline is run by SGLang: its components' configs, and what DenoisingStage and DecodingStage ask."""

from dataclasses import dataclass, field

from diffusers import FluxPipeline
from flux_t2i.dit_config import FluxT2iDiTConfig
from sglang.multimodal_gen.configs.models import DiTConfig, VAEConfig
from sglang.multimodal_gen.configs.models.vaes.flux import FluxVAEConfig
from sglang.multimodal_gen.configs.pipeline_configs.base import ImagePipelineConfig, ModelTaskType


@dataclass
class FluxT2iPipelineConfig(ImagePipelineConfig):
    """FluxPipeline of diffusers 0.37.0."""

    task_type: ModelTaskType = ModelTaskType.T2I
    should_use_guidance: bool = False  # the guidance that its denoiser takes comes with the conditions
    enable_autocast: bool = False
    vae_tiling: bool = False
    vae_sp: bool = False
    dit_config: DiTConfig = field(default_factory=FluxT2iDiTConfig)
    vae_config: VAEConfig = field(default_factory=FluxVAEConfig)
    # SGLang may have a class for FluxTransformer2DModel, too: this one is asked for by its own name.
    transformer_class_override: str | None = "FluxT2iDiT"

    def validate_server_args(self, server_args) -> None:
        """Raises where work would be shared in a way that this denoiser does not know."""
        super().validate_server_args(server_args)
        for name in ("tp_size", "sp_degree", "ulysses_degree", "ring_degree"):
            if (getattr(server_args, name, 1) or 1) > 1:
                raise ValueError(f"FluxT2iDiT runs on one device: {name} has to be 1")

    def get_pos_prompt_embeds(self, batch):
        """What the denoiser takes as encoder_hidden_states, for the prompt."""
        return batch.prompt_embeds[0]

    def get_neg_prompt_embeds(self, batch):
        """The same, against the prompt."""
        return batch.negative_prompt_embeds[0]

    def prepare_pos_cond_kwargs(self, batch, device, rotary_emb, dtype):
        """What else the denoiser takes, for the prompt."""
        return batch.extra["flux_t2i"]["positive"]

    def prepare_neg_cond_kwargs(self, batch, device, rotary_emb, dtype):
        """What else the denoiser takes, against the prompt."""
        return batch.extra["flux_t2i"]["negative"]

    def get_classifier_free_guidance_scale(self, batch, guidance_scale: float) -> float:
        """The scale of negative + s (positive - negative); FluxPipeline has negative + s (positive - negative) (diffusers/pipelines/flux/pipeline_flux.py:977)."""
        return batch.true_cfg_scale

    def get_decode_scale_and_shift(self, device, dtype, vae):
        """Latents are decoded as latents / scale + shift; shift and scale (diffusers/pipelines/flux/pipeline_flux.py:1010)."""
        arch = self.vae_config.arch_config
        return arch.scaling_factor, arch.shift_factor

    def post_denoising_loop(self, latents, batch):
        """Tokens become a grid again."""
        return FluxPipeline._unpack_latents(latents, **batch.extra["flux_t2i"]["unpack"])


def register() -> None:
    """Tells SGLang of FluxPipeline and its configs."""
    from flux_t2i.pipeline import FluxT2iPipeline
    from flux_t2i.sampling_params import FluxT2iSamplingParams
    from sglang.multimodal_gen.registry import register_pipeline

    register_pipeline(
        FluxT2iPipeline,
        overwrite=True,
        sampling_param_cls=FluxT2iSamplingParams,
        pipeline_config_cls=FluxT2iPipelineConfig,
        hf_model_paths=[],
        model_detectors=[lambda known_as: known_as == "fluxpipeline"],
    )
