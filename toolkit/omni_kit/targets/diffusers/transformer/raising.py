"""What a pipeline that raises has: arguments, and to-dos, that something of the authors' speaks for.

A pipeline whose denoising steps were read is proven by a run. Of one that raises nothing is, so that a condition is a
prompt, and latents are pictures, only on evidence: names, and the authors' files around the model and its samplers.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from omni_kit.pysource.source import SourceFile
from omni_kit.targets.diffusers.porting.forward import LATENTS, MASK, TEXT, TIME
from omni_kit.targets.diffusers.porting.model_name import axes_of, is_line, is_volume
from omni_kit.targets.diffusers.transformer.pipeline import CHANNELS, SIGMAS, Condition, PipelineFacts
from omni_kit.upstream.repositories.decoding import decodes
from omni_kit.upstream.repositories.names import searching
from omni_kit.upstream.repositories.processes.sampler_entries import seeming_samplers
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sources import sources_of

_VOLUME = 5  # axes of latents
_KNOWN = frozenset({LATENTS, TIME, TEXT, MASK})
_SIZES = re.compile(r"len(gths?)?$|size|ids?$|rope|freqs?|(^|_)pos|scale|drop|return_")
_TEXT = re.compile(
    r"(?<!con)te?xt(?!ure)|prompt|caption|(^|_)(caps?|clip|clap|t5|llm|tokens?|words?|sentences?)(_|$)", re.IGNORECASE
)
"""Names of an embedded prompt."""
_WIDTH = re.compile(r"(dim|width|channels|features?|size|len|length|encoder|model)\w*$")
_OTHER = re.compile(
    r"audio|wav|spec|(^|_)(mels?|f0|units?|volume|pitch|energy|mu|spks?|speakers?|singers?|timbre|phones?|phonemes?|"
    r"pose|joints?|actions?|obs|states?|images?|imgs?|masks?)(_|$)",
    re.IGNORECASE,
)
"""Names of conditions that are no prompts, whatever else the authors' files are about."""
_LABELS = re.compile(r"^(class_?)?(labels?|class|classes|cls|y)$")
_COUNTS = re.compile(r"^(num|n|nb)_?(class|label)\w*$|^(class|label)_(dim|num|size|count)$|^classes$")
_GENERAL = re.compile(r"context|ctx|cross|encoder|cond|(^|_)(c|y|emb|embeds?|embedding)(_|$)", re.IGNORECASE)
"""Names that a prompt has where the authors' files speak of prompts."""
_PROMPTS = re.compile(r"\b(\w+_)?(prompts?|captions?|tokenizers?)\b|\btext_?encoder\b|T5Encoder|CLIPText|FrozenCLIP")
_PROMPTS_OF_SOUNDS = re.compile(r"\b(\w+_)?captions?\b|\btext_prompts?\b|T5Encoder|CLIPText|\b[Cc][Ll][Aa][Pp]\b")
"""Words of texts next to a model of sounds: a `prompt` may be a recording there, and tokens be those of speech."""
_SOUNDS = re.compile(
    r"\b(mel_?spec\w*|spectrograms?|vocoders?|librosa|torchaudio|soundfile|sampl(e|ing)_?rate|f0)\b", re.IGNORECASE
)
_PICTURES = re.compile(r"\b(PIL|ImageFolder|save_image|make_grid|imageio|cv2)\b")


@searching()
def not_prompts(reference: Reference, facts: PipelineFacts, names: Mapping[str, str]) -> frozenset[str]:
    """Return the arguments of forward that are no prompt, nor a mask of one, where a pipeline raises and takes one of
    them for a prompt without evidence; none otherwise.

    Args:
        names: what the authors call an argument of forward -> what it is called here.
    """
    text = next((old for old, new in names.items() if new == TEXT), "")
    if not (facts.raises and text) or is_prompt(reference, text):
        return frozenset()
    return frozenset(name for name in reference.forward if name == text or not is_text(name))


@searching()
def with_evidence(reference: Reference, facts: PipelineFacts, names: Mapping[str, str]) -> PipelineFacts:
    """Return the facts of a pipeline that raises without what nothing speaks for; other facts as they are.

    Args:
        names: as `not_prompts` takes them.
    """
    if not facts.raises or facts.by_class is not None:
        return facts
    latents = next((old for old, new in names.items() if new == LATENTS), "")
    shaped = bool(axes_of(reference, latents)) or not is_volume(reference)
    found = replace(
        facts, line=of_sounds(reference), axes=facts.axes if shaped else _VOLUME, decodes=decodes(reference),
        conditions=tuple(_conditions(reference, facts, names)) if facts.placeholder else facts.conditions,
    )  # fmt: skip
    sized = found.pictures or found.film
    idle = (SIGMAS, *(() if sized else (CHANNELS,)))
    return replace(found, todo=tuple(one for one in found.todo if not one.startswith(idle)))


def _conditions(reference: Reference, facts: PipelineFacts, names: Mapping[str, str]) -> Iterator[Condition]:
    """Yield the tensors that the model requires; without a prompt, also optional ones with names of conditions."""
    for old, one in reference.forward.items():
        optional = not facts.text and one.default is None and (_GENERAL.search(old) or _OTHER.search(old))
        if names.get(old, old) not in _KNOWN and not _SIZES.search(old) and (one.required or optional):
            yield Condition(names.get(old, old), old, False)


def is_text(name: str) -> bool:
    """Return whether the name of an argument is that of a prompt."""
    return bool(_TEXT.search(name)) and not _OTHER.search(name)


def is_prompt(reference: Reference, argument: str) -> bool:
    """Return whether anything says that an argument of the model's forward is an embedded prompt: its name, an argument
    of the constructor, or the authors' files around the model and its samplers.
    """
    if _OTHER.search(argument) or is_label(reference, argument):
        return False
    if is_text(argument) or any(is_text(name) and _WIDTH.search(name) for name in reference.arguments):
        return True
    words = _PROMPTS_OF_SOUNDS if of_sounds(reference) else _PROMPTS
    return bool(_GENERAL.search(argument)) and any(words.search(one.text) for one in _around(reference))


def is_label(reference: Reference, argument: str) -> bool:
    """Return whether an argument has the name of class labels, and the constructor one for their number."""
    return bool(_LABELS.match(argument)) and any(map(_COUNTS.match, reference.arguments))


def of_sounds(reference: Reference) -> bool:
    """Return whether latents are sounds, or other lines: by names of arguments, or by the authors' files around the
    model, which are about sounds and not about pictures.
    """
    if is_volume(reference):
        return False
    if is_line(reference):
        return True
    around = [one.text for one in _around(reference)]
    return any(map(_SOUNDS.search, around)) and not any(map(_PICTURES.search, around))


def _around(reference: Reference) -> Iterator[SourceFile]:
    """Yield the files that name the model's class, or a class or function that seems to sample."""
    names = {reference.class_name, *(name.partition(".")[0] for name, _ in seeming_samplers(reference))}
    telling = [re.escape(name) for name in names if name[:1].isupper() or "_" in name]
    named = re.compile(rf"\b({'|'.join([re.escape(reference.class_name), *telling])})\b")
    return (one for one in sources_of(reference) if named.search(one.text))
