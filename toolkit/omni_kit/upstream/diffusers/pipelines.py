"""Pipelines of diffusers: their components, read from the class's constructor and from model_index.json."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.pysource.classes import ClassRef
from omni_kit.pysource.library import Library
from omni_kit.pysource.source import dotted
from omni_kit.upstream.diffusers.classes import (
    GUIDERS,
    MODELS,
    PIPELINES,
    SCHEDULERS,
    TRANSFORMERS,
    find_class,
    is_model,
    is_transformer,
    place_of,
)
from omni_kit.upstream.diffusers.signatures import arguments
from omni_kit.upstream.profile import Component

INDEX = "model_index.json"
SCHEDULER = "scheduler"  # what pipelines with one call it
_UNETS, _AUTOENCODERS, _CONTROLNETS = f"{MODELS}/unets", f"{MODELS}/autoencoders", f"{MODELS}/controlnets"
# The folder of a class of diffusers -> its role.
_ROLES = {
    TRANSFORMERS: "denoiser", _UNETS: "denoiser", _AUTOENCODERS: "autoencoder", _CONTROLNETS: "controlnet",
    SCHEDULERS: "scheduler", GUIDERS: "guider",
}  # fmt: skip
# How names of classes of other libraries end -> their role.
_ENDINGS = {
    ("Tokenizer", "TokenizerFast"): "tokenizer",
    ("Processor", "ProcessorFast", "FeatureExtractor"): "processor",
    ("ForCausalLM", "ForConditionalGeneration"): "encoder",
    ("Model", "ModelWithProjection", "Encoder"): "encoder",
}


@dataclass(frozen=True)
class Pipeline:
    """A pipeline: its class, and what its model_index.json says.

    Attributes:
        values: what model_index.json says; empty if only the class is known.
    """

    library: Library
    cls: ClassRef
    values: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """Its parts: those that model_index.json names, else those that the constructor declares.

        Raises:
            BadInput: diffusers has no class of a part that is said to be of diffusers.
        """
        found = self._indexed() if self.values else self._declared()
        return tuple(sorted(found, key=lambda one: one.role != "denoiser"))

    @cached_property
    def denoiser(self) -> Component:
        """The transformer that denoises: of several, the one that the pipeline runs first.

        Raises:
            BadInput: it has none, or what denoises is not a transformer; or as `components`.
        """
        found = [one for one in self.components if one.role == "denoiser"]
        able = [one for one in found if (cls := find_class(self.library, one.class_name)) and is_transformer(cls)]
        if able:
            return min(able, key=lambda one: self._place(one.name))
        name = self.cls.node.name
        if found:
            raise BadInput(
                f"{name} denoises with {found[0].name}, a {found[0].class_name}, which is not a transformer",
                f"pass a pipeline whose denoiser is a class of {self.library.name}/{TRANSFORMERS}",
            )
        there = ", ".join(one.name for one in self.components) or "none"
        raise BadInput(f"{name} has no denoiser among its components ({there})", "pass a pipeline with a transformer")

    @property
    def lacking(self) -> tuple[str, ...]:
        """Parts that the constructor asks for, and model_index.json leaves out."""
        if not self.values:
            return ()
        declared = (name for name, _, optional in self._asked() if not optional)
        return tuple(name for name in declared if not _named(self.values.get(name)))

    @cached_property
    def _sequence(self) -> tuple[list[str], str]:
        """The order in which parts are run, and where the class says so."""
        found = self.cls.assigned("model_cpu_offload_seq")
        if found is None or not isinstance(found[1], ast.Constant) or not isinstance(found[1].value, str):
            return [], ""
        return found[1].value.split("->"), found[0].source.where(found[1])

    def _place(self, name: str) -> int:
        order = self._sequence[0]
        return order.index(name) if name in order else len(order)

    @cached_property
    def optional(self) -> frozenset[str]:
        """The parts that the class lists as optional, also those that are not components here."""
        found = self.cls.assigned("_optional_components")
        items = getattr(found[1], "elts", []) if found is not None else []
        return frozenset(str(item.value) for item in items if isinstance(item, ast.Constant))

    def _asked(self) -> Iterator[tuple[str, list[str], bool]]:
        """Yield each argument of the constructor that takes a part: its name, the classes, and whether it may be
        absent.
        """
        for argument in arguments(self.cls).values():
            names = [name for name in argument.names if self._of_library(name) is not None]
            if names:
                yield argument.name, names, argument.name in self.optional or not argument.required

    def _of_library(self, name: str) -> str | None:
        """Return the library whose class a name is in the constructor's file; None for anything else, as plain
        types.
        """
        found = self.cls.method("__init__")
        imported = (found[0] if found is not None else self.cls).source.imports.get(name)
        if imported is None or not name[:1].isupper():
            return None
        library = imported.module.partition(".")[0]
        if library == self.library.name:
            cls = find_class(self.library, name)
            known = cls is not None and (is_model(cls) or self._role(library, name) != "other")
            return library if known else None
        return library if library == "transformers" else None

    def _declared(self) -> Iterator[Component]:
        where = {argument.name: argument.where for argument in arguments(self.cls).values()}
        for name, classes, optional in self._asked():
            chosen = self._with_config_read(name, classes)
            yield self._component(name, str(self._of_library(chosen)), chosen, where[name], optional)

    def _with_config_read(self, name: str, classes: list[str]) -> str:
        """Return the first of several classes whose config has every value that the pipeline's code reads of it."""
        if len(classes) == 1:
            return classes[0]
        prefix = f"self.{name}.config."
        whole = (dotted(node) or "" for node in ast.walk(self.cls.node) if isinstance(node, ast.Attribute))
        read = {text.removeprefix(prefix).partition(".")[0] for text in whole if text.startswith(prefix)}
        for one in classes if read else ():
            found = find_class(self.library, one)
            if found is not None and read <= set(arguments(found)):
                return one
        return classes[0]

    @cached_property
    def retired(self) -> str:
        """The version since which the constructor raises, as a class with another name took over; empty if none."""
        found = self.cls.method("__init__")
        for node in found[1].body if found is not None else ():
            call = node.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
            if call is not None and dotted(call.func) == "deprecate" and len(call.args) > 1:
                since = call.args[1].value if isinstance(call.args[1], ast.Constant) else ""
                if since and _release(str(since)) <= _release(self.library.version):
                    return str(since)
        return ""

    def _indexed(self) -> Iterator[Component]:
        asked = {name: optional for name, _, optional in self._asked()}
        for name, value in self.values.items():
            if (given := _named(value)) is not None:
                yield self._component(name, *given, f"{INDEX}: {name}", asked.get(name, True))

    def _component(self, name: str, library: str, class_name: str, evidence: str, optional: bool) -> Component:
        """Raise BadInput where diffusers does not have the class."""
        folder = self.library.root / PIPELINES / library  # where classes of one pipeline alone are
        own = library == self.library.name or (library.isidentifier() and folder.is_dir())
        place = place_of(self.library, class_name) if own else None
        if own and place is None:
            version = f"{self.library.name} {self.library.version}"
            raise BadInput(
                f"{name} is of class {class_name} ({evidence}), which {version} does not have",
                "pass another --diffusers, or a newer one",
            )
        where = f"{evidence}; {self.library.name}/{place}" if place else evidence
        return Component(name, library, class_name, self._role(library, class_name), optional, where)

    def _role(self, library: str, class_name: str) -> str:
        place = place_of(self.library, class_name) if library != "transformers" else None
        if place is not None:
            return next((role for folder, role in _ROLES.items() if place.startswith(f"{folder}/")), "other")
        return next((role for endings, role in _ENDINGS.items() if class_name.endswith(endings)), "other")


def find_pipeline(library: Library, class_name: str, values: Mapping[str, Any]) -> Pipeline:
    """Return the pipeline of a class.

    Args:
        values: its model_index.json; empty if only the class is known.

    Raises:
        BadInput: the library has no such class, or it is not a pipeline.
    """
    cls = find_class(library, class_name)
    if cls is None or not (place_of(library, class_name) or "").startswith(f"{PIPELINES}/"):
        raise BadInput(
            f"{library.name} {library.version} has no pipeline {class_name}", "pass another --diffusers, or a newer one"
        )
    return Pipeline(library, cls, values)


def _release(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def _named(value: Any) -> tuple[str, str] | None:
    """Library and class of an entry of model_index.json; None for a setting, and for a part that is left out."""
    if isinstance(value, (list, tuple)) and len(value) == 2 and all(isinstance(part, str) for part in value):
        return value[0], value[1]
    return None
