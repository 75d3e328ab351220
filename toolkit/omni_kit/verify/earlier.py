"""What passed before, on the same files with the same versions."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from omni_kit.files import cache_directory
from omni_kit.isolation.confinement import can_confine
from omni_kit.keyed import read_keyed, write_keyed
from omni_kit.verify.card import Stage


@dataclass(frozen=True)
class Earlier:
    """Stages of runs whose pins were these.

    An integration cannot forge them: the cache is closed to its processes, and so is the key that entries are written
    with. Where the system cannot close them, no stage is taken from an earlier run.
    """

    pins: Mapping[str, Any]

    @property
    def _file(self) -> Path:
        key = hashlib.sha256(json.dumps(self.pins, sort_keys=True).encode()).hexdigest()
        return cache_directory() / "verify" / f"{key}.json"

    @cached_property
    def stages(self) -> dict[str, Stage]:
        """Those that passed, by name."""
        if not can_confine():
            return {}
        try:
            kept = json.loads(read_keyed(self._file))
            found = [Stage(**one) for one in kept]
        except (OSError, ValueError, TypeError):
            return {}
        return {stage.stage: stage for stage in found if stage.status == "passed"}

    def keep(self, stages: Sequence[Stage]) -> None:
        """Remembers what passed; where the cache cannot be written, the next run begins anew."""
        known = {**self.stages, **{stage.stage: stage for stage in stages if stage.status == "passed"}}
        text = json.dumps([{**asdict(stage), "resumed": False} for stage in known.values()])
        write_keyed(self._file, text)
