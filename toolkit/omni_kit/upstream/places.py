"""Contents of a path: readable weights, configs, and refused files."""

import json
import re
from pathlib import Path
from typing import Any

from omni_kit.errors import BadInput, reason
from omni_kit.files import files_matching, is_file

INDEX_SUFFIX = ".safetensors.index.json"
_SHARD = re.compile(r"-[0-9]{5}-of-(?P<count>[0-9]{5})\.safetensors$")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_PICKLED = "it is a pickle, which can run code when loaded: save it with safe_serialization first"
_OTHER_FORMATS = {
    ".gguf": "GGUF files are for inference: pass the original checkpoint",
    **dict.fromkeys(_PICKLES, _PICKLED),
}


def path_of(given: str) -> Path | None:
    """Return the existing path of that name; None if there is none, or the name cannot be a path."""
    try:
        path = Path(given).expanduser()
        return path if path.exists() else None
    except (OSError, ValueError, RuntimeError):  # too long, a character that no name has, nobody's home
        return None


def weights_at(path: Path, given: str) -> Path | None:
    """Return the shard, the index or the directory to read headers from; None if there are only configs.

    Raises:
        BadInput: what lies there holds neither, or weights of another format.
    """
    if path.is_dir():
        has_weights = any(path.glob("*.safetensors")) or any(path.glob(f"*{INDEX_SUFFIX}"))
        if not has_weights and not (path / "config.json").is_file():
            refuse_pickles(path)
            raise BadInput(f"{given} contains neither config.json nor safetensors files")
        return path if has_weights else None
    if path.suffix == ".safetensors" or path.name.endswith(INDEX_SUFFIX):
        return path
    if path.suffix == ".json":
        return None
    refuse_other_formats(path, given)
    raise BadInput(f"{given} is not a config.json, *.safetensors or *{INDEX_SUFFIX}")


def refuse_other_formats(path: Path, given: str) -> None:
    """Raise BadInput for weights in a file that is not read, with the way out."""
    if way := _OTHER_FORMATS.get(path.suffix):
        raise BadInput(f"{given} is not a safetensors file", way)


def refuse_pickles(directory: Path) -> None:
    """Raise BadInput if a directory has pickles; to be called if it has no safetensors files."""
    pickled = sorted(item.name for item in directory.iterdir() if item.suffix in _PICKLES)
    if pickled:
        raise BadInput(
            f"{directory} has only pickled weights ({pickled[0]}), which can run code when they are read",
            "save them with save_pretrained(..., safe_serialization=True) first",
        )


def one_of_several(path: Path) -> bool:
    """Return whether a file is a shard of a checkpoint that has others, by its name or by an index next to it."""
    if path.suffix != ".safetensors" or path.is_dir():
        return False
    match = _SHARD.search(path.name)
    if match is not None and int(match["count"]) > 1:
        return True
    for index in files_matching(path.parent, f"*{INDEX_SUFFIX}"):
        placed = read_json(index).get("weight_map")
        names = {name for name in placed.values() if isinstance(name, str)} if isinstance(placed, dict) else set()
        if path.name in names and len(names) > 1:
            return True
    return False


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object from a file.

    Raises:
        BadInput: unreadable, not JSON, or not an object.
    """
    if path.exists() and not is_file(path):
        raise BadInput(f"{path} is not a file", "pass a file")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(value, ensure_ascii=False).encode()  # a lone half of a character is no text
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput(f"cannot read {path}: {reason(error)}") from error
    if not isinstance(value, dict):
        raise BadInput(f"{path} is not a JSON object")
    return value
