"""Stand-ins next to a ported transformer while its pipeline draws: an encoder of known prompts, and an autoencoder."""

import typing
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn

from omni_kit.errors import BadInput
from omni_kit.targets.replacing import replaced
from omni_kit.toys.batches.sampling import SCALING, SHIFT
from omni_kit.upstream.profile import Component

_VAE = "vae"


class KnownPrompts(nn.Module):
    """A tokenizer and a text encoder in one: prompts that it was told have an embedding that it was told."""

    model_max_length = 0
    pad_token_id = bos_token_id = eos_token_id = unk_token_id = 0
    padding_side = "right"

    def __init__(self) -> None:
        super().__init__()
        self.config = SimpleNamespace(hidden_size=0)
        self._rows: dict[str, torch.Tensor] = {}

    @property
    def dtype(self) -> torch.dtype:
        """Dtype of the embeddings."""
        return torch.float32

    @property
    def device(self) -> torch.device:
        """Device of the embeddings."""
        return torch.device("cpu")

    def know(self, embeddings: torch.Tensor, said: str) -> list[str]:
        """Return a prompt for each of [prompts, tokens, width]; all begin with what is `said`."""
        prompts = [f"{said} {number}" for number in range(len(embeddings))]
        self._rows |= dict(zip(prompts, embeddings, strict=True))
        self.model_max_length, self.config.hidden_size = embeddings.shape[1:]
        return prompts

    def apply_chat_template(self, messages: Any, **given: Any) -> Any:
        """Return the text of the messages: what is known is found in it."""
        return str(messages)

    def forward(self, text: Any = None, **given: Any) -> Any:
        """Of texts, their numbers; of numbers, the embeddings."""
        text = next(iter(given.values())) if text is None else text
        return self._embedded(text) if isinstance(text, torch.Tensor) else self._numbered(text)

    def _numbered(self, text: str | Sequence[str]) -> Any:
        from transformers import BatchEncoding

        known = list(self._rows)
        texts = [text] if isinstance(text, str) else text
        rows = torch.tensor([next(place for place, one in enumerate(known) if one in each) for each in texts])
        ids = rows[:, None] * self.model_max_length + torch.arange(self.model_max_length)
        return BatchEncoding({"input_ids": ids, "attention_mask": torch.ones_like(ids)})

    def _embedded(self, ids: torch.Tensor) -> Any:
        from transformers.modeling_outputs import BaseModelOutput

        found = torch.cat([*self._rows.values()])[ids]
        return BaseModelOutput(last_hidden_state=found, hidden_states=(found, found, found))


def autoencoder_of(pipeline_class: Any, channels: int) -> Any:
    """Return the autoencoder that a pipeline requires, small, with a known scale and shift; None if it requires none.

    Args:
        channels: of latents.
    """
    # It imports diffusers: a checkout's own has to be found first.
    import diffusers

    from omni_kit.toys.pipelines import parts

    told = typing.get_type_hints(pipeline_class.__init__).get(_VAE)
    named = [getattr(one, "__name__", "") for one in (told, *typing.get_args(told)) if one is not None]
    measures = {
        "scaling_factor": SCALING, "shift_factor": SHIFT, "latents_mean": [SHIFT] * channels,
        "latents_std": [1 / SCALING] * channels,
    }  # fmt: skip
    for name in (one for one in named if hasattr(getattr(diffusers, one, None), "decode")):
        try:
            return parts.autoencoder(Component(_VAE, "diffusers", name, "autoencoder"), measures)
        except BadInput:
            continue
    return None


@contextmanager
def handed_to(autoencoder: Any, factor: int) -> Iterator[list[torch.Tensor]]:
    """Notes what is to be decoded; pictures of the right size come of it, and mean nothing.

    Args:
        factor: how many pixels a latent is high.
    """
    found: list[torch.Tensor] = []

    def decode(latents: torch.Tensor, *args: Any, return_dict: bool = True, **given: Any) -> Any:
        from diffusers.models.autoencoders.vae import DecoderOutput

        found.append(latents.detach().float().clone())
        rows, columns = (factor * size for size in latents.shape[-2:])
        picture = latents.new_zeros(len(latents), 3, *latents.shape[2:-2], rows, columns)
        return DecoderOutput(sample=picture) if return_dict else (picture,)

    with replaced(autoencoder, "decode", decode):
        yield found
