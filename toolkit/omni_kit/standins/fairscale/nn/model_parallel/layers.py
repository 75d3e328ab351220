"""Layers that several processes could share."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn


class ColumnParallelLinear(nn.Linear):
    """A linear layer, all rows of which are here."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        gather_output: bool = True,
        init_method: Callable[[torch.Tensor], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_features, out_features, bias=bias)
        if init_method is not None:
            init_method(self.weight)


class RowParallelLinear(nn.Linear):
    """A linear layer, all columns of which are here."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        input_is_parallel: bool = False,
        init_method: Callable[[torch.Tensor], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(in_features, out_features, bias=bias)
        if init_method is not None:
            init_method(self.weight)


class ParallelEmbedding(nn.Embedding):
    """An embedding, all of which is here."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        init_method: Callable[[torch.Tensor], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, padding_idx=padding_idx)
        if init_method is not None:
            init_method(self.weight)
