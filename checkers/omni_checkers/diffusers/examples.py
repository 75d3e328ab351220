"""The package that the examples of rules change: Lumen with its pipeline, as small as it can be."""

from functools import partial

from omni_checkers.engine import examples as engine

PACKAGE, TRANSFORMER, PIPELINE, BLOCKS = "__init__.py", "transformer_lumen.py", "pipeline_lumen.py", "modular_blocks.py"
CONFIG_MIXIN = {"src/diffusers/configuration_utils.py": "class ConfigMixin:\n    pass\n"}
"""The part of diffusers that marks a directory as its checkout."""

LUMEN: dict[str, str] = {
    PACKAGE: '''\
"""Lumen."""

from .pipeline_lumen import LumenPipeline
from .transformer_lumen import LumenTransformer2DModel

__all__ = ["LumenPipeline", "LumenTransformer2DModel"]
''',
    TRANSFORMER: '''\
"""The denoiser."""

import torch
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.models._modeling_parallel import ContextParallelInput, ContextParallelOutput
from diffusers.models.attention import AttentionMixin, AttentionModuleMixin
from diffusers.models.attention_dispatch import dispatch_attention_fn
from diffusers.models.modeling_utils import ModelMixin
from torch import nn


class LumenAttnProcessor:
    _attention_backend = None
    _parallel_config = None

    def __call__(self, attn, hidden_states, rotary):
        query = attn.to_q(hidden_states).unflatten(-1, (attn.heads, -1)) * rotary
        key = attn.to_k(hidden_states).unflatten(-1, (attn.heads, -1)) * rotary
        value = attn.to_v(hidden_states).unflatten(-1, (attn.heads, -1))
        hidden_states = dispatch_attention_fn(
            query,
            key,
            value,
            backend=self._attention_backend,
            parallel_config=self._parallel_config,
        )
        return attn.to_out[0](hidden_states.flatten(2))


class LumenAttention(nn.Module, AttentionModuleMixin):
    _default_processor_cls = LumenAttnProcessor
    _available_processors = [LumenAttnProcessor]

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.to_q = nn.Linear(dim, dim)
        self.to_k = nn.Linear(dim, dim)
        self.to_v = nn.Linear(dim, dim)
        self.to_out = nn.ModuleList([nn.Linear(dim, dim), nn.Dropout(0.0)])
        self.set_processor(LumenAttnProcessor())

    def forward(self, hidden_states, rotary):
        return self.processor(self, hidden_states, rotary)


class LumenRope(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.dim = dim

    def forward(self, ids):
        return torch.outer(ids.float(), torch.arange(self.dim, device=ids.device).float()).cos()[None, :, None]


class LumenBlock(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.attn = LumenAttention(dim, heads)

    def forward(self, hidden_states, rotary):
        return hidden_states + self.attn(self.norm(hidden_states), rotary)


class LumenTransformer2DModel(ModelMixin, ConfigMixin, AttentionMixin):
    _supports_gradient_checkpointing = True
    _no_split_modules = ["LumenBlock"]
    _repeated_blocks = ["LumenBlock"]
    _skip_layerwise_casting_patterns = ["norm"]
    _cp_plan = {
        "blocks.0": {"hidden_states": ContextParallelInput(split_dim=1, expected_dims=3, split_output=False)},
        "rope": {0: ContextParallelInput(split_dim=1, expected_dims=4, split_output=True)},
        "proj_out": ContextParallelOutput(gather_dim=1, expected_dims=3),
    }

    @register_to_config
    def __init__(self, in_channels: int = 4, dim: int = 32, heads: int = 4, num_layers: int = 2):
        super().__init__()
        self.proj_in = nn.Linear(in_channels, dim)
        self.time_in = nn.Linear(1, dim)
        self.rope = LumenRope(dim // heads)
        self.blocks = nn.ModuleList([LumenBlock(dim, heads) for _ in range(num_layers)])
        self.proj_out = nn.Linear(dim, in_channels)
        self.gradient_checkpointing = False

    def forward(self, hidden_states, timestep, encoder_hidden_states, return_dict: bool = True):
        rotary = self.rope(torch.arange(hidden_states.shape[1], device=hidden_states.device)).to(hidden_states.dtype)
        hidden_states = self.proj_in(hidden_states) + self.time_in(timestep[:, None, None])
        hidden_states = hidden_states + encoder_hidden_states.mean(dim=1, keepdim=True)
        for block in self.blocks:
            if torch.is_grad_enabled() and self.gradient_checkpointing:
                hidden_states = self._gradient_checkpointing_func(block, hidden_states, rotary)
            else:
                hidden_states = block(hidden_states, rotary)
        return (self.proj_out(hidden_states),)
''',
    PIPELINE: '''\
"""The pipeline."""

import torch
from diffusers.image_processor import VaeImageProcessor
from diffusers.pipelines.pipeline_utils import DiffusionPipeline
from diffusers.utils.torch_utils import randn_tensor


class LumenPipeline(DiffusionPipeline):
    model_cpu_offload_seq = "text_encoder->transformer->vae"
    _optional_components = ["text_encoder", "tokenizer"]
    _callback_tensor_inputs = ["latents", "prompt_embeds"]

    def __init__(self, transformer, scheduler, vae, text_encoder=None, tokenizer=None):
        super().__init__()
        self.register_modules(
            transformer=transformer, scheduler=scheduler, vae=vae, text_encoder=text_encoder, tokenizer=tokenizer
        )
        self.image_processor = VaeImageProcessor(vae_scale_factor=8)

    def encode_prompt(self, prompt, device, num_images_per_prompt):
        prompt = [prompt] if isinstance(prompt, str) else prompt
        tokens = self.tokenizer(prompt, padding=True, return_tensors="pt").to(device)
        prompt_embeds = self.text_encoder(tokens.input_ids, attention_mask=tokens.attention_mask)[0]
        return prompt_embeds.repeat_interleave(num_images_per_prompt, dim=0)

    def prepare_latents(self, batch_size, height, width, dtype, device, generator, latents=None):
        shape = (batch_size, height // 8 * (width // 8), 4)
        if latents is None:
            latents = randn_tensor(shape, generator=generator, device=device, dtype=dtype)
        return latents.to(device=device, dtype=dtype)

    @torch.no_grad()
    def __call__(
        self,
        prompt=None,
        height=64,
        width=64,
        num_inference_steps=4,
        num_images_per_prompt=1,
        generator=None,
        latents=None,
        prompt_embeds=None,
        output_type="pil",
        return_dict=True,
        callback_on_step_end=None,
        callback_on_step_end_tensor_inputs=["latents"],
    ):
        device = self._execution_device
        if prompt_embeds is None:
            prompt_embeds = self.encode_prompt(prompt, device, num_images_per_prompt)
        latents = self.prepare_latents(
            len(prompt_embeds), height, width, prompt_embeds.dtype, device, generator, latents
        )
        self.scheduler.set_timesteps(num_inference_steps, device=device)
        timesteps = self.scheduler.timesteps
        with self.progress_bar(total=len(timesteps)) as progress_bar:
            for i, t in enumerate(timesteps):
                noise_pred = self.transformer(latents, t.expand(len(latents)), prompt_embeds, return_dict=False)[0]
                latents = self.scheduler.step(noise_pred, t, latents, return_dict=False)[0]
                if callback_on_step_end is not None:
                    given = {}
                    for name in callback_on_step_end_tensor_inputs:
                        given[name] = locals()[name]
                    changed = callback_on_step_end(self, i, t, given)
                    latents = changed.pop("latents", latents)
                    prompt_embeds = changed.pop("prompt_embeds", prompt_embeds)
                progress_bar.update()
        if output_type == "latent":
            image = latents
        else:
            image = self.vae.decode(latents / self.vae.config.scaling_factor, return_dict=False)[0]
            image = self.image_processor.postprocess(image, output_type=output_type)
        self.maybe_free_model_hooks()
        return {"images": image} if return_dict else (image,)
''',
    BLOCKS: '''\
"""The same in blocks."""

import torch
from diffusers.modular_pipelines import ModularPipelineBlocks
from diffusers.modular_pipelines.modular_pipeline_utils import ComponentSpec, InputParam, OutputParam
from diffusers.schedulers import FlowMatchEulerDiscreteScheduler


class LumenSetTimestepsStep(ModularPipelineBlocks):
    model_name = "lumen"

    @property
    def expected_components(self):
        return [ComponentSpec("scheduler", FlowMatchEulerDiscreteScheduler)]

    @property
    def inputs(self):
        return [InputParam("num_inference_steps", default=4), InputParam("sigmas")]

    @property
    def intermediate_outputs(self):
        return [OutputParam("timesteps", type_hint=torch.Tensor)]

    @torch.no_grad()
    def __call__(self, components, state):
        block_state = self.get_block_state(state)
        components.scheduler.set_timesteps(
            block_state.num_inference_steps, device=components._execution_device, sigmas=block_state.sigmas
        )
        block_state.timesteps = components.scheduler.timesteps
        self.set_block_state(state, block_state)
        return components, state
''',
}


changed = partial(engine.changed, LUMEN)
"""An example that changes one of these files, first text by second."""


LUMEN_PLAN = """\
    _cp_plan = {
        "blocks.0": {"hidden_states": ContextParallelInput(split_dim=1, expected_dims=3, split_output=False)},
        "rope": {0: ContextParallelInput(split_dim=1, expected_dims=4, split_output=True)},
        "proj_out": ContextParallelOutput(gather_dim=1, expected_dims=3),
    }

"""
