"""The plugin that the examples of rules change: Qwen-Image in the hybrid way, as small as it can be."""

from functools import partial

from omni_checkers.engine import examples as engine
from omni_kit.record import ANSWERS, BASE, dump_answers, dump_base

PACKAGE, PIPELINE, CONFIG = "__init__.py", "pipeline.py", "pipeline_config.py"
README = "README.md"
SAMPLING, ARCH, DIT, STAGE = "sampling_params.py", "dit_config.py", "dit.py", "before_denoising.py"

QWEN: dict[str, str] = {
    PACKAGE: '''\
"""Qwen-Image."""

from sglang.multimodal_gen.runtime.models.registry import ModelRegistry

from qwen.dit import QwenDiT
from qwen.pipeline_config import register

ModelRegistry.register_model("QwenDiT", QwenDiT)
register()
''',
    PIPELINE: '''\
"""The stages."""

from sglang.multimodal_gen.runtime.pipelines_core import LoRAPipeline
from sglang.multimodal_gen.runtime.pipelines_core.composed_pipeline_base import ComposedPipelineBase
from sglang.multimodal_gen.runtime.pipelines_core.stages import DenoisingStage, InputValidationStage

from qwen.before_denoising import QwenBeforeDenoisingStage


class QwenPipeline(LoRAPipeline, ComposedPipelineBase):
    pipeline_name = "QwenImagePipeline"
    _required_config_modules = [
        "text_encoder",
        "tokenizer",
        "vae",
        "transformer",
        "scheduler",
    ]

    def create_pipeline_stages(self, server_args):
        self.add_stage(InputValidationStage())
        self.add_stage(
            QwenBeforeDenoisingStage(
                self.get_module("text_encoder"), self.get_module("tokenizer"), self.get_module("scheduler")
            )
        )
        self.add_stage(
            DenoisingStage(transformer=self.get_module("transformer"), scheduler=self.get_module("scheduler"))
        )
        self.add_standard_decoding_stage()


EntryClass = QwenPipeline
''',
    CONFIG: '''\
"""Configs and callbacks."""

from dataclasses import dataclass, field

import torch
from sglang.multimodal_gen.configs.models import DiTConfig, VAEConfig
from sglang.multimodal_gen.configs.models.vaes.qwenimage import QwenImageVAEConfig
from sglang.multimodal_gen.configs.pipeline_configs.base import ImagePipelineConfig, ModelTaskType

from qwen.dit_config import QwenDiTConfig


@dataclass
class QwenPipelineConfig(ImagePipelineConfig):
    task_type: ModelTaskType = ModelTaskType.T2I
    vae_precision: str = "bf16"
    dit_config: DiTConfig = field(default_factory=QwenDiTConfig)
    vae_config: VAEConfig = field(default_factory=QwenImageVAEConfig)

    def get_pos_prompt_embeds(self, batch):
        return batch.prompt_embeds[0]

    def get_neg_prompt_embeds(self, batch):
        return batch.negative_prompt_embeds[0]

    def prepare_pos_cond_kwargs(self, batch, device, rotary_emb, dtype):
        return {"freqs_cis": rotary_emb(batch.height, batch.width, device=device)}

    def prepare_neg_cond_kwargs(self, batch, device, rotary_emb, dtype):
        return {"freqs_cis": rotary_emb(batch.height, batch.width, device=device)}

    def get_decode_scale_and_shift(self, device, dtype, vae):
        arch = self.vae_config.arch_config
        mean = torch.tensor(arch.latents_mean).view(1, -1, 1, 1, 1).to(device, dtype)
        scale = 1.0 / torch.tensor(arch.latents_std).view(1, -1, 1, 1, 1).to(device, dtype)
        return scale, mean


def register():
    from sglang.multimodal_gen.registry import register_pipeline

    from qwen.pipeline import QwenPipeline
    from qwen.sampling_params import QwenSamplingParams

    register_pipeline(
        QwenPipeline,
        overwrite=True,
        sampling_param_cls=QwenSamplingParams,
        pipeline_config_cls=QwenPipelineConfig,
        hf_model_paths=["Qwen/Qwen-Image"],
    )
''',
    SAMPLING: '''\
"""Defaults of a request."""

from dataclasses import dataclass

from sglang.multimodal_gen.configs.sample.sampling_params import SamplingParams


@dataclass
class QwenSamplingParams(SamplingParams):
    num_inference_steps: int = 50
    true_cfg_scale: float = 4.0
    num_frames: int = 1
''',
    ARCH: '''\
"""The architecture."""

from dataclasses import dataclass, field

from sglang.multimodal_gen.configs.models.dits.base import DiTArchConfig, DiTConfig


@dataclass
class QwenArchConfig(DiTArchConfig):
    patch_size: int = 2
    in_channels: int = 64
    out_channels: int = 16
    num_layers: int = 60
    attention_head_dim: int = 128
    num_attention_heads: int = 24
    joint_attention_dim: int = 3584
    guidance_embeds: bool = False
    axes_dims_rope: tuple[int, int, int] = (16, 56, 56)
    zero_cond_t: bool = False
    use_additional_t_cond: bool = False
    use_layer3d_rope: bool = False

    def __post_init__(self):
        super().__post_init__()
        self.hidden_size = self.num_attention_heads * self.attention_head_dim
        self.num_channels_latents = self.out_channels


@dataclass
class QwenDiTConfig(DiTConfig):
    arch_config: DiTArchConfig = field(default_factory=QwenArchConfig)
    prefix: str = "qwen"
''',
    DIT: '''\
"""The denoiser."""

import torch
from sglang.multimodal_gen.runtime.layers.attention import USPAttention
from sglang.multimodal_gen.runtime.layers.linear import ReplicatedLinear
from sglang.multimodal_gen.runtime.layers.rotary_embedding import _apply_rotary_emb
from sglang.multimodal_gen.runtime.models.dits.base import BaseDiT
from torch import nn


class QwenAttention(nn.Module):
    def __init__(self, dim, heads, head_dim):
        super().__init__()
        self.heads = heads
        self.to_qkv = ReplicatedLinear(dim, 3 * heads * head_dim)
        self.attn = USPAttention(num_heads=heads, head_size=head_dim)

    def forward(self, x, freqs_cis):
        q, k, v = self.to_qkv(x)[0].unflatten(-1, (self.heads, -1)).chunk(3, dim=-1)
        cos, sin = freqs_cis
        q = _apply_rotary_emb(q, cos, sin, is_neox_style=False)
        k = _apply_rotary_emb(k, cos, sin, is_neox_style=False)
        return self.attn(q, k, v).flatten(2)


class QwenDiT(BaseDiT):
    _fsdp_shard_conditions = []
    _compile_conditions = []
    param_names_mapping = {}
    reverse_param_names_mapping = {}

    def __init__(self, config, hf_config, quant_config=None, **kwargs):
        super().__init__(config=config, hf_config=hf_config, **kwargs)
        arch = config.arch_config
        self.hidden_size = arch.hidden_size
        self.num_attention_heads = arch.num_attention_heads
        self.num_channels_latents = arch.num_channels_latents
        self.blocks = nn.ModuleList(
            QwenAttention(arch.hidden_size, arch.num_attention_heads, arch.attention_head_dim)
            for _ in range(arch.num_layers)
        )

    def forward(self, hidden_states, encoder_hidden_states, timestep, guidance=None, freqs_cis=None):
        timestep = (timestep / 1000).to(hidden_states.dtype)
        x = torch.cat([encoder_hidden_states, hidden_states], dim=1)
        for block in self.blocks:
            x = x + timestep[:, None, None] * block(x, freqs_cis)
        return x[:, encoder_hidden_states.shape[1] :]


EntryClass = QwenDiT
''',
    STAGE: '''\
"""Everything before the first step."""

import numpy as np
import torch
from diffusers.pipelines.qwenimage.pipeline_qwenimage import calculate_shift, retrieve_timesteps
from sglang.multimodal_gen.runtime.pipelines_core.schedule_batch import Req
from sglang.multimodal_gen.runtime.pipelines_core.stages.base import PipelineStage
from sglang.multimodal_gen.runtime.server_args import ServerArgs


class QwenBeforeDenoisingStage(PipelineStage):
    def __init__(self, text_encoder, tokenizer, scheduler):
        super().__init__()
        self.text_encoder, self.tokenizer, self.scheduler = text_encoder, tokenizer, scheduler

    def encode_prompt(self, prompt, device):
        tokens = self.tokenizer(prompt, padding=True, return_tensors="pt").to(device)
        states = self.text_encoder(
            input_ids=tokens.input_ids,
            attention_mask=tokens.attention_mask,
            output_hidden_states=True,
        )
        return states.hidden_states[-1], tokens.attention_mask

    @torch.no_grad()
    def forward(self, batch: Req, server_args: ServerArgs) -> Req:
        device = self.text_encoder.device
        embeds, mask = self.encode_prompt(batch.prompt, device)
        batch.prompt_embeds = [embeds]
        batch.prompt_embeds_mask = [mask]
        if batch.do_classifier_free_guidance:
            negative, negative_mask = self.encode_prompt(batch.negative_prompt, device)
            batch.negative_prompt_embeds = [negative]
            batch.negative_prompt_embeds_mask = [negative_mask]
        tokens = (batch.height // 16) * (batch.width // 16)
        latents = torch.randn((1, tokens, 64), generator=batch.generator, device=device)
        steps = batch.num_inference_steps
        config = self.scheduler.config
        mu = calculate_shift(
            tokens,
            config.get("base_image_seq_len", 256),
            config.get("max_image_seq_len", 4096),
            config.get("base_shift", 0.5),
            config.get("max_shift", 1.15),
        )
        sigmas = np.linspace(1.0, 1 / steps, steps)
        timesteps, steps = retrieve_timesteps(self.scheduler, steps, device, sigmas=sigmas, mu=mu)
        batch.latents = latents
        batch.raw_latent_shape = latents.shape
        batch.timesteps = timesteps
        batch.num_inference_steps = steps
        batch.scheduler = self.scheduler
        return batch
''',
}


changed = partial(engine.changed, QWEN)
"""An example that changes one of these files, first text by second."""


def with_record(edits: dict[str, str], was: dict[str, str] | None = None) -> dict[str, str]:
    """These edits of the example, next to the record that new-model would have written of it, or of what it was."""
    answers = {"name": "qwen", "source": "QwenImagePipeline", "target": "sglang-diffusion", "style": "plugin"}
    base = {f"qwen/{name}": text for name, text in {**QWEN, **(was or {})}.items()}
    return {**edits, ANSWERS: dump_answers(answers, base), BASE: dump_base(base)}
