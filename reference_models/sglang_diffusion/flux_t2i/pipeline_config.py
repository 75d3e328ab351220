"""How FluxPipeline is run by SGLang: its components' configs, and what DenoisingStage and DecodingStage ask."""

from dataclasses import dataclass, field

from flux_t2i.dit_config import FluxT2iDiTConfig
from sglang.multimodal_gen.configs.models import DiTConfig, EncoderConfig, VAEConfig
from sglang.multimodal_gen.configs.models.vaes.flux import FluxVAEConfig
from sglang.multimodal_gen.configs.pipeline_configs.base import ImagePipelineConfig, ModelTaskType, postprocess_text


@dataclass
class FluxT2iPipelineConfig(ImagePipelineConfig):
    """FluxPipeline of diffusers 0.37.0."""

    task_type: ModelTaskType = ModelTaskType.T2I
    should_use_guidance: bool = False  # the guidance that its denoiser takes comes with the conditions
    enable_autocast: bool = False
    # Encoders compute in the denoiser's precision, as diffusers loads them: their outputs are its inputs.
    text_encoder_precisions: tuple[str, ...] = (
        "bf16",
        "bf16",
    )
    vae_tiling: bool = False
    vae_sp: bool = False
    text_encoder_configs: tuple[EncoderConfig, ...] = field(
        default_factory=lambda: (
            EncoderConfig(),
            EncoderConfig(),
        )
    )
    preprocess_text_funcs: tuple = (
        None,
        None,
    )
    postprocess_text_funcs: tuple = (
        postprocess_text,
        postprocess_text,
    )
    dit_config: DiTConfig = field(default_factory=FluxT2iDiTConfig)
    vae_config: VAEConfig = field(default_factory=FluxVAEConfig)
    # SGLang has this class in sglang/multimodal_gen/runtime/models/dits/flux.py: the plugin's is loaded by its own name.
    transformer_class_override: str | None = "FluxT2iDiT"

    def validate_server_args(self, server_args) -> None:
        """Raise for a kind of parallelism that this denoiser does not support."""
        super().validate_server_args(server_args)
        for name in ("tp_size",):
            if (getattr(server_args, name, 1) or 1) > 1:
                raise ValueError(f"FluxT2iDiT has diffusers’ linear layers, which are not split: {name} has to be 1")

    def shard_latents_for_sp(self, batch, latents):
        """All of them: FluxT2iDiT shares tokens by itself."""
        return latents, False

    def get_decode_scale_and_shift(self, device, dtype, vae):
        """Latents are decoded as latents / scale + shift; shift and scale (diffusers/pipelines/flux/pipeline_flux.py:1010)."""
        arch = self.vae_config.arch_config
        return arch.scaling_factor, arch.shift_factor

    def post_denoising_loop(self, latents, batch):
        """Unpack tokens to a grid."""
        steps, state, _ = batch.extra["flux_t2i"]
        return steps._unpack_latents(
            latents, height=state.height, width=state.width, vae_scale_factor=steps.vae_scale_factor
        )


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
