"""What passed before, on the same files with the same versions."""

import contextlib
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from omni_kit.files import cache_directory, write_atomic
from omni_kit.verify.card import Stage


@dataclass(frozen=True)
class Earlier:
    """Stages of runs whose pins were these.

    Anybody who can write into the user's cache can forge it: a card says of each stage whether it was run, and where
    the verdict counts, as in CI, it is asked for with --fresh.
    """

    pins: Mapping[str, Any]

    @property
    def _file(self) -> Path:
        key = hashlib.sha256(json.dumps(self.pins, sort_keys=True).encode()).hexdigest()
        return cache_directory() / "verify" / f"{key}.json"

    @cached_property
    def stages(self) -> dict[str, Stage]:
        """Those that passed, by name."""
        try:
            kept = json.loads(self._file.read_text(encoding="utf-8"))
            found = [Stage(**one) for one in kept]
        except (OSError, ValueError, TypeError):
            return {}
        return {stage.stage: stage for stage in found if stage.status == "passed"}

    def keep(self, stages: Sequence[Stage]) -> None:
        """Remembers what passed; where the cache cannot be written, the next run begins anew."""
        known = {**self.stages, **{stage.stage: stage for stage in stages if stage.status == "passed"}}
        text = json.dumps([{**asdict(stage), "resumed": False} for stage in known.values()])
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(self._file, text)
