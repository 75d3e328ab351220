"""One pipeline as SGLang would find it: from its entry class to the classes of its configs and of its denoiser."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path

from omni_checkers.engine.files import walked
from omni_checkers.sglang_diffusion.facts.detectors import detects
from omni_checkers.sglang_diffusion.facts.registering import Registration, registered_models, registrations
from omni_checkers.sglang_diffusion.facts.sources import Sources, class_named, own_classes
from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.files import files_matching
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.library import find_library
from omni_kit.pysource.nodes import keyword
from omni_kit.pysource.source import SourceFile, dotted
from omni_kit.targets.sglang_diffusion.pipeline_dir import OUTSIDE
from omni_kit.upstream.diffusers.local_pipelines import outside_pipeline
from omni_kit.upstream.diffusers.pipelines import Pipeline, find_pipeline

_CONFIGS, _DITS = "configs/pipeline_configs", "runtime/models/dits"


@dataclass(frozen=True)
class Serving:
    """A pipeline, resolved by objects and not by the names of files.

    Attributes:
        sources: the packages that are read.
        cls: the pipeline's class.
        name: its `pipeline_name`.
        own: the files of the integration itself.
        in_tree: it is one of SGLang's own.
    """

    sources: Sources
    cls: ClassRef
    name: str
    own: tuple[Path, ...]
    in_tree: bool

    def is_own(self, cls: ClassRef) -> bool:
        """Return whether a class stands in a file of the integration."""
        return cls.source.path in self.own

    @cached_property
    def registrations(self) -> tuple[Registration, ...]:
        """The calls that register configs, in the files of the integration."""
        found = (self.sources.read(file) for file in self.own)
        return tuple(one for source in found if source is not None for one in registrations(source))

    @cached_property
    def registration(self) -> Registration | None:
        """The call that registers this pipeline, or else its config."""
        calls = [one for one in self.registrations if _same(one.cls("pipeline_cls"), self.cls)]
        configs = [one for one in self.registrations if self.config is not None]
        return next(
            iter([*calls, *(one for one in configs if _same(one.cls("pipeline_config_cls"), self.config))]), None
        )

    @cached_property
    def config(self) -> ClassRef | None:
        """The class of its PipelineConfig."""
        return next((found for found in self._configs() if found is not None), None)

    def _configs(self) -> Iterator[ClassRef | None]:
        yield self.attribute_class("pipeline_config_cls")
        for one in self.registrations:
            if _same(one.cls("pipeline_cls"), self.cls):
                yield one.cls("pipeline_config_cls")
        known = [cls for one in self._all_registrations if (cls := one.cls("pipeline_config_cls")) is not None]
        for wanted in (self.cls.node.name, self.name, *(one.node.name for one in own_classes(self.cls))):
            yield next((cls for cls in known if cls.node.name == f"{wanted}Config"), None)
        for one in self._all_registrations:
            if detects(one, self.name.lower()):
                yield one.cls("pipeline_config_cls")
        own = [cls for one in self.registrations if (cls := one.cls("pipeline_config_cls")) is not None]
        yield own[0] if own and not self.in_tree else None

    @cached_property
    def _all_registrations(self) -> tuple[Registration, ...]:
        return (*self.registrations, *(_sglangs(self.sources) if self.in_tree else ()))

    @cached_property
    def sampling(self) -> ClassRef | None:
        """The class of its SamplingParams."""
        named = self.attribute_class("sampling_params_cls")
        found = self.registration or next(
            (one for one in self._all_registrations if _same(one.cls("pipeline_config_cls"), self.config)), None
        )
        return named or (found.cls("sampling_param_cls") if found is not None else None)

    def attribute_class(self, name: str) -> ClassRef | None:
        """Return the class that an attribute of the pipeline's class names."""
        found = self.cls.assigned(name)
        return class_named(found[0].source, found[1], found[0].node) if found is not None else None

    @cached_property
    def dit_config(self) -> ClassRef | None:
        """The class of the denoiser's config."""
        return self.factory(self.config, "dit_config") if self.config is not None else None

    @cached_property
    def vae_config(self) -> ClassRef | None:
        """The class of the autoencoder's config."""
        return self.factory(self.config, "vae_config") if self.config is not None else None

    @cached_property
    def arch_config(self) -> ClassRef | None:
        """The class of the denoiser's architecture."""
        return self.factory(self.dit_config, "arch_config") if self.dit_config is not None else None

    @staticmethod
    def factory(cls: ClassRef, name: str) -> ClassRef | None:
        """Return the class that a field of a dataclass is made by: by `field(default_factory=...)`, or called."""
        found = cls.assigned(name)
        if found is None:
            return None
        return class_named(found[0].source, made_by(found[1]), found[0].node)

    @cached_property
    def denoiser(self) -> ClassRef | None:
        """The class of the denoiser: as registered, as diffusers calls it, or the one that takes its config."""
        return next((found for found in self._denoisers() if found is not None), None)

    def _denoisers(self) -> Iterator[ClassRef | None]:
        own = [source for file in self.own if (source := self.sources.read(file)) is not None]
        for source in own:
            yield from (cls for _, cls, _ in registered_models(source) if cls is not None and self._denoises(cls))
        for source in own:
            yield from (cls for cls in entries(source) if self._denoises(cls))
        known = _dits(self.sources)
        yield known.get(self.upstream_denoiser)
        for cls in known.values() if self.dit_config is not None else ():
            init = cls.method("__init__")
            if init is not None and any(_same(one, self.dit_config) for one in _annotated(*init)):
                yield cls

    @staticmethod
    def _denoises(cls: ClassRef) -> bool:
        forward = cls.method("forward")
        return cls.is_a("BaseDiT") or (
            forward is not None and any(one.arg == "timestep" for one in forward[1].args.args)
        )

    @cached_property
    def upstream(self) -> Pipeline | None:
        """The pipeline with its name: of diffusers, or of its authors' file in the plugin."""
        files = (file for file in self.own if file.stem == OUTSIDE)
        try:
            library = find_library("diffusers")
            found = (outside_pipeline(f"{file}::{self.name}", library) for file in files)
            return next((one for one in found if one is not None), None) or find_pipeline(library, self.name, {})
        except (BadInput, MissingRequirement):
            return None

    @cached_property
    def upstream_denoiser(self) -> str:
        """The class of diffusers that denoises; empty if that is not known."""
        try:
            return self.upstream.denoiser.class_name if self.upstream is not None else ""
        except BadInput:
            return ""

    @cached_property
    def required(self) -> tuple[list[str], ast.expr, SourceFile] | None:
        """The components that it asks for, and where; None if they are not written out."""
        found = self.cls.assigned("_required_config_modules")
        if found is None:
            return None
        items = getattr(found[1], "elts", None)
        if items is None or not all(isinstance(item, ast.Constant) for item in items):
            return None
        return [str(item.value) for item in items], found[1], found[0].source


def made_by(node: ast.expr) -> ast.expr | None:
    """Return the class that makes the default of a dataclass field; None if no class does."""
    if not isinstance(node, ast.Call):
        return None
    if (dotted(node.func) or "").rpartition(".")[2] != "field":
        return node.func
    factory = keyword(node, "default_factory")
    if isinstance(factory, ast.Lambda):
        return factory.body.func if isinstance(factory.body, ast.Call) else None
    return factory


def entries(source: SourceFile) -> list[ClassRef]:
    """Return the classes that a file's EntryClass names."""
    value = source.constants.get("EntryClass")
    names = [node.id for node in walked(value) if isinstance(node, ast.Name)] if value is not None else []
    return [ClassRef(*found) for name in names if (found := source.resolve_class(name)) is not None]


def _same(one: ClassRef | None, two: ClassRef | None) -> bool:
    return one is not None and two is not None and one.node is two.node


def _annotated(home: ClassRef, function: ast.FunctionDef) -> Iterator[ClassRef | None]:
    for argument in function.args.args:
        yield class_named(home.source, argument.annotation)


@lru_cache(maxsize=16)
def _sglangs(sources: Sources) -> tuple[Registration, ...]:
    return tuple(one for source in _folder(sources, _CONFIGS) for one in registrations(source))


@lru_cache(maxsize=16)
def _dits(sources: Sources) -> dict[str, ClassRef]:
    """Name -> denoiser, of all that SGLang has."""
    found: dict[str, ClassRef] = {}
    for source in _folder(sources, _DITS):
        for cls in entries(source):
            found[cls.node.name] = cls
            aliases = cls.assigned("_aliases")
            for item in walked(aliases[1]) if aliases is not None else ():
                if isinstance(item, ast.Constant) and isinstance(item.value, str):
                    found.setdefault(item.value, cls)
    return found


def _folder(sources: Sources, folder: str) -> Sequence[SourceFile]:
    root = sources.diffusion
    files = files_matching(root / folder, "*.py") if root is not None else []
    return [source for file in files if (source := sources.read(file)) is not None]


def own_methods(serving: Serving, cls: ClassRef) -> Iterator[tuple[ClassRef, ast.FunctionDef]]:
    """Yield the methods of a class and its bases that the integration defines itself."""
    seen: set[str] = set()
    for entry in own_classes(cls):
        for item in entry.node.body:
            if isinstance(item, ast.FunctionDef) and item.name not in seen:
                seen.add(item.name)
                if serving.is_own(entry):
                    yield entry, item
