"""Any agent at work on a task: the command that starts it, what it claims, and how many commands of ours it ran."""

import os
import shlex
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from .tasks import EVALS, Task
from .workplace import Workplace

CLAIM = "claim.txt"
_ASKED = f"""
Work in the current directory until you are done, without asking back. At the end write one word to the file `{CLAIM}`:
`done` if what was asked for is done and proven, `open` if it is not.
"""
# Stands before omni-kit on the path: notes each call, and passes it on.
_COUNTER = """#!/bin/bash
echo "$*" >> {calls}
exec {program} "$@"
"""


@dataclass(frozen=True)
class Attempt:
    """Outcome of one attempt of an agent.

    Attributes:
        claimed: it said that it was done.
        commands: how often it called omni-kit.
        minutes: how long it worked.
        stopped: it was ended, because its time was over.
        why: why it has not solved the task; empty if it has.
    """

    claimed: bool
    commands: int
    minutes: float
    stopped: bool
    why: str


def attempt(command: str, task: Task, place: Workplace, seconds: float, skills: str = "") -> Attempt:
    """Lets an agent work on a task in a fresh project.

    Args:
        command: what starts it; `{prompt}` stands for the request.
        seconds: when it is ended.
        skills: a command that installs the skills into the project; empty for none.

    Raises:
        ValueError: the skills could not be installed.
    """
    place.make(task)
    if skills:
        _install(skills, place)
    begun = time.monotonic()
    stopped = _work(command, task.instruction + _ASKED, place, seconds)
    minutes = (time.monotonic() - begun) / 60
    claim = place.app / CLAIM
    claimed = claim.is_file() and claim.read_text(encoding="utf-8", errors="replace").strip().lower() == "done"
    return Attempt(claimed, _calls(place), round(minutes, 2), stopped, place.why_not(task))


def _install(skills: str, place: Workplace) -> None:
    done = subprocess.run(
        shlex.split(skills), cwd=place.app, env=place.environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ValueError(f"the skills could not be installed by: {skills}\n{done.stdout}{done.stderr}")


def _work(command: str, prompt: str, place: Workplace, seconds: float) -> bool:
    """True if the agent had to be ended, with everything that it started."""
    words = [word.replace("{prompt}", prompt) for word in shlex.split(command)]
    with (place.root / "agent.log").open("w", encoding="utf-8") as log:
        agent = subprocess.Popen(
            words, cwd=place.app, env=_environment(place), stdin=subprocess.DEVNULL, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            agent.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(agent.pid, signal.SIGKILL)
            agent.wait()
            return True
    return False


def _environment(place: Workplace) -> dict[str, str]:
    """Return the agent's environment: a counted omni-kit, and nothing that shows the grader's paths."""
    ours = place.environment
    given = {name: value for name, value in ours.items() if not name.startswith("EVAL_") and name != "PYTHONPATH"}
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", str(EVALS))]
    given |= {"PYTHONPATH": os.pathsep.join(paths)} if paths else {}
    program = shutil.which("omni-kit", path=ours["PATH"])
    programs = place.root / "bin"
    programs.mkdir(exist_ok=True)
    counter = programs / "omni-kit"
    counter.write_text(_COUNTER.format(calls=shlex.quote(str(_log(place))), program=program), encoding="utf-8")
    counter.chmod(0o755)
    return given | {"PATH": f"{programs}{os.pathsep}{ours['PATH']}"}


def _log(place: Workplace) -> Path:
    return place.root / "commands.log"


def _calls(place: Workplace) -> int:
    return len(_log(place).read_text(encoding="utf-8").splitlines()) if _log(place).is_file() else 0
