"""A task on this machine, without containers: a project, what is remembered of it, and its logs, side by side."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .make import make
from .tasks import EVALS, Task


@dataclass(frozen=True)
class Workplace:
    """The directories of one run.

    Attributes:
        root: holds them all.
    """

    root: Path

    @property
    def app(self) -> Path:
        """The scratch project."""
        return self.root / "app"

    @property
    def environment(self) -> dict[str, str]:
        """For scripts of a task: the paths, and a Python that knows this package."""
        paths = [str(EVALS), *filter(None, [os.environ.get("PYTHONPATH")])]
        programs = [str(Path(sys.executable).parent), os.environ["PATH"]]
        return os.environ | {
            "EVAL_APP": str(self.app),
            "EVAL_STATE": str(self.root / "state"),
            "EVAL_LOGS": str(self.root / "logs"),
            "PYTHONPATH": os.pathsep.join(paths),
            "PATH": os.pathsep.join(programs),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def make(self, task: Task) -> None:
        """Makes the task's scratch project."""
        make(task.maker, self.app, self.root / "state")

    def copy(self, root: Path) -> "Workplace":
        """Copy the project as it is now to another place."""
        shutil.copytree(self.root, root)
        return Workplace(root)

    def script(self, file: Path) -> subprocess.CompletedProcess[str]:
        """Runs a script of a task in the project."""
        return subprocess.run(
            ["bash", str(file)], cwd=self.app, env=self.environment, capture_output=True, text=True, check=False
        )

    def why_not(self, task: Task) -> str:
        """Grades the project: why it does not meet the task; empty if it does."""
        done = self.script(task.test)
        reward = self.root / "logs" / "reward.txt"
        if not reward.is_file():
            return f"the grader wrote no reward:\n{done.stdout}\n{done.stderr}"
        why = str(json.loads((self.root / "logs" / "why.json").read_text(encoding="utf-8"))["why"])
        assert reward.read_text(encoding="utf-8").strip() == ("0" if why else "1")
        return why
