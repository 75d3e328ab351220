"""How WanPipeline samples by default: as diffusers does."""

from dataclasses import dataclass
from typing import ClassVar

from sglang.multimodal_gen.configs.sample.sampling_params import DataType, SamplingParams


@dataclass
class WanT2vSamplingParams(SamplingParams):
    """The defaults of WanPipeline.__call__."""

    data_type: DataType = DataType.VIDEO
    num_inference_steps: int = 50
    guidance_scale: float = 5.0
    num_frames: int = 81
    negative_prompt: str | None = None
    _default_height: ClassVar[int | None] = 480
    _default_width: ClassVar[int | None] = 832

    def _validate(self) -> None:
        """Raise for a cache that WanT2vDiT does not have."""
        super()._validate()
        for name in (
            "enable_teacache",
            "enable_spectrum",
        ):
            if getattr(self, name):
                raise ValueError(f"{name}: SGLang has coefficients for its own models only")
