"""omni-kit as a grader calls it: a process of its own, its answer as JSON, nothing from the project in its way."""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Answer:
    """Exit code and JSON object of one command.

    Attributes:
        code: its exit code, as the contract of the command line has it.
        data: the one object that it printed.
    """

    code: int
    data: dict[str, Any]


def ask(*arguments: str | Path) -> Answer:
    """Runs one command in an empty directory, with an empty cache: no settings and no verdict of the project count.

    Raises:
        RuntimeError: the command printed no JSON object.
    """
    with tempfile.TemporaryDirectory() as empty:
        environment = os.environ | {"OMNI_KIT_CACHE": str(Path(empty, "cache")), "PYTHONSAFEPATH": "1"}
        command = [sys.executable, "-m", "omni_kit", *map(str, arguments), "--format", "json"]
        done = subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)
    try:
        return Answer(done.returncode, json.loads(done.stdout))
    except json.JSONDecodeError as error:
        raise RuntimeError(f"{' '.join(command)} printed no JSON:\n{done.stdout}\n{done.stderr}") from error
