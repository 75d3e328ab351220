"""Runs a saved comparison again: the same toy, levels and options."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from omni_kit.parity.candidate import Layout
from omni_kit.parity.processes.workers import Sides
from omni_kit.parity.report.report import ParityReport
from omni_kit.parity.report.saved import changes, load_replay
from omni_kit.parity.run import run_parity


def replay(
    file: Path,
    *,
    path: Path | None = None,
    work_dir: Path | None = None,
    sides: Sides | None = None,
    say: Callable[[str], None] = lambda line: None,
    **more: Any,
) -> ParityReport:
    """Run a saved comparison again, and notes versions and figures that are not those of that time.

    Args:
        path: compares another directory in the same way.
        more: as `run_parity`.

    Raises:
        BadInput: the file is none, or the directory or checkpoint that it names is gone.
    """
    saved = load_replay(file)
    asked = saved.options
    with tempfile.TemporaryDirectory() as place:
        toy = None
        if asked.toy is not None:
            toy = Path(place, "toy_config.json")
            toy.write_text(json.dumps(asked.toy), encoding="utf-8")
        report = run_parity(
            path or Path(asked.path),
            asked.levels,
            target=asked.target or None,
            checkpoint=Path(asked.checkpoint) if asked.checkpoint else None,
            toy=toy,
            layout=cast(Layout, asked.layout),
            device=asked.device,
            timeout=asked.timeout,
            prove=asked.prove,
            work_dir=work_dir,
            sides=sides,
            say=say,
            **more,
        )
    return replace(report, notes=[*changes(saved, report), *report.notes])
