"""Compares how the two sides call attention: what no output on a CPU shows."""

import json
from pathlib import Path
from typing import Any

from omni_kit.parity.compare.files import load_json, reading_results
from omni_kit.targets.sides import AttentionCalls

FILE = "attention.json"


def save_calls(calls: AttentionCalls, directory: Path) -> None:
    """Write what was recorded."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / FILE).write_text(json.dumps(calls), encoding="utf-8")


def load_calls(directory: Path) -> AttentionCalls:
    """Read the calls that `save_calls` wrote.

    Raises:
        StepError: it is missing, damaged, not a file or reached by a link.
    """
    with reading_results(directory / FILE) as file:
        return {module: [dict(call) for call in calls] for module, calls in load_json(file).items()}


def attention_differences(reference: AttentionCalls, candidate: AttentionCalls) -> list[str]:
    """For each module that calls attention on both sides, what it says differently from upstream."""
    found = []
    for module in (name for name in reference if name in candidate):
        for key in reference[module][0]:
            theirs, mine = ([call[key] for call in calls[module]] for calls in (reference, candidate))
            if {*map(str, theirs)} != {*map(str, mine)}:
                found.append(f"{module} attends with {key}={_list(mine)} instead of {_list(theirs)}")
    return found


def _list(values: list[Any]) -> str:
    return " or ".join(dict.fromkeys(map(str, values)))
