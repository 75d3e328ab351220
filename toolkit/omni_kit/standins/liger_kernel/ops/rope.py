"""Rotary positions of queries and keys."""

import torch


class LigerRopeFunction:
    """Turns the halves of each head."""

    @staticmethod
    def apply(
        q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, *args: object
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return queries and keys [B, heads, N, width], turned by the angles of [1 or B, N, width]."""
        half = q.shape[-1] // 2
        cos, sin = cos[..., None, :, :half], sin[..., None, :, :half]
        turned = []
        for x in (q, k):
            first, second = x[..., :half], x[..., half:]
            turned.append(torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(x.dtype))
        return turned[0], turned[1]
