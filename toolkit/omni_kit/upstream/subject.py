"""The one door for SOURCE: whatever was given becomes a Subject, whose kind and profile are read when asked for."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.files import is_file
from omni_kit.upstream.diffusers import traits as diffusers_traits
from omni_kit.upstream.diffusers.classes import class_names, is_diffusers_class
from omni_kit.upstream.hub import SCHEME, HubRepo, hub_file, parse_hub
from omni_kit.upstream.kinds import Kind
from omni_kit.upstream.library import Library, find_library
from omni_kit.upstream.profile import ModelProfile
from omni_kit.upstream.transformers import traits as transformers_traits
from omni_kit.upstream.transformers.autoclasses import config_of
from omni_kit.upstream.transformers.config_values import check_values, shown
from omni_kit.upstream.transformers.configs import ModelConfig, config_class, model_types
from omni_kit.upstream.transformers.defaults import default_values
from omni_kit.upstream.transformers.models import UpstreamModel, upstream_model

TRANSFORMERS, DIFFUSERS = "transformers", "diffusers"
_INDEX = ".safetensors.index.json"
_PIPELINE = "model_index.json"
_SHARD = re.compile(r"-[0-9]{5}-of-(?P<count>[0-9]{5})\.safetensors$")
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_PICKLED = "it is a pickle, which can run code when it is read: save it with safe_serialization first"
_OTHER_FORMATS = {
    ".gguf": "GGUF files are made for inference: take the checkpoint that this one was made from",
    **dict.fromkeys((".bin", ".pt", ".pth", ".ckpt", ".pkl"), _PICKLED),
}
_CLASS = "_class_name"  # how diffusers signs its configs


@dataclass(frozen=True)
class Subject:
    """An upstream model or pipeline, as opened from SOURCE.

    Attributes:
        given: SOURCE as typed.
        library: the version of the library whose classes it is of.
        name: the model_type of transformers, or the class of diffusers; empty where neither is known.
        directory: where its files lie; None for a name.
        weights: the shard, the index, the directory or the repository to read headers from; None when there are only
            configs.
        values: what its config.json, or model_index.json, says; empty when there is none.
        notes: what was understood otherwise than it was typed.
    """

    given: str
    library: Library
    name: str = ""
    directory: Path | None = None
    weights: Path | HubRepo | None = None
    values: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def architectures(self) -> list[str]:
        """The classes that the config names."""
        value = self.values.get("architectures")
        return [str(item) for item in value] if isinstance(value, list) else []

    @property
    def identified(self) -> bool:
        """Whether it says which model it is, by type, class or architecture."""
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
            own = config_class(self.library, self.name)
            named_alone = not self.values and self.directory is None and self.weights is None
            given = default_values(own, layers=None) if named_alone else self.values
            return ModelConfig(own, given, "defaults" if named_alone else "config.json")
        found = (config_of(self.library, name) for name in self.architectures)
        if cls := next((item for item in found if item is not None), None):
            return ModelConfig(cls, self.values, "config.json")
        raise BadInput(f"{self.given} does not say its model_type", "give --model-type, or --config FILE")

    @cached_property
    def model(self) -> UpstreamModel:
        """What transformers has for it.

        Raises:
            BadInput: as `config`; or transformers has no modeling class for it.
        """
        return upstream_model(self.library, self.config)

    @property
    def known_model(self) -> UpstreamModel | None:
        """`model`; None where nothing says which model it is, or where it is none of transformers.

        Raises:
            BadInput: as `model`.
        """
        return self.model if self.identified and self.library.name == TRANSFORMERS else None

    @cached_property
    def profile(self) -> ModelProfile:
        """What it is, with the evidence.

        Raises:
            BadInput: as `model`; or diffusers has no such class.
        """
        if self.library.name == DIFFUSERS:
            return diffusers_traits.profile(self.library, self.name, self.values)
        return transformers_traits.profile(self.model)

    @property
    def kind(self) -> Kind:
        """What kind of model or pipeline it is.

        Raises:
            BadInput: as `profile`.
        """
        return self.profile.kind


def open_source(
    given: str,
    *,
    transformers: Path | None = None,
    diffusers: Path | None = None,
    config: Path | None = None,
    model_type: str | None = None,
) -> Subject:
    """Understands SOURCE.

    Args:
        given: a path, the name of a model_type or of a class of diffusers, or hf://org/name.
        transformers, diffusers: unpacked libraries to read instead of the installed ones.
        config: a config.json to use instead of the one beside the weights.
        model_type: to take instead of the config's.

    Raises:
        BadInput: it is neither an existing path of a known sort nor a name that a library knows.
        MissingRequirement: the library that it is of is not installed.
    """
    libraries = _Libraries(transformers, diffusers)
    found = _opened(given, libraries, config)
    return replace(found, library=libraries.transformers, name=model_type) if model_type else found


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
    path = _path(given)
    if path is None:
        return _named(given, libraries, config)
    if not path.is_dir() and not is_file(path):
        raise BadInput(f"{given} is neither a file nor a directory", "give a checkpoint, or a config.json")
    if (index := _pipeline_index(path)) is not None and config is None:
        return _described(given, libraries, index.parent, _weights_of_pipeline(index.parent), read_json(index))
    directory = path if path.is_dir() else path.parent
    beside = config or (
        path if path.suffix == ".json" and not path.name.endswith(_INDEX) else directory / "config.json"
    )
    values = read_json(beside) if beside.exists() or config else {}
    found = _described(given, libraries, directory, _weights(path, given), values)
    if _one_of_several(path):
        note = f"{path.name} is one shard of several: read as {directory}"
        return replace(found, weights=directory, notes=(note,))
    return found


def _one_of_several(path: Path) -> bool:
    """Whether a file is a shard of a checkpoint that has others, by its name or by an index beside it."""
    if path.suffix != ".safetensors" or path.is_dir():
        return False
    match = _SHARD.search(path.name)
    if match is not None and int(match["count"]) > 1:
        return True
    for index in sorted(path.parent.glob(f"*{_INDEX}")):
        placed = read_json(index).get("weight_map")
        names = {name for name in placed.values() if isinstance(name, str)} if isinstance(placed, dict) else set()
        if path.name in names and len(names) > 1:
            return True
    return False


def _path(given: str) -> Path | None:
    """What lies there; None where nothing does, or where nothing can be called so."""
    try:
        path = Path(given).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, a character that no name has, nobody's home
        return None


def _named(given: str, libraries: _Libraries, config: Path | None) -> Subject:
    library = libraries.transformers
    if given in model_types(library):
        return Subject(given, library, given, values=read_json(config) if config else {})
    if not given.islower() and given.isidentifier() and is_diffusers_class(given, libraries.diffusers):
        return Subject(given, libraries.diffusers, given, values=read_json(config) if config else {})
    raise BadInput(
        f"'{given}' is neither a file, a directory nor a model_type of {library.name} {library.version}",
        _meant(given, libraries),
    )


def _meant(given: str, libraries: _Libraries) -> str:
    """What somebody may have meant by a name that is none."""
    if _HUB_NAME.fullmatch(given) and not given.startswith("."):
        return f"a repository of the hub is given as {SCHEME}{given}"
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
    return _described(given, libraries, None, repo, read_json(file) if file is not None else {})


def _described(
    given: str, libraries: _Libraries, directory: Path | None, weights: Path | HubRepo | None, values: dict[str, Any]
) -> Subject:
    """A Subject by what its config says of itself; where it says nothing, it is taken for one of transformers."""
    class_name, model_type = values.get(_CLASS), values.get("model_type")
    if isinstance(class_name, str):
        return Subject(given, libraries.diffusers, class_name, directory, weights, values)
    if not isinstance(model_type, str | None):
        raise BadInput(f"config.json: model_type is {shown(model_type)}, expected a text", "correct config.json")
    return Subject(given, libraries.transformers, model_type or "", directory, weights, values)


def _pipeline_index(path: Path) -> Path | None:
    """The model_index.json that `path` is or holds."""
    index = path / _PIPELINE if path.is_dir() else path
    return index if index.name == _PIPELINE and index.is_file() else None


def _weights_of_pipeline(root: Path) -> Path | None:
    """The weights of its denoiser."""
    inner = root / "transformer"
    return inner if any(inner.glob("*.safetensors")) else None


def _weights(path: Path, given: str) -> Path | None:
    if path.is_dir():
        has_weights = any(path.glob("*.safetensors")) or any(path.glob(f"*{_INDEX}"))
        if not has_weights and not (path / "config.json").is_file():
            pickled = sorted(item.name for item in path.glob("*.bin"))
            if pickled:
                raise BadInput(f"{given} has only pickled weights ({pickled[0]})", "save it as safetensors first")
            raise BadInput(f"{given} holds neither config.json nor safetensors files")
        return path if has_weights else None
    if path.suffix == ".safetensors" or path.name.endswith(_INDEX):
        return path
    if path.suffix == ".json":
        return None
    if way := _OTHER_FORMATS.get(path.suffix):
        raise BadInput(f"{given} is no safetensors file", way)
    raise BadInput(f"{given} is no config.json, *.safetensors or *{_INDEX}")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        BadInput: unreadable, not JSON, or not an object.
    """
    if path.exists() and not is_file(path):
        raise BadInput(f"{path} is no file", "give a file")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(value, ensure_ascii=False).encode()  # a lone half of a character is no text
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"cannot read {path}: {_reason(error)}") from error
    if not isinstance(value, dict):
        raise BadInput(f"{path} is not a JSON object")
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return error.strerror or "it cannot be opened"
    if isinstance(error, UnicodeEncodeError):
        return "it has a text with half a character (a lone surrogate)"
    return "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
