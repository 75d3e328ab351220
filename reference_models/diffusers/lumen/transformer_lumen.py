# Adapted from reference_models/diffusers/_upstream/lumen/model.py. License: Apache License

import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from diffusers.configuration_utils import ConfigMixin, register_to_config
from diffusers.loaders import FromOriginalModelMixin, PeftAdapterMixin
from diffusers.models.attention import AttentionMixin, AttentionModuleMixin
from diffusers.models.attention_dispatch import dispatch_attention_fn
from diffusers.models.cache_utils import CacheMixin
from diffusers.models.modeling_outputs import Transformer2DModelOutput
from diffusers.models.modeling_utils import ModelMixin


class LumenRMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        rms = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return (x * rms).to(x.dtype) * self.scale


def apply_rope(x, angles):
    """Neighbouring channels are a pair; x is [b, heads, n, d], angles [m, d // 2] for the last m of n."""
    head, tail = x[:, :, : -angles.shape[0]], x[:, :, -angles.shape[0] :]
    even, odd = tail[..., 0::2], tail[..., 1::2]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    tail = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
    return torch.cat([head, tail], dim=2)


class LumenAttnProcessor:
    _attention_backend = None
    _parallel_config = None

    def __call__(self, attn: "LumenSelfAttention", x, angles):
        b, n, c = x.shape
        q = attn.to_q(x).unflatten(-1, (attn.num_heads, -1)).transpose(1, 2)
        k = attn.to_k(x).unflatten(-1, (attn.num_heads, -1)).transpose(1, 2)
        v = attn.to_v(x).unflatten(-1, (attn.num_heads, -1))
        q, k = attn.norm_q(q), attn.norm_k(k)
        q, k = apply_rope(q, angles), apply_rope(k, angles)
        out = dispatch_attention_fn(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v,
            backend=self._attention_backend,
            parallel_config=self._parallel_config,
        )
        return attn.to_out[1](attn.to_out[0](out.reshape(b, n, c)))


class LumenSelfAttention(nn.Module, AttentionModuleMixin):
    _default_processor_cls = LumenAttnProcessor
    _available_processors = [LumenAttnProcessor]
    _supports_qkv_fusion = False

    def __init__(self, dim, num_heads, qkv_bias=False):
        super().__init__()
        self.num_heads = num_heads
        self.to_q = nn.Linear(dim, dim, bias=qkv_bias)
        self.to_k = nn.Linear(dim, dim, bias=qkv_bias)
        self.to_v = nn.Linear(dim, dim, bias=qkv_bias)
        self.norm_k = LumenRMSNorm(dim // num_heads)
        self.norm_q = LumenRMSNorm(dim // num_heads)
        self.to_out = nn.ModuleList([nn.Linear(dim, dim), nn.Dropout(0.0)])
        self.set_processor(LumenAttnProcessor())

    def forward(self, x, angles):
        return self.processor(self, x, angles)


class LumenGatedMLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w_in = nn.Linear(dim, 2 * hidden, bias=False)
        self.w_out = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        gate, up = self.w_in(x).chunk(2, dim=-1)
        return self.w_out(F.silu(gate) * up)


class LumenBlock(nn.Module):
    def __init__(self, dim, num_heads, mlp_ratio=4.0):
        super().__init__()
        # The norm before the attention is the second one, by the order in which they were added.
        self.norm2 = LumenRMSNorm(dim)
        self.norm1 = LumenRMSNorm(dim)
        self.attn = LumenSelfAttention(dim, num_heads)
        self.ff = LumenGatedMLP(dim, int(dim * mlp_ratio))
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))

    def forward(self, x, cond, angles):
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.ada(cond)[:, None].chunk(6, dim=-1)
        x = x + gate_a * self.attn(self.norm2(x) * (1 + scale_a) + shift_a, angles)
        x = x + gate_m * self.ff(self.norm1(x) * (1 + scale_m) + shift_m)
        return x


def rope_table(h, w, dim, theta, device):
    """Angles for rows and columns, [h*w, dim // 2]."""
    omega = theta ** (-torch.arange(0, dim // 2, 2, dtype=torch.float32, device=device) / (dim // 2))
    rows = torch.arange(h, device=device).float()[:, None] * omega
    cols = torch.arange(w, device=device).float()[:, None] * omega
    grid = torch.cat([rows[:, None].expand(h, w, -1), cols[None].expand(h, w, -1)], dim=-1)
    return grid.reshape(h * w, -1)


def timestep_embedding(t, dim, max_period=10000.0):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32, device=t.device) / half)
    args = 1000.0 * t[:, None].float() * freqs[None]
    return torch.cat([args.cos(), args.sin()], dim=-1)


class LumenTransformer2DModel(
    ModelMixin, ConfigMixin, AttentionMixin, PeftAdapterMixin, FromOriginalModelMixin, CacheMixin
):
    """Velocities of latents [b, c, h, w] at times in [0, 1], given the embedding of a text [b, n, d]."""

    _supports_gradient_checkpointing = True
    _no_split_modules = ["LumenBlock"]
    _repeated_blocks = ["LumenBlock"]
    _skip_layerwise_casting_patterns = ["norm"]

    @register_to_config
    def __init__(
        self,
        in_channels=16,
        patch_size=2,
        dim=1024,
        depth=16,
        num_heads=16,
        mlp_ratio=4.0,
        text_dim=2048,
        freq_dim=256,
        rope_theta=10000.0,
    ):
        super().__init__()
        self.patch_size = patch_size
        self.out_channels = in_channels
        self.freq_dim = freq_dim
        self.head_dim = dim // num_heads
        self.rope_theta = rope_theta
        self.x_in = nn.Linear(in_channels * patch_size**2, dim)
        self.context_embedder = nn.Sequential(LumenRMSNorm(text_dim), nn.Linear(text_dim, dim))
        self.time_embed = nn.Sequential(nn.Linear(freq_dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.transformer_blocks = nn.ModuleList([LumenBlock(dim, num_heads, mlp_ratio) for _ in range(depth)])
        self.norm_out = LumenRMSNorm(dim)
        self.final_ada = nn.Linear(dim, 2 * dim)
        self.proj_out = nn.Linear(dim, in_channels * patch_size**2)
        self.gradient_checkpointing = False

    def patchify(self, x):
        b, c, h, w = x.shape
        p = self.patch_size
        x = x.reshape(b, c, h // p, p, w // p, p)
        return x.permute(0, 2, 4, 3, 5, 1).reshape(b, (h // p) * (w // p), p * p * c)

    def unpatchify(self, x, h, w):
        p = self.patch_size
        x = x.reshape(x.shape[0], h, w, p, p, self.out_channels)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(x.shape[0], self.out_channels, h * p, w * p)

    def forward(self, hidden_states, timestep, encoder_hidden_states, return_dict: bool = True):
        h, w = hidden_states.shape[-2] // self.patch_size, hidden_states.shape[-1] // self.patch_size
        angles = rope_table(h, w, self.head_dim, self.rope_theta, hidden_states.device)
        cond = self.time_embed(timestep_embedding(timestep, self.freq_dim).to(hidden_states.dtype))
        text = self.context_embedder(encoder_hidden_states)
        hidden_states = torch.cat([text, self.x_in(self.patchify(hidden_states))], dim=1)
        for block in self.transformer_blocks:
            if torch.is_grad_enabled() and self.gradient_checkpointing:
                hidden_states = self._gradient_checkpointing_func(block, hidden_states, cond, angles)
            else:
                hidden_states = block(hidden_states, cond, angles)
        hidden_states = hidden_states[:, text.shape[1] :]
        scale, shift = self.final_ada(cond)[:, None].chunk(2, dim=-1)
        hidden_states = self.proj_out(self.norm_out(hidden_states) * (1 + scale) + shift)
        sample = self.unpatchify(hidden_states, h, w)
        if not return_dict:
            return (sample,)
        return Transformer2DModelOutput(sample=sample)
