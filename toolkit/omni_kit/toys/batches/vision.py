"""A batch with pictures, a film and sound, for models that read them as runs of placeholder tokens."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any
from weakref import WeakKeyDictionary

import torch

from omni_kit.isolation.failures import one_line
from omni_kit.toys.batches.pictures import Form, forms, tower
from omni_kit.toys.batches.scenes import EVERYTHING, Rows
from omni_kit.toys.tensors import Tensors
from omni_kit.toys.weights import generator, shuffled_ramp

BY_TOKEN = ("input_ids", "attention_mask", "labels", "mm_token_type_ids", "token_type_ids")
_BESIDE = ("input_features", "feature_attention_mask", "films_before", "video_second_per_grid")
_SOUNDS = (2.5, 1.8, 3.0)  # in windows; how much of the last one is left, too, differs
_TEXT, _LONG = (6, 3, 4, 5), 23  # tokens of the pieces of text in a row

Around = tuple[int | None, int | None]
"""The token ids that open and close a run."""


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
    """The token ids that stand for media, and those that open and close a run of them; None if there is none."""

    image: int | None
    video: int | None
    audio: int | None
    around_image: Around
    around_video: Around
    around_audio: Around

    @classmethod
    def of(cls, config: Any) -> "MediaTokens":
        """Return the tokens that a config names, under any of their names."""

        def find(*names: str) -> int | None:
            return next((int(value) for name in names if isinstance(value := getattr(config, name, None), int)), None)

        def around(*kinds: str) -> Around:
            return find(*(f"{kind}_start_token_id" for kind in kinds)), find(
                *(f"{kind}_end_token_id" for kind in kinds)
            )

        return cls(
            image=find("image_token_id", "image_token_index"),
            video=find("video_token_id", "video_token_index"),
            audio=find("audio_token_id", "audio_token_index"),
            around_image=around("image", "vision"),
            around_video=around("video", "vision"),
            around_audio=around("audio"),
        )


def media_inputs(model: Any, text_tokens: list[int], *, rows: Rows = EVERYTHING) -> Tensors:
    """Return a batch with media, its rows padded on the left to the length of the longest.

    Args:
        model: the part of the model that holds the towers.
        text_tokens: ids to draw text from.
        rows: what stands in each; media that the model does not take are left out.

    Returns:
        input_ids, attention_mask, labels, mm_token_type_ids [rows, length], and token_type_ids where the model takes
        them; the tensors of pictures and films that the model takes, several joined along their first dimension; with
        sounds, input_features [sounds, mel bins, frames], feature_attention_mask [sounds, frames] and films_before, how
        many films stand before each in its row; and for each of these, the row that each of its entries belongs to, as
        `rows.NAME`, or `batched.NAME` where upstream requires the pictures of a row in a dimension of their own.
    """
    return _written(_media_of(model, text_tokens), rows)


def kinds_taken(model: Any, text_tokens: list[int]) -> str:
    """Return the letters of the media that a model takes: those with a placeholder, of which it accepted one in a text.

    A bar stands between pictures and films that no forward takes together; see `with_kinds`.
    """
    media = _media_of(model, text_tokens)
    return ("|" if media.apart else "").join(media.taken)


def why_none_taken(model: Any, text_tokens: list[int]) -> str:
    """Return the error of the likeliest form of media that a model refused; empty if no form was tried."""
    return _media_of(model, text_tokens).refusal


def kinds_untried(model: Any, text_tokens: list[int]) -> list[str]:
    """Return the media that a model has a method and a placeholder for, and of which it accepted none, or not
    together.
    """
    media = _media_of(model, text_tokens)
    hears = getattr(model.config, "audio_config", model.config) is not None
    offered = {"V": ("videos", media.tokens.video), "S": ("sounds", media.tokens.audio if hears else None)}
    names = [
        name
        for letter, (name, token) in offered.items()
        if token is not None and letter not in media.taken and tower(model, GETTERS[letter]) is not None
    ]
    return [*names, *(["images beside videos"] if media.apart else [])]


@dataclass(frozen=True)
class _Medium:
    """Form in which a model takes pictures, films or sounds.

    Attributes:
        getter: the method that makes features of them.
        token: what stands in the text for each feature: films may take that of pictures.
        by_frame: each frame of a film is a run of its own, as models with time stamps in the text have it.
        more: what forward adds to the features of a film, in tokens.
        counted: number of a piece -> its tokens, as the model counted them.
    """

    form: Form
    getter: str
    token: int
    by_frame: bool = False
    more: int = 0
    counted: dict[int, int] = field(default_factory=dict, compare=False)

    def tokens(self, model: Any, number: int) -> int:
        """Return the number of placeholders of the n-th piece; the model is called the first time."""
        if number not in self.counted:
            self.counted[number] = self.form.tokens(model, self.getter, number, self.token)
        return self.counted[number] + self.more


@dataclass
class _Media:
    """The media of one model.

    Attributes:
        taken: letter -> how it takes them; None for sounds in windows, with films that have some.
        apart: one forward takes pictures or films, and not both: one placeholder stands for either.
        refusal: the first error of a form that the model does not accept; empty if it accepts all.
    """

    model: Any
    text: list[int]
    taken: dict[str, _Medium | None] = field(default_factory=dict)
    apart: bool = False
    refusal: str = ""

    def refuse(self, error: Exception) -> None:
        """Keep the first error as text, because an error refers to the model."""
        self.refusal = self.refusal or one_line(error)

    @property
    def tokens(self) -> MediaTokens:
        return MediaTokens.of(self.model.config)


# What was found of each model; no value may refer to its model.
_KNOWN: WeakKeyDictionary[Any, tuple[dict[str, _Medium | None], bool, str]] = WeakKeyDictionary()
_RUNS = ((False, 0), (True, 0), (False, 1))  # by_frame and more of films
GETTERS = {"I": "get_image_features", "V": "get_video_features", "S": "get_audio_features"}


def _media_of(model: Any, text: list[int]) -> _Media:
    """Return the media that a model takes, found by trying once."""
    media = _Media(model, text, *_KNOWN.get(model, ({}, False, "")))
    if model not in _KNOWN:
        image, video = media.tokens.image, media.tokens.video
        media.taken |= _first_accepted(media, "I", [image])
        media.taken |= _first_accepted(media, "V", [video, image]) if video is not None else {}
        media.apart = {*media.taken} == {*"IV"} and _refusal(model, _written(media, ("TITVT",))) is not None
        windowed = "feature_attention_mask" in inspect.signature(model.forward).parameters
        if media.tokens.audio is not None and windowed and _window(model.config) is not None:
            media.taken["S"] = None
        else:
            media.taken |= _first_accepted(media, "S", [media.tokens.audio])
        _KNOWN[model] = media.taken, media.apart, media.refusal
    return media


def _first_accepted(media: _Media, letter: str, tokens: list[int | None]) -> dict[str, _Medium | None]:
    """Return the first form of a kind of which the model accepts one and two in a text; nothing if it accepts none."""
    known, rows = [token for token in tokens if token is not None], (f"T{letter}T", f"T{letter}T{letter}")
    for first in forms(media.model, GETTERS[letter]):
        form: Form | None = first
        while form is not None:
            error = ""
            counted: dict[int, dict[int, int]] = {token: {} for token in known}
            for token, (by_frame, more) in product(known, _RUNS if letter == "V" else _RUNS[:1]):
                medium = _Medium(form, GETTERS[letter], token, by_frame, more, counted[token])
                one = _Media(media.model, media.text, {letter: medium})
                try:
                    refusal = next(filter(None, (_refusal(one.model, _written(one, (row,))) for row in rows)), None)
                except _REFUSED as refused:
                    media.refuse(refused)
                    error = str(refused)
                    break  # whatever stands around it in the text
                if refusal is None:
                    return one.taken
                media.refuse(refusal)
            form = form.fitted(error)
    return {}


_REFUSED = (AttributeError, AssertionError, IndexError, KeyError, RuntimeError, StopIteration, TypeError, ValueError)


def _refusal(model: Any, batch: Tensors) -> Exception | None:
    """Return the error with which a model refuses a batch; None if it does not."""
    (sample,) = samples_of(batch)
    named = inspect.signature(model.forward).parameters
    device = next(model.parameters()).device
    fed = {name: tensor.to(device) for name, tensor in sample.items() if name in named and name != "labels"}
    try:
        with torch.no_grad():
            model(**fed, use_cache=False)
    except _REFUSED as error:
        return error
    return None


def _written(media: _Media, rows: Rows) -> Tensors:
    if media.apart and {*"IV"} <= {*"".join(rows)}:
        rows = [row.replace("V", "") for row in rows]
    writer = _Writer(media)
    for row in rows:
        writer.write(row)
    batch = _batch(writer.rows) | writer.pictures() | writer.sounds()
    if "token_type_ids" in inspect.signature(media.model.forward).parameters:
        batch["token_type_ids"] = batch["mm_token_type_ids"].clamp(max=1)
    return batch


class _Writer:
    """Writes rows, and remembers which media stand in them."""

    def __init__(self, media: _Media) -> None:
        self.rows: list[_Row] = []
        self._media, self._tokens, self._draw = media, media.tokens, _Drawer(media.text)
        self._owners: dict[str, list[int]] = {"I": [], "V": [], "S": []}
        self._films_before: list[int] = []

    def write(self, pieces: str) -> None:
        """One more row."""
        row = _Row()
        self.rows.append(row)
        for place, piece in enumerate(pieces):
            if piece in "TL":
                row.add(self._draw(_LONG if piece == "L" else _TEXT[(place // 2 + len(self.rows) - 1) % len(_TEXT)]))
            elif piece in self._media.taken:
                {"I": self._image, "V": self._film, "S": self._sound}[piece](row)
                self._owners[piece].append(len(self.rows) - 1)

    def _image(self, row: _Row) -> None:
        self._run(row, *self._counted("I"), 1, self._tokens.around_image)

    def _film(self, row: _Row) -> None:
        medium, (token, count) = self._media.taken["V"], self._counted("V")
        grids = medium.form.piece(len(self._owners["V"])) if medium is not None and medium.by_frame else {}
        runs = next((int(one[0, 0]) for name, one in grids.items() if name.endswith("grid_thw")), 1)
        for _ in range(runs):
            self._run(row, token, count // runs, 2, self._tokens.around_video)
            row.add(self._draw(1))

    def _counted(self, letter: str) -> tuple[int, int]:
        """Return the placeholder of the next piece, and how many of it."""
        medium = self._media.taken[letter]
        assert medium is not None
        return medium.token, medium.tokens(self._media.model, len(self._owners[letter]))

    def _sound(self, row: _Row) -> None:
        if self._media.taken["S"] is not None:
            self._run(row, *self._counted("S"), 3, self._tokens.around_audio)
            return
        count = _heard(self._media.model, self._media.model.config, self._frames(len(self._owners["S"])))
        self._films_before.append(self._owners["V"].count(len(self.rows) - 1))
        self._run(row, self._tokens.audio, count, 3, self._tokens.around_audio)

    def _run(self, row: _Row, token: int | None, count: int, kind: int, around: Around) -> None:
        start, end = around
        row.add([start] if start is not None else [])
        row.add([token] * count if token is not None else [], kind)
        row.add([end] if end is not None else [])

    def _frames(self, number: int) -> int:
        window = _window(self._media.model.config) or 0
        return int(_SOUNDS[number % len(_SOUNDS)] * 2 * window)

    def pictures(self) -> Tensors:
        """Pictures and films in the form that the model takes, and whose they are."""
        found: Tensors = {}
        for letter, medium in self._media.taken.items():
            owners = self._owners[letter]
            if medium is None or not owners:
                continue
            pieces = [medium.form.piece(number) | medium.form.aside(number) for number in range(len(owners))]
            for name in pieces[0]:
                parts = [piece[name] for piece in pieces]
                found[name] = torch.cat(evened(parts))
                rows = [torch.full((len(part),), owner) for part, owner in zip(parts, owners, strict=True)]
                found[f"{'batched' if medium.form.together else 'rows'}.{name}"] = torch.cat(rows)
        return found

    def sounds(self) -> Tensors:
        """Return a spectrogram per sound, padded to the longest, for a model that takes sounds in windows."""
        if not (owners := self._owners["S"]) or self._media.taken["S"] is not None:
            return {}
        clips = _spectrograms(self._media.model.config, [self._frames(number) for number in range(len(owners))])
        clips |= {"films_before": torch.tensor(self._films_before)}
        return clips | {f"rows.{name}": torch.tensor(owners) for name in clips}


def evened(parts: list[torch.Tensor]) -> list[torch.Tensor]:
    """Return tensors padded with zeros at the end of each dimension but the first, to the largest of them."""
    if not parts:
        return []
    sizes = [max(sizes) for sizes in zip(*(part.shape[1:] for part in parts), strict=True)]
    padded = []
    for part in parts:
        room = [(0, size - own) for size, own in zip(sizes, part.shape[1:], strict=True)]
        padded.append(torch.nn.functional.pad(part, [one for pair in reversed(room) for one in pair]))
    return padded


class _Drawer:
    """Draws text tokens, the same ones each time the same batch is made."""

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = tokens
        self._generator = generator("media text")

    def __call__(self, count: int) -> list[int]:
        picks = torch.randint(len(self._tokens), (count,), generator=self._generator)
        return [self._tokens[pick] for pick in picks.tolist()]


def _batch(rows: list[_Row]) -> Tensors:
    """Return all rows at the length of the longest one; labels leave out padding and media."""
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
    """Return the number of tokens of a sound, by calling the model, because formulas in configs and towers disagree."""
    with torch.no_grad():
        features = model.get_audio_features(**_spectrograms(config, [frames]), return_dict=True)
    return len(features.last_hidden_state)


def samples_of(inputs: Tensors) -> list[Tensors]:
    """Return the rows of a batch as batches of one: without padding, each with its own media.

    Returns:
        For each row, the tensors of `media_inputs` that it has something of, in the form that upstream takes.
    """
    return [_sample(inputs, row) for row in range(len(inputs["input_ids"]))]


def media_of_sample(sample: Tensors) -> Tensors:
    """Return the tensors of media of a sample: not a token's, nor those of a sound that `films_before` goes with."""
    beside = _BESIDE if "films_before" in sample else ("video_second_per_grid",)
    return {name: tensor for name, tensor in sample.items() if name not in (*BY_TOKEN, *beside)}


def _sample(inputs: Tensors, row: int) -> Tensors:
    kept = inputs["attention_mask"][row].bool()
    sample = {name: inputs[name][row : row + 1, kept] for name in BY_TOKEN if name in inputs}
    for name, owners in inputs.items():
        how, _, owned = name.partition(".")
        if owned and bool((mine := owners == row).any()):
            sample[owned] = inputs[owned][mine][None] if how == "batched" else inputs[owned][mine]
    if (mask := sample.get("feature_attention_mask")) is not None:
        longest = int(mask.sum(-1).max())
        sample["input_features"] = sample["input_features"][..., :longest]
        sample["feature_attention_mask"] = mask[:, :longest]
    return sample


def modality_masks(inputs: Mapping[str, torch.Tensor], config: Any) -> Tensors:
    """Return the positions of each kind's placeholders, bool [batch, length] each."""
    tokens = MediaTokens.of(config)
    ids = inputs["input_ids"]
    found = {"image_mask": tokens.image, "video_mask": tokens.video, "audio_mask": tokens.audio}
    return {name: ids == token for name, token in found.items() if token is not None}
