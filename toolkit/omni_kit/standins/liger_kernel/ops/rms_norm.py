"""The norm by the root of the mean square."""

import torch


class LigerRMSNormFunction:
    """Norms the last axis."""

    @staticmethod
    def apply(
        X: torch.Tensor,  # noqa: N803
        W: torch.Tensor,  # noqa: N803
        eps: float,
        offset: float = 0.0,
        casting_mode: str = "llama",
        *args: object,
    ) -> torch.Tensor:
        """Return the normed tensor; `gemma` multiplies by the weight before it casts, `llama` after, `none` casts
        nothing.
        """
        x = X if casting_mode == "none" else X.float()
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        if casting_mode == "gemma":
            return (normed * (offset + W.float())).to(X.dtype)
        return normed.to(X.dtype) * (offset + W)
