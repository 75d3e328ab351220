"""The files and edits of a VeOmni integration of a language model, derived from the upstream model."""

import ast
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from omni_kit.errors import BadInput, Refusal
from omni_kit.layout.expected import expect
from omni_kit.layout.loading import Loading
from omni_kit.targets.protocol import Decision, ImportEntry, IntegrationPlan, ListEntry, NewFile, Request, Todo
from omni_kit.targets.veomni.checkout import MODELS, find_checkout, registrants, shipped_model_types
from omni_kit.targets.veomni.media.context import TEMPLATE as MEDIA_TEMPLATE
from omni_kit.targets.veomni.media.context import media_context
from omni_kit.targets.veomni.media.dummies import without_dummies
from omni_kit.targets.veomni.media.merging import (
    Merging,
    find_merging,
    refuse_attention_of_its_own,
    refuse_encoder_decoder,
    text_part,
)
from omni_kit.targets.veomni.media.patches import IMPORTED as MEDIA_IMPORTS
from omni_kit.targets.veomni.media.patches import media_decisions, media_patches, merging_edits
from omni_kit.targets.veomni.media.speech import speech_only
from omni_kit.targets.veomni.text.context import COMPILED, TextContext, models_package, text_context
from omni_kit.targets.veomni.text.converter import class_prefix, converter_context, layout_of
from omni_kit.targets.veomni.text.patches import PatchSet, derive_patches, without_labels_of_tokens
from omni_kit.targets.veomni.text.plain_converter import TEMPLATE, PlainContext, plain_context, refuse_other_ties
from omni_kit.targets.veomni.text.sequence import (
    cut_sequences,
    kept_apart,
    layers_on_whole_samples,
    sees_ahead,
    without_flash_attention,
)
from omni_kit.targets.veomni.text.sites import Site, causal_head, find_sites, refuse_without_loss
from omni_kit.targets.veomni.text.training import TrainingContext, training_context
from omni_kit.toys.modules import small_config, with_experts
from omni_kit.upstream.kinds import MULTIMODAL
from omni_kit.upstream.profile import ModelProfile
from omni_kit.upstream.subject import Subject
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.traits import profile

UNSHARED = "no sequence parallelism"
"""The choice for a forward that reads whole sequences in each process."""


def make_plan(subject: Subject, request: Request) -> IntegrationPlan:
    """Return the whole plan of one integration.

    Raises:
        BadInput: the checkpoint's layout has no converter, or `into` not a VeOmni checkout for an in-tree integration.
    """
    planner = _Planner(subject, request)
    planner.refuse_what_cannot_be_finished()
    return IntegrationPlan(
        base=planner.base,
        files=tuple(planner.files()),
        edits=tuple(planner.edits()) if planner.in_tree else (),
        decisions=tuple(planner.decisions()),
        todo=tuple(planner.todo()),
        next=planner.next(),
    )


def site_decisions(sites: Iterable[Site]) -> Iterator[Decision]:
    """Yield the decisions about upstream's code, as a plan and a report tell them."""
    for site in sites:
        choice = "patch" if site.decision == "adapt" else site.decision
        yield Decision(f"{site.site} {site.target}".strip(), choice, site.reason, site.evidence)


@dataclass(frozen=True)
class _Planner:
    """Inputs of the parts of a plan."""

    subject: Subject
    request: Request

    @cached_property
    def model(self) -> UpstreamModel:
        return with_experts(self.subject.model)

    @cached_property
    def profile(self) -> ModelProfile:
        return profile(self.model)

    def refuse_what_cannot_be_finished(self) -> None:
        """Raise where the integration could not be trained as upstream's model is.

        Raises:
            BadInput: no class answers in text, its forward has no loss that is understood, or more is tied than VeOmni
                ties.
        """
        model_type, name = self.model.config.model_type, self.model.class_name
        with_media = self.subject.kind in MULTIMODAL
        if with_media or causal_head(self.model) != name:
            refuse_encoder_decoder(self.model)
        if not with_media and causal_head(self.model) != name:
            where = self.model.source.where(self.model.source.classes[name])
            raise Refusal(
                f"{model_type} is of kind '{self.subject.kind}': {name} ({where}) is not among transformers' causal "
                "language models, and takes no pixel_values, input_features or input_values",
                "name another class in architectures of config.json, or pass another model_type",
            )
        refuse_without_loss(self.model)
        if with_media:
            refuse_attention_of_its_own(self.model)
            _ = self.merging  # which raises where it is not recognised
        refuse_other_ties(self.model)

    @cached_property
    def merging(self) -> Merging | None:
        """Merging of media into the text; None for a text-only model."""
        return find_merging(self.model) if self.subject.kind in MULTIMODAL else None

    @cached_property
    def _attending(self) -> tuple[UpstreamModel, Sequence[Site]]:
        """The model whose layers attend over the text, with its sites: a model with media may build another type's."""
        text = text_part(self.model) if self.merging is not None else None
        return (self.model, self.sites) if text is None else (text, find_sites(text))

    @property
    def moe(self) -> bool:
        return self.profile.experts is not None

    @property
    def in_tree(self) -> bool:
        return self.request.style == "in-tree"

    @cached_property
    def base(self) -> str:
        if not self.in_tree:
            return self.request.name
        if find_checkout(self.request.into) is None:
            raise BadInput(
                f"{self.request.into} is not a VeOmni checkout: it has no {MODELS}", "pass its root with --into"
            )
        self._check_free()
        return f"{MODELS}/{self.request.name}"

    def _check_free(self) -> None:
        """Raise where another directory of the checkout registers this model_type: which of them counts is chance."""
        model_type, models = self.model.config.model_type, self.request.into / MODELS
        for owner in registrants(models, model_type):
            if owner.name != self.request.name:
                raise Refusal(
                    f"{MODELS}/{owner.name} of this checkout registers '{model_type}' already",
                    "use --style plugin for a package that overrides it",
                )

    @cached_property
    def sites(self) -> Sequence[Site]:
        return find_sites(self.model)

    @cached_property
    def layout(self) -> Loading:
        if self.request.verdict is not None:
            return layout_of(self.request.verdict)
        recipe = self.model.recipe
        origin = ", ".join(recipe.resolved_from) if recipe else "no recipe"
        declared = layout_of(expect(self.model))
        reason = f"no checkpoint given; as transformers declares it, {declared.reason}"
        return replace(declared, reason=reason, evidence=origin)

    @property
    def apart(self) -> bool:
        """Return whether packed samples have to run as rows of their own."""
        return not self._packed[0]

    @cached_property
    def _packed(self) -> tuple[bool, str, str]:
        if self._without_flash is not None:
            return False, *self._without_flash
        return kept_apart(*self._attending, self._runnable_on_whole)

    @cached_property
    def _without_flash(self) -> tuple[str, str] | None:
        """Return why the model as a whole cannot use flash attention, whatever its layers of text can."""
        return self._ahead or without_flash_attention(self.model.source)

    @cached_property
    def _runnable_on_whole(self) -> list[str]:
        """Layers of the file that is patched which mix neighbouring tokens, if all can run on whole samples."""
        return layers_on_whole_samples(self.model) if self._attending[0] is self.model else []

    @property
    def _whole(self) -> list[str]:
        """The layers that run on each packed sample alone and whole: none if the whole model does."""
        return [] if self.apart else self._runnable_on_whole

    @cached_property
    def _ahead(self) -> tuple[str, str] | None:
        return sees_ahead(self.model)

    @property
    def _patches(self) -> PatchSet:
        """The patches of what the generated module has."""
        kept = [one for one in self._derived.patches if one.target.partition(".")[0] not in self._excluded]
        return replace(self._derived, patches=tuple(kept))

    @cached_property
    def _excluded(self) -> Sequence[str]:
        speech = speech_only(self.model) if self.merging is not None else ()
        return [*speech, *(name for name in self._unlabelled if name not in speech)]

    @cached_property
    def _unlabelled(self) -> Mapping[str, ast.FunctionDef]:
        return without_labels_of_tokens(self.model)

    @cached_property
    def _derived(self) -> PatchSet:
        if self.merging is None:
            return derive_patches(self.model, self.sites, apart=self.apart, whole=self._whole)
        method = f"{self.merging.owner}.forward"
        changes_loss = {"patch", "adapt"}
        merged = (self.apart and self.merging.owner == self.model.class_name) or any(
            s.site == "causal-lm-loss" and s.target == method and s.decision in changes_loss for s in self.sites
        )
        head = merging_edits(self.model, self.merging) if merged else []
        patches = derive_patches(self.model, self.sites, head, apart=self.apart, whole=self._whole)
        return patches.extended(self.model.source, media_patches(self.model, self.merging, merged=merged))

    @cached_property
    def context(self) -> TextContext:
        converter = self.layout.needs_converter or self.plain.needed
        patches = self._patches
        return text_context(
            self.model,
            self.request,
            patches,
            moe=self.moe,
            expert_parallel=self.expert_parallel,
            converter=converter,
            inner=self._inner if converter else {},
            disk=str(self.layout.disk),
            routers=[one.router[0] for one in self.sites if (one.site, one.decision) == ("router-replay", "adapt")],
            media=MEDIA_IMPORTS if self.merging is not None else (),
            excluded=self._excluded,
            helpers=self._helpers,
            apart=self.apart,
            ahead=self._ahead is not None,
        )

    @property
    def _inner(self) -> dict[str, str]:
        """Return the classes inside the model whose names the renamings would spoil, each with its path in the whole.

        The path is empty if one of its own names would not survive both.
        """
        skeleton, recipe = self.model.skeleton, self.model.recipe
        if self.layout.needs_converter or recipe is None:
            return {}
        base = f"{skeleton.base_prefix}."
        names = {p.name.removeprefix(base) for p in skeleton.parameters if p.name.startswith(base)}
        if all(recipe.renamed(name) in names for name in names):
            return {}
        held = [p.name for p in skeleton.parameters]
        found: dict[str, str] = {}
        for path, name, _ in filter(lambda one: one[0], skeleton.submodels):
            own = [key.removeprefix(f"{path}.") for key in held if key.startswith(f"{path}.")]
            kept = all(recipe.renamed(key).removeprefix(f"{path}.") == key for key in own)
            plain = not (self.plain.conversions or self.plain.copies)
            found[name] = path if kept and plain and name not in found else ""
        return found

    @property
    def _helpers(self) -> list[tuple[str, str]]:
        """The modules of the integration that patches of text call, each with the function that they call."""
        found = [("packed_rows", "rows_of_their_own")] if self.apart else []
        return [*found, ("whole_samples", "on_whole_samples")] if self._whole else found

    @property
    def expert_parallel(self) -> bool:
        """Return whether the experts' forward is one that VeOmni's kernels can take over, which know of a part of
        them.
        """
        return self.moe and any(site.site == "experts" and site.decision == "patch" for site in self.sites)

    @cached_property
    def plain(self) -> PlainContext:
        name, models = self.request.name, models_package(self.request)
        return plain_context(self.model, name, class_prefix(name), models)

    def files(self) -> Iterator[NewFile]:
        name, base, context = self.request.name, self.base, vars(self.context)
        yield NewFile(f"{base}/__init__.py", "__init__.py.jinja", context=context)
        yield NewFile(f"{base}/{name}_gpu_patch_gen_config.py", "gpu_patch_gen_config.py.jinja", context=context)
        module = "checkpoint_tensor_converter.py"
        if self.layout.needs_converter:
            converter = converter_context(self.model, self.layout, name, self.context.veomni_models)
            yield NewFile(f"{base}/{module}", f"{module}.jinja", context=vars(converter))
        elif self.plain.needed:
            yield NewFile(f"{base}/{module}", TEMPLATE, context=vars(self.plain))
        if self.expert_parallel:
            yield NewFile(f"{base}/parallel_plan.py", "parallel_plan.py.jinja", context=context)
        if self.merging is not None:
            yield NewFile(f"{base}/media.py", MEDIA_TEMPLATE, context={**context, **self._media})
        compiled = ["compiled_blocks"] if self._compiled else []
        for module in (*self.context.brought, *(module for module, _ in self._helpers), *compiled):
            yield NewFile(f"{base}/{module}.py", f"{module}.py.jinja")
        yield NewFile(f"{base}/generated/__init__.py", text="")
        yield from self._training_files()
        yield NewFile(self.context.test_path, "test_parity.py.jinja", context=context)
        toy = json.dumps(self._toy(), indent=2, ensure_ascii=False) + "\n"
        if self.in_tree:
            yield NewFile(f"tests/toy_config/{name}_toy/config.json", text=toy)
            yield NewFile(f"tests/toy_config/{name}_toy/README.md", "toy_readme.md.jinja", context=context)
        else:
            yield NewFile(f"{base}/toy_config.json", text=toy)
            yield NewFile(f"{base}/README.md", "README.md.jinja", context={**context, **vars(self.training)})

    def _training_files(self) -> Iterator[NewFile]:
        """Yield VeOmni's arguments, full and LoRA, what starts the trainer, and a maker of data."""
        base = self.base
        yaml = f"configs/text/{self.request.name}" if self.in_tree else f"{base}/train"
        context = {
            **vars(self.context), **self._media, **vars(self.training), "compiled": self._compiled,
            "kernels": {setting: kernel for setting, kernel in self.request.kernels.items() if "." not in setting},
            "package": base.replace("/", "."), "training_file": f"{yaml}.yaml",
        }  # fmt: skip
        yield NewFile(f"{yaml}.yaml", "train.yaml.jinja", context={**context, "lora": False})
        if self.training.lora_modules:
            yield NewFile(f"{yaml}_lora.yaml", "train.yaml.jinja", context={**context, "lora": True})
        yield NewFile(f"{base}/train.py", "train.py.jinja", context=context)
        yield NewFile(f"{base}/make_data.py", "make_data.py.jinja", context=context)

    @property
    def _compiled(self) -> bool:
        """Return whether compiled decoder blocks were measured to be faster."""
        return self.request.kernels.get(COMPILED) == "true"

    @cached_property
    def _media(self) -> dict[str, Any]:
        """Extra variables for the templates of media."""
        return vars(media_context(self.model, self.merging)) if self.merging is not None else {}

    @cached_property
    def training(self) -> TrainingContext:
        return training_context(
            self.subject, self.model, self.request, self.sites, self._attending, ahead=self._ahead is not None
        )

    def _toy(self) -> dict[str, Any]:
        return small_config(self.model)

    def edits(self) -> Iterator[ListEntry | ImportEntry]:
        name, into = self.request.name, self.request.into
        aggregate = f"{MODELS}/__init__.py"
        yield ImportEntry(aggregate, ".", name)
        yield ListEntry(aggregate, "__all__", f'"{name}"')
        config = f"./tests/toy_config/{name}_toy"
        tolerances = "_DEFAULT_RTOL, _DEFAULT_ATOL"
        level1 = f'pytest.param("{config}/config.json", {self.moe}, {tolerances}, id="{name}")'
        if (into / "tests/models/test_models_patch.py").is_file():
            yield ListEntry("tests/models/test_models_patch.py", "TEST_CASES", level1)
        level2 = f'pytest.param("{name}", "{config}", {self.moe}, {tolerances}, None, None)'
        if (into / "tests/e2e/test_e2e_parallel.py").is_file():
            yield ListEntry("tests/e2e/test_e2e_parallel.py", "text_test_cases", level2)

    def decisions(self) -> Iterator[Decision]:
        if self.model is not self.subject.model:
            reason = f"{self.model.name}'s config class has no number or 1, and what is written does not depend on it"
            where = self.model.library.show(self.model.config.cls.source.path)
            yield Decision("number of experts", "a toy's", reason, f"{where}: {self.model.config.cls.name}")
        yield from site_decisions(self.sites)
        if self.merging is not None:
            yield from media_decisions(self.model, self.merging)
        if self.moe:
            choice = "generate" if self.layout.needs_converter else "none"
            reason = f"{self.layout.disk or 'unknown'} on disk: {self.layout.reason}"
            yield Decision("checkpoint converter", choice, reason, self.layout.evidence)
            yield self._plan_decision()
        if self.plain.needed and not self.layout.needs_converter:
            yield self._plain_decision()
        for setting, kernel in self.request.kernels.items():
            yield Decision(setting, kernel, "measured on a model of this shape class", "--kernels")
        forward = f"{self.model.class_name.removesuffix('ForCausalLM')}Model.forward"
        fits, reason, evidence = (
            (False, *self._without_flash)
            if self._without_flash is not None
            else cut_sequences(*self._attending, self._runnable_on_whole)
        )
        yield Decision(forward, "upstream" if fits else UNSHARED, reason, evidence)
        fits, reason, evidence = self._packed
        yield Decision("packed sequences", "upstream" if fits else "rows of their own", reason, evidence)
        for name, pooling in self._unlabelled.items():
            reason = "VeOmni labels tokens, and upstream pools before this head: the integration has no such class"
            yield Decision(f"head {name}", "none", reason, self.model.source.where(pooling))
        for name in self._whole:
            reason = "a state goes from token to token: the layer runs on each packed sample alone and whole"
            where = self.model.source.where(self.model.source.classes[name])
            yield Decision(f"mixing layer {name}.forward", "patch", reason, where)
        if self.model.config.model_type in shipped_model_types() and not self.in_tree:
            reason = "VeOmni registers this model_type itself; importing the plugin replaces it"
            yield Decision("registration", "override", reason, "MODELING_REGISTRY of the installed VeOmni")

    def _plan_decision(self) -> Decision:
        if self.expert_parallel:
            keys = ", ".join(self.context.plan_keys)
            return Decision("parallel plan", "ep: Shard(0)", "all stacked expert parameters", keys)
        experts = next((site for site in self.sites if site.site == "experts"), None)
        reason = "the experts keep upstream's forward, which needs them all in one process"
        reason += f": {experts.reason}" if experts is not None else ""
        return Decision("parallel plan", "none", reason, experts.evidence if experts is not None else "")

    def _plain_decision(self) -> Decision:
        parts = [f"{tied} is {source} if tied, and its module contains more" for tied, source in self.plain.copies]
        parts += ["upstream changes names or tensors while it loads"] if self.model.recipe else []
        origin = ", ".join(self.model.recipe.resolved_from) if self.model.recipe else "_tied_weights_keys"
        return Decision("checkpoint converter", "generate", "; ".join(parts), origin)

    def todo(self) -> Iterator[Todo]:
        if self.merging is not None:
            for kind in without_dummies(self.model, self.merging):
                what = f"under FSDP a process without {kind} leaves the others waiting: give media.py a dummy of it"
                yield Todo(f"{self.base}/media.py", 1, what)

    def next(self) -> tuple[str, ...]:
        place = self.request.into / self.base
        config = place / f"{self.request.name}_gpu_patch_gen_config.py"
        return (
            shlex.join(["omni-kit", "patchgen", "run", str(config)]),
            shlex.join(["omni-kit", "check", str(place)]),
            shlex.join(["omni-kit", "parity", str(place)]),
        )
