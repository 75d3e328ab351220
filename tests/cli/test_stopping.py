"""A command that is stopped ends at once, says so in its form, and leaves neither processes nor folders."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from omni_kit.cli.app import _interrupted, main
from omni_kit.errors import OmniKitError
from omni_kit.output import Output
from tests.conftest import sampled

ROOT = Path(__file__).parents[2]
INTEGRATION = ROOT / "reference_models" / "veomni" / "olmoe"


def descendants(pid: int) -> list[int]:
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == pid and fields[0] != "Z":
            child = int(status.parent.name)
            found += [child, *descendants(child)]
    return found


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="children are looked up in /proc")
@pytest.mark.parametrize("number", sampled([signal.SIGTERM, signal.SIGHUP, signal.SIGINT], signal.SIGTERM))
def test_nothing_stays_behind(number: signal.Signals, tmp_path: Path) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch), "OMNI_KIT_CACHE": str(tmp_path / "cache")}
    running = subprocess.Popen(
        # with faults planted, so that it is not done before it is stopped, however busy the machine
        [sys.executable, "-m", "omni_kit", "parity", str(INTEGRATION), "--prove", "--format", "json"],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # whoever runs the tests may have ignored it
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while len(children := descendants(running.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    running.send_signal(number)
    said, _ = running.communicate(timeout=60)

    assert running.returncode == 130
    answer = json.loads(said)
    assert (answer["schema"], answer["ok"], answer["error"]) == ("omni-kit/error/1", False, "interrupted")
    assert f"omni-kit parity {INTEGRATION} --prove --format json" in answer["hint"]
    assert len(children) >= 2
    deadline = time.monotonic() + 10  # a process that was killed is gone once its keeper has been scheduled
    while (left := [pid for pid in children if Path(f"/proc/{pid}").exists()]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
    assert list(scratch.iterdir()) == []


STOPPED = """
import os, signal, sys
from omni_kit.termination import stoppable

def main():
    try:
        with stoppable():
            exec("os.kill(os.getpid(), signal.SIGTERM)\\nwhile True:\\n    pass")
    except KeyboardInterrupt:
        return 130

sys.exit(main())
"""


def test_an_interruption_within_a_dataclass_has_its_code(tmp_path: Path) -> None:
    (tmp_path / "stopped.py").write_text(STOPPED)
    done = subprocess.run([sys.executable, "-m", "stopped"], cwd=tmp_path, check=False)
    assert done.returncode == 130


@pytest.mark.parametrize("where", ["fail", "stoppable"])
def test_an_interruption_while_one_is_reported_has_its_code(
    where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    @contextmanager
    def late() -> Iterator[None]:
        yield
        raise KeyboardInterrupt

    reported, fail = [], Output.fail

    def once(self: Output, error: OmniKitError) -> int:
        reported.append(error)
        return interrupted() if len(reported) == 1 and where == "fail" else fail(self, error)

    module = sys.modules[main.__module__]
    monkeypatch.setattr(module, "_run", interrupted)
    monkeypatch.setattr(Output, "fail", once)
    if where == "stoppable":
        monkeypatch.setattr(module, "stoppable", late)
    assert main(["inspect", "x"]) == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.sweep
def test_a_launch_of_several_processes_leaves_no_folder(tmp_path: Path) -> None:
    scratch = tmp_path / "tmp"
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch), "OMNI_KIT_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-m", "omni_kit", "parity", str(INTEGRATION), "--levels", "ep"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert list(scratch.iterdir()) == []


@pytest.mark.parametrize(
    ("given", "again"),
    [
        ("upgrade a --from 1", "upgrade a --from 1 --resume"),
        ("upgrade a --resume", "upgrade a --resume"),
        ("patchgen upgrade a", "patchgen upgrade a"),
    ],
)
def test_the_hint_resumes_a_command_that_can(given: str, again: str) -> None:
    hint = _interrupted(given.split()).hint
    assert hint is not None
    assert hint.endswith(f"resume with: omni-kit {again}")
