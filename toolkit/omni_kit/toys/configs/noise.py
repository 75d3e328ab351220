"""A config in which everything that is left to chance is switched on, each share another one."""

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omni_kit.toys.configs.sizes import NOISE

_FIRST, _STEP = 0.11, 0.03


def with_noise(config: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """A toy's config with shares of dropout that are not zero; and how many there are."""
    made = copy.deepcopy(dict(config))
    shares = list(_shares(made))
    for number, (part, key) in enumerate(shares):
        part[key] = round(_FIRST + _STEP * number, 2)
    return made, len(shares)


def write_with_noise(checkpoint: Path, out: Path) -> int:
    """Write the config of a checkpoint with noise below `out`; how many shares of dropout there are."""
    made, count = with_noise(json.loads((checkpoint / "config.json").read_text(encoding="utf-8")))
    out.mkdir(parents=True, exist_ok=True)
    (out / "config.json").write_text(json.dumps(made), encoding="utf-8")
    return count


def _shares(part: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    own = [(part, key) for key, value in part.items() if isinstance(value, float) and _is_dropout(key)]
    return own + [share for one in part.values() if isinstance(one, dict) for share in _shares(one)]


def _is_dropout(key: str) -> bool:
    return key.endswith(NOISE) and "jitter" not in key and "layer" not in key
