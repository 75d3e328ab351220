"""The files of a pipeline in SGLang-diffusion, derived from the class of diffusers."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path, PurePosixPath

from omni_kit.errors import BadInput
from omni_kit.targets.protocol import Decision, IntegrationPlan, NewFile, Request
from omni_kit.targets.sglang_diffusion.built_in import Own, own
from omni_kit.targets.sglang_diffusion.checkout import FOLDERS, checkout_at, pipeline_places
from omni_kit.targets.sglang_diffusion.context import pipeline_context
from omni_kit.targets.sglang_diffusion.distilled import distillation
from omni_kit.targets.sglang_diffusion.facts import PipelineFacts, pipeline_facts
from omni_kit.targets.sglang_diffusion.modules import compose, modular_context
from omni_kit.targets.sglang_diffusion.parts import image_context, native_context
from omni_kit.targets.sglang_diffusion.pipeline_dir import OUTSIDE
from omni_kit.targets.sglang_diffusion.unserved_arguments import decisions as unserved_decisions
from omni_kit.targets.sglang_diffusion.variants import DOES, IntegrationVariant, against_stages, choose_way
from omni_kit.upstream.diffusers.local_pipelines import file_outside
from omni_kit.upstream.diffusers.traits import attention_kernels
from omni_kit.upstream.hub import SCHEME
from omni_kit.upstream.subject import Subject

_PARTS = ("pipeline", "pipeline_config", "sampling_params", "dit_config", "vae_config", "dit")
_STAGE_PARTS = {
    IntegrationVariant.hybrid: ("before_denoising", "recording", "loaders"),
    IntegrationVariant.modular: ("prompts", "loaders"),
    IntegrationVariant.native: ("steps", "stages", "loaders"),
    IntegrationVariant.whole: ("generation", "loaders"),
}
_OF_WAY = (
    "pipeline",
    "before_denoising",
    "recording",
    "prompts",
    "steps",
    "stages",
    "generation",
)  # with a template for each way


def make_plan(subject: Subject, request: Request) -> IntegrationPlan:
    """Return the whole plan of one integration.

    Raises:
        BadInput: the source is not a pipeline, or one that cannot be served so; or `into` is not a checkout of a known
            version, or one with a pipeline of that name.
    """
    facts = pipeline_facts(subject)
    facts.refuse_what_cannot_be_served()
    planner = _Planner(facts, request, choose_way(facts, request.way))
    return IntegrationPlan(
        base=planner.base,
        files=tuple(planner.files()),
        decisions=tuple(planner.decisions()),
        next=planner.next(),
        replaces=planner.replaces,
    )


@dataclass(frozen=True)
class _Planner:
    """Inputs of the parts of a plan."""

    facts: PipelineFacts
    request: Request
    way: IntegrationVariant

    @property
    def _stage_parts(self) -> tuple[str, ...]:
        return _STAGE_PARTS[self.way]

    @property
    def in_tree(self) -> bool:
        return self.request.style == "in-tree"

    @cached_property
    def own(self) -> Own:
        """Classes that SGLang has itself."""
        return own(self.request.into if self.in_tree else None)

    @property
    def replaces(self) -> str:
        """SGLang's own pipeline of that name, with its place; empty if it has none."""
        place = "" if self.in_tree else self.own.pipelines.get(self.facts.class_name, "")
        return f"{self.own.called} has {self.facts.class_name} itself ({place})" if place else ""

    @cached_property
    def _inner(self) -> str:
        """SGLang's package of diffusion, relative to the checkout's root."""
        checkout = checkout_at(self.request.into)
        known = pipeline_places(checkout)
        if (name := self.facts.class_name) in known and known[name][0].stem != self.request.name:
            raise BadInput(
                f"this checkout has a pipeline_name '{name}' already, in {known[name][0].name}",
                "use --style plugin for a package that replaces it",
            )
        return checkout.inner

    @cached_property
    def base(self) -> str:
        return f"{self._inner}/{FOLDERS['stages']}/{self.request.name}" if self.in_tree else self.request.name

    def _place(self, part: str) -> str:
        """Return the file of a part, relative to where is written."""
        if not self.in_tree or part in (*self._stage_parts, OUTSIDE):
            return f"{self.base}/{part}.py"
        return f"{self._inner}/{FOLDERS[part]}/{self.request.name}.py"

    @cached_property
    def _modules(self) -> dict[str, str]:
        """Import path of each part."""
        return {part: _imported(self._place(part)) for part in (*_PARTS, *self._stage_parts, OUTSIDE)}

    @cached_property
    def context(self) -> dict[str, object]:
        name = self.request.name
        prefix = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
        more = modular_context(self.facts) if self.way is IntegrationVariant.modular else {}
        more |= native_context(self.facts) if self.way is IntegrationVariant.native else {}
        more |= image_context(self.facts) if self.way is IntegrationVariant.whole else {}
        own_vae = more.setdefault("own_vae", self.way is IntegrationVariant.whole)
        found = pipeline_context(self.facts, self.own, reuses=not own_vae)
        known = found.pop("known_vae")
        if self.way is IntegrationVariant.native and self.facts.tells_schedulers_apart:
            found["same_schedulers"] = ()
        given = self.facts.subject.given
        if "step_imports" in more and self._outside is not None:
            stem, place = self._outside.stem, self._modules[OUTSIDE]
            more["step_imports"] = [line.replace(f"from {stem} ", f"from {place} ", 1) for line in more["step_imports"]]
        return {
            "imports": self._imports, "outside": f"{OUTSIDE}.py" if self._outside is not None else "",
            **found, "name": name, "class_name": prefix, "dit": self._dit(prefix), "in_tree": self.in_tree,
            "modules": self._modules, "way": self.way.value, "does": DOES[self.way],
            "unfit": against_stages(self.facts),
            "guides": self.way in (IntegrationVariant.hybrid, IntegrationVariant.modular),
            "decodes": self.way is not IntegrationVariant.whole and more.get("end_fits", True),
            "as_upstream": self.way in (IntegrationVariant.native, IntegrationVariant.whole),
            "vae_module": known.module if known is not None else self._modules["vae_config"],
            "vae_config": known.name if known is not None else f"{prefix}VAEConfig",
            **_caches(self.way), **more,
            "hf_model_paths": [given.removeprefix(SCHEME)] if given.startswith(SCHEME) else [],
        }  # fmt: skip

    def _dit(self, prefix: str) -> str:
        """Return the denoiser's class: cache-dit finds its adapter by how a class's name begins."""
        family = self.facts.class_name.removesuffix("Pipeline")
        return f"{prefix}DiT" if prefix.startswith(family) else f"{family}{prefix}DiT"

    @cached_property
    def _outside(self) -> Path | None:
        """The file of a pipeline outside diffusers; None for one of diffusers."""
        return file_outside(self.facts.pipeline)

    def _imports(self, *names: str) -> str:
        """Return the lines that import classes of diffusers, and the pipeline from where it is."""
        apart = self.facts.class_name if self._outside is not None else ""
        listed = ", ".join(name for name in names if name and name != apart)
        lines = [f"from diffusers import {listed}"] if listed else []
        return "\n".join([*lines, *([f"from {self._modules[OUTSIDE]} import {apart}"] if apart else [])])

    def files(self) -> Iterator[NewFile]:
        context = self.context
        if self._outside is not None:
            yield NewFile(self._place(OUTSIDE), text=self.facts.pipeline.cls.source.text)
        parts = [part for part in _PARTS if part != "vae_config" or not context["vae_reused"]]
        for part in (*parts, *self._stage_parts):
            folder = f"{self.way}/" if part in _OF_WAY else ""
            yield NewFile(self._place(part), f"{folder}{part}.py.jinja", context=context)
        init = "stage_init" if self.in_tree else "__init__"
        yield NewFile(f"{self.base}/__init__.py", f"{init}.py.jinja", context=context)
        if not self.in_tree:
            yield NewFile(f"{self.base}/README.md", "README.md.jinja", context=context)

    def decisions(self) -> Iterator[Decision]:
        facts, context = self.facts, self.context
        guidance, scale, decoding = facts.guidance, facts.denoising.scale, facts.decoding
        calls = facts.pipeline.cls.source.where(facts.pipeline.cls.node)
        yield Decision("way", self.way, DOES[self.way], calls)
        yield from self.own.decisions(facts.subject)
        yield from self._fitting()
        yield from (Decision("SGLang's stages", "do less", one, _place_in(one)) for one in against_stages(facts))
        yield Decision("step", str(context["step_text"]) or "unread", "the denoiser's timestep", facts.denoising.where)
        yield Decision("guidance", guidance.formula.value, f"by {guidance.scale or 'no scale'}", guidance.where)
        yield from distillation(facts)
        yield Decision("latents", scale.convention or "as they are", "unscaled before decoding", scale.where)
        if decoding.unpack:
            yield Decision("tokens", decoding.unpack, "unpacked to a grid after the last step", decoding.where)
        vae = facts.autoencoder
        yield Decision("autoencoder", str(context["vae_config"]), str(context["vae_statement"]), vae.evidence)
        scheduler = facts.scheduler
        same = scheduler.class_name in context["same_schedulers"]  # type: ignore[operator]
        why = "its steps equal diffusers'" if same else "diffusers' own class steps"
        yield Decision("scheduler", "SGLang's" if same else "diffusers'", why, scheduler.evidence)
        kernels = attention_kernels(facts.model)
        choice = "SGLang's backends" if context["kernels"] else "upstream's"
        yield Decision("attention", choice, f"its processors end in {', '.join(kernels) or 'code of their own'}",
                       next(iter(kernels.values()), ""))  # fmt: skip
        yield self._devices(calls)
        refused = f"requests for {', '.join(context['no_caches'])} raise: {context['no_caches_because']}"  # type: ignore[arg-type]
        caches = "none" if self.way is IntegrationVariant.whole else "cache-dit, guidance gate"
        yield Decision("caches", caches, refused, calls)
        yield from unserved_decisions(context["unserved"])  # type: ignore[arg-type]
        if facts.video is False and "use_resolution_binning" in [one.name for one in context["asked"]]:  # type: ignore[attr-defined]
            yield Decision("sizes", "as asked for", "its resolution binning is switched off", calls)

    def _devices(self, calls: str) -> Decision:
        """Return the decision on how several devices share the work."""
        shared = bool(self.context["shared"])
        guidance = ["guidance on two"] if self.way is IntegrationVariant.native and self.facts.guidance.scale else []
        choice = ", ".join(["tokens" if shared else "one", *guidance])
        reason = "tokens are sharded by diffusers' plan" if shared else "diffusers has no sharding plan for it"
        return Decision("devices", choice, reason, str(self.context["plan_where"]) or calls)

    def _fitting(self) -> Iterator[Decision]:
        """Yield which of SGLang's stages before denoising could do the pipeline's work."""
        odd = compose(self.facts).against
        yield from (Decision("modular", "does not fit", one, _place_in(one)) for one in odd[:1])
        if not odd and not against_stages(self.facts):
            yield Decision("modular", "fits, too", DOES[IntegrationVariant.modular], self.facts.denoising.where)

    def next(self) -> tuple[str, ...]:
        place = self.request.into / PurePosixPath(self.base)
        return (shlex.join(["omni-kit", "check", str(place)]),)


def _caches(way: IntegrationVariant) -> dict[str, object]:
    """Return the caches of requests that this way does not reach, and why."""
    models = ("enable_teacache", "enable_spectrum")
    if way is IntegrationVariant.whole:
        why = "SGLang's caches hook into DenoisingStage, which does not run this pipeline"
        return {"no_caches": ("enable_cache_dit", *models), "no_caches_because": why}
    return {"no_caches": models, "no_caches_because": "SGLang has coefficients for its own models only"}


def _place_in(text: str) -> str:
    """Return the place at the end of a reason."""
    return text.rpartition("(")[2].rstrip(")") if text.endswith(")") else ""


def _imported(place: str) -> str:
    """Return the dotted name of a file: from `sglang` on where that is its package."""
    parts = PurePosixPath(place).with_suffix("").parts
    return ".".join(parts[parts.index("sglang") :] if "sglang" in parts else parts)
