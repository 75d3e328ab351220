"""Arguments and to-dos of a pipeline that raises: those that something of the authors' speaks for.

A pipeline whose denoising steps were read is proven by a run. Of one that raises nothing is, so that a condition is a
prompt, and latents are pictures, only on evidence: names, and the authors' files around the model and its samplers.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from omni_kit.pysource.source import SourceFile
from omni_kit.targets.diffusers.porting.forward import LATENTS, MASK, TEXT, TIME
from omni_kit.targets.diffusers.porting.model_name import axes_of, is_line, is_volume
from omni_kit.targets.diffusers.transformer.pipeline import (
    CHANNELS,
    EMBEDDING,
    SIGMAS,
    Condition,
    PipelineFacts,
    passing,
)
from omni_kit.upstream.repositories.decoding import decodes
from omni_kit.upstream.repositories.names import searching
from omni_kit.upstream.repositories.processes.sampler_entries import seeming_samplers
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.sources import sources_of

_UNSHOWN, _VOLUME = 4, 5  # axes of latents, where nothing shows how many, and of videos and volumes
_KNOWN = frozenset({LATENTS, TIME, TEXT, MASK})
_SIZES = re.compile(r"len(gths?)?$|size|ids?$|rope|freqs?|(^|_)pos|scale|drop|return_")
_TEXT = re.compile(r"(?<!con)te?xt(?!ure)|prompt|caption|(^|_)(caps?|t5)(_|$)", re.IGNORECASE)
"""Names of an embedded prompt."""
_HINTS = re.compile(r"(^|_)(clip|clap|llm|tokens?|words?|sentences?)(_|$)", re.IGNORECASE)
"""Names that a prompt has, and in some models what else an encoder or a tokenizer makes."""
_NUMBERS = re.compile(r"Long|Int|\bint\b")
_WIDTH = re.compile(r"(dim|width|channels|features?|size|len|length|encoder|model)\w*$")
_OTHER = re.compile(
    r"audio|wav|spec|(^|_)(mels?|f0|units?|volume|pitch|energy|mu|spks?|speakers?|singers?|timbre|phones?|phonemes?|"
    r"pose|joints?|actions?|obs|states?|images?|imgs?|masks?)(_|$)",
    re.IGNORECASE,
)
"""Names of conditions other than prompts, regardless of the authors' files."""
_LABELS = re.compile(r"^(class_?)?(labels?|class|classes|cls|y)$")
_COUNTS = re.compile(r"^(num|n|nb)_?(class|label)\w*$|^(class|label)_(dim|num|size|count)$|^classes$")
_GENERAL = re.compile(r"context|ctx|cross|encoder|cond|(^|_)(c|y|emb|embeds?|embedding)(_|$)", re.IGNORECASE)
"""Names that a prompt has where the authors' files speak of prompts."""
_PROMPTS = re.compile(r"\b(\w+_)?(prompts?|captions?|tokenizers?)\b|\btext_?encoder\b|T5Encoder|CLIPText|FrozenCLIP")
_PROMPTS_OF_SOUNDS = re.compile(r"\b(\w+_)?captions?\b|\btext_prompts?\b|T5Encoder|CLIPText|\b[Cc][Ll][Aa][Pp]\b")
"""Words of texts next to a model of sounds: a `prompt` may be a recording there, and tokens be those of speech."""
_SOUNDS = re.compile(r"\b(mels?|mel_?spec\w*|spectrograms?|vocoders?|librosa|torchaudio|soundfile|f0)\b", re.IGNORECASE)
_PICTURES = re.compile(r"\b(PIL|ImageFolder|save_image|make_grid|imageio|cv2)\b")


@searching()
def not_prompts(reference: Reference, facts: PipelineFacts, names: Mapping[str, str]) -> frozenset[str]:
    """Return the arguments of forward other than prompts and their masks, if the pipeline raises because sampling was
    not read, and an argument was taken for a prompt without evidence; none otherwise.

    Args:
        names: what the authors call an argument of forward -> what it is called here.
    """
    text = next((old for old, new in names.items() if new == TEXT), "")
    if not (text and _unread(facts)) or is_prompt(reference, text):
        return frozenset()
    return frozenset(name for name in reference.forward if name == text or not _is_embedded(reference, name))


@searching()
def with_evidence(reference: Reference, facts: PipelineFacts, names: Mapping[str, str]) -> PipelineFacts:
    """Return the facts of a pipeline that raises without what nothing speaks for; other facts as they are.

    Args:
        names: as `not_prompts` takes them.
    """
    if not _unread(facts) or facts.by_class is not None:
        return facts
    facts = _with_names(facts, names)
    latents = next((old for old, new in names.items() if new == LATENTS), "")
    volume = facts.axes == _UNSHOWN and not axes_of(reference, latents) and is_volume(reference)
    found = replace(
        facts, line=of_sounds(reference), axes=_VOLUME if volume else facts.axes, decodes=decodes(reference),
        conditions=tuple(_conditions(reference, facts, names)),
    )  # fmt: skip
    sized = found.pictures or found.film
    idle = (SIGMAS, *(() if sized else (CHANNELS,)))
    told = {passing(one.name) for one in found.conditions}
    return replace(
        found, todo=tuple(one for one in found.todo if not one.startswith(idle)),
        steps=tuple(one for one in found.steps if one not in told),
    )  # fmt: skip


def _unread(facts: PipelineFacts) -> bool:
    """Return whether a pipeline raises because the authors' sampling was not read."""
    return bool(facts.raises) and facts.placeholder


def _with_names(facts: PipelineFacts, names: Mapping[str, str]) -> PipelineFacts:
    """Return the facts for the prompt, and the mask of it, that the model has by these names."""
    authors = {new: old for old, new in names.items()}
    text, condition = TEXT in authors, authors.get(TEXT, "")
    if condition == facts.condition:
        return facts
    told = (passing(condition), *(() if text else (EMBEDDING,)))
    return replace(
        facts, text=text, mask=text and MASK in authors, mask_needed=facts.mask_needed and text and MASK in authors,
        condition=condition, mask_argument=authors.get(MASK, ""), guides=text, guided=None, imaged=False,
        unknown=tuple(one for one in facts.unknown if one != condition),
        steps=tuple(one for one in facts.steps if one not in told),
        todo=tuple(one for one in facts.todo if one not in told),
    )  # fmt: skip


def _conditions(reference: Reference, facts: PipelineFacts, names: Mapping[str, str]) -> Iterator[Condition]:
    """Yield the tensors that the model requires; without a prompt, also optional ones with names of conditions."""
    for old, one in reference.forward.items():
        optional = not facts.text and one.default is None and (_GENERAL.search(old) or _OTHER.search(old))
        if names.get(old, old) not in _KNOWN and not _SIZES.search(old) and (one.required or optional):
            yield Condition(names.get(old, old), old, False)


def is_text(name: str) -> bool:
    """Return whether the name of an argument is that of a prompt."""
    return bool(_TEXT.search(name)) and not _OTHER.search(name) and not _SIZES.search(name)


def is_prompt(reference: Reference, argument: str) -> bool:
    """Return whether anything says that an argument of the model's forward is an embedded prompt: its name, an argument
    of the constructor, or the authors' files around the model and its samplers.
    """
    if _OTHER.search(argument) or is_label(reference, argument):
        return False
    if is_text(argument) or any(map(is_text, reference.forward)):
        return _is_embedded(reference, argument)
    if _HINTS.search(argument) or any(_TEXT.search(name) and _WIDTH.search(name) for name in reference.arguments):
        return True
    words = _PROMPTS_OF_SOUNDS if of_sounds(reference) else _PROMPTS
    return bool(_GENERAL.search(argument)) and any(words.search(one.text) for one in _around(reference))


def _is_embedded(reference: Reference, argument: str) -> bool:
    """Return whether an argument has the name of a prompt, and is not annotated as the numbers of its tokens."""
    return is_text(argument) and not _NUMBERS.search(reference.forward[argument].annotation)


def is_label(reference: Reference, argument: str) -> bool:
    """Return whether an argument has the name of class labels, and the constructor one for their number."""
    return bool(_LABELS.match(argument)) and any(map(_COUNTS.match, reference.arguments))


def of_sounds(reference: Reference) -> bool:
    """Return whether latents are sounds, or other lines: by names of arguments, or by the authors' files around the
    model, more of which are about sounds than about pictures.
    """
    if is_volume(reference):
        return False
    if is_line(reference):
        return True
    around = [one.text for one in _around(reference)]
    sounds, pictures = (sum(1 for text in around if words.search(text)) for words in (_SOUNDS, _PICTURES))
    return sounds > pictures


def _around(reference: Reference) -> Iterator[SourceFile]:
    """Yield the files that name the model's class, or a class or function that seems to sample."""
    samplers = {name.partition(".")[0] for name, _ in seeming_samplers(reference)}
    telling = [name for name in samplers if name[:1].isupper() or "_" in name]
    named = re.compile(rf"\b({'|'.join(map(re.escape, [reference.class_name, *telling]))})\b")
    return (one for one in sources_of(reference) if named.search(one.text))
