"""A batch with pictures, a film and sound, for models that read them as runs of placeholder tokens."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from omni_kit.toys.feeds.scenes import EVERYTHING, Rows
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import generator, shuffled_ramp

# Frames, rows and columns of patches. No two sizes are alike, and rows differ from columns. Of one kind, the n-th of a
# batch has the n-th size.
_IMAGES = ((1, 4, 6), (1, 8, 6), (1, 6, 10))
_FILMS = ((3, 4, 6), (2, 6, 4))
_SOUNDS = (2.5, 1.8, 3.0)  # in windows; how much of the last one is left, too, differs
_SECONDS = (2.0, 1.0)  # between two frames of a film
_TEXT, _LONG = (6, 3, 4, 5), 23  # tokens of the pieces of text in a row


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


def media_inputs(
    model: Any, config: Any, text_tokens: list[int], *, video_by_frame: bool, rows: Rows = EVERYTHING
) -> Tensors:
    """A batch with media, its rows padded on the left to the length of the longest.

    Args:
        model: the part of the model that holds the audio tower.
        config: that part's config, with vision_config and perhaps audio_config.
        text_tokens: ids to draw text from.
        video_by_frame: each frame of a film is a run of its own, as models with time stamps in the text have it.
        rows: what stands in each; media that the model does not take are left out.

    Returns:
        input_ids, attention_mask, labels, mm_token_type_ids [rows, length]; with images, pixel_values, image_grid_thw
        and image_rows, the row of each; with films, pixel_values_videos, video_grid_thw, video_second_per_grid and
        video_rows; with sounds, input_features [sounds, mel bins, frames], feature_attention_mask [sounds, frames],
        audio_rows, and films_before, how many films stand before each in its row.
    """
    writer = _Writer(MediaTokens.of(config), _Drawer(text_tokens), model, config, video_by_frame)
    for row in rows:
        writer.write(row)
    return _batch(writer.rows) | writer.pictures() | writer.sounds()


def kinds_taken(config: Any) -> str:
    """The letters of the media that a model takes."""
    tokens = MediaTokens.of(config)
    heard = tokens.audio is not None and _window(config) is not None
    return (
        ("I" if tokens.image is not None else "") + ("V" if tokens.video is not None else "") + ("S" if heard else "")
    )


class _Writer:
    """Writes rows, and remembers which media stand in them."""

    def __init__(self, tokens: MediaTokens, draw: "_Drawer", model: Any, config: Any, by_frame: bool) -> None:
        self.rows: list[_Row] = []
        self._tokens, self._draw, self._by_frame = tokens, draw, by_frame
        self._model, self._config, self._taken = model, config, kinds_taken(config)
        self._owners: dict[str, list[int]] = {"I": [], "V": [], "S": []}
        self._films_before: list[int] = []

    def write(self, pieces: str) -> None:
        """One more row."""
        row = _Row()
        self.rows.append(row)
        for place, piece in enumerate(pieces):
            if piece in "TL":
                row.add(self._draw(_LONG if piece == "L" else _TEXT[(place // 2 + len(self.rows) - 1) % len(_TEXT)]))
            elif piece in self._taken:
                {"I": self._image, "V": self._film, "S": self._sound}[piece](row)
                self._owners[piece].append(len(self.rows) - 1)

    def _image(self, row: _Row) -> None:
        count = _patches(self._grid("I", _IMAGES)) // self._merge
        self._run(row, self._tokens.image, count, 1, (self._tokens.vision_start, self._tokens.vision_end))

    def _film(self, row: _Row) -> None:
        grid = self._grid("V", _FILMS)
        runs = grid[0] if self._by_frame else 1
        for _ in range(runs):
            count = _patches(grid) // self._merge // runs
            self._run(row, self._tokens.video, count, 2, (self._tokens.vision_start, self._tokens.vision_end))
            row.add(self._draw(1))

    def _sound(self, row: _Row) -> None:
        count = _heard(self._model, self._config, self._frames(len(self._owners["S"])))
        self._films_before.append(self._owners["V"].count(len(self.rows) - 1))
        self._run(row, self._tokens.audio, count, 3, (self._tokens.audio_start, self._tokens.audio_end))

    def _run(self, row: _Row, token: int | None, count: int, kind: int, around: tuple[int | None, int | None]) -> None:
        start, end = around
        row.add([start] if start is not None else [])
        row.add([token] * count if token is not None else [], kind)
        row.add([end] if end is not None else [])

    @property
    def _merge(self) -> int:
        return int(self._config.vision_config.spatial_merge_size**2)

    def _grid(self, kind: str, sizes: tuple[tuple[int, int, int], ...]) -> tuple[int, int, int]:
        return sizes[len(self._owners[kind]) % len(sizes)]

    def _frames(self, number: int) -> int:
        window = _window(self._config) or 0
        return int(_SOUNDS[number % len(_SOUNDS)] * 2 * window)

    def pictures(self) -> Tensors:
        """Patches as the processors of this family cut them, and the grids that they come from."""
        vision = self._config.vision_config
        channels = getattr(vision, "in_channels", None) or getattr(vision, "in_chans", 3)
        width = channels * vision.temporal_patch_size * vision.patch_size**2
        found: Tensors = {}
        for kind, name, pixels, sizes in (
            ("I", "image", "pixel_values", _IMAGES),
            ("V", "video", "pixel_values_videos", _FILMS),
        ):
            if owners := self._owners[kind]:
                grids = [sizes[number % len(sizes)] for number in range(len(owners))]
                found[pixels] = shuffled_ramp(pixels, (sum(map(_patches, grids)), width))
                found[f"{name}_grid_thw"] = torch.tensor(grids)
                found[f"{name}_rows"] = torch.tensor(owners)
        if films := self._owners["V"]:
            seconds = [_SECONDS[number % len(_SECONDS)] for number in range(len(films))]
            found["video_second_per_grid"] = torch.tensor(seconds)
        return found

    def sounds(self) -> Tensors:
        """A spectrogram for each sound, all padded to the longest."""
        if not (owners := self._owners["S"]):
            return {}
        clips = _spectrograms(self._config, [self._frames(number) for number in range(len(owners))])
        return clips | {"audio_rows": torch.tensor(owners), "films_before": torch.tensor(self._films_before)}


class _Drawer:
    """Draws text tokens, the same ones each time the same batch is made."""

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = tokens
        self._generator = generator("media text")

    def __call__(self, count: int) -> list[int]:
        picks = torch.randint(len(self._tokens), (count,), generator=self._generator)
        return [self._tokens[pick] for pick in picks.tolist()]


def _patches(grid: tuple[int, int, int]) -> int:
    return grid[0] * grid[1] * grid[2]


def _batch(rows: list[_Row]) -> Tensors:
    """All rows at the length of the longest one; labels leave out padding and media."""
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


def _window(config: Any) -> int | None:
    """Half of what the audio tower takes at once, in frames of the spectrogram; None for a model that does not hear."""
    return getattr(getattr(config, "audio_config", None), "n_window", None)


def _spectrograms(config: Any, frames: list[int]) -> Tensors:
    mask = torch.tensor([[int(frame < length) for frame in range(max(frames))] for length in frames])
    return {
        "input_features": shuffled_ramp("sound", (len(frames), config.audio_config.num_mel_bins, max(frames))),
        "feature_attention_mask": mask,
    }


def _heard(model: Any, config: Any, frames: int) -> int:
    """How many tokens a sound becomes: the model is asked, because formulas in configs and towers disagree."""
    with torch.no_grad():
        features = model.get_audio_features(**_spectrograms(config, [frames]), return_dict=True)
    return len(features.last_hidden_state)


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
    if "audio_rows" in inputs and bool((mine := inputs["audio_rows"] == row).any()):
        mask = inputs["feature_attention_mask"][mine]
        longest = int(mask.sum(-1).max())
        sample["input_features"] = inputs["input_features"][mine][..., :longest]
        sample["feature_attention_mask"] = mask[:, :longest]
        sample["films_before"] = inputs["films_before"][mine]
    return sample


def modality_masks(inputs: Mapping[str, torch.Tensor], config: Any) -> Tensors:
    """Where the placeholders of each kind stand, bool [batch, length] each."""
    tokens = MediaTokens.of(config)
    ids = inputs["input_ids"]
    found = {"image_mask": tokens.image, "video_mask": tokens.video, "audio_mask": tokens.audio}
    return {name: ids == token for name, token in found.items() if token is not None}
