"""WanPipeline for SGLang-diffusion: importing this package registers it, in place of any other of that name.

SGLang imports it where SGLANG_EXTERNAL_MODEL_PACKAGE=wan_t2v is set.
"""

from sglang.multimodal_gen.runtime.models.registry import ModelRegistry
from wan_t2v.pipeline_config import register

ModelRegistry.register_model("WanT2vDiT", "wan_t2v.dit:WanT2vDiT")
register()
