"""The files of a pipeline in SGLang-diffusion, derived from the class of diffusers."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

from omni_kit.errors import BadInput
from omni_kit.targets.protocol import Decision, IntegrationPlan, NewFile, Request, Todo
from omni_kit.targets.sglang_diffusion.checkout import FOLDERS, checkout_at, pipeline_names
from omni_kit.targets.sglang_diffusion.context import PipelineFacts, pipeline_context, pipeline_facts
from omni_kit.targets.sglang_diffusion.reuse import SAME_SCHEDULERS
from omni_kit.upstream.diffusers.guidance import Formula
from omni_kit.upstream.diffusers.traits import attention_kernels
from omni_kit.upstream.hub import SCHEME
from omni_kit.upstream.subject import Subject

_PARTS = ("pipeline", "pipeline_config", "sampling_params", "dit_config", "vae_config", "dit")
_STAGE_PARTS = ("before_denoising", "recording", "loaders")


def make_plan(subject: Subject, request: Request) -> IntegrationPlan:
    """The whole plan of one integration.

    Raises:
        BadInput: what was given is no pipeline, or one that cannot be served so; or `into` is no checkout of a known
            version, or one with a pipeline of that name.
    """
    facts = pipeline_facts(subject)
    facts.refuse_what_cannot_be_served()
    planner = _Planner(facts, request)
    return IntegrationPlan(
        base=planner.base,
        files=tuple(planner.files()),
        decisions=tuple(planner.decisions()),
        todo=tuple(planner.todo()),
        next=planner.next(),
    )


@dataclass(frozen=True)
class _Planner:
    """What the parts of a plan are derived from."""

    facts: PipelineFacts
    request: Request

    @property
    def in_tree(self) -> bool:
        return self.request.style == "in-tree"

    @cached_property
    def _inner(self) -> str:
        """SGLang's package of diffusion, relative to the checkout's root."""
        checkout = checkout_at(self.request.into)
        known = pipeline_names(checkout)
        if (name := self.facts.class_name) in known and known[name].stem != self.request.name:
            raise BadInput(
                f"this checkout has a pipeline_name '{name}' already, in {known[name].name}",
                "use --style plugin for a package that takes its place",
            )
        return checkout.inner

    @cached_property
    def base(self) -> str:
        return f"{self._inner}/{FOLDERS['stages']}/{self.request.name}" if self.in_tree else self.request.name

    def _place(self, part: str) -> str:
        """The file of a part, relative to where is written."""
        if not self.in_tree or part in _STAGE_PARTS:
            return f"{self.base}/{part}.py"
        return f"{self._inner}/{FOLDERS[part]}/{self.request.name}.py"

    @cached_property
    def _modules(self) -> dict[str, str]:
        """How each part is imported."""
        return {part: _imported(self._place(part)) for part in (*_PARTS, *_STAGE_PARTS)}

    @cached_property
    def context(self) -> dict[str, object]:
        name = self.request.name
        prefix = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
        found = pipeline_context(self.facts)
        known = found.pop("known_vae")
        given = self.facts.subject.given
        return {
            **found, "name": name, "class_name": prefix, "dit": f"{prefix}DiT", "in_tree": self.in_tree,
            "modules": self._modules,
            "vae_module": known.module if known is not None else self._modules["vae_config"],
            "vae_config": known.name if known is not None else f"{prefix}VAEConfig",
            "hf_model_paths": [given.removeprefix(SCHEME)] if given.startswith(SCHEME) else [],
        }  # fmt: skip

    def files(self) -> Iterator[NewFile]:
        context = self.context
        parts = [part for part in _PARTS if part != "vae_config" or not context["vae_reused"]]
        for part in (*parts, *_STAGE_PARTS):
            yield NewFile(self._place(part), f"{part}.py.jinja", context=context)
        init = "stage_init" if self.in_tree else "__init__"
        yield NewFile(f"{self.base}/__init__.py", f"{init}.py.jinja", context=context)
        if not self.in_tree:
            yield NewFile(f"{self.base}/README.md", "README.md.jinja", context=context)

    def decisions(self) -> Iterator[Decision]:
        facts, context = self.facts, self.context
        guidance, scale, decoding = facts.guidance, facts.denoising.scale, facts.decoding
        calls = facts.pipeline.cls.source.where(facts.pipeline.cls.node)
        yield Decision("way", "hybrid", "its own code runs up to its denoiser; SGLang denoises and decodes", calls)
        yield Decision(
            "step", str(context["step_text"]) or "unread", "what its denoiser is told", facts.denoising.where
        )
        yield Decision("guidance", guidance.formula.value, f"by {guidance.scale or 'no scale'}", guidance.where)
        yield Decision("latents", scale.convention or "as they are", "scaled back before they are decoded", scale.where)
        if decoding.unpack:
            yield Decision("tokens", decoding.unpack, "turned into a grid after the last step", decoding.where)
        vae = facts.autoencoder
        reason = (
            "SGLang has this class" if context["vae_reused"] else "SGLang has no such class: diffusers' own decodes"
        )
        yield Decision("autoencoder", str(context["vae_config"]), reason, vae.evidence)
        scheduler = facts.scheduler
        same = scheduler.class_name in SAME_SCHEDULERS
        why = "its steps are those of diffusers" if same else "SGLang's of that name, if it has one, takes other steps"
        yield Decision("scheduler", "SGLang's" if same else "diffusers'", why, scheduler.evidence)
        kernels = attention_kernels(facts.model)
        choice = "SGLang's backends" if context["kernels"] else "upstream's"
        yield Decision("attention", choice, f"its processors end in {', '.join(kernels) or 'code of their own'}",
                       next(iter(kernels.values()), ""))  # fmt: skip
        if facts.video is False and "use_resolution_binning" in [one.name for one in context["asked"]]:  # type: ignore[attr-defined]
            yield Decision("sizes", "as asked for", "its resolution binning is switched off", calls)

    def todo(self) -> Iterator[Todo]:
        facts = self.facts
        dit, config = self._place("dit"), self._place("pipeline_config")
        if "0" in (self.context["hidden_size"], self.context["heads"]):
            yield Todo(self._place("dit_config"), 1, "give hidden_size and num_attention_heads: no argument says them")
        if facts.denoising.unit is None:
            yield Todo(dit, 1, f"write _step: how {facts.class_name} tells its denoiser a step could not be read")
        for name in facts.handing.changing:
            yield Todo(dit, 1, f"compute {name} in forward: {facts.class_name} computes it anew for each step")
        if facts.guidance.formula is Formula.unread:
            yield Todo(config, 1, f"say how two answers become one: not read in {facts.guidance.where}")
        if facts.denoising.scale.convention == "batch-norm statistics":
            yield Todo(
                config, 1, "write get_decode_scale_and_shift: latents are scaled by statistics of the autoencoder"
            )
        if facts.decoding.unpack and not facts.decoding.static:
            yield Todo(config, 1, f"write post_denoising_loop: {facts.decoding.unpack} needs its pipeline")
        if asked := [text for text in facts.decoding.asked if facts.needed_to_decode(text)]:
            yield Todo(config, 1, f"the autoencoder is also asked with {asked[0]} ({facts.decoding.where})")

    def next(self) -> tuple[str, ...]:
        place = self.request.into / PurePosixPath(self.base)
        return (shlex.join(["omni-kit", "check", str(place)]),)


def _imported(place: str) -> str:
    """The dotted name of a file: from `sglang` on where that is its package."""
    parts = PurePosixPath(place).with_suffix("").parts
    return ".".join(parts[parts.index("sglang") :] if "sglang" in parts else parts)
