"""How Qwen3VLForConditionalGeneration takes media from VeOmni.

VeOmni's data pipeline writes 0 where a placeholder for media stands, and passes masks of them. Under sequence
parallelism each process has a part of the tokens, and the masks of all of them. Towers run over all media in every
process; features go to the process that has their placeholders.
"""

import copy
import inspect

import torch
from veomni.distributed.parallel_state import get_parallel_state
from veomni.utils import constants

# kind -> the config's names for its placeholder, the pipeline's mask and mark
_PLACEHOLDERS = {
    "image": (("image_token_id", "image_token_index"), "image_mask", constants.IMAGE_INPUT_INDEX),
    "video": (("video_token_id", "video_token_index"), "video_mask", constants.VIDEO_INPUT_INDEX),
    "audio": (("audio_token_id", "audio_token_index"), "audio_mask", constants.AUDIO_INPUT_INDEX),
}
# where sequences of text begin and end: towers have bounds of their own
_BOUNDS = (
    "cu_seq_lens_q",
    "cu_seq_lens_k",
    "max_length_q",
    "max_length_k",
    "linear_attn_cu_seq_lens_q",
    "tail_padding_length",
)
_TYPES = {"image": 1, "video": 2}
# attributes of the merging module that hold what makes features
_TOWERS = ("visual",)


def _token(config, kind: str) -> int | None:
    return next(
        (getattr(config, name) for name in _PLACEHOLDERS[kind][0] if getattr(config, name, None) is not None), None
    )


class Media:
    """The media of one forward, and where they are.

    Args:
        model: the module that merges. masks: kind -> bool [1, tokens of all processes].
        counts: kind -> how many placeholders each process has, where the collator counted them.
    """

    def __init__(self, model, masks: dict, counts: dict, rank: int = 0, size: int = 1):
        self._model, self._masks, self._counts, self._rank, self._size = model, masks, counts, rank, size
        self._dummies: set[str] = set()
        self.sp_enabled = get_parallel_state().sp_enabled

    def needs_dummy(self, kind: str) -> bool:
        """Whether this process has no media of a kind while processes that share its parameters may have some."""
        return self._model.training and get_parallel_state().fsdp_enabled

    def dummy(self, kind: str) -> tuple:
        """The smallest input of a kind. Its features fill no placeholder: they only keep the tower in the graph."""
        self._dummies.add(kind)
        return dummy_input(self._model, kind)

    def own(self, kind: str, features: torch.Tensor) -> torch.Tensor:
        """The features whose placeholders are on this process, [placeholders, width]."""
        if kind in self._dummies:
            return features.reshape(-1, features.shape[-1])[:0]
        if self._size == 1 or kind not in self._masks:
            return features
        counts = self._counts.get(kind) or _counted(self._masks[kind], self._size)
        before, mine = sum(counts[: self._rank]), counts[self._rank]
        return features.reshape(-1, features.shape[-1])[before : before + mine]


def _counted(mask: torch.Tensor, size: int) -> list[int]:
    """The number of placeholders on each process."""
    return [int(part.sum()) for part in mask.reshape(-1).tensor_split(size)]


def collate_metadata(batch: dict, sp_pad: dict) -> None:
    """Count placeholders while collating: counting in forward would synchronise with the device."""
    state = get_parallel_state()
    size = state.sp_size if state.sp_enabled else 1
    masks = {kind: batch[name] for kind, (_, name, _) in _PLACEHOLDERS.items() if batch.get(name) is not None}
    batch["multimodal_metadata"] = {"placeholders": {kind: _counted(mask, size) for kind, mask in masks.items()}}


def attend_whole(model) -> None:
    """Towers use torch's attention: VeOmni's would exchange heads for tokens, and nothing is sharded here.

    transformers makes no masks of padding for VeOmni's attention, either.
    """
    text = model.config.get_text_config()
    for name in _TOWERS:
        tower = getattr(model, name, None)
        for module in tower.modules() if isinstance(tower, torch.nn.Module) else ():
            config = getattr(module, "config", None)
            if config is model.config or config is text:
                continue  # its setting is that of attention over text
            if getattr(config, "_attn_implementation", "eager") not in ("eager", "sdpa"):
                config._attn_implementation = "sdpa" if getattr(tower, "_supports_sdpa", False) else "eager"


def from_pipeline(model, input_ids, position_ids, kwargs: dict, metadata: dict | None = None):
    """Return the media, ids with upstream's placeholders, positions in upstream's form, and other arguments."""
    kwargs = dict(kwargs)
    masks = {kind: kwargs.pop(name) for kind, (_, name, _) in _PLACEHOLDERS.items() if kwargs.get(name) is not None}
    counts = (metadata or {}).get("placeholders", {})
    state = get_parallel_state()
    rank, size = (state.sp_rank, state.sp_size) if state.sp_enabled and masks else (0, 1)
    if state.sp_enabled:
        attend_whole(model)
    if input_ids is not None and masks:
        input_ids = input_ids.clone()
        for kind, mask in masks.items():
            token = _token(model.config, kind)
            if token is not None:
                input_ids[mask.bool().tensor_split(size, dim=-1)[rank]] = token
    if position_ids is not None and position_ids.dim() == 3 and position_ids.shape[:2] == (1, 3):
        position_ids = position_ids.transpose(0, 1).contiguous()  # VeOmni's collator has the batch first
    return Media(model, masks, counts, rank, size), input_ids, position_ids, kwargs


def tower_arguments(kwargs: dict) -> dict:
    """Return the further arguments that a tower takes: none about the text's sequences."""
    return {name: value for name, value in kwargs.items() if name not in _BOUNDS}


def sounds_of(input_features, lengths):
    """Sounds as upstream takes them, of frames that follow each other: [sounds, bins, frames], and a mask of frames.

    A video without sound has audio length 0.
    """
    lengths = [int(length) for length in lengths if length > 0]
    if not lengths:
        return None, None
    clips = input_features.split(lengths)
    mask = [torch.ones(length, dtype=torch.long, device=input_features.device) for length in lengths]
    padded, mask = (torch.nn.utils.rnn.pad_sequence(one, batch_first=True) for one in (clips, mask))
    return padded.transpose(1, 2), mask


class Positions:
    """Compute one sample's positions as upstream's forward does, without its weights; can be pickled.

    Args:
        owner: upstream's class. config: its config.
    """

    def __init__(self, owner, config):
        self._owner, self.config = owner, config

    def __call__(self, input_ids, attention_mask=None, **known):
        """Return {"position_ids": [axes, batch, tokens], or [batch, tokens] where a position is one number}."""
        input_ids = input_ids.clone()
        kinds = torch.zeros_like(input_ids)
        for kind, (_, _, mark) in _PLACEHOLDERS.items():
            token = _token(self.config, kind)
            if token is not None:
                input_ids[input_ids == mark] = token
                kinds[input_ids == token] = _TYPES.get(kind, 0)
        if known.get("mm_token_type_ids") is None:
            known["mm_token_type_ids"] = kinds
        if known.get("audio_seqlens") is not None:
            known["audio_seqlens"] = known["audio_seqlens"][known["audio_seqlens"] > 0]
        fake = self._owner.__new__(self._owner)
        fake.__dict__.update(config=self.config, _modules={}, _parameters={}, _buffers={}, training=False)
        taken = inspect.signature(self._owner.get_rope_index).parameters
        known = {name: value for name, value in known.items() if name in taken}
        position_ids, rope_deltas = fake.get_rope_index(input_ids, attention_mask=attention_mask, **known)
        return {"position_ids": position_ids, "rope_deltas": rope_deltas}


def positions_of(owner, config) -> Positions:
    """Return the callable with which VeOmni's data pipeline computes positions."""
    return Positions(owner, copy.deepcopy(config))


def collate_infos() -> dict:
    """How VeOmni's collator joins samples: (dimension, sharded for sequence parallelism, padding, its scale).

    Media are never sharded: each process runs the towers over all of them.
    """
    return {
        "image_grid_thw": (0, False, None, None),
        "pixel_values": (0, False, None, None),
        "pixel_values_videos": (0, False, None, None),
        "video_grid_thw": (0, False, None, None),
        "mm_token_type_ids": (-1, False, 0, 1),
    }


def process_sample(sample: dict, processor, position_id_func, max_seq_len: int | None = None, **_) -> list[dict]:
    """Return VeOmni's sample of a conversation: the output of upstream's processor, with masks, labels and positions.

    Args:
        sample: {"messages": [{"role": ..., "content": ...}, ...]}, as upstream's processor takes conversations; only
            messages of the assistant are trained.
    """
    messages = sample["messages"]
    made = dict(_encoded(processor, messages))
    input_ids = made.pop("input_ids")[0]
    labels = torch.full_like(input_ids, constants.IGNORE_INDEX)
    for place, message in enumerate(messages):
        if message["role"] == "assistant":
            start = _encoded(processor, messages[:place], add_generation_prompt=True)["input_ids"].shape[1]
            end = _encoded(processor, messages[: place + 1])["input_ids"].shape[1]
            labels[start:end] = input_ids[start:end]
    if max_seq_len is not None and len(input_ids) > max_seq_len:
        return []  # media cannot be cut
    by_token = {name: made.pop(name)[0] for name in list(made) if made[name].shape[:2] == (1, len(input_ids))}
    by_token.setdefault("attention_mask", torch.ones_like(input_ids))
    marked = input_ids.clone()
    for kind, (_, name, mark) in _PLACEHOLDERS.items():
        token = _token(position_id_func.config, kind)
        if token is not None:
            by_token[name] = input_ids == token
            marked[by_token[name]] = mark
            input_ids = input_ids.masked_fill(by_token[name], 0)
            labels = labels.masked_fill(by_token[name], constants.IGNORE_INDEX)
    told = {name: by_token[name][None] for name in ("attention_mask", "mm_token_type_ids") if name in by_token}
    found = position_id_func(marked[None], **told, **made)["position_ids"]
    positions = found[:, 0] if found.dim() == 3 else found[0]
    return [{**made, **by_token, "input_ids": input_ids, "labels": labels, "position_ids": positions.clone()}]


def _encoded(processor, messages: list, **options):
    return processor.apply_chat_template(messages, tokenize=True, return_dict=True, return_tensors="pt", **options)


def side_of(size: int | list[int]) -> int:
    """The side of a square; configs store one number or two."""
    return size if isinstance(size, int) else size[0]


def dummy_input(model, kind: str) -> tuple:
    """The smallest input of a kind, of ones, in the dtype of the model's parameters."""
    config, like = model.config, next(model.parameters())
    options = {"dtype": like.dtype, "device": like.device}
    if kind == "image":
        return (
            torch.ones(
                1 * config.vision_config.spatial_merge_size**2,
                config.vision_config.in_channels
                * side_of(config.vision_config.patch_size) ** 2
                * config.vision_config.temporal_patch_size,
                **options,
            ),
            torch.tensor(
                [[1, config.vision_config.spatial_merge_size, config.vision_config.spatial_merge_size]],
                device=options["device"],
            ),
        )
    if kind == "video":
        return (
            torch.ones(
                2 * config.vision_config.spatial_merge_size**2,
                config.vision_config.in_channels
                * side_of(config.vision_config.patch_size) ** 2
                * config.vision_config.temporal_patch_size,
                **options,
            ),
            torch.tensor(
                [[2, config.vision_config.spatial_merge_size, config.vision_config.spatial_merge_size]],
                device=options["device"],
            ),
        )
    raise ValueError(f"Qwen3VLForConditionalGeneration takes no {kind}")
