"""The files and edits of a VeOmni integration of a language model, derived from the upstream model."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.layout.expected import expect
from omni_kit.layout.loading import Loading
from omni_kit.targets.protocol import Decision, ImportEntry, IntegrationPlan, ListEntry, NewFile, Request, Todo
from omni_kit.targets.veomni.checkout import MODELS, find_checkout, registrants, shipped_model_types
from omni_kit.targets.veomni.text.context import TextContext, text_context
from omni_kit.targets.veomni.text.converter import converter_context, layout_of
from omni_kit.targets.veomni.text.patches import derive_patches
from omni_kit.targets.veomni.text.sites import Site, find_sites
from omni_kit.toys.configs.language import toy_config
from omni_kit.upstream.subject import Subject
from omni_kit.upstream.transformers.config_view import ConfigView
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.traits import stacked_parameters


def make_plan(subject: Subject, request: Request) -> IntegrationPlan:
    """The whole plan of one integration.

    Raises:
        BadInput: the checkpoint's layout has no converter, or `into` is no VeOmni checkout for an in-tree integration.
    """
    planner = _Planner(subject, request)
    return IntegrationPlan(
        base=planner.base,
        files=tuple(planner.files()),
        edits=tuple(planner.edits()) if planner.in_tree else (),
        decisions=tuple(planner.decisions()),
        todo=tuple(planner.todo()),
        next=planner.next(),
    )


@dataclass(frozen=True)
class _Planner:
    """What the parts of a plan are derived from."""

    subject: Subject
    request: Request

    @property
    def model(self) -> UpstreamModel:
        return self.subject.model

    @property
    def moe(self) -> bool:
        return self.subject.profile.experts is not None

    @property
    def in_tree(self) -> bool:
        return self.request.style == "in-tree"

    @cached_property
    def base(self) -> str:
        if not self.in_tree:
            return self.request.name
        if find_checkout(self.request.into) is None:
            raise BadInput(
                f"{self.request.into} is no VeOmni checkout: it has no {MODELS}", "give its root with --into"
            )
        self._check_free()
        return f"{MODELS}/{self.request.name}"

    def _check_free(self) -> None:
        """Raises where another directory of the checkout registers this model_type: which of them counts is chance."""
        model_type, models = self.model.config.model_type, self.request.into / MODELS
        for owner in registrants(models, model_type):
            if owner.name != self.request.name:
                raise BadInput(
                    f"{MODELS}/{owner.name} of this checkout registers '{model_type}' already",
                    "use --style plugin for a package that overrides it",
                )

    @cached_property
    def sites(self) -> list[Site]:
        return find_sites(self.model, self.subject.profile)

    @cached_property
    def layout(self) -> Loading:
        if self.request.verdict is not None:
            return layout_of(self.request.verdict)
        recipe = self.model.recipe
        origin = ", ".join(recipe.resolved_from) if recipe else "no recipe"
        declared = layout_of(expect(self.model))
        reason = f"no checkpoint was given: as transformers declares it, {declared.reason}"
        return replace(declared, reason=reason, evidence=origin)

    @cached_property
    def context(self) -> TextContext:
        patches = derive_patches(self.model, self.sites)
        return text_context(self.model, self.request, patches, self.layout, moe=self.moe)

    def files(self) -> Iterator[NewFile]:
        name, base, context = self.request.name, self.base, vars(self.context)
        yield NewFile(f"{base}/__init__.py", "__init__.py.jinja", context=context)
        yield NewFile(f"{base}/{name}_gpu_patch_gen_config.py", "gpu_patch_gen_config.py.jinja", context=context)
        if self.layout.needs_converter:
            converter = converter_context(self.model, self.layout, name, self.context.veomni_models)
            template = "checkpoint_tensor_converter.py"
            yield NewFile(f"{base}/{template}", f"{template}.jinja", context=vars(converter))
        if self.moe:
            yield NewFile(f"{base}/parallel_plan.py", "parallel_plan.py.jinja", context=context)
        yield NewFile(f"{base}/generated/__init__.py", text="")
        yield NewFile(self.context.test_path, "test_parity.py.jinja", context=context)
        toy = json.dumps(self._toy(), indent=2, ensure_ascii=False) + "\n"
        if self.in_tree:
            yield NewFile(f"tests/toy_config/{name}_toy/config.json", text=toy)
            yield NewFile(f"tests/toy_config/{name}_toy/README.md", "toy_readme.md.jinja", context=context)
        else:
            yield NewFile(f"{base}/toy_config.json", text=toy)
            yield NewFile(f"{base}/README.md", "README.md.jinja", context=context)

    def _toy(self) -> dict[str, Any]:
        complete = ConfigView(self.model.config).as_dict()
        complete["architectures"] = [self.model.class_name]
        return toy_config(complete)

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
        for site in self.sites:
            yield Decision(f"{site.site} {site.target}".strip(), site.decision, site.reason, site.evidence)
        if self.moe:
            choice = "generate" if self.layout.needs_converter else "none"
            reason = f"{self.layout.disk or 'unknown'} on disk: {self.layout.reason}"
            yield Decision("checkpoint converter", choice, reason, self.layout.evidence)
            keys = ", ".join(parameter.pattern for parameter in stacked_parameters(self.model.skeleton))
            yield Decision("parallel plan", "ep: Shard(0)", "everything that is stacked by expert", keys)
        forward = f"{self.model.class_name.removesuffix('ForCausalLM')}Model.forward"
        reason = "position ids and inputs arrive already cut for sequence parallelism"
        yield Decision(forward, "upstream", reason, "VeOmni's SequenceParallelCollator")
        if self.model.config.model_type in shipped_model_types() and not self.in_tree:
            reason = "VeOmni registers this model_type itself; importing the plugin replaces it"
            yield Decision("registration", "override", reason, "MODELING_REGISTRY of the installed VeOmni")

    def todo(self) -> Iterator[Todo]:
        place = f"{self.base}/{self.request.name}_gpu_patch_gen_config.py"
        for head in self.model.heads:
            if head.endswith("ForSequenceClassification"):
                what = f"{head} keeps upstream's head: to train it, override its forward for VeOmni's loss contract"
                yield Todo(place, 1, what)
        if any(site.site == "causal-lm-loss" and site.decision == "skip" for site in self.sites):
            what = "no loss was recognised: override the forward so that it unpacks (loss, logits, fused_linear_aux)"
            yield Todo(place, 1, what)

    def next(self) -> tuple[str, ...]:
        place = self.request.into / self.base
        config = place / f"{self.request.name}_gpu_patch_gen_config.py"
        return (
            f"omni-kit patchgen run {config}",
            f"omni-kit check {place}",
            f"omni-kit parity {place}",
        )
