"""A batch with pictures, a film and sound, for models that read them as runs of placeholder tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import generator, shuffled_ramp

# Frames, rows and columns of patches. No two sizes are alike, and rows differ from columns.
_IMAGES = ((1, 4, 6), (1, 6, 4))
_VIDEO = (2, 4, 4)
_AUDIO_WINDOWS = (2.5, 1.8)  # how much of each clip's last window is left, too, differs
_TEXT = 4  # tokens between the media


@dataclass
class _Row:
    """One sequence under construction: token ids, and what kind each one is (0 text, 1 image, 2 video)."""

    ids: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)

    def add(self, ids: list[int], kind: int = 0) -> None:
        self.ids += ids
        self.kinds += [kind] * len(ids)


@dataclass(frozen=True)
class MediaTokens:
    """The token ids that stand for media, and those that open and close a run of them; None where there is none."""

    image: int | None
    video: int | None
    audio: int | None
    vision_start: int | None
    vision_end: int | None
    audio_start: int | None
    audio_end: int | None

    @classmethod
    def of(cls, config: Any) -> "MediaTokens":
        """Those that a config names, whatever it calls them."""

        def find(*names: str) -> int | None:
            return next((int(value) for name in names if isinstance(value := getattr(config, name, None), int)), None)

        return cls(
            image=find("image_token_id", "image_token_index"),
            video=find("video_token_id", "video_token_index"),
            audio=find("audio_token_id", "audio_token_index"),
            vision_start=find("vision_start_token_id"),
            vision_end=find("vision_end_token_id"),
            audio_start=find("audio_start_token_id"),
            audio_end=find("audio_end_token_id"),
        )


def media_inputs(model: Any, config: Any, text_tokens: list[int], *, video_by_frame: bool) -> Tensors:
    """Two rows: text, image, film, sound and text; and text, another image, sound and text, padded on the left.

    Args:
        model: the part of the model that holds the audio tower.
        config: that part's config, with vision_config and perhaps audio_config.
        text_tokens: ids to draw text from.
        video_by_frame: each frame of the film is a run of its own, as models with time stamps in the text have it.

    Returns:
        input_ids, attention_mask, labels, mm_token_type_ids [2, length]; pixel_values, image_grid_thw,
        pixel_values_videos, video_grid_thw, video_second_per_grid; image_rows and video_rows, the row of each; and,
        where the model hears, input_features [2, mel bins, frames] and feature_attention_mask [2, frames].
    """
    tokens = MediaTokens.of(config)
    draw = _Drawer(text_tokens)
    merge = config.vision_config.spatial_merge_size**2
    frames = _audio_frames(config)
    sound = _sound_lengths(model, config, frames)
    rows = [_Row(), _Row()]
    for index, row in enumerate(rows):
        row.add(draw(_TEXT + 2 * (1 - index)))
        _add_run(row, tokens.image, _patches(_IMAGES[index]) // merge, 1, tokens.vision_start, tokens.vision_end)
        row.add(draw(_TEXT - 1))
        if index == 0 and tokens.video is not None:
            runs = _VIDEO[0] if video_by_frame else 1
            for _ in range(runs):
                count = _patches(_VIDEO) // merge // runs
                _add_run(row, tokens.video, count, 2, tokens.vision_start, tokens.vision_end)
                row.add(draw(1))
        if sound:
            _add_run(row, tokens.audio, sound[index], 3, tokens.audio_start, tokens.audio_end)
        row.add(draw(_TEXT))
    inputs = _batch(rows) | _pictures(config.vision_config)
    if sound:
        inputs |= _sound(config.audio_config.num_mel_bins, frames)
    return inputs


class _Drawer:
    """Draws text tokens, the same ones each time the same batch is made."""

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = tokens
        self._generator = generator("media text")

    def __call__(self, count: int) -> list[int]:
        picks = torch.randint(len(self._tokens), (count,), generator=self._generator)
        return [self._tokens[pick] for pick in picks.tolist()]


def _add_run(row: _Row, token: int | None, count: int, kind: int, start: int | None, end: int | None) -> None:
    if token is None:
        return
    row.add([start] if start is not None else [])
    row.add([token] * count, kind)
    row.add([end] if end is not None else [])


def _patches(grid: tuple[int, int, int]) -> int:
    return grid[0] * grid[1] * grid[2]


def _batch(rows: list[_Row]) -> Tensors:
    """Both rows at the length of the longer one; labels leave out padding and media."""
    length = max(len(row.ids) for row in rows)
    padded = [length - len(row.ids) for row in rows]
    ids = torch.tensor([[row.ids[0]] * pad + row.ids for row, pad in zip(rows, padded, strict=True)])
    kinds = torch.tensor([[0] * pad + row.kinds for row, pad in zip(rows, padded, strict=True)])
    mask = torch.tensor([[0] * pad + [1] * len(row.ids) for row, pad in zip(rows, padded, strict=True)])
    labels = ids.masked_fill((mask == 0) | (kinds > 0), -100)
    for row, pad in enumerate(padded):
        labels[row, pad] = -100  # nothing comes before it that could foretell it
    types = kinds.masked_fill(kinds == 3, 0)
    return {"input_ids": ids, "attention_mask": mask, "labels": labels, "mm_token_type_ids": types}


def _pictures(vision: Any) -> Tensors:
    """Patches as the processors of this family cut them, and the grids that they come from."""
    channels = getattr(vision, "in_channels", None) or getattr(vision, "in_chans", 3)
    width = channels * vision.temporal_patch_size * vision.patch_size**2
    return {
        "pixel_values": shuffled_ramp("images", (sum(map(_patches, _IMAGES)), width)),
        "image_grid_thw": torch.tensor(_IMAGES),
        "pixel_values_videos": shuffled_ramp("video", (_patches(_VIDEO), width)),
        "video_grid_thw": torch.tensor([_VIDEO]),
        "video_second_per_grid": torch.ones(1),
        "image_rows": torch.arange(len(_IMAGES)),
        "video_rows": torch.zeros(1, dtype=torch.long),
    }


def _audio_frames(config: Any) -> list[int]:
    """How long each clip is, in frames of the spectrogram; empty for a model that does not hear."""
    window = getattr(getattr(config, "audio_config", None), "n_window", None)
    return [int(windows * 2 * window) for windows in _AUDIO_WINDOWS] if window else []


def _sound(mel_bins: int, frames: list[int]) -> Tensors:
    """A spectrogram a row, the second one shorter."""
    mask = torch.tensor([[int(frame < length) for frame in range(max(frames))] for length in frames])
    return {
        "input_features": shuffled_ramp("sound", (len(frames), mel_bins, max(frames))),
        "feature_attention_mask": mask,
    }


def _sound_lengths(model: Any, config: Any, frames: list[int]) -> list[int]:
    """How many tokens each clip becomes: the model is asked, because formulas in configs and towers disagree."""
    found = []
    for length in frames:
        clip = _sound(config.audio_config.num_mel_bins, [length])
        with torch.no_grad():
            found.append(len(model.get_audio_features(**clip, return_dict=True).last_hidden_state))
    return found


def samples_of(inputs: Tensors) -> list[Tensors]:
    """The rows of a batch as batches of one: without padding, each with its own media.

    Returns:
        For each row, the tensors of `media_inputs` that it has something of, in the form that upstream takes.
    """
    return [_sample(inputs, row) for row in range(len(inputs["input_ids"]))]


def _sample(inputs: Tensors, row: int) -> Tensors:
    kept = inputs["attention_mask"][row].bool()
    by_token = ("input_ids", "attention_mask", "labels", "mm_token_type_ids")
    sample = {name: inputs[name][row : row + 1, kept] for name in by_token if name in inputs}
    for pixels, grid, rows in (
        ("pixel_values", "image_grid_thw", "image_rows"),
        ("pixel_values_videos", "video_grid_thw", "video_rows"),
    ):
        if rows in inputs and bool((mine := inputs[rows] == row).any()):
            sample[pixels] = inputs[pixels][torch.repeat_interleave(mine, inputs[grid].prod(-1))]
            sample[grid] = inputs[grid][mine]
            if rows == "video_rows":
                sample["video_second_per_grid"] = inputs["video_second_per_grid"][mine]
    if "feature_attention_mask" in inputs:
        heard = inputs["feature_attention_mask"][row].bool()
        sample["input_features"] = inputs["input_features"][row : row + 1, :, heard]
        sample["feature_attention_mask"] = heard[heard].long()[None]
    return sample


def modality_masks(inputs: Mapping[str, torch.Tensor], config: Any) -> Tensors:
    """Where the placeholders of each kind stand, bool [batch, length] each."""
    tokens = MediaTokens.of(config)
    ids = inputs["input_ids"]
    found = {"image_mask": tokens.image, "video_mask": tokens.video, "audio_mask": tokens.audio}
    return {name: ids == token for name, token in found.items() if token is not None}
