"""Runs what only a run can tell in processes of their own: what they do, and how they end, is in nobody's way."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import omni_kit
from omni_kit.errors import BadInput

_OFFLINE = dict.fromkeys(("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"), "1")


def answer_of(module: str, level: str, request: Mapping[str, Any], root: Path | None, limit: float) -> dict[str, Any]:
    """What `python -m module FILE` writes to the file for a request on its stdin, both JSON.

    Args:
        root: the checkout that comes first on the path; None where what is installed is meant.
        limit: seconds.

    Raises:
        BadInput: it ended without an answer.
    """
    homes = {str(Path(__file__).parents[2]), str(Path(str(omni_kit.__file__)).parents[1])}
    path = [*([str(root)] if root else []), *sorted(homes), *filter(None, [os.environ.get("PYTHONPATH")])]
    with tempfile.TemporaryDirectory(prefix="omni-kit-check-") as place:
        answer = Path(place) / "answer.json"
        command = [sys.executable, "-P", "-m", module, str(answer)]
        environment = {**os.environ, **_OFFLINE, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"}
        said = run_limited(command, json.dumps(request), environment, place, limit)
        if not answer.is_file():
            raise BadInput(f"the run for --level {level} {said}", "look at what the modules of the model do on import")
        return dict(json.loads(answer.read_text(encoding="utf-8")))


def forked(
    function: Callable[[Mapping[str, Any]], dict[str, Any]], given: Mapping[str, Any], limit: float
) -> dict[str, Any] | str:
    """What a function answers in a fork of this process; why there is no answer."""
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_send, args=(sender, function, given))
    child.start()
    sender.close()
    try:
        found: dict[str, Any] | str = (
            receiver.recv() if receiver.poll(limit) else f"gave no answer in {limit:.0f} seconds"
        )
    except EOFError:
        child.join()
        found = f"the process ended with code {child.exitcode}"
    child.kill()
    child.join()
    return found


def _send(sender: Any, function: Callable[[Mapping[str, Any]], dict[str, Any]], given: Mapping[str, Any]) -> None:
    sender.send(function(given))


def run_limited(command: Sequence[str], given: str, environment: Mapping[str, str], place: str, limit: float) -> str:
    """Runs a command and all that it starts, for a limited time; how it ended, and its last words."""
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        env=dict(environment), text=True, cwd=place, start_new_session=True,
    )  # fmt: skip
    try:
        _, errors = process.communicate(given, timeout=limit)
    except subprocess.TimeoutExpired:
        return f"gave no answer in {limit:.0f} seconds"
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # what it started, too: nothing goes on behind the verdict
        process.wait()
    last = next((line for line in reversed(errors.splitlines()) if line.strip()), "no message")
    return f"ended with code {process.returncode} and no answer: {last.strip()[:300]}"
