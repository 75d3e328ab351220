"""SOURCE of the command line: a checkpoint directory, a file of one, or a model_type."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput
from omni_kit.upstream.autoclasses import config_of
from omni_kit.upstream.configs import ModelConfig, config_class, model_types
from omni_kit.upstream.hub import SCHEME, HubRepo, hub_file, parse_hub
from omni_kit.upstream.library import Library

_INDEX_SUFFIX = ".safetensors.index.json"


@dataclass(frozen=True)
class Source:
    """What SOURCE turned out to be.

    Attributes:
        given: as typed.
        directory: where its files lie; None for a model_type.
        weights: the shard, the index, the directory or the repository to read headers from; None when there are only
            configs.
        config: content of config.json; empty when there is none.
        model_type: from the config, or as typed.
    """

    given: str
    directory: Path | None
    weights: Path | HubRepo | None
    config: dict[str, Any]
    model_type: str | None

    @property
    def names_model(self) -> bool:
        """Whether its config says which model it is, by type or by architecture."""
        return bool(self.model_type or self.architectures)

    @property
    def architectures(self) -> list[str]:
        value = self.config.get("architectures")
        return [str(item) for item in value] if isinstance(value, list) else []


def read_source_argument(given: str, library: Library, config_file: Path | None = None) -> Source:
    """Understands SOURCE.

    Args:
        given: a path or a model_type.
        library: the transformers whose model_types count.
        config_file: a config.json to use instead of the one beside the weights.

    Raises:
        BadInput: it is neither an existing path of a known kind nor a known model_type.
    """
    if given.startswith(SCHEME):
        return _from_hub(given, config_file)
    path = Path(given).expanduser()
    if not path.exists():
        if given in model_types(library):
            config = read_json(config_file) if config_file else {}
            return Source(given, None, None, config, given)
        raise BadInput(f"'{given}' is neither a file, a directory nor a model_type of {library.name} {library.version}")
    path = _component(path)
    directory = path if path.is_dir() else path.parent
    beside = config_file or directory / "config.json"
    config = read_json(beside) if beside.is_file() or config_file else {}
    weights = _weights(path, given)
    model_type = config.get("model_type")
    return Source(given, directory, weights, config, model_type if isinstance(model_type, str) else None)


def _from_hub(given: str, config_file: Path | None) -> Source:
    repo = parse_hub(given)
    file = config_file or hub_file(repo, "config.json")
    config = read_json(file) if file is not None else {}
    model_type = config.get("model_type")
    return Source(given, None, repo, config, model_type if isinstance(model_type, str) else None)


def _component(path: Path) -> Path:
    """The denoiser of a diffusers pipeline, when its root is given."""
    inner = path / "transformer"
    return inner if (path / "model_index.json").is_file() and any(inner.glob("*.safetensors")) else path


def _weights(path: Path, given: str) -> Path | None:
    if path.is_dir():
        has_weights = any(path.glob("*.safetensors")) or any(path.glob(f"*{_INDEX_SUFFIX}"))
        if not has_weights and not (path / "config.json").is_file():
            pickled = sorted(item.name for item in path.glob("*.bin"))
            if pickled:
                raise BadInput(f"{given} has only pickled weights ({pickled[0]})", "save it as safetensors first")
            raise BadInput(f"{given} holds neither config.json nor safetensors files")
        return path if has_weights else None
    if path.suffix == ".safetensors" or path.name.endswith(_INDEX_SUFFIX):
        return path
    if path.suffix == ".json":
        return None
    raise BadInput(f"{given} is no config.json, *.safetensors or *{_INDEX_SUFFIX}")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        BadInput: unreadable, not JSON, or not an object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise BadInput(f"cannot read {path}: {error}") from error
    if not isinstance(value, dict):
        raise BadInput(f"{path} is not a JSON object")
    return value


def model_config(source: Source, library: Library, model_type: str | None = None) -> ModelConfig:
    """The config of SOURCE over the defaults of its class.

    Raises:
        BadInput: no model_type is known, or the library does not have it.
    """
    wanted = model_type or source.model_type
    if not wanted:
        found = (config_of(library, name) for name in source.architectures)
        if cls := next((item for item in found if item is not None), None):
            return ModelConfig(cls, source.config, "config.json")
        raise BadInput(f"{source.given} does not say its model_type", "give --model-type, or --config FILE")
    return ModelConfig(config_class(library, wanted), source.config, "config.json")
