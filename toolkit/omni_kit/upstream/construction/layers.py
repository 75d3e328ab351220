"""The parameters that classes of torch.nn make, by the arguments of their constructors."""

from collections.abc import Mapping
from typing import Any

from omni_kit.pysource.eval import UNKNOWN
from omni_kit.upstream.construction.values import Module, Tensor

_EMPTY = frozenset(
    {"Identity", "Dropout", "SiLU", "GELU", "ReLU", "LeakyReLU", "Sigmoid", "Tanh", "Softmax", "Softplus", "Module"}
)
_POOLS = ("AvgPool", "MaxPool", "AdaptiveAvgPool", "AdaptiveMaxPool", "ReflectionPad", "ZeroPad", "ConstantPad")


class Arguments:
    """The arguments of one call, by place or by name."""

    def __init__(self, args: list[Any], kwargs: Mapping[str, Any], where: str) -> None:
        self.args = args
        self.kwargs = kwargs
        self.where = where

    def take(self, index: int, name: str, default: Any = UNKNOWN) -> Any:
        """Return an argument by name or place; its default where it is not given."""
        return self.args[index] if len(self.args) > index else self.kwargs.get(name, default)

    def tensors(self, **shapes: tuple[Any, ...]) -> dict[str, list[Any]]:
        """Weight, and bias if there is one, of these shapes."""
        return {name: [Tensor(known_shape(shape), self.where)] for name, shape in shapes.items()}

    def wants_bias(self) -> bool:
        """Return whether there is a bias; also if that cannot be determined."""
        return self.kwargs.get("bias", True) not in (False, None)


def layer_parameters(kind: str, args: list[Any], kwargs: Mapping[str, Any], where: str) -> dict[str, list[Any]] | None:
    """Return attributes of a torch.nn class; None when the class is not known."""
    call = Arguments(args, kwargs, where)
    if kind in _EMPTY or kind.startswith(_POOLS):
        return {}
    read = _FAMILIES.get(_family(kind))
    return read(kind, call) if read is not None else None


def _family(kind: str) -> str:
    """`Conv` for Conv1d, Conv2d and Conv3d."""
    return kind[:-2] if kind.endswith(("1d", "2d", "3d")) else kind


def known_shape(values: tuple[Any, ...]) -> tuple[int | None, ...]:
    """Return a shape in which what is no number is None."""
    return tuple(v if isinstance(v, int) and not isinstance(v, bool) else None for v in values)


def _linear(kind: str, call: Arguments) -> dict[str, list[Any]]:
    rows, columns, bias = call.take(1, "out_features"), call.take(0, "in_features"), call.take(2, "bias", True)
    tensors = call.tensors(weight=(rows, columns), **({} if bias is False or bias is None else {"bias": (rows,)}))
    return {**tensors, "in_features": [columns], "out_features": [rows]}


def _embedding(kind: str, call: Arguments) -> dict[str, list[Any]]:
    return call.tensors(weight=(call.take(0, "num_embeddings"), call.take(1, "embedding_dim")))


def _norm(kind: str, call: Arguments) -> dict[str, list[Any]]:
    size = call.take(0, "normalized_shape")
    shape = tuple(size) if isinstance(size, (list, tuple)) else (size,)
    if call.take(2, "elementwise_affine", True) is False:
        return {}
    biased = kind == "LayerNorm" and call.take(3, "bias", True) is not False
    return call.tensors(weight=shape, **({"bias": shape} if biased else {}))


def _group_norm(kind: str, call: Arguments) -> dict[str, list[Any]]:
    channels = (call.take(1, "num_channels"),)
    return {} if call.kwargs.get("affine") is False else call.tensors(weight=channels, bias=channels)


def _batch_norm(kind: str, call: Arguments) -> dict[str, list[Any]]:
    size = known_shape((call.take(0, "num_features"),))
    learned = {} if call.kwargs.get("affine") is False else call.tensors(weight=size, bias=size)
    shapes = {"running_mean": size, "running_var": size, "num_batches_tracked": ()}
    return {**learned, **{name: [Tensor(shape, call.where, buffer=True)] for name, shape in shapes.items()}}


def _conv(kind: str, call: Arguments) -> dict[str, list[Any]]:
    out, channels, groups = call.take(1, "out_channels"), call.take(0, "in_channels"), call.kwargs.get("groups", 1)
    size, rank = call.take(2, "kernel_size"), int(kind[-2])
    kernel = tuple(size) if isinstance(size, (list, tuple)) else (size,) * rank
    first, second = (channels, out) if "Transpose" in kind else (out, channels)
    grouped = second // groups if isinstance(second, int) and isinstance(groups, int) and groups else UNKNOWN
    return call.tensors(weight=(first, grouped, *kernel), **({"bias": (out,)} if call.wants_bias() else {}))


def _attention(kind: str, call: Arguments) -> dict[str, list[Any]]:
    size, bias = call.take(0, "embed_dim"), call.kwargs.get("bias", True) is not False
    wide = 3 * size if isinstance(size, int) else UNKNOWN
    inner = Module("Linear", call.tensors(weight=(size, size), **({"bias": (size,)} if bias else {})))
    biases = {"in_proj_bias": (wide,)} if bias else {}
    return {**call.tensors(in_proj_weight=(wide, size), **biases), "out_proj": [inner]}


def _prelu(kind: str, call: Arguments) -> dict[str, list[Any]]:
    return call.tensors(weight=(call.take(0, "num_parameters", 1),))


_FAMILIES = {
    "Linear": _linear, "Embedding": _embedding, "LayerNorm": _norm, "RMSNorm": _norm, "GroupNorm": _group_norm,
    "BatchNorm": _batch_norm, "Conv": _conv, "ConvTranspose": _conv, "MultiheadAttention": _attention,
    "PReLU": _prelu,
}  # fmt: skip
