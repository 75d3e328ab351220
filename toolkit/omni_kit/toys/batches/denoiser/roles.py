"""Roles of a forward's arguments, by their names."""

import re
from collections.abc import Sequence

from omni_kit.toys.batches.denoiser import embeddings, image_conditions, masks, positions, scalars
from omni_kit.toys.batches.denoiser.options import Argument, LikeLatents, Option, Role
from omni_kit.toys.batches.denoiser.sizes import Sizes

# The first whose pattern is found in the name; None for what is no data: switches, residuals of other models, caches,
# and what a forward works out by itself when it is not given.
_ROLES: Sequence[tuple[re.Pattern[str], Role | None]] = tuple(
    (re.compile(pattern), role)
    for pattern, role in (
        (r"^added_cond_kwargs$", scalars.added),
        (r"^cross_attention_kwargs$", scalars.nothing),
        (r"noise_?scales?$", scalars.time),
        (r"controlnet|kwargs$|^return_dict$|^skip_layers$|cache|^enable_|^sparse|scale(_factor)?$", None),
        (r"^img_sizes$|(video|audio)_coords$|^(f_)?patch_size$|^txt_seq_lens$", None),
        (r"^img_shapes$", scalars.picture_sizes),
        (r"^t$|^t_(?!emb)[a-z]+$|(^|_)times?$|timesteps?(_r|_ratio)?$|sigmas?$|^ofs$", scalars.time),
        (r"(noise|diffusion|denois\w+)_?(steps?|times?|labels?|levels?)$|^log_?snr$", scalars.time),
        (r"^steps?$", scalars.step),
        (r"^(max_)?seq_len(gth)?$|^(num|n)_tokens$", scalars.length),
        (r"(^|_)(lens|lengths?)$|(text|prompt|caption)_len$", scalars.lengths),
        (r"guidance$", scalars.guidance),
        (r"^encodings_and_masks$", embeddings.texts_and_masks),
        (r"(original|target|meta)_size$|crop_coords$", scalars.pair),
        (r"^((img|image|latent|spatial)_)?(size|hw|resolution)$", scalars.sides),
        (r"image_sizes$", image_conditions.places),
        (r"pixel_values$", image_conditions.pixels),
        (r"(^|_)(cos|sin)(_|$)", positions.rope_part),
        (r"rotary|^rope|^freqs_cis$", positions.rope),
        (r"indicator$", masks.of_frames),
        (r"mask(s|_t5|_2)?$", masks.mask),
        (r"^indices(?!_grid$)|position_ids$|rope_pos$", positions.indices),
        (r"(input|token)_ids?$", scalars.tokens),
        (r"(^|_)ids$|coords$|(^|_)grid$|^positions$", positions.ids),
        (r"^class_labels$|^style$|^additional_t_cond$", scalars.label),
        (r"^(y|c|cond|context|labels?|class(es)?|class_(ids?|idx))$", scalars.label_or_text),
        (r"(?<!token)_(id|idx)$", scalars.identifier),
        (r"^drop_|_drop$", masks.dropped),
        (r"^(audio_)?(num_(\w+_)?frames|height|width)$", scalars.number),
        (r"^fps$", scalars.fps),
        (r"latents|(pose|control|audio)_hidden_states$|^noise", image_conditions.latents),
    )
)
WHOLE = (scalars.added, scalars.nothing)
"""Roles of mappings that are made as a whole."""

# Roles that a number cannot have: `num_cond_latents: int`.
_OF_TENSORS = (scalars.step, image_conditions.latents, masks.mask, positions.ids, positions.indices, positions.rope)
_NUMBER = re.compile(r"(<class ')?(int|bool|float|str)('>)?( \| None)?")
# A number, or a tensor with one for each sample.
_EITHER = re.compile(r"(?=.*\b(int|float)\b)(?=.*Tensor)(typing\.)?(Union\[)?[\w. |,]+\]?")
# Numbers, pairs of them by default, and switches, of which those that are data have roles.
_PLAIN = re.compile(r"(<class ')?(int|bool|float|str|tuple)('>)?( \| None)?")


def role_of(argument: Argument) -> Role | None:
    """Return the role of an argument; None if it is not data.

    Of an unknown name it is a time where the annotation allows a number or a tensor, else an embedding.
    """
    for pattern, role in _ROLES:
        if pattern.search(argument.own_name):
            return None if role in _OF_TENSORS and _NUMBER.fullmatch(argument.annotation) else role
    if argument.is_whole:
        return scalars.tokens
    if argument.required and _EITHER.fullmatch(argument.annotation):
        return scalars.step
    return None if _PLAIN.fullmatch(argument.annotation) else embeddings.embedding


def options_of(role: Role, argument: Argument, sizes: Sizes) -> list[Option | None]:
    """Return possible values of an argument, the likeliest first; None omits an optional argument.

    Those with the dimensions that the documentation says come before others; a time is one for each sample wherever
    that is accepted, as training draws it.
    """
    found = list(role(argument, sizes))
    if argument.rank is not None and role is not scalars.time:
        alike = [one for one in found if _as_documented(one, argument, sizes)]
        found = alike if argument.exact and alike else [*alike, *(one for one in found if one not in alike)]
    return found if argument.required or None in found else [*found, None]


def _as_documented(option: Option | None, argument: Argument, sizes: Sizes) -> bool:
    """Return whether an option has the dimensions of an argument, where it is a single tensor."""
    if option is None or isinstance(option, LikeLatents):
        return True
    try:
        made = option(sizes)
    except Exception:  # as in a trial: whatever is wrong, this sample has no such option
        return False
    if [*made] != [""]:
        return True
    shape = made[""].shape
    if len(shape) != argument.rank or any(shape[at] != size for at, size in argument.lengths.items()):
        return False
    own = {sizes.tokens, *sizes.latents}
    return all(at >= len(shape) or shape[at] in own for at in argument.along)
