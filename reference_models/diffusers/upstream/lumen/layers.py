import math

import torch
import torch.nn.functional as F
from torch import nn


def timestep_embedding(t, dim, max_period=10000.0):
    half = dim // 2
    freqs = torch.exp(-math.log(max_period) * torch.arange(half, dtype=torch.float32, device=t.device) / half)
    args = 1000.0 * t[:, None].float() * freqs[None]
    return torch.cat([args.cos(), args.sin()], dim=-1)


def rope_table(h, w, dim, theta, device):
    """Angles for rows and columns, [h*w, dim // 2]."""
    omega = theta ** (-torch.arange(0, dim // 2, 2, dtype=torch.float32, device=device) / (dim // 2))
    rows = torch.arange(h, device=device).float()[:, None] * omega
    cols = torch.arange(w, device=device).float()[:, None] * omega
    grid = torch.cat([rows[:, None].expand(h, w, -1), cols[None].expand(h, w, -1)], dim=-1)
    return grid.reshape(h * w, -1)


def apply_rope(x, angles):
    """Neighbouring channels are a pair; x is [b, heads, n, d], angles [m, d // 2] for the last m of n."""
    head, tail = x[:, :, : -angles.shape[0]], x[:, :, -angles.shape[0] :]
    even, odd = tail[..., 0::2], tail[..., 1::2]
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    tail = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
    return torch.cat([head, tail], dim=2)


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        rms = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return (x * rms).to(x.dtype) * self.scale


class SelfAttention(nn.Module):
    def __init__(self, dim, num_heads, qkv_bias=False):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.norm_k = RMSNorm(dim // num_heads)
        self.norm_q = RMSNorm(dim // num_heads)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x, angles):
        b, n, c = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.num_heads, c // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        q, k = self.norm_q(q), self.norm_k(k)
        q, k = apply_rope(q, angles), apply_rope(k, angles)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.proj(out.transpose(1, 2).reshape(b, n, c))


class GatedMLP(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.w_in = nn.Linear(dim, 2 * hidden, bias=False)
        self.w_out = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        gate, up = self.w_in(x).chunk(2, dim=-1)
        return self.w_out(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, dim, num_heads, mlp_ratio=4.0):
        super().__init__()
        # The norm before the attention is the second one, by the order in which they were added.
        self.norm2 = RMSNorm(dim)
        self.norm1 = RMSNorm(dim)
        self.attn = SelfAttention(dim, num_heads)
        self.mlp = GatedMLP(dim, int(dim * mlp_ratio))
        self.ada = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))

    def forward(self, x, cond, angles):
        shift_a, scale_a, gate_a, shift_m, scale_m, gate_m = self.ada(cond)[:, None].chunk(6, dim=-1)
        x = x + gate_a * self.attn(self.norm2(x) * (1 + scale_a) + shift_a, angles)
        x = x + gate_m * self.mlp(self.norm1(x) * (1 + scale_m) + shift_m)
        return x
