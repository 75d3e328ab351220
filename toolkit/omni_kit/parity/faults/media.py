"""Mistakes in how a model takes media: only scenes in which they stand can show them."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from omni_kit.toys.batches.protocol import Preparation
from omni_kit.toys.batches.scenes import SCENES

Arguments = dict[str, Any]


def shown(kinds: str) -> tuple[str, ...]:
    """Return the prefixes of the scenarios that contain one of these media."""
    return tuple(f"{name}, " for name in _with(kinds))


def packed(kinds: str) -> tuple[str, ...]:
    """Return the names of the ways of calling in which samples with one of these media are packed."""
    return tuple(f"{name}, {Preparation.packed}" for name in _with(kinds))


def _with(kinds: str) -> list[str]:
    return [name for name, rows in SCENES.items() if {*kinds} & {*"".join(rows)}]


def several_packed() -> tuple[str, ...]:
    """Return the names of the ways of calling in which several samples are packed into one."""
    return (
        Preparation.packed.value,
        *(f"{name}, {Preparation.packed}" for name, rows in SCENES.items() if len(rows) > 1),
    )


def _changed(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any, Arguments], object]:
    def before(model: Any, called: Arguments) -> None:
        if isinstance(called.get(name), torch.Tensor):
            called[name] = change(called[name].clone())

    return before


def _turned(positions: torch.Tensor) -> torch.Tensor:
    """Return rows for columns, where positions have three axes."""
    axes = [axis for axis, size in enumerate(positions.shape) if size == 3]
    if positions.dim() != 3 or not axes:
        return positions
    return positions.index_select(axes[0], torch.tensor([0, 2, 1], device=positions.device))


def _one_time(model: Any, called: Arguments) -> None:
    """Every frame of a film has the time of its first, where positions have three axes."""
    positions, films = called.get("position_ids"), called.get("video_mask")
    if not (isinstance(positions, torch.Tensor) and isinstance(films, torch.Tensor)):
        return
    axes = [axis for axis, size in enumerate(positions.shape) if size == 3]
    if positions.dim() != 3 or not axes or len(films) > 1:
        return
    called["position_ids"] = positions = positions.clone()
    times, first = positions.select(axes[0], 0).reshape(-1), 0
    shown = films.reshape(-1).tolist()
    for place in range(1, len(shown)):
        first = first if shown[place - 1] else place
        if shown[place]:
            times[place] = times[first]


def _joined(model: Any, called: Arguments) -> None:
    """Several packed samples are taken for one."""
    for name in ("cu_seq_lens_q", "cu_seq_lens_k"):
        if isinstance(called.get(name), torch.Tensor):
            called[name] = called[name][[0, -1]]
            length = int(called[name][-1])
            called |= {key: length for key in ("max_length_q", "max_length_k") if key in called}


def _first_metadata(model: Any, called: Arguments) -> None:
    """Remove the bounds between frames and pictures from the collator's metadata for the towers."""
    metadata: dict[str, Any] = called.get("multimodal_metadata") or {}
    for name, value in list(metadata.items()):
        if isinstance(value, torch.Tensor) and "cu_seqlens" in name:
            metadata[name] = value[[0, -1]]
            metadata |= {key: int(value[-1]) for key in metadata if "max_seqlen" in key}


# What is wrong -> the ways that can show it, and what changes the call.
MEDIA_FAULTS: Mapping[str, tuple[tuple[str, ...], Callable[[Any, Arguments], object]]] = {
    "features of images come in another order": (shown("I"), _changed("pixel_values", lambda pixels: pixels.flip(0))),
    "features of videos come in another order": (
        shown("V"), _changed("pixel_values_videos", lambda pixels: pixels.flip(0)),
    ),
    "audio is reversed": (shown("S"), _changed("input_features", lambda frames: frames.flip(0))),
    "rows and columns of images are swapped": (
        shown("I"), _changed("image_grid_thw", lambda grid: grid[:, [0, 2, 1]]),
    ),
    "videos have no time axis": (shown("V"), _one_time),
    "rows and columns of positions are swapped": (shown("IV"), _changed("position_ids", _turned)),
    "packed samples see each other": (several_packed(), _joined),
    "images and frames of one pack see each other": (packed("IV"), _first_metadata),
}  # fmt: skip
