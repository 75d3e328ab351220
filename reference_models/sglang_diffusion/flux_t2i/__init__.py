"""FluxPipeline for SGLang-diffusion: importing this package registers it, in place of any other of that name.

SGLang imports it where SGLANG_EXTERNAL_MODEL_PACKAGE=flux_t2i is set.
"""

from flux_t2i.pipeline_config import register
from sglang.multimodal_gen.runtime.models.registry import ModelRegistry

ModelRegistry.register_model("FluxT2iDiT", "flux_t2i.dit:FluxT2iDiT")
register()
