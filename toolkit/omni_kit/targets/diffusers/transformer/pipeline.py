"""Facts that the pipeline of a new model is derived from: how its authors sample, and what its transformer takes."""

import ast
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from omni_kit.errors import Refusal
from omni_kit.pysource.source import dotted
from omni_kit.targets.diffusers.porting.forward import LABELS, LATENTS, MASK, TEXT, TEXT_WIDTH, TIME
from omni_kit.targets.diffusers.porting.labels import Guided, guiding_methods
from omni_kit.targets.diffusers.porting.model_name import axes_of, convolved_along
from omni_kit.targets.diffusers.porting.parts import Parts, collect
from omni_kit.targets.diffusers.porting.port import Port
from omni_kit.targets.diffusers.porting.syntax import code
from omni_kit.targets.diffusers.scheduling.authors_methods import Stood, method_along
from omni_kit.targets.diffusers.scheduling.authors_process import confirmed, process_along
from omni_kit.targets.diffusers.scheduling.choice import NOTHING, Stepping, stepping_of
from omni_kit.targets.diffusers.scheduling.extracted_loop import CutLoop, cut_of
from omni_kit.targets.diffusers.scheduling.settings import TRAINED
from omni_kit.targets.diffusers.transformer.classes import (
    SIZE,
    ClassFacts,
    class_facts,
    stepping_along,
    through_linear,
)
from omni_kit.targets.diffusers.transformer.packing import Packed, packed, script_of
from omni_kit.targets.protocol import Decision
from omni_kit.upstream.repositories.closure import closure_of
from omni_kit.upstream.repositories.decoding import USUAL, Decoding, decodes, decoding
from omni_kit.upstream.repositories.given_images import given_images
from omni_kit.upstream.repositories.names import Defined, searching
from omni_kit.upstream.repositories.packing import packing_of
from omni_kit.upstream.repositories.processes.authors_calls import authors_calls
from omni_kit.upstream.repositories.processes.call_arguments import TRAINED as ALL_STEPS
from omni_kit.upstream.repositories.processes.left_out import left_out
from omni_kit.upstream.repositories.processes.process import Interval, Joined, Mixed, Process
from omni_kit.upstream.repositories.processes.sampler_entries import seeming_samplers
from omni_kit.upstream.repositories.processes.sampler_object import process_of
from omni_kit.upstream.repositories.processes.used_samplers import UNUSED
from omni_kit.upstream.repositories.reference import BETWEEN, Reference
from omni_kit.upstream.repositories.sampler_names import is_named, short_names
from omni_kit.upstream.repositories.sampler_step.loop_statements import calls_in, steps_scheduler
from omni_kit.upstream.repositories.sampling import STEPS, Sampling, Schedule, samplings_of
from omni_kit.upstream.repositories.usual_sampling import UsualSampling, usual_sampling

_CHANNELS = re.compile(
    r"^(in|latent|z|vae|input)_?(channels?|chans?|dim|ch|nc)$|^(img|image|im)_?(channels?|chans?|ch|nc)$"
)
_OF_PIXELS, _MOST_OF_PIXELS = re.compile(r"^(num_|n_)?channels$"), 4  # else a width

_LENGTH = re.compile(r"num_\w*tokens?$|token_num|(model|text|txt|caption|prompt)_(max_)?(len|length)$")
_RETURNED, _FILM, _PICTURE, _TOKENS = "return_dict", 5, 4, 3
_FRAMES = re.compile(r"video|temporal|(^|_)(num_?)?frames?(_|$)", re.IGNORECASE)
_SOUNDS = re.compile(r"audio|music|speech|vocoder|(^|_)(mels?|wavs?|waveform|tts|spk|f0)(_|$)", re.IGNORECASE)
_ANY_WIDTH, _ANY_LENGTH = 32, 7
_MOST, _MOST_SEEN = 4, 40  # samplers in a to-do, and those to choose them from
_USUAL = UsualSampling(steps=50, scale=4.0)
_UNKNOWN_GUIDED = "they guide, and no argument of the model is known to be a prompt or labels"
_OTHERWISE = "was not run, or steps as no scheduler of diffusers does"
EMBEDDING = "encode prompts as the authors do: which text encoder, which layer, which length"
_EMBEDDING_IMAGES = "encode images as the authors do: which image encoder, which layer, how images are prepared"
SIGMAS, CHANNELS = "compare the scheduler's sigmas", "set the number of channels"
"""Beginnings of to-dos."""
_NOT_THEIRS = ("from omni_kit.", "from types ")
_AT_HAND = {"torch", "numpy"} | sys.stdlib_module_names


@dataclass(frozen=True)
class Sigmas:
    """The authors' schedule, as a pipeline's file has it.

    Attributes:
        imports: lines that it needs.
        text: the function with all that it calls.
        call: how it is asked for the sigmas of a run.
    """

    imports: tuple[str, ...]
    text: str
    call: str


def sigmas_of(schedule: Schedule) -> Sigmas | None:
    """Return the schedule's function, copied; None if it is not told by itself, or needs more than torch and numpy."""
    if schedule.made is None:
        return None
    closure = closure_of(schedule.made)
    if not {name.partition(".")[0] for names in closure.foreign.values() for name in names.values()} <= _AT_HAND:
        return None
    try:
        parts = collect(closure, "", schedule.function)
    except Refusal:
        return None
    text = _joined(parts)
    more = "".join(f", {name}={value}" for name, value in schedule.given.items())
    call = f"{schedule.function}({schedule.steps}=num_inference_steps{more})"
    return Sigmas(tuple(parts.imports), text, f"[float(sigma) for sigma in {call}][:num_inference_steps]")


def copied_scheduler(made: Defined, name: str, settled: Mapping[str, object] | None = None) -> str | None:
    """Return the file of a scheduler that is the authors' own, by another name; None if it needs what cannot be
    copied.

    Args:
        settled: other defaults of its arguments.
    """
    closure = closure_of(made)
    try:
        parts = collect(closure, "", made.name)
    except Refusal:
        return None
    text = re.sub(rf"\b{made.name}(?=Output\b|\b)", name, _joined(parts))
    for argument, value in (settled or {}).items():
        said = f'"{value}"' if isinstance(value, str) else repr(value)
        text = re.sub(rf"(\n\s+{argument}: [^=\n]+ = )[^\n]+(?=,\n)", rf"\g<1>{said}", text, count=1)
        text = re.sub(rf"(\b{argument} \(`[^`]+`, defaults to `)[^`]+`", rf"\g<1>{said}`", text, count=1)
    return "\n".join(parts.imports) + "\n\n\n" + text + "\n"


def _joined(parts: Parts) -> str:
    return "\n\n\n".join(code(one.node).strip("\n") for one in parts.parts)


@dataclass(frozen=True)
class Condition:
    """An argument of the transformer that a pipeline passes on.

    Attributes:
        name: as it is called here.
        argument: as the authors call it.
        negative: there is another one to guide against.
    """

    name: str
    argument: str
    negative: bool


@dataclass(frozen=True)
class PipelineFacts:
    """Facts about a pipeline.

    Attributes:
        channels: the argument of the transformer that says how many channels latents have; empty if none does.
        text, mask: whether the transformer takes an embedded prompt, and a mask for it.
        mask_needed: it takes none without a mask.
        size: the argument of the transformer that fixes the size of latents; empty if none does.
        unknown: what else its forward must be given, by diffusers' names.
        shift: of the schedule; 1 where it is not known.
        sampling: the authors' loop, where it was found.
        todo: what is left to a person, but for the decoding of latents.
        steps: what is left to a person where the pipeline raises.
        sigmas: the authors' function that makes them, where no shift of the scheduler's does.
        stepping: what does the step.
        by_class: what is known of a model that is told class labels; None of others.
        process: the object that the authors sample with, where they do.
        condition: what the authors call the argument of the transformer for labels, or for an embedded prompt.
        mask_argument: and for its mask; empty if it has none.
        latents_argument, time_argument: for latents, and for the step.
        conditions: what else the pipeline is given for the transformer.
        constants: arguments of the transformer that the authors pass a value of their own, and its text, in `latents`.
        variance: of an answer with twice the channels the first half counts.
        guided: the method of the model with which the authors guide by a prompt, where it is not the usual way.
        guides: two answers of the transformer are joined by the scale.
        embedded: the argument of the transformer that receives the scale; empty without one.
        forms: of the transformer's prompt and mask, by the name here, what gives them another axis.
        listed: the transformer returns a list of tensors, one for each sample.
        lone: the axis of a single frame that the transformer's latents have, and the pipeline's lack; 0 without one.
        more: by so much the scale of guidance is more than the authors'.
        above: the scale above which two answers are joined.
        imaged: the authors embed images instead of a prompt.
        usual: settings where a caller states none: those of the authors' sampling, as far as it states them.
        decoding: how the authors decode latents, where that was read.
        decodes: they decode them at all, or nothing says that they do not.
        line: latents are sounds or another line, however many axes they have.
        joined: what the transformer receives joined with latents, by the names here.
        mixed: the known values that are mixed with latents after each step, by the names here.
        unproven: the authors' sampling was read, and a pipeline cannot be proven to repeat it.
    """

    channels: str
    text: bool
    mask: bool
    mask_needed: bool
    size: str
    unknown: tuple[str, ...]
    shift: float
    sampling: Sampling | None
    todo: tuple[str, ...]
    sigmas: Sigmas | None = None
    stepping: Stepping = NOTHING
    by_class: ClassFacts | None = None
    process: Process | None = None
    condition: str = ""
    mask_argument: str = ""
    latents_argument: str = ""
    time_argument: str = ""
    conditions: tuple[Condition, ...] = ()
    constants: Mapping[str, str] = field(default_factory=dict)
    forms: Mapping[str, str] = field(default_factory=dict)
    axes: int = _PICTURE
    filmed: bool = False
    sounds: bool = False
    packing: Packed | None = None
    variance: bool = False
    guided: Guided | None = None
    guides: bool = True
    embedded: str = ""
    steps: tuple[str, ...] = ()
    listed: bool = False
    lone: int = 0
    more: int = 0
    above: int = 1
    imaged: bool = False
    usual: UsualSampling = _USUAL
    decoding: Decoding | None = None
    decodes: bool = True
    line: bool = False
    joined: Joined | None = None
    mixed: Mixed | None = None
    unproven: bool = False

    @property
    def within(self) -> Interval | None:
        """Return the interval of times in which two answers are joined; None for every step."""
        return self.process.within if self.process is not None and self.guided is None else None

    @property
    def prompts(self) -> bool:
        """Return whether a pipeline takes prompts."""
        return self.text

    @property
    def pictures(self) -> bool:
        """Return whether latents are those of pictures, for all that forward says."""
        return self.axes == _PICTURE and not self.line

    @property
    def film(self) -> bool:
        """Return whether latents are those of videos: channels before frames, rows and columns."""
        return self.filmed and self.axes == _FILM and self.by_class is None and not self.line

    @property
    def made(self) -> str:
        """Return what a pipeline makes: "image", "video", "audio", or "sample" of anything else."""
        if self.by_class is not None:
            return "video" if self.by_class.video else "image"
        return "image" if self.pictures else "video" if self.film else "audio" if self.sounds else "sample"

    def not_passed(self, names: Sequence[str]) -> list[str]:
        """Return of the authors' names of arguments those that the steps do not pass the transformer."""
        own = {self.latents_argument, self.time_argument, self.condition, self.mask_argument, self.embedded}
        passed = own | {one.argument for one in self.conditions} | self.constants.keys()
        passed |= {*self.packing.ids} if self.packing is not None else set()
        return [name for name in names if name not in passed]

    def without_steps(self, why: str) -> "PipelineFacts":
        """Return the facts for a pipeline that raises where its steps belong; `why` ends the to-do."""
        left = f"write the denoising steps of {self.sampled_at}: {why}"
        of_steps = {*self.stepping.todo, *(self.process.todo if self.process is not None else ())}
        return replace(
            self, sampling=None, process=None, stepping=NOTHING, sigmas=None, shift=1.0, conditions=(), constants={},
            variance=False, packing=None, joined=None, mixed=None, guided=None, guides=bool(self.condition),
            embedded="", lone=0, more=0, above=1, todo=tuple(one for one in self.todo if one not in of_steps),
            steps=(*self.steps, left), unproven=True,
        )  # fmt: skip

    def with_axes(self, axes: int) -> "PipelineFacts":
        """Return the facts for latents with this number of axes, which a run has shown."""
        axes -= bool(self.lone)
        if self.by_class is not None or self.packing is not None or axes == self.axes:
            return self
        return replace(self, axes=axes)

    def comparing(self, shapes: Collection[str]) -> "PipelineFacts":
        """Return the facts with a to-do for the conditions that a small model, with inputs of these names, lacks."""
        left = [one.name for one in self.conditions
                if not any(re.match(rf"{re.escape(one.argument)}(\W|$)", name) for name in shapes)]  # fmt: skip
        if not (shapes and left and self.proven):
            return self
        what = f"compare a run with {', '.join(left)}: the small model does without"
        return replace(self, todo=(*self.todo, what))

    @property
    def left(self) -> tuple[str, ...]:
        """Return all that is left to a person in a pipeline that runs."""
        if not self.decodes:
            return self.todo
        if not (self.pictures or self.film or self.by_class is not None):
            return (*self.todo, "decode latents as the authors do")
        if self.decoding is None:
            return (*self.todo, "scale latents as the authors' autoencoder expects")
        if self.decoding.factor in (None, USUAL):
            return self.todo
        scale = f"set the autoencoder's scaling_factor to {self.decoding.factor:g}, as in {self.decoding.where}"
        return (*self.todo, scale)

    @property
    def sampled_at(self) -> str:
        """Return the place of the authors' sampling, as file:line; empty if none was found."""
        sampler = self.process if self.process is not None else self.sampling
        return sampler.where if sampler is not None else ""

    @property
    def proven(self) -> bool:
        """Return whether the authors' sampling is called, and compared with the pipeline."""
        called = self.process is not None or (self.sampling is not None and bool(self.sampling.roles))
        return called and not self.raises

    @property
    def raises(self) -> str:
        """Reason why the pipeline has no denoising steps and raises instead; empty if it has them."""
        if self.process is None and (self.sampling is None or self.stepping.unmoved):
            what = "was analysed, and not proven" if self.unproven else "could not be analysed"
            return f"The authors' sampling loop {what}: write the denoising steps here."
        if self.unknown:
            made = ", ".join(self.unknown)
            return f"The authors' code makes {made} for the transformer: write the denoising steps here."
        return ""

    @property
    def placeholder(self) -> bool:
        """Return whether the scheduler stands for one that the authors' code does not show."""
        found = self.sampling.schedule if self.sampling is not None else None
        shown = bool(self.stepping.reason) or (found is not None and self.sigmas is not None)
        return not shown and (bool(self.raises) or found is None or found.shift is None)

    def decision(self) -> Decision:
        """Return the decision on the scheduler, with its reason."""
        if self.placeholder:
            name = "FlowMatchEulerDiscreteScheduler"
            reason = f"{name} is a placeholder: the pipeline raises until its denoising steps are written"
            return Decision("scheduler", "none yet", reason, "")
        if self.stepping.reason:
            copied = f"a copy of {self.stepping.copied.name}" if self.stepping.copied is not None else ""
            choice = copied or self.stepping.name or "a new class"
            return Decision("scheduler", choice, self.stepping.reason, self.sampled_at)
        found = self.sampling.schedule if self.sampling is not None else None
        if found is not None and self.sigmas is not None:
            reason = f"it uses the sigmas that it receives: those of {found.function}, which is copied"
            return Decision("scheduler", "FlowMatchEulerDiscreteScheduler", reason, found.where)
        assert found is not None
        reason = f"the numbers of {found.function} are those of shift={found.shift:g}"
        return Decision("scheduler", "FlowMatchEulerDiscreteScheduler", reason, found.where)


@searching()
def pipeline_facts(
    reference: Reference, ported: Port, *, packs: bool = True, needed: Collection[str] = ()
) -> PipelineFacts:
    """Collect the facts for the pipeline of a class.

    Args:
        packs: it makes tokens of latents where the authors do; if not, it is passed tokens.
        needed: arguments that the class runs with none of, for all that its forward says.
    """
    names = ported.forward.names
    by_class = class_facts(reference, ported.labels, ported.guided, names) if ported.labels is not None else None
    latents = _authors(names, LATENTS)
    found = samplings_of(reference)
    sampling = found[0] if len(found) == 1 else None
    schedule = sampling.schedule if sampling is not None else None
    shift = schedule.shift if schedule is not None else None
    sigmas = sigmas_of(schedule) if schedule is not None else None
    stepping = stepping_of(sampling, list(reference.forward), names, shift) if sampling is not None else NOTHING
    unread = sampling is None or bool(stepping.unmoved) or not sampling.roles
    condition = ported.labels.argument if ported.labels is not None else _authors(names, TEXT)
    why: dict[str, str] = {}
    cut = cut_of(reference, found, names, condition, needed, why) if unread else None
    if cut is not None and by_class is not None and (cut.loop.conditions or cut.loop.constants or cut.loop.derived):
        cut = None  # a pipeline for labels passes the model nothing else
    if cut is not None and by_class is not None and cut.loop.guides:
        by_class = replace(by_class, guided=None)  # the loop does, whatever method the model has for it
    stood = method_along(reference, names, condition) if unread and cut is None and by_class is None else Stood()
    process = stood.process
    if process is None and unread and cut is None:
        process = process_of(reference, condition)
        process = confirmed(reference, process, names) if process is not None else process_along(reference, names, why)
    tokens = through_linear(reference, latents)
    if by_class is not None and process is not None and process.within is not None:
        by_class = replace(by_class, guided=None)
    if process is not None and process is not stood.process and process.learns_variance and tokens:
        process = None  # it splits what the model answers along axis 1, which is not that of channels
    if process is not None and not (latents and _authors(names, TIME)):
        process = None  # nothing says by which arguments it calls the model
    guided = None
    conditions: tuple[Condition, ...] = ()
    constants: dict[str, str] = {}
    if process is not None and process is stood.process:
        stepping, sampling, found = stood.stepping, None, []
        conditions = tuple(Condition(names.get(old, old), old, stood.guides) for old in stood.conditions)
        constants = {names.get(old, old): repr(value) for old, value in stood.constants.items()}
    elif process is not None:
        stepping, sampling, found = stepping_along(process), None, []
        guided = ported.guided if not process.held else None
        wanted = [old for old, one in reference.forward.items() if one.required and by_class is None]
        known = {LATENTS, TIME, TEXT, MASK, LABELS}
        conditions = tuple(Condition(names.get(old, old), old, bool(condition) and guided is None) for old in wanted
                           if names.get(old, old) not in known and not process.held)  # fmt: skip
    if cut is not None:
        before, sampling, stepping, found = found, cut.sampling, cut.stepping, [cut.sampling]
        sigmas, shift = _levels(cut), None
        conditions = tuple(Condition(names.get(old, old), old, two) for old, two in cut.loop.conditions.items())
        usual = {name: one.default for name, one in reference.forward.items()}
        said = {old: value for old, value in cut.loop.constants.items() if old != _RETURNED and usual.get(old) != value}
        constants = {names.get(old, old): repr(value) for old, value in said.items()}
        constants |= {names.get(old, old): text for old, text in cut.loop.derived.items()}
    packing = None
    if cut is not None and packs and by_class is None:
        whole = next(one for one in before if one.where == cut.sampling.where)
        read = packing_of(reference, whole, latents, cut.loop.conditions, condition)
        packing = packed(read, names, cut.loop.conditions) if read is not None else None
        if read is not None and packing is not None:
            conditions = tuple(one for one in conditions if one.argument not in packing.ids)
            sampling = replace(cut.sampling, script=script_of(cut.script, read))
    if stepping.made is not None:
        sigmas, shift = None, None
    shift = shift if stepping.shift is None else stepping.shift
    axes = len(axes_of(reference, latents)) or (_TOKENS if tokens or convolved_along(reference) == 1 else _PICTURE)
    axes, filmed = axes if packing is None else _PICTURE, _has_frames(reference, latents)
    channels = _channels(reference)
    taken = [names.get(name, name) for name, one in reference.forward.items() if one.required]
    scaled = cut.loop.embedded if cut is not None else stood.embedded
    embedded = names.get(scaled, scaled)
    masked = {MASK} if TEXT in names.values() else set()  # one of anything else than a prompt is nobody's here
    told = {LATENTS, TIME, TEXT, LABELS, *masked, *constants, *(one.name for one in conditions), embedded}
    told |= {*packing.ids.values()} if packing is not None else set()
    unknown = tuple(name for name in taken if name not in told)
    facts = PipelineFacts(
        channels=channels,
        text=TEXT in names.values(),
        mask=MASK in names.values() and TEXT in names.values(),
        mask_needed=(MASK in taken and TEXT in names.values()) or (cut is not None and cut.loop.masked),
        size=next((name for name in reference.arguments if SIZE.match(name)), ""),
        unknown=unknown,
        shift=shift or 1.0,
        sampling=sampling,
        steps=(
            *(_which(reference, found, why) if process is None else ()),
            *(f"repeat what a pipeline cannot: {one}" for one in stood.why[:_MOST] if process is None and cut is None),
            *(
                _unmoved(sampling, stepping, by_class is not None, why)
                if process is None and sampling is not None
                else ()
            ),
            *map(passing, unknown),
        ),
        todo=(
            *_todo(sampling, stepping, shift is None and sigmas is None, channels, process, TEXT in names.values()),
            *(_guidance(reference) if guided is None and (by_class is None or ported.guided is None) else ()),
        ),
        sigmas=sigmas,
        stepping=stepping,
        by_class=by_class,
        process=process,
        condition=condition,
        mask_argument=_authors(names, MASK),
        latents_argument=latents,
        time_argument=_authors(names, TIME),
        conditions=conditions,
        constants=constants,
        forms={names.get(old, old): text for old, text in cut.loop.forms.items()} if cut is not None else {},
        axes=axes,
        filmed=filmed,
        sounds=_speaks_of(_SOUNDS, reference),
        packing=packing,
        variance=cut is not None and cut.loop.halved,
        guided=guided,
        guides=bool(condition) and (cut is None or cut.loop.guides) and (stood.process is None or stood.guides),
        embedded=embedded,
        **_as_stood(stood if process is not None and process is stood.process else Stood()),
    )
    facts = replace(facts, decoding=decoding(reference, facts.sampled_at), decodes=facts.text or decodes(reference))
    facts = _with_defaults(reference, _of_images(reference, facts))
    if facts.proven and process is None and not stepping.reason and shift is None and sigmas is None:
        facts = facts.without_steps("its noise levels, and which way its time runs, could not be analysed")
    if not condition and ((cut is not None and cut.loop.guides) or (stood.process is not None and stood.guides)):
        return facts.without_steps(_UNKNOWN_GUIDED)
    facts = _joining(facts) if process is not None and process.joined is not None else facts
    if facts.process is not None and facts.process.mixed is not None and facts.by_class is None:
        facts = replace(facts, mixed=_mixing(facts.process.mixed, facts))
    return _passing(reference, facts, names) if facts.process is not None and process is not stood.process else facts


def _mixing(mixed: Mixed, facts: PipelineFacts) -> Mixed:
    """Return the values that are mixed with latents by the names that a pipeline has for them."""
    if not facts.pictures:
        return mixed
    return replace(mixed, known="original_latents" if facts.decodes else "original_image", mask="mask_image")


def _joining(facts: PipelineFacts) -> PipelineFacts:
    """Return the facts of a pipeline that is passed what the authors join with latents: a picture, as it is or encoded,
    or tensors by the names that they have there.
    """
    joined = facts.process.joined if facts.process is not None else None
    assert joined is not None
    if facts.by_class is not None:
        return facts.without_steps(f"they join latents with {', '.join(joined.names)}")
    kind = "image" if facts.pictures else "video" if facts.film else ""
    named = f"{kind}_latents" if facts.decodes else kind
    parts = tuple(one and named for one in joined.parts) if kind and len(joined.names) == 1 else joined.parts
    return replace(facts, joined=replace(joined, parts=parts))


def _with_defaults(reference: Reference, facts: PipelineFacts) -> PipelineFacts:
    """Return facts with the number of steps, the scale of guidance and the sizes that the authors sample with."""
    if not facts.sampled_at:
        return facts
    process = facts.process
    lines = process.imports if process is not None else ()
    names = [line.split()[-1] for line in lines if line.startswith("from ") and not line.startswith(_NOT_THEIRS)]
    found = usual_sampling(reference, facts.sampled_at, names)
    if process is not None and process.every_step:
        trained = process.config.get(TRAINED, ALL_STEPS)
        found = replace(found, steps=trained if isinstance(trained, int) else None)
    if process is not None and process.denoiser:
        found = replace(found, scale=process.scale)  # others may count from 0
    scale = (_USUAL.scale or 0 if found.scale is None else found.scale) + facts.more
    return replace(facts, usual=replace(found, steps=found.steps or _USUAL.steps, scale=scale))


def _as_stood(stood: Stood) -> dict[str, Any]:
    """Return what a run of the authors' method has shown."""
    return {name: getattr(stood, name) for name in ("listed", "lone", "more", "above")}


def _of_images(reference: Reference, facts: PipelineFacts) -> PipelineFacts:
    """Return facts with images instead of prompts, where the authors' sampling receives those."""
    embeds = facts.text and not facts.mask and facts.packing is None and not facts.raises
    if not embeds or not given_images(reference, facts.sampled_at):
        return facts
    todo = tuple(_EMBEDDING_IMAGES if one == EMBEDDING else one for one in facts.todo)
    return replace(facts, imaged=True, todo=todo)


def _passing(reference: Reference, facts: PipelineFacts, names: Mapping[str, str]) -> PipelineFacts:
    """Return facts with the arguments of the model that the authors' sampling names; facts that raise if a pipeline
    cannot pass them.
    """
    process = facts.process
    assert process is not None
    passed = reference.forward.keys() - {*facts.not_passed([*reference.forward])}
    near, far = left_out(reference, process, passed)
    if far:
        named = ", ".join(f"{name} ({where})" for name, where in far.items())
        facts = replace(
            facts, todo=(*facts.todo, f"compare other arguments that the authors pass their model: {named}")
        )
    if process.learns_variance and facts.guides and facts.guided is None and facts.by_class is None:
        return facts.without_steps("they learn a variance, and how they guide it could not be read")
    if near and (facts.by_class is not None or process.held):
        return facts.without_steps(f"they name {', '.join(near)}, which the model takes as well")
    if process.guides and not facts.condition:
        if near or process.scale != 1:
            return facts.without_steps(_UNKNOWN_GUIDED)
        facts = replace(facts, todo=(*facts.todo, f"guide, where it is wanted: {_UNKNOWN_GUIDED}"))
    more = (Condition(names.get(old, old), old, bool(facts.condition) and facts.guided is None) for old in near)
    return replace(facts, conditions=(*facts.conditions, *more))


def _speaks_of(words: re.Pattern[str], reference: Reference) -> bool:
    """Return whether a name in the authors' class is such a word."""
    nodes = ast.walk(reference.cls.node)
    named = (getattr(node, "id", "") or getattr(node, "attr", "") or getattr(node, "arg", "") for node in nodes)
    return any(map(words.search, filter(None, (*named, reference.class_name, reference.cls.source.path.stem))))


def _has_frames(reference: Reference, latents: str) -> bool:
    """Return whether names in the authors' class are of frames, which are not the first axis after samples."""
    axes = axes_of(reference, latents)
    return _speaks_of(_FRAMES, reference) and (len(axes) != _FILM or not _FRAMES.search(axes[1]))


def _levels(cut: CutLoop) -> Sigmas | None:
    """Return the levels that a loop which was cut out passes its scheduler; None if the scheduler makes them."""
    schedule, told = cut.sampling.schedule, cut.loop.sigmas
    if told:
        return Sigmas((), "", re.sub(rf"\b{STEPS}\b", "num_inference_steps", told))
    return sigmas_of(schedule) if schedule is not None and not cut.stepping.reason else None


def _guidance(reference: Reference) -> Iterator[str]:
    """Yield the to-dos for guidance that the authors wrote into the model and that pipelines lack."""
    for one, _ in guiding_methods(reference):
        where = reference.cls.source.where(one)
        yield f"compare the guidance with {one.name} ({where}): this pipeline guides all channels at every step alike"


def passing(name: str) -> str:
    """Return the to-do for an argument of the transformer that nothing is known to make."""
    return f"pass the transformer {name}"


def _authors(names: Mapping[str, str], wanted: str) -> str:
    return next((old for old, new in names.items() if new == wanted), "")


def text_width(reference: Reference, toy: Mapping[str, object]) -> int:
    """Return the width of prompt embeddings in a toy; a default if no argument gives it."""
    found = (toy.get(name) for name in reference.arguments if TEXT_WIDTH.search(name))
    return next((value for value in found if isinstance(value, int) and not isinstance(value, bool)), _ANY_WIDTH)


def text_length(reference: Reference, toy: Mapping[str, object]) -> int:
    """Return the number of prompt tokens in a toy: as many as an argument fixes, else a default."""
    found = (toy.get(name) for name in reference.arguments if _LENGTH.search(name))
    return next((value for value in found if isinstance(value, int) and not isinstance(value, bool)), _ANY_LENGTH)


def _which(reference: Reference, found: Sequence[Sampling], why: Mapping[str, str]) -> list[str]:
    """Return the to-do if several functions may sample, or none was found.

    Args:
        why: the reasons why loops and samplers are not repeated, by their file:line; empty for one that can be named.
    """
    if not found and reference.loop:
        wanted = (one for one in authors_calls(reference) if is_named(one.full_name, reference.loop))
        reasons = dict.fromkeys(f"{one.full_name} ({one.where}) {why.get(one.where) or _OTHERWISE}" for one in wanted)
        return [f"write the denoising steps: {'; '.join(reasons)}"]
    if not found:
        files = len(reference.repository.files)
        every = [*islice(seeming_samplers(reference), _MOST_SEEN)]
        seeming = dict.fromkeys(([one for one in every if why.get(one[1]) != UNUSED] or every)[:_MOST])
        known = (f"{name} ({where}{': ' if why.get(where) else ''}{why.get(where, '')})" for name, where in seeming)
        left = f"write the denoising steps: in {files} files they could be read from no loop"
        left += f", and no scheduler of diffusers is known to go as {', '.join(known)}" if seeming else ""
        whole = [*dict.fromkeys(one.full_name for one in authors_calls(reference) if why.get(one.where) == "")]
        if whole and not reference.loop:
            again = BETWEEN.join([*reference.given.split(BETWEEN), short_names(whole)[0]])
            left += f". Of several samplers ({', '.join(short_names(whole))}) one can be named: --from {again}"
        return [left]
    if len(found) == 1:
        return []
    short = short_names([one.full_name for one in found])
    named = "; ".join(f"{name} ({one.where}) {_unread(one, why)}".rstrip()
                      for name, one in zip(short, found, strict=True))  # fmt: skip
    readable = [name for name, one in zip(short, found, strict=True) if one.roles and not one.closed]
    again = BETWEEN.join([*reference.given.split(BETWEEN), (readable or short)[0]])
    return [f"write the denoising steps: several functions may sample. {named}. To name one: --from {again}"]


def _channels(reference: Reference) -> str:
    """Return the argument for the channels of latents or pixels; empty if none is known."""
    said = reference.published.values if reference.published is not None else {}
    few = (name for name, one in reference.arguments.items() if _OF_PIXELS.match(name)
           and said.get(name, one.default) in range(1, _MOST_OF_PIXELS + 1))  # fmt: skip
    return next((name for name in reference.arguments if _CHANNELS.match(name)), "") or next(few, "")


def _unmoved(sampling: Sampling, stepping: Stepping, by_class: bool, why: Mapping[str, str]) -> Iterator[str]:
    """Yield the to-do for a loop whose steps no scheduler takes."""
    if stepping.unmoved:
        what = "the denoising steps of the authors' sampling" if by_class else "the authors' step as a scheduler"
        reason = stepping.unmoved if sampling.roles else _unread(sampling, why)
        yield f"write {what}: the loop of {sampling.where} {reason or stepping.unmoved}"


def _unread(found: Sampling, why: Mapping[str, str]) -> str:
    """Return why a loop cannot be repeated; empty if it may be."""
    if found.roles and not found.closed:
        return ""
    ran = why.get(found.source.where(found.made), "")  # what a run of the whole function has shown
    reason = "; it ".join(filter(None, (found.closed or why.get(found.where), ran)))
    scheduler = next((dotted(one.func) or "" for one in calls_in(found.loop) if steps_scheduler(one)), "")
    if scheduler:
        calls = f"calls {scheduler}: write the pipeline with that scheduler of diffusers"
        return f"{calls} ({reason})" if reason else calls
    return reason or "requires more arguments than a model, noise, texts, a number of steps and a scale"


def _todo(
    sampling: Sampling | None, stepping: Stepping, unshown: bool, channels: str, process: Process | None, text: bool
) -> list[str]:  # fmt: skip
    todo = [EMBEDDING] if text else []
    todo += [*(process.todo if process is not None else ()), *stepping.todo]
    if sampling is not None and stepping.made is not None and stepping.made.after:
        todo.append(f"repeat what {sampling.function} does after the last step: {stepping.made.after}")
    if sampling is not None and unshown and (stepping.unmoved or not stepping.reason):
        todo.append(f"{SIGMAS} with the authors' schedule ({sampling.where})")
    if not channels:
        todo.append(f"{CHANNELS} of latents or pixels: no transformer argument names it")
    return todo
