"""The one door for SOURCE: whatever was given becomes a Subject, whose kind and profile are read when asked for."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.files import is_file
from omni_kit.pysource.library import Library, find_library
from omni_kit.upstream.diffusers import traits as diffusers_traits
from omni_kit.upstream.diffusers.classes import (
    MODULAR,
    PIPELINES,
    class_names,
    find_class,
    is_diffusers_class,
    is_transformer,
    place_of,
    transformer_names,
)
from omni_kit.upstream.diffusers.local_pipelines import outside_pipeline
from omni_kit.upstream.diffusers.models import ComponentModel, component_model
from omni_kit.upstream.diffusers.pipelines import INDEX, Pipeline, find_pipeline
from omni_kit.upstream.hub import SCHEME, HubRepo, hub_file, parse_hub
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.places import INDEX_SUFFIX, one_of_several, path_of, read_json, refuse_pickles, weights_at
from omni_kit.upstream.profile import ModelProfile
from omni_kit.upstream.repositories import traits as repository_traits
from omni_kit.upstream.repositories.published import SIGNED
from omni_kit.upstream.repositories.recorded import recorded_reference
from omni_kit.upstream.repositories.reference import Reference, find_reference, names_reference
from omni_kit.upstream.transformers import traits as transformers_traits
from omni_kit.upstream.transformers.autoclasses import config_of
from omni_kit.upstream.transformers.config_values import check_values, shown
from omni_kit.upstream.transformers.configs import ModelConfig, config_class, model_types
from omni_kit.upstream.transformers.defaults import default_values
from omni_kit.upstream.transformers.models import UpstreamModel, upstream_model

TRANSFORMERS, DIFFUSERS = "transformers", "diffusers"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_CONFIG = "config.json"
_CLASS = "_class_name"  # how diffusers signs its configs
_PREFIXES = (f"{TRANSFORMERS}:", f"{DIFFUSERS}:")


@dataclass(frozen=True)
class Subject:
    """An upstream model or pipeline, as opened from SOURCE.

    Attributes:
        given: SOURCE as typed.
        library: the version of the library whose classes it is of.
        name: the model_type of transformers, or the class of diffusers; empty if neither is known.
        directory: where its files lie; None for a name.
        weights: the shard, the index, the directory or the repository to read headers from; None when there are only
            configs.
        values: what its config.json, or model_index.json, says; empty when there is none.
        notes: what was understood differently from it was typed.
        pipeline: the pipeline whose denoiser it is, where a pipeline was given.
        diffusers: the unpacked diffusers to read instead of the installed one.
        reference: the class of its authors' repository, where that was given.
        origin: the name of the file that `values` come from.
    """

    given: str
    library: Library
    name: str = ""
    directory: Path | None = None
    weights: Path | HubRepo | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    pipeline: Pipeline | None = None
    diffusers: Path | None = None
    reference: Reference | None = None
    origin: str = _CONFIG

    @property
    def architectures(self) -> list[str]:
        """The classes that the config names."""
        value = self.values.get("architectures")
        return [str(item) for item in value] if isinstance(value, list) else []

    @property
    def identified(self) -> bool:
        """Return whether it says which model it is, by type, class or architecture."""
        return bool(self.name or self.architectures)

    @cached_property
    def config(self) -> ModelConfig:
        """The config over the defaults of its class, for a model of transformers.

        Raises:
            BadInput: no model_type is known, the library does not have it, or it is of another library; or a value is
                of another type, or larger, than any model's.
        """
        config = self._config()
        check_values(config)
        return config

    def _config(self) -> ModelConfig:
        if self.library.name != TRANSFORMERS:
            raise BadInput(f"{self.name or self.given} is of {self.library.name}, not of {TRANSFORMERS}")
        if self.name:
            if self.name not in model_types(self.library) and (files := self._own_code()):
                file, _, name = files[0].rpartition(".")
                raise BadInput(
                    f"{self.given} defines model_type '{self.name}' in code of its own ({file}.py, named by auto_map): "
                    "a config.json is read without it, which does not run",
                    f"open the class: {shlex.quote(f'{self.directory}::{name}')}",
                )
            own = config_class(self.library, self.name)
            named_alone = not self.values and self.directory is None and self.weights is None
            given = default_values(own, layers=None) if named_alone else self.values
            return ModelConfig(own, given, "defaults" if named_alone else self.origin)
        found = (config_of(self.library, name) for name in self.architectures)
        if cls := next((item for item in found if item is not None), None):
            return ModelConfig(cls, self.values, self.origin)
        raise BadInput(f"{self.given} has no model_type", "pass the config.json of the model, or its name")

    def _own_code(self) -> list[str]:
        """Return classes of files next to config.json that `auto_map` names, as MODULE.CLASS; models first."""
        named = self.values.get("auto_map")
        if self.directory is None or not isinstance(named, dict):
            return []
        texts = [text for text in named.values() if isinstance(text, str) and text.count(".") == 1]
        found = [text for text in texts if (self.directory / f"{text.partition('.')[0]}.py").is_file()]
        return sorted(found, key=lambda text: text.endswith("Config"))

    @cached_property
    def model(self) -> UpstreamModel:
        """Class of transformers for it.

        Raises:
            BadInput: as `config`; or transformers has no modeling class for it.
        """
        return upstream_model(self.library, self.config)

    @property
    def known_model(self) -> UpstreamModel | None:
        """`model`; None if nothing says which model it is, or where it is none of transformers.

        Raises:
            BadInput: as `model`.
        """
        return self.model if self.identified and self.library.name == TRANSFORMERS else None

    @property
    def known_class(self) -> bool:
        """Return whether it is of a class that diffusers has: original authors sign configs, too, by classes of their
        own.
        """
        return self.library.name == DIFFUSERS and find_class(self.library, self.name) is not None

    @cached_property
    def component(self) -> ComponentModel | None:
        """Class of diffusers for it; None if it does not belong to diffusers.

        Raises:
            BadInput: diffusers has no such class, it is no model, or a value of its config can be none of it.
        """
        if self.library.name != DIFFUSERS:
            return None
        return component_model(self.library, self.name, self.values)

    @property
    def loaded(self) -> UpstreamModel | ComponentModel | None:
        """Model that its weights are loaded into: `known_model`, or `component`; None if the model is unknown.

        Raises:
            BadInput: as these.
        """
        return self.known_model or self.component

    @cached_property
    def profile(self) -> ModelProfile:
        """Profile of the model, with the evidence.

        Raises:
            BadInput: as `model`; or diffusers has no such class.
        """
        if self.reference is not None:
            return repository_traits.profile(self.reference)
        if self.library.name == DIFFUSERS and (place_of(self.library, self.name) or "").startswith(f"{MODULAR}/"):
            return diffusers_traits.modular_profile(self.library, self.name)
        if (component := self.component) is not None:
            return diffusers_traits.profile(component, self.pipeline.components if self.pipeline is not None else ())
        return transformers_traits.profile(self.model)

    @property
    def kind(self) -> Kind:
        """Kind of the model or pipeline.

        Raises:
            BadInput: as `profile`.
        """
        return self.profile.kind

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Everything that it can be taken for: its own kind, and a pipeline, standard or modular, where one was given.

        Raises:
            BadInput: as `profile`.
        """
        return (self.kind, Kind.pipeline, Kind.modular) if self.pipeline is not None else (self.kind,)

    @property
    def kinds_on_request(self) -> tuple[Kind, ...]:
        """Kinds that it is not recognised as, and that a person may say it has: a denoiser, of an authors' class."""
        return (Kind.dit,) if self.reference is not None else ()


def open_source(
    given: str,
    *,
    transformers: Path | None = None,
    diffusers: Path | None = None,
    config: Path | None = None,
    model_type: str | None = None,
) -> Subject:
    """Understands SOURCE. Of a pipeline, the subject is its denoiser; the other components are next to it.

    Args:
        given: a path, the name of a model_type or of a class of diffusers, hf://org/name, or a class of its authors'
            repository as `PATH::Class` or `package.module:Class`; a file of Python, or a directory with pipeline.py,
            is the pipeline that it defines. `transformers:NAME` and `diffusers:NAME` mean the
            name even where the working directory has a file of that name.
        transformers, diffusers: unpacked libraries to read instead of the installed ones.
        config: a config.json to use instead of the one next to the weights.
        model_type: to take instead of the config's; or a class of diffusers.

    Raises:
        BadInput: it is neither an existing path of a known sort nor a name that a library knows; or a class or a
            pipeline of diffusers that is, or has, no transformer.
        MissingRequirement: the library that it is of is not installed.
    """
    if not given.strip():
        raise BadInput("SOURCE is empty", "pass a path, the name of a model_type or class, or hf://org/name")
    libraries = _Libraries(transformers, diffusers)
    found = replace(_opened(given, libraries, config), diffusers=diffusers)
    if not model_type:
        return found
    of_diffusers = model_type[:1].isupper() and is_diffusers_class(model_type, libraries.diffusers)
    return replace(found, library=libraries.diffusers if of_diffusers else libraries.transformers, name=model_type)


def open_name(name: str) -> Subject:
    """Return the Subject of a model_type or a class of diffusers, whatever is in the working directory.

    Raises:
        BadInput: neither installed library has the name.
    """
    return _named(name, _Libraries(None, None), None)


_SHOWN = 200  # characters of a SOURCE that a message quotes
_SOURCES = "pass a config.json, a checkpoint, a model_type, or a class of diffusers"


@dataclass(frozen=True)
class _Libraries:
    """The libraries to read, found when they are needed."""

    transformers_path: Path | None
    diffusers_path: Path | None

    @cached_property
    def transformers(self) -> Library:
        return find_library(TRANSFORMERS, self.transformers_path)

    @cached_property
    def diffusers(self) -> Library:
        return find_library(DIFFUSERS, self.diffusers_path)


def _opened(given: str, libraries: _Libraries, config: Path | None) -> Subject:
    if given.startswith(SCHEME):
        return _from_hub(given, libraries, config)
    if given.startswith(_PREFIXES):
        return _named(given, libraries, config)
    if (outside := outside_pipeline(given, libraries.diffusers)) is not None:
        return _denoiser(given, outside, {}, None, None)
    if names_reference(given) and path_of(given) is None:
        reference = find_reference(given)
        return Subject(given, reference.repository, reference.class_name, reference=reference)
    path = path_of(given)
    if path is None:
        return _named(given, libraries, config)
    prefix = _prefix_of_name(given, libraries)
    try:
        found = _at_path(given, path, libraries, config)
    except BadInput as error:
        if error.hint:
            raise
        hint = f"pass {prefix}:{given} for the name in {prefix}" if prefix else _SOURCES
        raise BadInput(str(error), hint) from error
    note = f"read {path.resolve()}; pass {prefix}:{given} for the name in {prefix}"
    return replace(found, notes=(*found.notes, note)) if prefix else found


def _prefix_of_name(given: str, libraries: _Libraries) -> str:
    """Return the library that has a model of that name; empty if none has."""
    if not given.isidentifier() and "-" not in given:
        return ""
    if given[:1].isupper():
        return DIFFUSERS if _defines(libraries.diffusers, given) else ""
    return TRANSFORMERS if given in model_types(libraries.transformers) else ""


def _at_path(given: str, path: Path, libraries: _Libraries, config: Path | None) -> Subject:
    if not path.is_dir() and not is_file(path):
        raise BadInput(f"{given} is neither a file nor a directory", "pass a checkpoint, or a config.json")
    if (index := _pipeline_index(path)) is not None:
        return _pipeline(given, libraries, index, config)
    directory = path if path.is_dir() else path.parent
    own = path.suffix == ".json" and not path.name.endswith(INDEX_SUFFIX)
    beside = config or (path if own else directory / "config.json")
    values = read_json(beside) if beside.exists() or config else {}
    if SIGNED in values:
        return _recorded(given, beside, values, directory)
    found = _described(given, libraries, directory, weights_at(path, given), values, beside.name)
    if found.library.name == DIFFUSERS and path.is_dir() and found.weights is None:
        refuse_pickles(directory)
    if one_of_several(path):
        note = f"{path.name} is one shard of several: read as {directory}"
        return replace(found, weights=directory, notes=(note,))
    return found


def _recorded(given: str, file: Path, values: dict[str, Any], directory: Path) -> Subject:
    """Return the class of a repository that a config says it is of."""
    found = recorded_reference(file)
    return Subject(given, found.repository, found.class_name, directory, None, values, reference=found)


def _pipeline_index(path: Path) -> Path | None:
    """The model_index.json that `path` is or holds."""
    index = path / INDEX if path.is_dir() else path
    return index if index.name == INDEX and index.is_file() else None


def _pipeline(given: str, libraries: _Libraries, index: Path, config: Path | None) -> Subject:
    """Return the denoiser of a pipeline, with its config and weights where its directory has them."""
    pipeline = _indexed(libraries, read_json(index), index.parent)
    name = pipeline.denoiser.name
    if Path(name).name != name:
        raise BadInput(f"{INDEX} calls a component '{name}', which is not a directory next to it", "correct it")
    folder = index.parent / name
    beside = config or folder / "config.json"
    values = read_json(beside) if beside.exists() or config else {}
    weights = weights_at(folder, str(folder)) if (folder / "config.json").is_file() else None
    if folder.is_dir() and weights is None:
        refuse_pickles(folder)
    return _denoiser(given, pipeline, values, folder if folder.is_dir() else index.parent, weights)


def _indexed(libraries: _Libraries, values: Mapping[str, Any], directory: Path | None = None) -> Pipeline:
    """Return the pipeline that a model_index.json describes; `[module, class]` names one of a file next to it."""
    class_name = values.get(_CLASS)
    if isinstance(class_name, list) and len(class_name) == 2 and directory is not None:
        file = f"{directory / class_name[0]}.py::{class_name[1]}"
        if (outside := outside_pipeline(file, libraries.diffusers, values)) is not None:
            return outside
    if not isinstance(class_name, str):
        raise BadInput(f"{INDEX} has no {_CLASS}: diffusers did not write it", "pass a pipeline of diffusers")
    return find_pipeline(libraries.diffusers, class_name, values)


def _denoiser(
    given: str, pipeline: Pipeline, values: Mapping[str, Any], directory: Path | None, weights: Path | HubRepo | None
) -> Subject:
    """Return the subject of a pipeline, whose config must not contradict the index."""
    denoiser = pipeline.denoiser
    if (said := values.get(_CLASS, denoiser.class_name)) != denoiser.class_name:
        raise BadInput(
            f"{denoiser.name} is a {denoiser.class_name} by {INDEX} and a {said} by its config.json", "correct one"
        )
    name = pipeline.cls.node.name
    others = [one.name for one in pipeline.components if one.role == denoiser.role and one is not denoiser]
    notes = [f"{name} also has {other}, another denoiser: pass its directory to read that one" for other in others]
    notes += [f"{name} asks for {part}, which {INDEX} leaves out" for part in pipeline.lacking]
    found = Subject(given, pipeline.library, denoiser.class_name, directory, weights, values, tuple(notes))
    return replace(found, pipeline=pipeline)


def _named(given: str, libraries: _Libraries, config: Path | None) -> Subject:
    library, values = libraries.transformers, read_json(config) if config else {}
    prefix = given.partition(":")[0] if given.startswith(_PREFIXES) else ""
    name = given.removeprefix(f"{prefix}:")
    if prefix != DIFFUSERS and name in model_types(library):
        left = _experts_left_open(library, name) if not values else ""
        note = f"{name}'s config leaves {left} open: pass a config.json or a checkpoint to have its experts read"
        return Subject(given, library, name, values=values, notes=(note,) if left else ())
    if prefix != TRANSFORMERS and name[:1].isupper() and name.isidentifier() and _defines(libraries.diffusers, name):
        return _of_class(given, name, libraries.diffusers, values)
    if prefix:
        owner, sort = (library, "model_type") if prefix == TRANSFORMERS else (libraries.diffusers, "class")
        raise BadInput(f"{prefix} {owner.version} has no {sort} '{name}'", _meant(name, libraries))
    hint = _meant(given, libraries) or _SOURCES
    if "/" in given or Path(given[:_SHOWN]).is_symlink():
        raise BadInput(f"{given[:_SHOWN]} does not exist, or is a link to a missing file", hint)
    raise BadInput(
        f"'{given[:_SHOWN]}' is neither a file, a directory nor a model_type of {library.name} {library.version}", hint
    )


def _experts_left_open(library: Library, name: str) -> str:
    """The number of experts that a config class has and gives no default; empty if there is none."""
    defaults = config_class(library, name).defaults
    open_counts = (one for one in transformers_traits.EXPERT_COUNTS if one in defaults and defaults[one].value is None)
    return next(open_counts, "")


def _defines(library: Library, name: str) -> bool:
    return is_diffusers_class(name, library) or place_of(library, name) is not None


def _of_class(given: str, name: str, library: Library, values: Mapping[str, Any]) -> Subject:
    """Return a transformer by its name, or the denoiser of a pipeline by the pipeline's name."""
    place = place_of(library, name) or "__init__.py"
    if place.startswith(f"{PIPELINES}/") and name.endswith("Pipeline"):
        return _denoiser(given, find_pipeline(library, name, {}), values, None, None)
    cls = find_class(library, name)
    if place.startswith(f"{MODULAR}/") or (cls is not None and is_transformer(cls)):
        return Subject(given, library, name, values=values)
    close = get_close_matches(name, transformer_names(library), n=1)
    raise BadInput(
        f"{name} is not a transformer: it is in {library.name}/{place}",
        f"pass a transformer{f', such as {close[0]},' if close else ''} or a pipeline that has one",
    )


def _meant(given: str, libraries: _Libraries) -> str:
    """Return suggestions for an unknown name."""
    if _HUB_NAME.fullmatch(given) and not given.startswith("."):
        return f"a repository of the hub is written {SCHEME}{given}"
    if given[:1].isupper():
        close = get_close_matches(given, class_names(libraries.diffusers), n=3)
    else:
        plain = given.lower().replace("-", "_").replace(".", "_")
        known = model_types(libraries.transformers)
        close = [plain] if plain in known else get_close_matches(plain, known, n=3)
    return f"did you mean {', '.join(close)}?" if close else ""


def _from_hub(given: str, libraries: _Libraries, config: Path | None) -> Subject:
    repo = parse_hub(given)
    file = config or hub_file(repo, "config.json")
    if file is None and (index := hub_file(repo, INDEX)) is not None:
        pipeline = _indexed(libraries, read_json(index))
        inner = hub_file(repo, f"{pipeline.denoiser.name}/config.json")
        return _denoiser(given, pipeline, read_json(inner) if inner is not None else {}, None, None)
    return _described(given, libraries, None, repo, read_json(file) if file is not None else {})


def _described(
    given: str,
    libraries: _Libraries,
    directory: Path | None,
    weights: Path | HubRepo | None,
    values: dict[str, Any],
    origin: str = _CONFIG,
) -> Subject:
    """Return a Subject by what its config says of itself; where it says nothing, it is taken for one of
    transformers.
    """
    class_name, model_type = values.get(_CLASS), values.get("model_type")
    if isinstance(class_name, str):
        return Subject(given, libraries.diffusers, class_name, directory, weights, values)
    if not isinstance(model_type, str | None):
        raise BadInput(f"{origin}: model_type is {shown(model_type)}, expected a text", f"correct {origin}")
    return Subject(given, libraries.transformers, model_type or "", directory, weights, values, origin=origin)
