"""WanPipeline in SGLang: its own code encodes prompts, SGLang's stages do the rest."""

from sglang.multimodal_gen.runtime.pipelines_core import LoRAPipeline
from sglang.multimodal_gen.runtime.pipelines_core.composed_pipeline_base import ComposedPipelineBase
from sglang.multimodal_gen.runtime.pipelines_core.stages import InputValidationStage
from sglang.multimodal_gen.runtime.server_args import ServerArgs
from wan_t2v.loaders import UpstreamLoader, UpstreamSchedulerLoader
from wan_t2v.pipeline_config import WanT2vPipelineConfig
from wan_t2v.prompts import WanT2vPromptEncodingStage


class WanT2vPipeline(LoRAPipeline, ComposedPipelineBase):
    """The stages of WanPipeline; components are those of its model_index.json."""

    pipeline_name = "WanPipeline"
    _required_config_modules = [
        "scheduler",
        "text_encoder",
        "tokenizer",
        "transformer",
        "vae",
    ]
    # WanPipeline calls its encoders as transformers has them, and its schedule is diffusers'.
    component_loaders = {
        "tokenizer": UpstreamLoader,
        "text_encoder": UpstreamLoader,
        "scheduler": UpstreamSchedulerLoader,
    }

    def create_pipeline_stages(self, server_args: ServerArgs) -> None:
        """Adds the stages in the order in which they run."""
        if not isinstance(server_args.pipeline_config, WanT2vPipelineConfig):
            raise ValueError(
                f"{self.model_path} was taken for a model with {type(server_args.pipeline_config).__name__}: "
                "rename its directory, which SGLang knows as another model's"
            )
        self.add_stage(InputValidationStage(), "input_validation_stage")
        parts = {
            name: self.get_module(name)
            for name in (
                "tokenizer",
                "text_encoder",
            )
        }
        self.add_stage(
            WanT2vPromptEncodingStage(model_path=self.model_path, parts=parts, scheduler=self.get_module("scheduler")),
            "prompt_encoding_stage",
        )
        self.add_standard_latent_preparation_stage(transformer_key="transformer")
        self.add_standard_timestep_preparation_stage()
        self.add_standard_denoising_stage(transformer_key="transformer", vae_key=None)
        self.add_standard_decoding_stage(vae_key="vae")


EntryClass = WanT2vPipeline
