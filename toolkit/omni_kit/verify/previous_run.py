"""Stages that passed before on the same files with the same versions."""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from omni_kit.authenticated_cache import read_keyed, write_keyed
from omni_kit.files import cache_directory
from omni_kit.isolation.confinement import can_confine
from omni_kit.verify.card import Stage
from omni_kit.verify.pins import digest


@dataclass(frozen=True)
class Earlier:
    """Stages of earlier runs with the same pins, valid while every file that those runs loaded is unchanged.

    An integration cannot forge them: the cache is closed to its processes, and so is the key that entries are written
    with. Where the system cannot close them, no stage is taken from an earlier run.
    """

    pins: Mapping[str, Any]

    @property
    def _file(self) -> Path:
        key = hashlib.sha256(json.dumps(self.pins, sort_keys=True).encode()).hexdigest()
        return cache_directory() / "verify" / f"{key}.json"

    @cached_property
    def _kept(self) -> tuple[dict[str, Stage], dict[str, str], dict[str, list[tuple[int, int]]]]:
        """Return the stages by name, the digests of the files that they hang on, and what they executed; nothing if
        one has changed.
        """
        if not can_confine():
            return {}, {}, {}
        try:
            kept = json.loads(read_keyed(self._file))
            stages = [Stage(**one) for one in kept["stages"]]
            files = dict(kept["files"])
            executed = {
                file: [(here, there) for here, there in arcs] for file, arcs in kept.get("executed", {}).items()
            }
            same = all(digest(Path(file)) == value for file, value in files.items())
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return {}, {}, {}
        passed = {stage.stage: stage for stage in stages if stage.status == "passed"}
        return (passed, files, executed) if same else ({}, {}, {})

    @property
    def stages(self) -> dict[str, Stage]:
        """Stages that passed, by name."""
        return self._kept[0]

    @property
    def files(self) -> frozenset[Path]:
        """The files that they loaded."""
        return frozenset(map(Path, self._kept[1]))

    @property
    def executed(self) -> dict[str, list[tuple[int, int]]]:
        """Return the lines that earlier runs executed in the files whose branches are measured."""
        return self._kept[2]

    def keep(
        self,
        stages: Sequence[Stage],
        loaded: Iterable[Path] | None,
        executed: Mapping[str, Collection[tuple[int, int]]] | None = None,
    ) -> None:
        """Remember what passed, and forget what no longer does; without a writable cache the next run starts over.

        Args:
            loaded: the files that the stages which ran hang on; None if that is unknown, so none is remembered.
            executed: see `executed`; of all stages, those of earlier runs included.
        """
        ran = {stage.stage: stage for stage in stages if not (stage.resumed or stage.left_out)}
        passed = [stage for stage in ran.values() if stage.status == "passed" and loaded is not None]
        known = [*(stage for name, stage in self.stages.items() if name not in ran), *passed]
        kept = {
            "stages": [{**asdict(stage), "resumed": False} for stage in known],
            "files": {str(file): digest(file) for file in sorted({*(loaded or ()), *self.files})},
            "executed": {file: sorted(arcs) for file, arcs in (executed or {}).items()},
        }
        write_keyed(self._file, json.dumps(kept))
