"""Grades a project: `python -m omni_evals.grade GRADE_PY` writes the reward where Harbor looks for it."""

import json
import runpy
import sys
import traceback
from pathlib import Path

from . import places
from .grader import Grader, Missed


def grade(file: Path, grader: Grader) -> str:
    """Return why a project does not meet its task, by the `grade` function of a file; empty if it does.

    A grader that breaks on what it finds says "crashed": the project is not right, and neither is the grader.
    """
    try:
        runpy.run_path(str(file))["grade"](grader)
    except Missed as missed:
        return str(missed) or "missed"
    except Exception:
        return f"crashed: {traceback.format_exc()}"
    return ""


def write(logs: Path, why: str) -> None:
    """The reward, 1 or 0, and the reason."""
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "reward.txt").write_text(f"{int(not why)}\n", encoding="utf-8")
    (logs / "why.json").write_text(json.dumps({"solved": not why, "why": why}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    reason = grade(Path(sys.argv[1]), Grader(places.app(), places.state()))
    write(places.logs(), reason)
    print(reason or "solved")
