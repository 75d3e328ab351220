"""FluxPipeline in SGLang: its own code before and around the steps, SGLang's loop, and SGLang decodes."""

from flux_t2i.loaders import UpstreamLoader, UpstreamSchedulerLoader
from flux_t2i.pipeline_config import FluxT2iPipelineConfig
from flux_t2i.stages import (
    FluxT2iBeforeDenoisingStage,
    FluxT2iDenoisingStage,
)
from sglang.multimodal_gen.runtime.pipelines_core import LoRAPipeline
from sglang.multimodal_gen.runtime.pipelines_core.composed_pipeline_base import ComposedPipelineBase
from sglang.multimodal_gen.runtime.pipelines_core.stages import InputValidationStage
from sglang.multimodal_gen.runtime.server_args import ServerArgs


class FluxT2iPipeline(LoRAPipeline, ComposedPipelineBase):
    """The stages of FluxPipeline; components are those of its model_index.json."""

    pipeline_name = "FluxPipeline"
    _required_config_modules = [
        "scheduler",
        "text_encoder",
        "text_encoder_2",
        "tokenizer",
        "tokenizer_2",
        "transformer",
        "vae",
    ]
    # FluxPipeline calls its encoders as transformers has them, and its schedule is diffusers'.
    component_loaders = {
        "text_encoder": UpstreamLoader,
        "tokenizer": UpstreamLoader,
        "text_encoder_2": UpstreamLoader,
        "tokenizer_2": UpstreamLoader,
        "scheduler": UpstreamSchedulerLoader,
    }

    def create_pipeline_stages(self, server_args: ServerArgs) -> None:
        """Adds the stages in the order in which they run."""
        if not isinstance(server_args.pipeline_config, FluxT2iPipelineConfig):
            raise ValueError(
                f"{self.model_path} was taken for a model with {type(server_args.pipeline_config).__name__}: "
                "rename its directory, which SGLang knows as another model's"
            )
        self.add_stage(InputValidationStage(), "input_validation_stage")
        parts = {name: self.get_module(name) for name in self._required_config_modules if name != "vae"}
        self.add_stage(FluxT2iBeforeDenoisingStage(model_path=self.model_path, parts=parts), "before_denoising_stage")
        self.add_stage(
            FluxT2iDenoisingStage(
                transformer=self.get_module("transformer"), scheduler=self.get_module("scheduler"), pipeline=self
            ),
            "denoising_stage",
        )
        self.add_standard_decoding_stage(vae_key="vae")


EntryClass = FluxT2iPipeline
