"""The files of a model in diffusers, derived from its authors' code."""

import ast
import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from omni_kit.documents import read_mapping
from omni_kit.errors import BadInput, Refusal
from omni_kit.pysource.library import Library, find_library
from omni_kit.record import ANSWERS, BASE, load_answers, load_base
from omni_kit.targets.diffusers.checkout import PACKAGE, Checkout, checkout_at
from omni_kit.targets.diffusers.model_dir import model_classes, sampler_name, toy_name
from omni_kit.targets.diffusers.modular.in_checkout import Placed
from omni_kit.targets.diffusers.modular.ported import FOLDER, blocks_in_tree, blocks_of
from omni_kit.targets.diffusers.porting.forward import MASK, TEXT
from omni_kit.targets.diffusers.porting.model_name import model_name, page_of
from omni_kit.targets.diffusers.porting.port import Port, port
from omni_kit.targets.diffusers.porting.syntax import MARK
from omni_kit.targets.diffusers.scheduling.library_scheduler import FIRST
from omni_kit.targets.diffusers.scheduling.own_schedulers import OWN
from omni_kit.targets.diffusers.toy import ANY_WIDTH, toy_of
from omni_kit.targets.diffusers.transformer.classes import with_first
from omni_kit.targets.diffusers.transformer.conversion import conversion_of
from omni_kit.targets.diffusers.transformer.entries import Entered, entries, found_by_name, scheduler_entries
from omni_kit.targets.diffusers.transformer.example_inputs import expressions
from omni_kit.targets.diffusers.transformer.found_toy import NO_TORCH, FoundToy, found_toy, imported
from omni_kit.targets.diffusers.transformer.lora import LoraMixin, lora_mixin
from omni_kit.targets.diffusers.transformer.pipeline import (
    PipelineFacts,
    copied_scheduler,
    pipeline_facts,
    text_length,
    text_width,
)
from omni_kit.targets.diffusers.transformer.raising import not_prompts, with_evidence
from omni_kit.targets.protocol import TODO_KEY, Decision, Edit, IntegrationPlan, NewFile, Request, Todo
from omni_kit.targets.provenance import ALONE
from omni_kit.upstream.diffusers.classes import find_class
from omni_kit.upstream.diffusers.requirements import importable
from omni_kit.upstream.repositories.license import (
    header_of,
    is_non_commercial,
    license_of,
    names_license,
    notice_of,
)
from omni_kit.upstream.repositories.made_elsewhere import why_not_made
from omni_kit.upstream.repositories.packing import latents_shape
from omni_kit.upstream.repositories.processes.process import Joined
from omni_kit.upstream.repositories.published import SIGNED
from omni_kit.upstream.repositories.recorded import (
    CONDITIONS,
    COUNT,
    EVERY,
    EXAMPLE,
    FRAME_AXIS,
    JOINED,
    LATENTS,
    MIXED,
    NULL,
    PROMPT_AXIS,
    SHAPES,
    STATED,
)
from omni_kit.upstream.repositories.reference import Reference
from omni_kit.upstream.repositories.returned import returned
from omni_kit.upstream.repositories.sampler_step.members import methods_of
from omni_kit.upstream.repositories.switched_on import switched_on
from omni_kit.upstream.repositories.traits import foreign, kept_as_tensors
from omni_kit.upstream.subject import Subject

_INPUT, _OUTPUT = "in_channels", "out_channels"
_PROMPT = ("prompts", "tokens", "width")
_TOKENS_AXES = 3
_NAMES = "_arguments"  # of forward: the authors' -> diffusers'
_DRAWING = ("test_pipeline_class.py.jinja", "test_lora.py.jinja")
"""Templates of tests that call the pipeline."""
_FIELDS = {"video": "frames"}
"""Names of what a pipeline's output holds, by what it makes."""
_NOT_RUN = "no small model of the authors' class runs, so that parity cannot compare them"
_CHANNELS, _SIDE, _FRAMES, _TOKENS = 4, 8, 3, 8  # of latents in the tests, where running found none


def make_plan(subject: Subject, request: Request) -> IntegrationPlan:
    """Return the whole plan of one integration.

    Raises:
        BadInput: `into` is not a checkout of a known version, or one with a model of that name.
        Refusal: the subject is of a library that has it already, or its code cannot be taken apart.
    """
    if subject.reference is None:
        raise Refusal(
            f"{subject.given} is of {subject.library.name}, which already has it",
            "pass the class of its authors' repository: PATH::Class",
        )
    what, hint = why_not_made(subject.reference)
    if what:
        raise Refusal(what, hint)
    planner = _Planner(subject.given, subject.reference, request)
    if planner.both and planner.port.labels is not None:
        raise Refusal("modular blocks need a pipeline with prompts, but this model takes class labels",
                      "leave out --pipeline")  # fmt: skip
    if planner.both and planner.pipeline.raises:
        raise Refusal("modular blocks need denoising steps, which were not read from the authors' sampling code",
                      "leave out --pipeline, or name the function that samples: PATH::Class::function")  # fmt: skip
    return planner.plan()


@dataclass(frozen=True)
class _Planner:
    """Inputs of the parts of a plan."""

    given: str
    reference: Reference
    request: Request
    found: FoundToy | None = None
    planned: Mapping[str, Any] = field(default_factory=dict)  # values of a toy, before one was found
    pictures: frozenset[str] = frozenset()  # arguments that are known to be no prompt

    def plan(self) -> IntegrationPlan:
        planner, facts = self._with_evidence(self.pipeline)
        if planner is not self:
            vars(planner).update(pipeline=facts)
            return planner.plan()
        return IntegrationPlan(
            base=self.base,
            files=tuple(self.files()),
            edits=tuple(self.edits()),
            decisions=tuple(self.decisions()),
            todo=tuple(self.todo()),
            next=self.next(),
            rules=self.rules,
            checked=True,
            derived=self.modular if self.both else None,
            merged=self._merged,
            confirm=lambda: self.confirmed().plan(),
            simpler=lambda why: self._without_steps(why).plan(),
        )

    def _without_steps(self, why: str) -> "_Planner":
        """Return the planner for a pipeline that raises where its steps belong, with the reason in a to-do."""
        facts = self.pipeline.without_steps(f"what was made of them is not valid ({why})")
        planner, facts = self._with_evidence(facts)
        other = replace(planner)
        vars(other).update(port=planner.port, pipeline=facts)
        return other

    def _with_evidence(self, facts: PipelineFacts) -> tuple["_Planner", PipelineFacts]:
        """Return the planner and the facts for a pipeline that, where it raises, takes nothing for a prompt without
        evidence.
        """
        others = not_prompts(self.reference, facts, self.port.forward.names) - self.pictures
        planner = replace(self, pictures=self.pictures | others) if others else self
        return planner, with_evidence(self.reference, facts, planner.port.forward.names)

    def confirmed(self) -> "_Planner":
        """Return the planner with the toy that the authors' class was found to take."""
        return self._with(self._answering_latents(found_toy(self.reference, self.toy)))

    def _with(self, found: FoundToy) -> "_Planner":
        """Return the planner with a toy, and with no argument for a prompt that has the size of latents in it."""
        facts = self.pipeline
        if pictured := self._pictured(found):
            return replace(self, pictures=self.pictures | {pictured})._with(found)
        whole = facts.packing is None or not found.values.get(facts.channels, 0) % facts.packing.side**2
        missing = facts.not_passed(found.needed) if facts.proven and facts.by_class is None else []
        if missing or not whole:
            facts = pipeline_facts(self.reference, self.port, packs=whole, needed=missing)
        if axes := len(found.shapes.get(facts.latents_argument, ())):
            facts = facts.with_axes(axes)
        prompted = facts.proven and facts.by_class is None and facts.condition
        if prompted and found.shapes and facts.condition not in found.shapes:
            facts = facts.without_steps(f"they pass {facts.condition}, which has no effect on the small model")
        elif missing := facts.not_passed(missing):
            facts = facts.without_steps(f"they do not pass {', '.join(missing)}, which the small model needs")
        if wrong := self._other_axes(facts, axes, len(found.answer)) or _unjoined(facts, found):
            facts = facts.without_steps(wrong)
        if found.why and found.why != NO_TORCH and not facts.raises:
            facts = facts.without_steps(f"{_NOT_RUN} ({found.why.splitlines()[0]})")
        planner, facts = self._with_evidence(facts.comparing(found.shapes))
        other = replace(planner, found=found, planned=self._toy_values[0])
        named = bool(self.request.class_name) or not axes
        ported = planner.port if named else planner.port.called(model_name(self.reference, self.prefix, axes))
        vars(other).update(port=ported if self.in_tree else imported(ported), pipeline=facts)
        return other

    def _other_axes(self, facts: PipelineFacts, axes: int, answered: int) -> str:
        """Return why the authors' object cannot sample with the small model, whose latents have other axes than its
        output, or than the object makes; empty if it can.
        """
        process = facts.process
        if process is None or not process.denoiser or not axes:
            return ""
        if answered not in (0, axes):
            return f"the latents of the small model have {axes} axes, and its output {answered}"
        if process.ranks and axes not in process.ranks:
            ranks = " or ".join(map(str, process.ranks))
            return f"they sample latents with {ranks} axes, and those of the small model have {axes}"
        return ""

    def _pictured(self, found: FoundToy) -> str:
        """Return the argument that was taken for a prompt, if it has the size of latents; empty otherwise."""
        text = next((old for old, new in self.port.forward.names.items() if new == TEXT), "")
        latents, given = (found.shapes.get(name, ()) for name in (self.pipeline.latents_argument, text))
        return text if len(given) > _TOKENS_AXES and [*given[2:]] == [*latents[2:]] else ""

    def _answering_latents(self, found: FoundToy) -> FoundToy:
        """Return the toy with an output as wide as latents, where it has another width that nothing says: a model that
        joins latents with a condition takes more channels than it returns. Where no argument is the output's width, the
        input has that width.
        """
        process = self.pipeline.process
        latents = found.shapes.get(self.pipeline.latents_argument, ())
        differing = [(one, other) for one, other in zip(latents, found.answer, strict=False) if one != other]
        if process is not None and process.joined is not None:
            return self._joining_latents(found, latents, process.joined)
        alike = len(latents) == len(found.answer) and len(differing) == 1
        if not alike or (process is not None and process.learns_variance):
            return found
        (taken, answered), names = differing[0], list(self.reference.arguments)
        outputs = any(name.startswith("out") for name in names)
        free = [*(self._free("out", answered, found, taken) if outputs else self._free("in", taken, found, answered))]
        if len(free) != 1:
            return found
        again = found_toy(self.reference, {**self.toy, **found.values, free[0]: taken if outputs else answered})
        return again if [*again.shapes.get(self.pipeline.latents_argument, ())] == [*again.answer] else found

    def _joining_latents(self, found: FoundToy, latents: Sequence[int], joined: Joined) -> FoundToy:
        """Return the toy with an input that has place for latents and, as wide as these, for each condition: authors'
        samplers may join them otherwise, too.
        """
        if len(latents) != len(found.answer) or not latents:
            return found
        width, wanted = latents[joined.axis], found.answer[joined.axis] * len(joined.parts)
        taken = [name for name in self.reference.arguments if name.startswith("in") and found.values.get(name) == width]
        if width == wanted or len(taken) != 1:
            return found
        again = found_toy(self.reference, {**self.toy, **found.values, taken[0]: wanted})
        return again if again.shapes.get(self.pipeline.latents_argument) else found

    def _free(self, prefix: str, width: int, found: FoundToy, wanted: int) -> Iterator[str]:
        """Yield arguments with a width for which the authors' default or config has none, or the wanted one."""
        said = self.reference.published.values if self.reference.published is not None else {}
        for name, one in self.reference.arguments.items():
            known = said.get(name, one.default)
            unsaid = known == wanted or (one.required and type(known) is not int)
            if unsaid and name.startswith(prefix) and found.values.get(name) == width:
                yield name

    @property
    def in_tree(self) -> bool:
        return self.request.style == "in-tree"

    @property
    def both(self) -> bool:
        return self.request.way == "both"

    @cached_property
    def blocks(self) -> Placed | None:
        """Location of the blocks in a checkout; None without blocks, or in the integration's own package."""
        return Placed(self.request, self.prefix, self.base) if self.both and self.in_tree else None

    @cached_property
    def checkout(self) -> Checkout:
        return checkout_at(self.request.into)

    @cached_property
    def rules(self) -> Path | None:
        return self.checkout.rules if self.in_tree else None

    @cached_property
    def library(self) -> Library:
        return self.checkout.library if self.in_tree else find_library("diffusers")

    @cached_property
    def prefix(self) -> str:
        return "".join(part[:1].upper() + part[1:] for part in self.request.name.split("_"))

    @cached_property
    def port(self) -> Port:
        name = self.request.class_name or self._recorded_class
        package, pictures = "" if self.in_tree else "diffusers", self.pictures | self._recorded_pictures
        return port(self.reference, self.prefix, self.library, package, self.rules, name, pictures)

    @property
    def _recorded_pictures(self) -> frozenset[str]:
        """Arguments that the existing integration does not map to a prompt."""
        names = self._recorded.get(_NAMES, {}) if self.request.again else {}
        return frozenset(one for one in self.reference.forward if names and names.get(one) not in (TEXT, MASK))

    @property
    def _recorded_class(self) -> str:
        """The name of the class of an integration that is there already; empty without one."""
        file = self.request.into / self._model_file
        found = model_classes(file) if self.request.again and file.is_file() else []
        return found[0] if found else ""

    @cached_property
    def pipeline(self) -> PipelineFacts:
        facts = pipeline_facts(self.reference, self.port)
        axes = len(self._recorded.get(SHAPES, {}).get(facts.latents_argument, ()))
        return with_evidence(self.reference, facts.with_axes(axes) if axes else facts, self.port.forward.names)

    @cached_property
    def base(self) -> str:
        if not self.in_tree:
            return self.request.name
        base = f"{PACKAGE}/pipelines/{self.request.name}"
        own = self.checkout.root / base
        if own.is_dir() and not (own / ".omni-kit.toml").is_file():
            raise BadInput(f"this checkout has {base} already", "choose another name")
        return base

    @cached_property
    def lora(self) -> LoraMixin | None:
        """In a checkout alone: a package of its own cannot be distinguished in the library's tables."""
        by_prompts = self.in_tree and self.port.labels is None
        return lora_mixin(self.library, self.prefix, self.port.class_name) if by_prompts else None

    @cached_property
    def convert(self) -> str:
        return f"convert_{self.request.name}_transformer_checkpoint_to_diffusers"

    @cached_property
    def _toy_values(self) -> tuple[dict[str, Any], list[str]]:
        found = self.reference.published
        code = [one.node for one in self.reference.closure.definitions]
        kept = kept_as_tensors(self.reference)
        arguments = {name: one for name, one in self.reference.arguments.items() if name not in kept}
        conditions = dict.fromkeys(switched_on(self.reference), ANY_WIDTH)
        given = {**(found.values if found is not None else {}), **conditions}
        values, unknown = toy_of(arguments, given, code)
        apart = self.reference.namespace.apart.values() if self.reference.namespace is not None else ()
        switched = ((one.argument, values.get(one.field)) for one in apart)  # parts of a model agree
        values |= {name: value for name, value in switched if isinstance(value, bool) and name not in given}
        switches = self.port.labels.switches if self.port.labels is not None else {}
        values = {name: switches.get(name, one) for name, one in values.items()}
        process = self.pipeline.process
        learned = process is not None and process.learns_variance
        if learned and {_INPUT, _OUTPUT} <= values.keys() and arguments[_OUTPUT].required and _OUTPUT not in given:
            values[_OUTPUT] = 2 * values[_INPUT]  # the other half is the variance
        if self.found is not None and self.found.values:
            return dict(self.found.values), []
        if (packing := self.pipeline.packing) is not None and isinstance(
            width := values.get(self.pipeline.channels), int
        ):
            wider = -(-width // packing.side**2) * packing.side**2
            values |= {name: wider for name in (self.pipeline.channels, _OUTPUT) if values.get(name) == width}
        return {**values, **self._kept}, [name for name in unknown if name not in self._kept]

    @cached_property
    def _recorded(self) -> Mapping[str, Any]:
        """The toy of an integration of this class that is there already; empty otherwise."""
        file = self.request.into / self._toy_file
        said = read_mapping(file) if file.is_file() else {}
        return said if said.get(SIGNED) == self.given else {}

    @cached_property
    def _edits(self) -> Mapping[str, Any]:
        """Values that a person stated in the toy of an integration since it was written."""
        folder = self.request.into / self.base
        text = load_base(folder / BASE, load_answers(folder / ANSWERS)).get(self._toy_file)
        written = json.loads(text) if text is not None else self._recorded
        return {name: one for name, one in self._recorded.items() if name not in written or written[name] != one}

    @property
    def _merged(self) -> list[str]:
        """The files of an integration with edits that the new ones have, too."""
        edits = self._edits
        kept = bool(edits) and all(name in self.toy and self.toy[name] == one for name, one in edits.items())
        return [self._toy_file] if kept else []

    @property
    def _kept(self) -> dict[str, Any]:
        return {name: one for name, one in self._recorded.items() if name in self.reference.arguments}

    @cached_property
    def toy(self) -> dict[str, Any]:
        values, unknown = self._toy_values
        scheduler = {"_class_name": self.scheduler, **self._configured}
        null = self.port.labels.null_of(values) if self.port.labels is not None else None
        labelled = {NULL: null} if null is not None else {}
        names = self.port.forward.names
        more = {one.argument: one.negative for one in self.pipeline.conditions}
        conditions: dict[str, object] = {CONDITIONS: more} if more else {}
        if self.pipeline.process is not None and self.pipeline.process.every_step:
            conditions[COUNT] = EVERY
        conditions |= {PROMPT_AXIS: self._prompt_axis} if self._prompt_axis is not None else {}
        conditions |= {FRAME_AXIS: self.pipeline.lone} if self.pipeline.lone else {}
        stated = {STATED: self._recorded[STATED]} if STATED in self._recorded else {}
        left = {TODO_KEY: [f"set {name}: the constructor has no default" for name in unknown]} if unknown else {}
        shapes = self._shapes(values)
        conditions |= {LATENTS: self._latents(shapes)} if self.pipeline.packing is not None else {}
        conditions |= {MIXED: [self.pipeline.mixed.known, self.pipeline.mixed.mask]} if self.pipeline.mixed else {}
        conditions |= {JOINED: self._joined(shapes)} if self.pipeline.joined is not None else {}
        said = {SIGNED: self.given, _NAMES: names, "_scheduler": scheduler, **conditions, **labelled}
        return {**said, **stated, SHAPES: shapes, **self._example, **left, **values}

    @property
    def _example(self) -> dict[str, Any]:
        """The inputs and the answer of the model's own tests; those that were found, or are recorded."""
        if self.found is None:
            return {EXAMPLE: self._recorded[EXAMPLE]} if EXAMPLE in self._recorded else {}
        inputs, answer = dict(self.found.inputs), [*self.found.answer] if self.found.answers == 1 else []
        return {EXAMPLE: {"inputs": inputs, "answer": answer}} if inputs else {}

    def _latents(self, shapes: Mapping[str, list[int]]) -> list[int]:
        """Return the shape of the latents of which the pipeline makes tokens."""
        assert self.pipeline.packing is not None
        tokens = shapes[self.pipeline.latents_argument]
        return latents_shape(tokens, tokens[-1] // self.pipeline.packing.side**2)

    def _joined(self, shapes: Mapping[str, list[int]]) -> dict[str, object]:
        """Return what the pipeline joins with latents, with shapes that make the model's input."""
        joined, whole = self.pipeline.joined, shapes[self.pipeline.latents_argument]
        assert joined is not None
        answer = self.found.answer if self.found is not None else self._recorded.get(EXAMPLE, {}).get("answer", ())
        own = answer[joined.axis] if len(answer) == len(whole) else whole[joined.axis] // len(joined.parts)
        width = joined.width(whole[joined.axis], own)

        def wide(width: int) -> list[int]:
            return [width if axis == joined.axis else size for axis, size in enumerate(whole)]

        conditions = {name: wide(width) for name in joined.names}
        return {"axis": joined.axis, "parts": [*joined.parts], "latents": wide(own), "conditions": conditions}

    @property
    def _prompt_axis(self) -> int | None:
        """The axis that the pipeline adds to an embedded prompt; None if it adds none."""
        added = re.fullmatch(r"\.unsqueeze\((\d+)\)", self.pipeline.forms.get(TEXT, ""))
        return int(added[1]) if added is not None else None

    @property
    def _text_argument(self) -> str:
        return self.pipeline.condition or TEXT

    def _shapes(self, values: Mapping[str, Any]) -> dict[str, list[int]]:
        """Return the shapes of latents and of an embedded prompt, by the authors' names: those that were found.

        Where none were found: pictures of 8x8, or as large as an argument fixes; and a prompt as its arguments say.
        """
        facts = self.pipeline
        channels, side = values.get(facts.channels), values.get(facts.size, _SIDE)
        inner = [channels if isinstance(channels, int) else _CHANNELS]
        sides = [*side] if isinstance(side, list) else [side] * 2
        count = _TOKENS_AXES if facts.packing is not None else facts.axes
        axes = {3: [_TOKENS, *inner], 5: [*inner, _FRAMES, *sides], 4: [*inner, *sides]}.get(count, inner)
        planned = {facts.latents_argument: [1, *axes]}
        if facts.prompts:
            planned[self._text_argument] = [1, text_length(self.reference, values), text_width(self.reference, values)]
        recorded = self.found.shapes if self.found is not None else self._recorded.get(SHAPES, {})
        shapes = {name: [*recorded.get(name, one)] for name, one in planned.items()}
        if facts.lone and len(shapes[facts.latents_argument]) > facts.axes:
            del shapes[facts.latents_argument][facts.lone]
        if self._prompt_axis is not None and len(shapes.get(self._text_argument, ())) > len(_PROMPT):
            del shapes[self._text_argument][self._prompt_axis]
        return shapes

    @property
    def scheduler(self) -> str:
        """The class: one that is there, or one that is written."""
        return self.pipeline.stepping.name or f"{self.prefix}Scheduler"

    @property
    def _configured(self) -> dict[str, object]:
        stepping = self.pipeline.stepping
        if stepping.made is not None:
            return {ALONE: True}
        process = self.pipeline.process
        if process is not None and process.every_step:
            return {**process.small}
        return {**stepping.installed.config} if stepping.name != FIRST else {"shift": self.pipeline.shift}

    @property
    def _own_scheduler(self) -> bool:
        """Return whether the port gets a copy of a scheduler of ours."""
        copied = self.pipeline.stepping.copied
        return copied is not None and copied.name in OWN

    @property
    def _settled(self) -> Mapping[str, object]:
        """The arguments with which the scheduler is the authors', where they differ from its defaults."""
        process, made = self.pipeline.process, self._configured
        whole = process.config if process is not None and process.every_step else made
        return {name: value for name, value in whole.items() if name != ALONE and (name, value) != ("shift", 1.0)}

    @cached_property
    def context(self) -> dict[str, object]:
        name, in_tree, joined = self.request.name, self.in_tree, self.toy.get(JOINED, {})
        return {
            **vars(self.pipeline), "todo": self.pipeline.left, "pictures": self.pipeline.pictures,
            "film": self.pipeline.film, "name": name,
            "made": self.pipeline.made, "field": _FIELDS.get(self.pipeline.made, f"{self.pipeline.made}s"),
            "several": "waveforms" if self.pipeline.made == "audio" else f"{self.pipeline.made}s",
            "within": self.pipeline.within, "prompts": self.pipeline.prompts,
            "embeds": "image_embeds" if self.pipeline.imaged else "prompt_embeds",
            "prefix": self.prefix, "model": self.port.class_name,
            "pipeline": f"{self.prefix}Pipeline", "output": f"{self.prefix}PipelineOutput", "convert": self.convert,
            "lib": "..." if in_tree else "diffusers.", "in_tree": in_tree, "mark": MARK,
            "package": "diffusers" if in_tree else name, "authors": self.reference.class_name, "given": self.given,
            "toy": {key: value for key, value in self.toy.items() if not key.startswith("_")},
            "conversion_module": "diffusers.loaders.single_file_utils" if in_tree else f"{name}.conversion",
            "model_module": f"...models.transformers.transformer_{name}" if in_tree else f".transformer_{name}",
            "latents_shape": tuple(joined.get("latents") or self.toy.get(LATENTS)
                                   or self.toy[SHAPES][self.pipeline.latents_argument]),
            "joined_shapes": joined.get("conditions"), "zip": zip,
            "text_shape": tuple(self.toy[SHAPES].get(self._text_argument, ())), "text_argument": self._text_argument,
            "raises": self.pipeline.raises, "placeholder": self.pipeline.placeholder,
            "attends": bool(self.port.attention.processors) and "AttentionModuleMixin" in self.port.text,
            "testers": tuple(self.testers) if in_tree else (), "both": self.both,
            "lora": self.lora.name if self.lora is not None else "",
            "scheduler": self.scheduler, "scheduling": self.pipeline.stepping.made, "counted": self.scheduler != FIRST,
            "installed": self.pipeline.stepping.installed, **self._stepped,
            "settings": "" if self._own_scheduler else _as_written(self._settled), "theirs": not self._own_scheduler,
            "copied": self.pipeline.stepping.copied is not None, "key": next(iter(returned(self.reference).keys), ""),
            "scheduler_module": "...schedulers" if in_tree else f".scheduling_{name}",
            "configured": _as_written({key: one for key, one in self._configured.items() if key != ALONE}),
            "lora_targets": ["to_q", "to_k", "to_v"] if "to_q" in self.port.text else "'all-linear'",
            "takes_generator": self._takes_generator, "notice": self._notice, **self._by_class, **self._called,
        }  # fmt: skip

    @property
    def _called(self) -> dict[str, object]:
        """Variables of the tests that call the model."""
        example = self.toy.get(EXAMPLE, {"inputs": {}, "answer": []})
        device = "torch_device" if self.in_tree else ""
        inputs = expressions(example["inputs"], self.port.forward.names, device)
        checkpointed = bool(self.port.forward.blocks)
        return {"inputs": inputs, "answer_shape": tuple(example["answer"]), "checkpointed": checkpointed}

    @property
    def _notice(self) -> str:
        """The notice above the statements of the authors' loop."""
        sampling = self.pipeline.sampling
        return header_of(sampling.source) if sampling is not None else ""

    @property
    def _by_class(self) -> dict[str, object]:
        """Extra variables for the pipeline of a model with class labels."""
        facts = self.pipeline.by_class
        if facts is None:
            return {"labels": None, "video": False, "draws": self._draws}
        variance = str(self._configured.get("variance_type", "")).startswith("learned")
        return facts.context(self.toy, self._draws, variance)

    @property
    def _takes_generator(self) -> bool:
        """Return whether a pipeline draws anything: its first noise, or noise of its steps."""
        made, sized = self.pipeline.stepping.made, self.pipeline.pictures or self.pipeline.film
        return sized or self._draws or (made is not None and bool(made.random or made.scaled.get("left")))

    @property
    def _draws(self) -> bool:
        """Return whether a scheduler of diffusers, or a copied one, draws noise in its steps, with a generator."""
        if self.pipeline.placeholder:
            return False
        copied, cls = self.pipeline.stepping.copied, find_class(self.library, self.pipeline.stepping.name)
        node = copied.node if copied is not None else cls.node if cls is not None else None
        inherited = cls.method("step") if cls is not None and copied is None else None
        own = methods_of(node).get("step") if isinstance(node, ast.ClassDef) else None
        step = inherited[1] if inherited is not None else own
        if node is None or step is None:
            return False
        named = {one.arg for one in (*step.args.args, *step.args.kwonlyargs)}
        return "generator" in named and "randn_tensor(" in ast.unparse(node)

    @property
    def _pipeline_templates(self) -> tuple[str, str]:
        """Of the pipeline, and of its test."""
        own = ("pipeline_class.py.jinja", "test_pipeline_class.py.jinja")
        return own if self.pipeline.by_class is not None else ("pipeline.py.jinja", "test_pipeline.py.jinja")

    @property
    def _stepped(self) -> dict[str, object]:
        """Return whether a scheduler that is there is given levels; and whether one scales what the model receives."""
        made, installed = self.pipeline.stepping.made, self.pipeline.stepping.installed
        told = self.pipeline.stepping.copied is not None and self.pipeline.sigmas is not None
        by_levels = made is None and (told or not installed.counted) and not self.pipeline.placeholder
        more = "".join(f", {name}={value!r}" for name, value in self.pipeline.stepping.told.items())
        scales = made.scales if made is not None else installed.scales
        return {"by_levels": by_levels, "scales": scales, "told": more}

    @property
    def _page(self) -> str:
        return page_of(self.request.name, self.port.class_name, self.prefix)

    @property
    def testers(self) -> Iterator[str]:
        """The classes of the checkout's own tests that the model's tests are made of."""
        wanted = {
            "ModelTesterMixin": True, "MemoryTesterMixin": True, "TrainingTesterMixin": bool(self.port.forward.blocks),
            "AttentionTesterMixin": bool(self.port.attention.processors), "LoraTesterMixin": "to_q" in self.port.text,
        }  # fmt: skip
        yield from (name for name, fits in wanted.items() if fits and name in self.checkout.testers)

    @property
    def _model_test(self) -> str:
        """By the checkout's own testers; a test that needs none, where its tests are not there."""
        return "test_mixins.py.jinja" if any(self.testers) else "test_model.py.jinja"

    def _places(self) -> dict[str, str]:
        """Template -> the file that it becomes."""
        name, base = self.request.name, self.base
        if self.in_tree:
            lora = {"test_lora.py.jinja": f"tests/lora/test_lora_layers_{name}.py"} if self.lora is not None else {}
            own = {
                "scheduler.py.jinja": f"{PACKAGE}/schedulers/scheduling_{name}.py",
                "test_scheduler.py.jinja": f"tests/schedulers/test_scheduler_{name}.py",
                "scheduler_page.md.jinja": f"docs/source/en/api/schedulers/{name}.md",
            }
            return {
                **lora,
                **(own if self.pipeline.stepping.made is not None else {}),
                "pipeline_init.py.jinja": f"{base}/__init__.py",
                self._pipeline_templates[0]: f"{base}/pipeline_{name}.py",
                "pipeline_output.py.jinja": f"{base}/pipeline_output.py",
                "convert.py.jinja": f"scripts/convert_{name}_to_diffusers.py",
                self._model_test: f"tests/models/transformers/test_models_transformer_{name}.py",
                self._pipeline_templates[1]: f"tests/pipelines/{name}/test_{name}.py",
                "model_page.md.jinja": f"docs/source/en/api/models/{self._page}.md",
                "pipeline_page.md.jinja": f"docs/source/en/api/pipelines/{name}.md",
            }
        own = {
            "scheduler.py.jinja": f"{base}/scheduling_{name}.py",
            "test_scheduler.py.jinja": f"{base}/tests/test_scheduler_{name}.py",
            "scheduler_page.md.jinja": f"{base}/docs/{name}_scheduler.md",
        }
        return {
            **(own if self.pipeline.stepping.made is not None else {}),
            "__init__.py.jinja": f"{base}/__init__.py",
            self._pipeline_templates[0]: f"{base}/pipeline_{name}.py",
            "pipeline_output.py.jinja": f"{base}/pipeline_output.py",
            "convert.py.jinja": f"{base}/convert_{name}_to_diffusers.py",
            "conftest.py.jinja": f"{base}/tests/conftest.py",
            "test_model.py.jinja": f"{base}/tests/test_models_transformer_{name}.py",
            self._pipeline_templates[1]: f"{base}/tests/test_{name}.py",
            "model_page.md.jinja": f"{base}/docs/{self._page}.md",
            "pipeline_page.md.jinja": f"{base}/docs/{name}.md",
            "README.md.jinja": f"{base}/README.md",
        }

    @property
    def _model_file(self) -> str:
        folder = f"{PACKAGE}/models/transformers" if self.in_tree else self.base
        return f"{folder}/transformer_{self.request.name}.py"

    @property
    def _toy_file(self) -> str:
        return f"{self.base}/{toy_name(self.in_tree)}"

    def files(self) -> Iterator[NewFile]:
        yield NewFile(self._model_file, text=self.port.text)
        if not self.in_tree:
            text = f"import re\n\n\n{self._conversion}"
            yield NewFile(
                f"{self.base}/conversion.py",
                text=f'"""The weights of {self.authors} as diffusers has them."""\n\n{text}',
            )
        yield NewFile(self._toy_file, text=json.dumps(self.toy, indent=2) + "\n")
        if (sampling := self.pipeline.sampling) is not None and sampling.roles:
            place = f"{self.base}/{sampler_name(self.in_tree)}"
            labels = self.pipeline.by_class.labels if self.pipeline.by_class is not None else None
            lines = labels.one_hot_lines if labels is not None else ()
            if sampling.script:
                yield NewFile(place, text=with_first(sampling.script, lines))
            else:
                imported, call = sampling.called(self.pipeline.condition)
                context = {"module": sampling.module, "imported": imported, "call": call, "one_hot": lines}
                yield NewFile(place, "authors_sampling.py.jinja", context=context)
        elif self.pipeline.process is not None:
            place = f"{self.base}/{sampler_name(self.in_tree)}"
            yield NewFile(place, "authors_process.py.jinja", context=self.context)
        if (copied := self.pipeline.stepping.copied) is not None:
            settled = self._settled if self._own_scheduler else {}
            if (scheduling := copied_scheduler(copied, self.scheduler, settled)) is None:
                raise Refusal(
                    f"{copied.name} cannot be copied", "name another loop behind the class: PATH::Class::FUNCTION"
                )
            text = header_of(copied.source) + scheduling
            yield NewFile(f"{self.base}/scheduling_{self.request.name}.py", text=text)
        for template, place in self._places().items():
            if self.pipeline.raises and template in _DRAWING:
                continue  # the pipeline raises where its steps are to be written
            yield NewFile(place, template, context=self.context)
        if self.in_tree:
            yield NewFile(f"tests/pipelines/{self.request.name}/__init__.py")

    def modular(self, texts: Mapping[str, str]) -> list[NewFile]:
        """Return the blocks of the pipeline, made of its text."""
        name, pipeline = self.request.name, f"{self.prefix}Pipeline"
        if self.blocks is not None:
            made = blocks_in_tree(self.library, self.request, pipeline, self.blocks.base, texts)
        else:
            made = blocks_of(self.library, self.request, pipeline, texts)
        tests = f"tests/pipelines/{name}" if self.in_tree else f"{self.base}/tests"
        test, context = f"{tests}/test_modular_{name}.py", {**self.context, "folder": FOLDER}
        return [*made, NewFile(test, "transformer/test_modular.py.jinja", context=context)]

    @property
    def authors(self) -> str:
        return self.reference.class_name

    @cached_property
    def _conversion(self) -> str:
        return conversion_of(self.convert, self.port.rows, self.rules)

    def edits(self) -> Iterator[Edit]:
        if self.in_tree:
            entered = Entered(
                self.request.name, self.port.class_name, f"{self.prefix}Pipeline", self.convert, self._conversion,
                self.checkout.has_pages,
            )  # fmt: skip
            yield from entries(entered)
            if self.pipeline.stepping.made is not None:
                yield from scheduler_entries(entered, self.scheduler)
            if self.lora is not None:
                yield from self.lora.edits()
            if self.blocks is not None:
                yield from self.blocks.edits()
                yield from found_by_name(entered)

    def decisions(self) -> Iterator[Decision]:
        found, where = self.port, self.reference.where
        yield Decision("model", found.class_name, f"{self.authors}, with its dependencies, in one file", where)
        yield self._license()
        if self.reference.settings is not None:
            made = self.reference.settings.cls
            reason = f"what {made.node.name} holds is registered, argument by argument"
            yield Decision("config", "plain arguments", reason, made.source.where(made.node))
        if self.reference.namespace is not None:
            read = ", ".join(self.reference.namespace.arguments)
            reason = f"what the constructor reads of {read} is registered, one by one"
            yield Decision("config", "plain arguments", reason, where)
        if (config := self.reference.published) is not None:
            reason = f"its values for {', '.join(config.values)} are what the toy is made from"
            yield Decision("published config", config.where, reason, config.where)
        if self.found is not None:
            yield self._toy_decision(self.found)
        if self.reference.forwards:
            reason = "the authors' forward passes all arguments on to it by default; its other branches are left out"
            yield Decision("forward", self.reference.forwards, reason, where)
        for old, new in found.forward.names.items():
            if old != new:
                yield Decision(f"forward: {old}", new, "diffusers' name for it", self.reference.forward[old].where)
        for name, one in found.attention.projections.items():
            layers = [f"{one.fused} is split" if one.fused else "", *(f"{a}: {b}" for a, b in one.renamed.items())]
            said = ", ".join(filter(None, layers)) or "layer names are kept"
            yield Decision("attention", name, f"a processor computes it through the dispatch; {said}", where)
        blocks = ", ".join(dict.fromkeys(found.forward.blocks.values())) or "none"
        yield Decision("blocks", blocks, "blocks that support checkpointing and are not split over devices", where)
        found_by = f"trial runs find the token axis and produce the plan: {self._sharing}"
        yield Decision("context parallelism", "left to a run", found_by, where)
        for package, place in foreign(self.reference).items():
            if package in importable():
                continue
            yield Decision(package, *_kept(package, found.text), place)
        yield self.pipeline.decision()

    def _license(self) -> Decision:
        source = self.reference.cls.source
        found, stated, kept = license_of(source), notice_of(source), "the notices of copied files are kept"
        if is_non_commercial(stated) or (found is not None and is_non_commercial(found.title)):
            kept = f"it forbids commercial use: ask the authors before you give the port to others; {kept}"
        if names_license(stated) or (stated and found is None):
            return Decision("license", "as the file of the class states", kept, self.reference.where)
        if found is not None:
            return Decision("license", found.title, kept, found.where)
        return Decision("license", "none found", "ask the authors before you publish the port", self.reference.where)

    def _toy_decision(self, found: FoundToy) -> Decision:
        where = self.reference.where
        if found.why:
            return Decision("toy", "not confirmed by running", found.why, where)
        changed = [f"{name}={one}" for name, one in found.values.items() if self.planned.get(name, one) != one]
        said = f"the authors' class takes it and inputs for it{'; found: ' if changed else ''}{', '.join(changed)}"
        return Decision("toy", "confirmed by running", said, where)

    def todo(self) -> Iterator[Todo]:
        if self.in_tree and not self.checkout.has_pages:
            yield Todo("docs/source/en/_toctree.yml", 1, "list both pages: this checkout has no table of contents")
        yield from self.blocks.todo() if self.blocks is not None else ()

    @property
    def _sharing(self) -> str:
        place = self.request.into / PurePosixPath(self.base)
        return shlex.join(["omni-kit", "check", str(place), "--level", "toy", "--select", "DFU704", "--fix"])

    def next(self) -> tuple[str, ...]:
        place = self.request.into / PurePosixPath(self.base)
        commands = [["check", str(place)], ["parity", str(place)]]
        if self.blocks is not None:
            commands.insert(1, ["check", str(self.request.into / PurePosixPath(self.blocks.base))])
        if self.pipeline.proven:
            commands.append(["parity", str(place / f"pipeline_{self.request.name}.py")])
        commands.append(["verify", str(place)])
        own = [] if self.in_tree else [shlex.join(["python", "-m", "pytest", str(place / "tests")])]
        return (*(shlex.join(["omni-kit", *command]) for command in commands), *own)


def _unjoined(facts: PipelineFacts, found: FoundToy) -> str:
    """Return why the small model cannot receive latents with what the authors join with them; empty if it can."""
    whole, answer = found.shapes.get(facts.latents_argument, ()), found.answer
    if facts.joined is None or not (whole and answer):
        return ""
    axis, names = facts.joined.axis, ", ".join(facts.joined.names)
    rest = [one for at, one in enumerate(whole) if at != axis] == [one for at, one in enumerate(answer) if at != axis]
    if len(whole) == len(answer) and rest and facts.joined.width(whole[axis], answer[axis]):
        return ""
    return f"they join latents with {names}, for which the input of the small model has no place"


def _kept(package: str, text: str) -> tuple[str, str]:
    """Return whether the model's file imports a package, and the reason."""
    imports = re.findall(rf"^( *)(?:import|from) {re.escape(package)}\b", text, re.MULTILINE)
    if "" in imports:
        return "kept for now", "a to-do for its import"
    if imports:
        return (
            "kept where it is optional",
            "the file loads without it: an `if`, a `try` or a function imports it",
        )
    return "written out", "diffusers models depend only on torch"


def _as_written(arguments: Mapping[str, object]) -> str:
    """Return arguments as a call has them."""
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())
