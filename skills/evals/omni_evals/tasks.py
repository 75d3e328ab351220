"""The tasks, as they lie in their folders."""

import tomllib
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

EVALS = Path(__file__).resolve().parents[1]
TASKS = EVALS / "tasks"


@dataclass(frozen=True)
class Task:
    """One task in the Harbor form.

    Attributes:
        path: its folder, whose name is the task's.
    """

    path: Path

    @property
    def name(self) -> str:
        """Name in paths and reports."""
        return self.path.name

    @cached_property
    def settings(self) -> dict[str, Any]:
        """Its task.toml."""
        return tomllib.loads((self.path / "task.toml").read_text(encoding="utf-8"))

    @property
    def instruction(self) -> str:
        """The request, as a user wrote it."""
        return (self.path / "instruction.md").read_text(encoding="utf-8")

    @property
    def maker(self) -> Path:
        """Path of the script that makes its scratch project."""
        return self.path / "environment" / "make.py"

    @property
    def solution(self) -> Path:
        """A script after which the grader must be content."""
        return self.path / "solution" / "solve.sh"

    @property
    def wrong(self) -> list[Path]:
        """Scripts after which it must not be."""
        return sorted((self.path / "wrong").glob("*.sh"))

    @property
    def test(self) -> Path:
        """The grader."""
        return self.path / "tests" / "test.sh"

    @property
    def seconds(self) -> float:
        """Time limit of an agent on this task, in seconds."""
        return float(self.settings["agent"]["timeout_sec"])


def load_tasks(*names: str) -> list[Task]:
    """All tasks, or those that are named.

    Raises:
        ValueError: there is no task of such a name.
    """
    tasks = {path.parent.name: Task(path.parent) for path in sorted(TASKS.glob("*/task.toml"))}
    unknown = set(names) - tasks.keys()
    if unknown:
        raise ValueError(f"no such tasks: {', '.join(sorted(unknown))}; there are {', '.join(tasks)}")
    return [task for name, task in tasks.items() if not names or name in names]
