"""How VeOmni's data pipeline hands a sample to its models: with positions and placeholder masks made beforehand."""

from typing import Any

import torch

from omni_kit.parity.builder import Tensors
from omni_kit.parity.language import as_named, speaker_of
from omni_kit.parity.media import modality_masks

# What the pipeline writes in place of placeholder tokens before it asks for positions.
_MARKS = {"image_mask": "IMAGE_INPUT_INDEX", "video_mask": "VIDEO_INPUT_INDEX", "audio_mask": "AUDIO_INPUT_INDEX"}


def arguments(model: Any, inputs: Tensors) -> dict[str, Any]:
    """The arguments of forward: a padded batch of text as it is, a single sample as the pipeline makes it.

    Args:
        inputs: what upstream is fed, labels included.
    """
    if bool((inputs["attention_mask"] == 0).any()):
        return as_named(model, inputs)
    fed: dict[str, Any] = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    if "mm_token_type_ids" in inputs:
        media = _media(inputs)
        masks = modality_masks(inputs, speaker_of(model).config)
        fed["position_ids"] = _positions(model, inputs, media, masks)
        fed |= media | masks
    length = inputs["input_ids"].shape[1]
    bounds = torch.tensor([0, length], dtype=torch.int32, device=inputs["input_ids"].device)
    return fed | {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": length, "max_length_k": length}


def _media(inputs: Tensors) -> Tensors:
    """Pictures and films as they are; sound as its frames alone, [frames, mel bins]."""
    names = ("pixel_values", "image_grid_thw", "pixel_values_videos", "video_grid_thw")
    media = {name: inputs[name] for name in names if name in inputs}
    if "feature_attention_mask" in inputs:
        heard = inputs["feature_attention_mask"].bool()
        media["input_features"] = inputs["input_features"].permute(0, 2, 1)[heard]
        # A film without sound counts as a sound of length 0, in the order of the text.
        silent = [0] * len(inputs.get("video_grid_thw", ()))
        media["audio_feature_lengths"] = torch.tensor([*silent, *heard.sum(-1).tolist()], device=heard.device)
    return media


def _positions(model: Any, inputs: Tensors, media: Tensors, masks: Tensors) -> torch.Tensor:
    """Positions on three axes by the model's own function for the pipeline, [1, 3, tokens]."""
    from veomni.utils import constants

    ids = inputs["input_ids"].clone()
    for name, mask in masks.items():
        ids[mask] = getattr(constants, _MARKS[name])
    known: dict[str, Any] = {"input_ids": ids, "attention_mask": inputs["attention_mask"]}
    known |= {grid: media.get(grid) for grid in ("image_grid_thw", "video_grid_thw")}
    if "audio_feature_lengths" in media:
        known["audio_seqlens"] = media["audio_feature_lengths"]
        known["second_per_grids"] = inputs.get("video_second_per_grid")
    positions: torch.Tensor = model.get_position_id_func()(**known)["position_ids"]
    return positions.reshape(1, 3, -1).to(ids.device)
