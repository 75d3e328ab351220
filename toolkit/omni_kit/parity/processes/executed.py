"""Measurement of the lines that a process executes in some files, by coverage.py and the tracer that it chooses.

Only calls from files that are measured are traced line by line; every other call costs one look-up.
"""

import importlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

_coverage: Any = None
with suppress(ImportError):
    _coverage = importlib.import_module("coverage")  # here, so that forks of a server need not import it

Arcs = dict[str, list[tuple[int, int]]]  # file -> from line, to line; negative where a function begins or ends


def can_measure() -> bool:
    """Return whether coverage.py is installed."""
    return _coverage is not None


class Execution:
    """Lines that this process has executed so far in the measured files, a set that may grow."""

    def __init__(self) -> None:
        self._measured: list[str] = []
        self._coverage: Any = None
        self._arcs: dict[str, set[tuple[int, int]]] = {}

    def begin(self, places: Iterable[str]) -> None:
        """Measure from now on what is below these directories, and nothing else."""
        self.end()
        self.measure(places)

    def measure(self, places: Iterable[str]) -> None:
        """Measure from now on these files, and what is below these directories, too."""
        new = [place for place in dict.fromkeys(places) if place not in self._measured]
        if new:
            self._gather()
            self._measured += new
            self._trace()

    def begin_in_fork(self) -> None:
        """Measure afresh in a fork, whose tracer and results are its parent's."""
        self.begin(list(self._measured))

    def end(self) -> Arcs:
        """Stop measuring; return what was executed, and forget it."""
        self._gather()
        found = {file: sorted(arcs) for file, arcs in self._arcs.items()}
        self._measured.clear()
        self._arcs.clear()
        return found

    def add(self, arcs: Mapping[str, Iterable[tuple[int, int]]]) -> None:
        """Count what another process has executed as executed by this one, which started it."""
        for file, some in arcs.items():
            self._arcs.setdefault(file, set()).update((here, there) for here, there in some)

    def _gather(self) -> None:
        if self._coverage is None:
            return
        self._coverage.stop()
        data = self._coverage.get_data()
        for file in data.measured_files():
            self._arcs.setdefault(file, set()).update(data.arcs(file) or ())
        self._coverage = None

    def _trace(self) -> None:
        include = [pattern for place in self._measured for pattern in (place, f"{place}/*")]
        self._coverage = _coverage.Coverage(
            data_file=None, branch=True, include=include, config_file=False, messages=False, check_preimported=False
        )
        self._coverage.start()


def write_executed(file: Path, arcs: Arcs) -> None:
    """Write what this process has executed for the one that started it."""
    file.write_text(json.dumps(arcs), encoding="utf-8")


def read_executed(file: Path) -> Arcs:
    """Return what `write_executed` has written."""
    found = json.loads(file.read_text(encoding="utf-8"))
    return {name: [(int(here), int(there)) for here, there in arcs] for name, arcs in found.items()}


execution = Execution()  # one a process, as its tracer is
