"""How FluxPipeline samples by default: as diffusers does."""

from dataclasses import dataclass
from typing import ClassVar

from sglang.multimodal_gen.configs.sample.sampling_params import DataType, SamplingParams


@dataclass
class FluxT2iSamplingParams(SamplingParams):
    """The defaults of FluxPipeline.__call__."""

    data_type: DataType = DataType.IMAGE
    num_inference_steps: int = 28
    guidance_scale: float = 3.5
    true_cfg_scale: float | None = 1.0
    negative_prompt: str | None = None
    _default_height: ClassVar[int | None] = 1024
    _default_width: ClassVar[int | None] = 1024

    def _validate(self) -> None:
        """Raise for a cache that FluxT2iDiT does not have."""
        super()._validate()
        for name in (
            "enable_teacache",
            "enable_spectrum",
        ):
            if getattr(self, name):
                raise ValueError(f"{name}: SGLang has coefficients for its own models only")
