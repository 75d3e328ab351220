"""Faults in how towers read media, and in how their features come among the embeddings of text."""

from typing import Any

import torch

from omni_kit.parity.faults.kinds import INAPPLICABLE, CodeFault, Fault, calls, reads, takes


def _shifted(right: Any, function: Any, *given: Any, **named: Any) -> Any:
    """Scatter each row of features where the next one belongs."""
    if len(given) < 2 or not isinstance(given[-1], torch.Tensor) or len(given[-1]) < 2:
        return INAPPLICABLE
    return function(*given[:-1], given[-1].roll(1, 0), **named)


def _later_lost(right: Any, function: Any, *given: Any, **named: Any) -> Any:
    """Scatter zeros in place of the second half of the features: those of the later of several media."""
    if len(given) < 2 or not isinstance(given[-1], torch.Tensor) or len(given[-1]) < 2:
        return INAPPLICABLE
    features = given[-1].clone()
    features[len(features) // 2 :] = 0
    return function(*given[:-1], features, **named)


def _one_layer_later(layers: Any) -> Any:
    """Return the features of a tower's earlier layers, each for the layer of text behind its own."""
    if not isinstance(layers, (list, tuple)) or not layers or not isinstance(layers[0], torch.Tensor):
        return INAPPLICABLE
    return [torch.zeros_like(layers[0]), *layers]


def _unmerged(size: Any) -> Any:
    """No patches are merged, where a model merges some."""
    return 1 if isinstance(size, int) and size > 1 else INAPPLICABLE


MERGING: tuple[Fault, ...] = (
    CodeFault("pictures-shifted", "call", calls("masked_scatter"), _shifted),
    CodeFault("later-features-lost", "call", calls("masked_scatter"), _later_lost),
    CodeFault("deepstack-one-layer-later", "argument", takes(r"deepstack_\w+"), _one_layer_later),
    CodeFault("merge-size-wrong", "value", reads(r"(spatial_)?merge_size"), _unmerged),
)
