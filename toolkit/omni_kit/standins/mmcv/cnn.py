"""Initial values of layers."""

from torch import nn


def constant_init(module: nn.Module, val: float, bias: float = 0) -> None:
    """Set a layer's weights to one number, and its bias to another."""
    if isinstance(weight := getattr(module, "weight", None), nn.Parameter):
        nn.init.constant_(weight, val)
    _set_bias(module, bias)


def xavier_init(module: nn.Module, gain: float = 1, bias: float = 0, distribution: str = "normal") -> None:
    """Initialise a layer as Glorot and Bengio do."""
    init = nn.init.xavier_uniform_ if distribution == "uniform" else nn.init.xavier_normal_
    if isinstance(weight := getattr(module, "weight", None), nn.Parameter):
        init(weight, gain=gain)
    _set_bias(module, bias)


def normal_init(module: nn.Module, mean: float = 0, std: float = 1, bias: float = 0) -> None:
    """Draw a layer's weights from a normal distribution."""
    if isinstance(weight := getattr(module, "weight", None), nn.Parameter):
        nn.init.normal_(weight, mean, std)
    _set_bias(module, bias)


def _set_bias(module: nn.Module, value: float) -> None:
    if isinstance(bias := getattr(module, "bias", None), nn.Parameter):
        nn.init.constant_(bias, value)
