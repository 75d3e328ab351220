import torch
from torch import nn

from .layers import Block, RMSNorm, rope_table, timestep_embedding


class Lumen(nn.Module):
    """Velocities of latents [b, c, h, w] at times in [0, 1], given the embedding of a text [b, n, d]."""

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
        self.text_in = nn.Sequential(RMSNorm(text_dim), nn.Linear(text_dim, dim))
        self.time_in = nn.Sequential(nn.Linear(freq_dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.blocks = nn.ModuleList([Block(dim, num_heads, mlp_ratio) for _ in range(depth)])
        self.final_norm = RMSNorm(dim)
        self.final_ada = nn.Linear(dim, 2 * dim)
        self.final = nn.Linear(dim, in_channels * patch_size**2)

    def patchify(self, x):
        b, c, h, w = x.shape
        p = self.patch_size
        x = x.reshape(b, c, h // p, p, w // p, p)
        return x.permute(0, 2, 4, 3, 5, 1).reshape(b, (h // p) * (w // p), p * p * c)

    def unpatchify(self, x, h, w):
        p = self.patch_size
        x = x.reshape(x.shape[0], h, w, p, p, self.out_channels)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(x.shape[0], self.out_channels, h * p, w * p)

    def forward(self, x, t, context):
        h, w = x.shape[-2] // self.patch_size, x.shape[-1] // self.patch_size
        angles = rope_table(h, w, self.head_dim, self.rope_theta, x.device)
        cond = self.time_in(timestep_embedding(t, self.freq_dim).to(x.dtype))
        text = self.text_in(context)
        x = torch.cat([text, self.x_in(self.patchify(x))], dim=1)
        for block in self.blocks:
            x = block(x, cond, angles)
        x = x[:, text.shape[1] :]
        scale, shift = self.final_ada(cond)[:, None].chunk(2, dim=-1)
        x = self.final(self.final_norm(x) * (1 + scale) + shift)
        return self.unpatchify(x, h, w)
