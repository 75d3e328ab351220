"""The files and edits of a VeOmni integration of a diffusion transformer, derived from the class of diffusers."""

import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import PurePosixPath

from omni_kit.errors import BadInput, Refusal
from omni_kit.pysource.eval import UNKNOWN
from omni_kit.targets.protocol import Decision, ImportEntry, IntegrationPlan, ListEntry, NewFile, Request
from omni_kit.targets.veomni.checkout import DIFFUSION_MODELS, find_checkout, registrants
from omni_kit.targets.veomni.dit.conditions import ConditionContext, Conditions
from omni_kit.targets.veomni.dit.transformer import (
    DISPATCH,
    WRAPPER,
    TransformerContext,
    transformer_context,
    why_not_shared,
)
from omni_kit.targets.veomni.text.context import BROUGHT
from omni_kit.targets.veomni.training import model_place
from omni_kit.toys.configs.denoiser import toy_denoiser
from omni_kit.upstream.diffusers.blocks import block_classes
from omni_kit.upstream.diffusers.calling import FRAMES
from omni_kit.upstream.diffusers.checkpointing import checkpoints, lost_by_checkpointing
from omni_kit.upstream.diffusers.choosing import pipeline_of
from omni_kit.upstream.diffusers.models import ComponentModel
from omni_kit.upstream.diffusers.pipelines import INDEX
from omni_kit.upstream.diffusers.signatures import arguments
from omni_kit.upstream.diffusers.traits import attention_kernels
from omni_kit.upstream.subject import Subject

_ATTENTION = "attn_implementation"


def make_plan(subject: Subject, request: Request) -> IntegrationPlan:
    """Return the whole plan of one integration.

    Raises:
        BadInput: the model is not a diffusion transformer that is trained by its latents, or `into` not a checkout
            for an in-tree integration.
    """
    planner = _Planner(subject, request)
    planner.refuse_what_cannot_be_trained()
    return IntegrationPlan(
        base=planner.base,
        files=tuple(planner.files()),
        edits=tuple(planner.edits()) if planner.in_tree else (),
        decisions=tuple(planner.decisions()),
        next=planner.next(),
    )


@dataclass(frozen=True)
class _Planner:
    """Inputs of the parts of a plan."""

    subject: Subject
    request: Request

    @property
    def model(self) -> ComponentModel:
        if (component := self.subject.component) is None:
            raise BadInput(f"{self.subject.given} is of {self.subject.library.name}, not a diffusers model")
        return component

    @property
    def in_tree(self) -> bool:
        return self.request.style == "in-tree"

    def refuse_what_cannot_be_trained(self) -> None:
        """Raise where forward takes no step: what it answers is no denoising."""
        if not arguments(self.model.cls, "forward"):
            raise Refusal(f"{self.model.class_name} does not define forward: nothing to wrap")

    @cached_property
    def base(self) -> str:
        if not self.in_tree:
            return self.request.name
        if find_checkout(self.request.into) is None:
            raise BadInput(f"{self.request.into} is not a VeOmni checkout", "pass its root with --into")
        for owner in registrants(self.request.into / DIFFUSION_MODELS, self.model.class_name):
            if owner.name != self.request.name:
                raise Refusal(
                    f"{DIFFUSION_MODELS}/{owner.name} of this checkout registers '{self.model.class_name}' already",
                    "use --style plugin for a package that overrides it",
                )
        return f"{DIFFUSION_MODELS}/{self.request.name}"

    @cached_property
    def conditions(self) -> Conditions:
        found = self.subject.pipeline or pipeline_of(self.model.library, self.model.class_name)
        return Conditions(self.model, found)

    @cached_property
    def transformer(self) -> TransformerContext:
        return transformer_context(self.model, self.request)

    @cached_property
    def condition(self) -> ConditionContext:
        return self.conditions.context(self.transformer)

    @property
    def _configs(self) -> tuple[str, str]:
        """Prefix of the training files, and the path of the model's JSON file."""
        name = self.request.name
        if self.in_tree:
            return f"configs/dit/{name}", f"configs/model_configs/{name}/{name}.json"
        return f"{self.base}/train", f"{self.base}/configs/{name}.json"

    @property
    def _test(self) -> str:
        test = f"test_{self.request.name}_parity.py"
        return f"tests/models/{test}" if self.in_tree else f"{self.base}/tests/{test}"

    def files(self) -> Iterator[NewFile]:
        name, base = self.request.name, self.base
        yaml, config = self._configs
        given = model_place(self._pipeline_subject, self.request)
        shared = {
            **vars(self.transformer), "in_tree": self.in_tree, "models": DIFFUSION_MODELS, "config_path": config,
            "test_path": self._test, "pipeline": self.condition.pipeline,
            "denoiser": self.condition.denoiser or "transformer", "lora_modules": self._adapted, "films": self._films,
            "pictures": self.condition.pictures, "seconds": self.condition.seconds,
            "model_path": given.path, "download": given.download, "given": given.given,
            "package": base.replace("/", "."), "training_file": f"{yaml}.yaml",
            "attention": self._attention, "compiled": self.request.kernels.get(WRAPPER) == "true",
        }  # fmt: skip
        yield NewFile(f"{base}/__init__.py", "__init__.py.jinja", context=shared)
        yield from self._package("transformer", vars(self.transformer), ["attention"], self.transformer.kernels)
        if self.transformer.plan:
            place = f"{base}/{name}_transformer/sequence_parallel.py"
            yield NewFile(place, "transformer/sequence_parallel.py.jinja", context=vars(self.transformer))
        yield from self._package("condition", vars(self.condition), [], False)
        yield NewFile(f"{yaml}.yaml", "train.yaml.jinja", context={**shared, "lora": False})
        if self._adapted:
            yield NewFile(f"{yaml}_lora.yaml", "train.yaml.jinja", context={**shared, "lora": True})
        yield NewFile(f"{base}/{name}_condition/data.py", "condition/data.py.jinja", context=shared)
        yield NewFile(f"{base}/train.py", "train.py.jinja", context=shared)
        yield NewFile(f"{base}/make_data.py", "make_data.py.jinja", context=shared)
        yield NewFile(config, text=_json({**self._values, **self._signed}))
        yield NewFile(self._test, "test_parity.py.jinja", context=shared)
        toy = f"{base}/toy_config.json"
        yield NewFile(toy, text=_json({"_class_name": self.model.class_name, **self._toy}))
        if not self.in_tree:
            yield NewFile(f"{base}/README.md", "README.md.jinja", context=shared)

    def _package(self, part: str, context: dict[str, object], more: list[str], wanted: bool) -> Iterator[NewFile]:
        """Yield one of the two packages: what registers it, its config, its model, and what the model needs
        next to it.
        """
        folder = f"{self.base}/{self.request.name}_{part}"
        ending = f"{self.request.name}_{part}.py"
        yield NewFile(f"{folder}/__init__.py", f"{part}/__init__.py.jinja", context=context)
        yield NewFile(f"{folder}/configuration_{ending}", f"{part}/configuration.py.jinja", context=context)
        offline = part == "condition" and self.conditions.pipeline is None
        model = "modeling_offline" if offline else "modeling"
        yield NewFile(f"{folder}/modeling_{ending}", f"{part}/{model}.py.jinja", context=context)
        for module in more if wanted else ():
            yield NewFile(f"{folder}/{module}.py", f"{part}/{module}.py.jinja", context=context)

    @property
    def _pipeline_subject(self) -> Subject:
        """The pipeline around a denoiser's own directory, where it is in one."""
        directory, denoiser = self.subject.directory, self.condition.denoiser
        if directory is None or directory.name != denoiser or not (directory.parent / INDEX).is_file():
            return self.subject
        return replace(self.subject, given=str(directory.parent), directory=directory.parent)

    @cached_property
    def _adapted(self) -> list[str]:
        """The last names of the linear layers of attention in blocks; of all in blocks where none is called so.

        Without the name of a layer that elsewhere is a list's, which peft cannot wrap.
        """
        linear = [
            parameter.name.removesuffix(".weight")
            for parameter in self.model.skeleton.patterns().values()
            if parameter.owner == "Linear" and parameter.name.endswith(".weight") and "*" in parameter.pattern
        ]
        attending = [name for name in linear if "attn" in name or "attention" in name]
        names = {_last(name) for name in attending or linear}
        return sorted(names - {name.rpartition(".")[0] for name in names})

    @property
    def _films(self) -> bool:
        """Return whether the pipeline draws videos."""
        pipeline = self.conditions.pipeline
        found = pipeline.cls.method("__call__") if pipeline is not None else None
        return found is not None and any(one.arg in FRAMES for one in found[1].args.args)

    @property
    def _attention(self) -> str:
        """VeOmni's name of the attention in a training file."""
        measured = self.request.kernels.get(_ATTENTION)
        if measured is not None and measured not in BROUGHT[_ATTENTION]:
            return measured
        return "flash_attention_2" if self.transformer.kernels else "eager"

    @property
    def _values(self) -> dict[str, object]:
        """Every argument of the constructor: as the config says it, else by default."""
        known = {name: self.model.value(name)[0] for name in self.model.arguments}
        return {name: None if value is UNKNOWN else value for name, value in known.items()}

    @property
    def _toy(self) -> dict[str, object]:
        """Raises BadInput where the config's values make no model."""
        try:
            return toy_denoiser(self._values)
        except (ArithmeticError, TypeError, ValueError, LookupError) as error:
            name = self.model.class_name
            raise BadInput(f"no small {name} can be made of this config: {error}", "correct config.json") from error

    @property
    def _signed(self) -> dict[str, str]:
        return {
            "_class_name": self.model.class_name,
            "model_type": self.transformer.key,
            "condition_model_type": self.transformer.condition_key,
        }

    def edits(self) -> Iterator[ListEntry | ImportEntry]:
        aggregate = f"{DIFFUSION_MODELS}/__init__.py"
        yield ImportEntry(aggregate, ".", self.request.name)
        yield ListEntry(aggregate, "__all__", f'"{self.request.name}"')

    def decisions(self) -> Iterator[Decision]:
        model, context = self.model, self.transformer
        blocks, where = block_classes(model.cls)
        yield Decision("blocks", ", ".join(blocks) or "none", "what FSDP wraps", where)
        kernels = attention_kernels(model)
        names = ", ".join(kernels)
        if context.kernels:
            reason = "its processors call diffusers' dispatch, which VeOmni's kernels replace"
            yield Decision("attention", "patch", reason, kernels[DISPATCH])
        else:
            reason = f"its attention ends in {names or 'code of its own'}, which no kernel can replace"
            yield Decision("attention", "skip", reason, next(iter(kernels.values()), ""))
        if checkpoints(model.cls) and (lost := lost_by_checkpointing(model.cls)):
            reason = f"upstream's checkpointed call of a block leaves out {lost}: it would train as another model"
            yield Decision("gradient checkpointing", "off", reason, model.source.where(model.cls.node))
        for setting, kernel in self.request.kernels.items():
            reason = "measured on a model of this shape class"
            if kernel in BROUGHT.get(setting, ()):
                kernel, reason = self._attention, f"{kernel} was measured; wrappers have no file that registers it"
            yield Decision(setting, kernel, reason, "--kernels")
        yield self._sharing()
        yield from self._asking()

    def _sharing(self) -> Decision:
        what = "sequence parallelism"
        if self.transformer.plan:
            found = self.model.cls.assigned("_cp_plan")
            where = found[0].source.where(found[1]) if found is not None else ""
            return Decision(what, "patch", "sharded and gathered by upstream's _cp_plan", where)
        reason = why_not_shared(self.model)
        return Decision(what, "skip", reason, self.model.source.where(self.model.cls.node))

    def _asking(self) -> Iterator[Decision]:
        denoising = self.conditions.denoising
        if denoising is None:
            reason = f"no pipeline of diffusers {self.model.library.version} runs it from a prompt alone"
            yield Decision("conditions", "computed beforehand", reason, "")
            return
        where = denoising.pipeline.cls.source.where(denoising.pipeline.cls.node)
        given = "given" if self.subject.pipeline is not None else "the simplest pipeline with this denoiser"
        yield Decision("conditions", denoising.pipeline.cls.node.name, given, where)
        scale = denoising.scale
        yield Decision("latents", scale.convention or "as they are", "as the pipeline scales them", scale.where)
        yield Decision("step", self.condition.step_text, "the pipeline's value for a step", denoising.where)
        if denoising.sign < 0:
            yield Decision("target", "clean - noise", "the pipeline negates the output", denoising.where)

    def next(self) -> tuple[str, ...]:
        place = self.request.into / PurePosixPath(self.base)
        return (shlex.join(["omni-kit", "check", str(place)]), shlex.join(["omni-kit", "parity", str(place)]))


def _last(name: str) -> str:
    """Return the last name of a module, with the one before a number."""
    parts = name.split(".")
    return ".".join(parts[-2:]) if parts[-1].isdecimal() else parts[-1]


def _json(values: dict[str, object]) -> str:
    return json.dumps(values, indent=2) + "\n"
