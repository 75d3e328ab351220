"""Samples as VeOmni's data pipeline passes them to its models: with precomputed positions and placeholder masks."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch

from omni_kit.toys.batches.language import as_named, speaker_of
from omni_kit.toys.batches.vision import evened, media_of_sample, modality_masks, samples_of
from omni_kit.toys.tensors import Tensors

_KINDS = "mm_token_type_ids"  # which kind of media a token stands for
_TYPED = ("token_type_ids",)  # what upstream's processors say of each token, to models that take it
_IMAGE = 1  # the type of tokens that stand for an image
_PLAIN = 2  # dimensions of what has a row for each picture or patch
# What the pipeline writes in place of placeholder tokens before it asks for positions.
_MARKS = {"image_mask": "IMAGE_INPUT_INDEX", "video_mask": "VIDEO_INPUT_INDEX", "audio_mask": "AUDIO_INPUT_INDEX"}


def arguments(model: Any, inputs: Tensors) -> dict[str, Any]:
    """Return the arguments of forward: a padded batch of text as it is, a single sample as the pipeline makes it.

    Args:
        inputs: what upstream is fed, labels included.
    """
    if bool((inputs["attention_mask"] == 0).any()):
        return as_named(model, inputs)
    fed: dict[str, Any] = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    if _KINDS in inputs:
        config = speaker_of(model).config
        media, masks = _media(inputs, config), modality_masks(inputs, config)
        fed["position_ids"] = _positions(model, inputs, media, masks)
        fed |= media | masks | {name: inputs[name] for name in _TYPED if name in inputs}
    length = inputs["input_ids"].shape[1]
    bounds = torch.tensor([0, length], dtype=torch.int32, device=inputs["input_ids"].device)
    return fed | {"cu_seq_lens_q": bounds, "cu_seq_lens_k": bounds, "max_length_q": length, "max_length_k": length}


def without_positions(model: Any, inputs: Tensors) -> dict[str, Any]:
    """Return the result of `arguments` without positions: the model makes them, from token types if it can."""
    fed = {name: value for name, value in arguments(model, inputs).items() if name != "position_ids"}
    return fed | {name: value for name, value in as_named(model, inputs).items() if name == _KINDS}


def packed(model: Any, inputs: Tensors) -> dict[str, Any]:
    """Return the arguments of forward, labels included, of all rows in one: as VeOmni's collator packs them."""
    return placed(collated(model, divided(inputs)), inputs["input_ids"].device)


def repacked(model: Any, inputs: Tensors) -> list[dict[str, Any]]:
    """Return the arguments of forward as `packed` makes them, then of the same tokens in other numbers of samples; of
    text.
    """
    row = {name: tensor.reshape(1, -1) for name, tensor in inputs.items()}
    size = row["input_ids"].shape[1]
    found = [packed(model, inputs)]
    for ends in ((size // 5, size // 2, size), (size // 3, size)):
        bounds = pairwise((0, *ends))
        samples = [{name: tensor[:, start:end] for name, tensor in row.items()} for start, end in bounds]
        found.append(placed(collated(model, samples), row["input_ids"].device))
    return found


def divided(inputs: Tensors) -> list[Tensors]:
    """Return the samples of a batch, each in the form that upstream takes; a single row may have that form already."""
    grouped = any(name.startswith("batched.") for name in inputs)
    return samples_of(inputs) if len(inputs["input_ids"]) > 1 or grouped else [inputs]


def collated(model: Any, samples: Sequence[Tensors]) -> dict[str, Any]:
    """Return a batch by the collator of VeOmni's trainers, of samples as upstream takes them.

    Pictures that differ in size are padded alike, because the collator joins them in one tensor.
    """
    made = [sample_of(model, sample) for sample in samples]
    for name in {name for sample in made for name in media_of_sample(sample)}:
        holders = [sample for sample in made if name in sample and sample[name].dim() > _PLAIN]
        for sample, tensor in zip(holders, evened([one[name] for one in holders]), strict=True):
            sample[name] = tensor
    batch: dict[str, Any] = collator(model)(made)
    return batch


def placed(batch: Mapping[str, Any], device: torch.device | str) -> dict[str, Any]:
    """Return a batch of the collator on a device, with what it has made for the towers."""

    def place(value: Any) -> Any:
        if isinstance(value, Mapping):
            return placed(value, device)
        return value.to(device) if isinstance(value, torch.Tensor) else value

    return {name: place(value) for name, value in batch.items()}


def collator(model: Any) -> Any:
    """Return the collator of VeOmni's trainers, with what the model adds to it."""
    from veomni.data.data_collator import MainCollator

    infos: dict[str, Any] = getattr(model, "get_extra_collate_infos", dict)()
    metadata = getattr(model, "get_metadata_collate_func", lambda: None)()
    return MainCollator(data_collate_info=infos, metadata_collate_func=metadata)


def sample_of(model: Any, inputs: Tensors) -> Tensors:
    """Return a single sample in the form that the pipeline passes to VeOmni's collator: without the batch axis.

    Args:
        inputs: what upstream is fed, one row without padding, labels included.
    """
    named = ("input_ids", "attention_mask", "labels", *_TYPED)
    sample = {name: inputs[name][0].clone() for name in named if name in inputs}
    if _KINDS in inputs:
        config = speaker_of(model).config
        media, masks = _media(inputs, config), modality_masks(inputs, config)
        sample["position_ids"] = _positions(model, inputs, media, masks)[0]
        sample |= media | {name: mask[0] for name, mask in masks.items()}
        sample["input_ids"][torch.stack([mask[0] for mask in masks.values()]).any(0)] = 0  # the masks alone tell
    return sample


def _media(inputs: Tensors, config: Any) -> Tensors:
    """Pictures and films as they are; sound as its frames alone, [frames, mel bins], as soon as there could be any."""
    media = media_of_sample(inputs)
    device = inputs["input_ids"].device
    if "feature_attention_mask" in inputs:
        media["input_features"] = inputs["input_features"].permute(0, 2, 1)[inputs["feature_attention_mask"].bool()]
    elif "video_grid_thw" in inputs and (hearing := getattr(config, "audio_config", None)) is not None:
        media["input_features"] = torch.zeros(0, hearing.num_mel_bins, device=device)
    if "input_features" in media:
        media["audio_feature_lengths"] = torch.tensor(_with_silence(inputs), device=device)
    return media


def _with_silence(inputs: Tensors) -> list[int]:
    """Return the length of each sound in the order of the text, where a film without sound counts as one of
    length 0.
    """
    films = len(inputs.get("video_grid_thw", ()))
    found: list[int] = []
    if "feature_attention_mask" not in inputs:
        return [0] * films
    lengths, before = inputs["feature_attention_mask"].sum(-1).tolist(), inputs["films_before"].tolist()
    for number, length in enumerate(lengths):
        found += [0] * (before[number] + number - len(found)) + [length]
    return found + [0] * (films + len(lengths) - len(found))


def _positions(model: Any, inputs: Tensors, media: Tensors, masks: Tensors) -> torch.Tensor:
    """Positions by the model's own function for the pipeline: [1, axes, tokens], or [1, tokens] of a single axis."""
    from veomni.utils import constants

    ids = inputs["input_ids"].clone()
    for name, mask in masks.items():
        ids[mask] = getattr(constants, _MARKS[name])
    known: dict[str, Any] = {"input_ids": ids, "attention_mask": inputs["attention_mask"]}
    known |= {grid: media.get(grid) for grid in ("image_grid_thw", "video_grid_thw")}
    if "audio_feature_lengths" in media:
        known["audio_seqlens"] = media["audio_feature_lengths"]
        known["second_per_grids"] = inputs.get("video_second_per_grid")
    types = inputs["mm_token_type_ids"]
    if "image_mask" in masks and bool((types[masks["image_mask"]] != _IMAGE).any()):  # a film has the same placeholder
        known["mm_token_type_ids"] = types
    positions: torch.Tensor = model.get_position_id_func()(**known)["position_ids"]
    if positions.dim() == 3:  # [axes, 1, tokens]
        positions = positions.transpose(0, 1)
    elif len(positions) > 1:  # [axes, tokens]: one sample, without its axis
        positions = positions.unsqueeze(0)
    return positions.to(ids.device)
