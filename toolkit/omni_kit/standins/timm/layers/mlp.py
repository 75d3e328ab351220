"""Feed-forward layers."""

from collections.abc import Callable
from typing import cast

import torch
from torch import nn

from .helpers import to_2tuple

Made = Callable[..., nn.Module]


class Mlp(nn.Module):
    """Two layers with an activation in between."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int | None = None,
        out_features: int | None = None,
        act_layer: "Made" = nn.GELU,
        norm_layer: "Made | None" = None,
        bias: bool | tuple[bool, bool] = True,
        drop: float | tuple[float, float] = 0.0,
        use_conv: bool = False,
    ) -> None:
        super().__init__()
        hidden_features = hidden_features or in_features
        biases, drops = to_2tuple(bias), to_2tuple(drop)
        made: Made = nn.Linear
        if use_conv:
            made = lambda a, b, bias: nn.Conv2d(a, b, kernel_size=1, bias=bias)  # noqa: E731
        self.fc1 = made(in_features, hidden_features, bias=biases[0])
        self.act = act_layer()
        self.drop1 = nn.Dropout(drops[0])
        self.norm = norm_layer(hidden_features) if norm_layer is not None else nn.Identity()
        self.fc2 = made(hidden_features, out_features or in_features, bias=biases[1])
        self.drop2 = nn.Dropout(drops[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the second layer's output."""
        x = self.drop1(self.act(self.fc1(x)))
        x = self.fc2(self.norm(x))
        return cast(torch.Tensor, self.drop2(x))


class GluMlp(nn.Module):
    """Two layers, of which half of the first gates the other half."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int | None = None,
        out_features: int | None = None,
        act_layer: "Made" = nn.Sigmoid,
        norm_layer: "Made | None" = None,
        bias: bool | tuple[bool, bool] = True,
        drop: float | tuple[float, float] = 0.0,
        use_conv: bool = False,
        gate_last: bool = True,
    ) -> None:
        super().__init__()
        hidden_features = hidden_features or in_features
        biases, drops = to_2tuple(bias), to_2tuple(drop)
        self.chunk_dim = 1 if use_conv else -1
        self.gate_last = gate_last
        made: Made = nn.Linear
        if use_conv:
            made = lambda a, b, bias: nn.Conv2d(a, b, kernel_size=1, bias=bias)  # noqa: E731
        self.fc1 = made(in_features, hidden_features, bias=biases[0])
        self.act = act_layer()
        self.drop1 = nn.Dropout(drops[0])
        self.norm = norm_layer(hidden_features // 2) if norm_layer is not None else nn.Identity()
        self.fc2 = made(hidden_features // 2, out_features or in_features, bias=biases[1])
        self.drop2 = nn.Dropout(drops[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the second layer's output."""
        first, second = self.fc1(x).chunk(2, dim=self.chunk_dim)
        x = first * self.act(second) if self.gate_last else self.act(first) * second
        x = self.fc2(self.norm(self.drop1(x)))
        return cast(torch.Tensor, self.drop2(x))


class SwiGLU(nn.Module):
    """Two layers next to each other, of which the first gates the second; and one more."""

    def __init__(
        self,
        in_features: int,
        hidden_features: int | None = None,
        out_features: int | None = None,
        act_layer: "Made" = nn.SiLU,
        norm_layer: "Made | None" = None,
        bias: bool | tuple[bool, bool] = True,
        drop: float | tuple[float, float] = 0.0,
    ) -> None:
        super().__init__()
        hidden_features = hidden_features or in_features
        biases, drops = to_2tuple(bias), to_2tuple(drop)
        self.fc1_g = nn.Linear(in_features, hidden_features, bias=biases[0])
        self.fc1_x = nn.Linear(in_features, hidden_features, bias=biases[0])
        self.act = act_layer()
        self.drop1 = nn.Dropout(drops[0])
        self.norm = norm_layer(hidden_features) if norm_layer is not None else nn.Identity()
        self.fc2 = nn.Linear(hidden_features, out_features or in_features, bias=biases[1])
        self.drop2 = nn.Dropout(drops[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the last layer's output."""
        x = self.act(self.fc1_g(x)) * self.fc1_x(x)
        x = self.fc2(self.norm(self.drop1(x)))
        return cast(torch.Tensor, self.drop2(x))
