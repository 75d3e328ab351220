"""A processor for a small model with media: a toy's checkpoint has none, and a training on media begins with one."""

import inspect
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from omni_kit.targets.replacing import replaced
from omni_kit.toys.batches.language import as_named, speaker_of, text_tokens
from omni_kit.toys.batches.vision import BY_TOKEN, kinds_taken, media_inputs, samples_of
from omni_kit.toys.tensors import Tensors

STAND_IN = "a processor with the toy's sizes of media stood in for the checkpoint's, which a toy does not have"
_FILE = "toy_processor.pt"
_LETTERS: Mapping[str, str] = {"image": "I", "audio": "S"}
_MOST = 2  # media of a conversation
_GENERATION = "assistant"
_KINDS = "mm_token_type_ids"

Made = dict[tuple[int, ...], Tensors]
"""Samples as upstream takes them, by their ids with 0 for each placeholder."""


def write_processor(model: Any, place: Path) -> None:
    """Write a processor into the directory of a checkpoint.

    Args:
        model: loaded, of which the number of tokens of each medium is asked.
    """
    part = speaker_of(model)
    words = text_tokens(part.config)
    taken = kinds_taken(part, words)
    beginnings: dict[str, Tensors] = {}
    for letter in (letter for letter in _LETTERS.values() if letter in taken):
        for count in range(1, _MOST + 1):
            (sample,) = samples_of(media_inputs(part, words, rows=(f"T{letter}" * count,)))
            beginnings[letter * count] = {**as_named(part, sample), _KINDS: sample[_KINDS]}
    typed = _KINDS in inspect.signature(part.forward).parameters
    torch.save({"words": words, "beginnings": beginnings, "typed": typed}, place / _FILE)


class ToyProcessor:
    """Processor of conversations whose media are files: their content decides tokens and values, not their sizes.

    Args:
        words: the ids of text.
        beginnings: letters of media -> a sample that begins with them, as upstream takes it.
        typed: the model takes the kind of each token.
    """

    def __init__(self, words: Sequence[int], beginnings: Mapping[str, Tensors], *, typed: bool) -> None:
        self._words, self._beginnings, self._typed = words, beginnings, typed
        self.made: Made = {}

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], *, add_generation_prompt: bool = False, **_: Any
    ) -> Tensors:
        """Return the sample of a conversation, [1, tokens] and its media; see `ProcessorMixin.apply_chat_template`."""
        content = [piece for message in messages for piece in message["content"]]
        media = [piece for piece in content if piece["type"] in _LETTERS]
        marks = [zlib.crc32(Path(piece["path"]).read_bytes()) for piece in media]
        begun = self._beginnings.get("".join(_LETTERS[piece["type"]] for piece in media), {})
        said = [str(mark >> shift) for mark in marks for shift in (0, 8, 16)]
        for message in messages:
            said += [message["role"], *(w for one in message["content"] for w in one.get("text", "").split())]
        text = [self._words[zlib.crc32(word.encode()) % len(self._words)] for word in said]
        text += [self._words[zlib.crc32(_GENERATION.encode()) % len(self._words)]] if add_generation_prompt else []
        sample = {name: _scaled(tensor, marks) for name, tensor in begun.items() if name not in BY_TOKEN}
        own = {"input_ids": torch.tensor([text]), "attention_mask": torch.ones(1, len(text), dtype=torch.long)}
        for name in dict.fromkeys([*own, *(name for name in begun if name in BY_TOKEN)]):
            after = own.get(name, torch.zeros(1, len(text), dtype=torch.long))
            sample[name] = torch.cat([begun[name], after], 1) if name in begun else after
        kinds = sample.pop(_KINDS, torch.zeros_like(sample["input_ids"]))
        self.made[tuple(sample["input_ids"].masked_fill(kinds > 0, 0)[0].tolist())] = {**sample, _KINDS: kinds}
        return {**sample, _KINDS: kinds} if self._typed else sample

    def save_pretrained(self, place: str) -> None:
        """Write it into a directory, as trainers write what belongs to a model."""
        Path(place).mkdir(parents=True, exist_ok=True)
        made = {"words": self._words, "beginnings": self._beginnings, "typed": self._typed}
        torch.save(made, Path(place) / _FILE)


@contextmanager
def toy_processors(made: Made) -> Iterator[None]:
    """Let VeOmni's builder of processors return a `ToyProcessor` for a directory that has one; `made` is its record."""
    from veomni import models

    right: Callable[..., Any] = models.build_processor

    def build(place: str, **options: Any) -> Any:
        file = Path(place) / _FILE
        if not file.is_file():
            return right(place, **options)
        processor = ToyProcessor(**torch.load(file, weights_only=True))
        processor.made = made
        return processor

    with replaced(models, "build_processor", build):
        yield


def _scaled(tensor: torch.Tensor, marks: Sequence[int]) -> torch.Tensor:
    """Return values that the files' content decides; counts and sizes stay."""
    return tensor * (1 + sum(marks) % 1024 / 1024) if tensor.dtype.is_floating_point else tensor
