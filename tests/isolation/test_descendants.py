"""What a process starts ends with it, whatever it does to get away."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

import omni_kit
from omni_kit.authenticated_cache import own_key
from omni_kit.isolation.confinement import Confinement
from omni_kit.isolation.programs import run_program
from omni_kit.isolation.requests import run_worker, run_workers
from omni_kit.isolation.servers import can_fork
from omni_kit.isolation.supervisor import Descendants
from omni_kit.isolation.worker import StepError

pytestmark = pytest.mark.skipif(not can_fork(), reason="this system gives orphans to no ancestor")

ROOT = Path(__file__).parents[2]
VALUE, EXECUTE = "tests.isolation.services:value", "tests.isolation.services:execute"
LATE = 1.0  # seconds after which an escaped process would write

# Each starts a process that waits and then writes a file, and gets it out of its parent's reach.
ESCAPES = {
    "in a session of its own": "subprocess.Popen(write, start_new_session=True)",
    "without a parent": "os.fork() or (os.fork() and os._exit(0)) or os.execvp(write[0], write)",
    "without a parent, in a session of its own": (
        "os.fork() or os.setsid() or (os.fork() and os._exit(0)) or os.execvp(write[0], write)"
    ),
    "deaf to signals": "subprocess.Popen(['nohup', *write], start_new_session=True, stdout=-3, stderr=-3)",
    "two of a chain": "subprocess.Popen(['setsid', 'setsid', *write])",
}


@dataclass(frozen=True)
class Escapes:
    """Python that starts all of these processes.

    Attributes:
        place: the directory that they would write to.
    """

    place: Path

    @property
    def code(self) -> str:
        lines = ["import os, subprocess, sys"]
        for number, escape in enumerate(ESCAPES.values()):
            write = ["sh", "-c", f"sleep {LATE}; touch '{self.place / str(number)}'"]
            lines += [f"write = {write!r}", escape]
        return "\n".join(lines)

    def written(self) -> list[str]:
        """Return which of them have written."""
        return [name for number, name in enumerate(ESCAPES) if (self.place / str(number)).exists()]


def until_they_would_have_written() -> None:
    time.sleep(LATE + 0.5)


def test_they_would_write(tmp_path: Path) -> None:
    escapes = Escapes(tmp_path)
    subprocess.run([sys.executable, "-c", escapes.code], check=True)
    until_they_would_have_written()
    assert escapes.written() == [*ESCAPES]


def _of_a_program(code: str) -> None:
    run_program([sys.executable, "-c", code], timeout=20)


def _of_a_program_whose_time_is_up(code: str) -> None:
    with pytest.raises(TimeoutError):
        run_program([sys.executable, "-c", f"{code}\nimport time; time.sleep(600)"], timeout=0.5)


def _of_a_worker(code: str, modules: tuple[str, ...]) -> None:
    assert run_worker(EXECUTE, code, timeout=20, modules=modules, path=[ROOT]) is None


def _of_a_worker_that_dies(code: str, ending: str) -> None:
    with pytest.raises(StepError, match=r"ended with code 3|SIGKILL"):
        run_worker(EXECUTE, f"{code}\n{ending}", timeout=20, path=[ROOT])


def _of_a_worker_that_kills_its_keeper(code: str) -> None:
    """A confined one cannot; of others the server ends the orphans."""
    kill = f"{code}\nos.kill(os.getppid(), 9); import time; time.sleep(600)"
    with pytest.raises(StepError):
        run_worker(EXECUTE, kill, timeout=20, path=[ROOT], confined=False)


STARTED: dict[str, Callable[[str], None]] = {
    "by a program": _of_a_program,
    "by a program whose time is up": _of_a_program_whose_time_is_up,
    "by a fresh worker": partial(_of_a_worker, modules=()),
    "by a forked worker": partial(_of_a_worker, modules=("json.tool",)),
    "by a worker that exits": partial(_of_a_worker_that_dies, ending="os._exit(3)"),
    "by a worker that is killed": partial(_of_a_worker_that_dies, ending="os.kill(os.getpid(), 9)"),
    "by a worker that kills its keeper": _of_a_worker_that_kills_its_keeper,
}


def test_what_gets_away_ends_however_the_process_does(tmp_path: Path) -> None:
    escapes = {name: Escapes(tmp_path / name) for name in STARTED}
    for name, run in STARTED.items():
        escapes[name].place.mkdir()
        run(escapes[name].code)
    until_they_would_have_written()
    assert {name: one.written() for name, one in escapes.items()} == {name: [] for name in STARTED}


def test_the_cache_and_the_key_are_closed_to_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places: dict[str, Callable[[], Path]] = {
        "OMNI_KIT_CACHE": lambda: tmp_path / "cache",
        "XDG_CONFIG_HOME": lambda: tmp_path / "config",
    }
    for name, place in places.items():
        monkeypatch.setenv(name, str(place()))
    key = tmp_path / "config" / "omni-kit" / "key"
    entry = tmp_path / "cache" / "verify" / "entry.json"
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    own = own_key()
    for file in (entry, tmp_path / "home" / ".profile"):
        file.parent.mkdir(parents=True)
        file.write_text("own")
    tries = {
        "read the key": f"open({str(key)!r}).read()",
        "write the key": f"open({str(key)!r}, 'w')",
        "write an entry": f"open({str(entry)!r}, 'w')",
        "remove an entry": f"os.unlink({str(entry)!r})",
        "add an entry": f"open({str(entry.parent / 'other.json')!r}, 'w').write('mine')",
        "move the cache": f"os.rename({str(tmp_path / 'cache')!r}, {str(tmp_path / 'gone')!r})",
        "write omni-kit's code": "open(__import__('omni_kit').__file__, 'a')",
        "write an installed package": "open(__import__('safetensors').__file__, 'a')",
        "write Python's own modules": "open(os.__file__, 'a')",
        "write the user's settings": f"open({str(tmp_path / 'home' / '.profile')!r}, 'a')",
        "write the rules": "open(__import__('omni_checkers').__file__, 'a')",
    }
    done = run_workers(EXECUTE, [f"import os; {code}" for code in tries.values()], timeout=20, path=[ROOT])
    refused = [name for name, one in zip(tries, done, strict=True) if "PermissionError" in str(one)]
    assert refused == [*tries]
    assert (entry.read_text(encoding="utf-8"), own_key()) == ("own", own)
    assert run_worker(VALUE, f"open({str(entry)!r}).read()", timeout=20, path=[ROOT]) == "own"
    beside = Path(omni_kit.__file__).parents[1]  # from where later processes import
    assert any(beside.is_relative_to(place) for place in Confinement.of_candidate().unwritable)


def test_what_a_runner_of_jobs_lends_to_its_steps_is_closed_to_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later step of the job runs what is written there."""
    for name in ("GITHUB_ENV", "GITHUB_PATH", "GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"):
        (tmp_path / name).write_text("own", encoding="utf-8")
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.setenv("ACTIONS_RUNTIME_TOKEN", "a secret")
    seen = "sorted(n for n in os.environ if n.startswith(('GITHUB_', 'ACTIONS_', 'RUNNER_')))"
    tries = [f"open({str(file)!r}, 'a').write('mine')" for file in tmp_path.iterdir()]
    tries += [f"open({str(file)!r}).read()" for file in tmp_path.iterdir()]
    code = "import os\nassert not {0}, {0}\n".replace("{0}", seen)
    assert run_worker(EXECUTE, code, timeout=20, path=[ROOT]) is None
    assert (
        run_worker(
            EXECUTE, "assert b'ACTIONS_' not in open('/proc/self/environ', 'rb').read()", timeout=20, path=[ROOT]
        )
        is None
    )
    done = run_workers(EXECUTE, tries, timeout=20, path=[ROOT])
    assert all("PermissionError" in str(one) for one in done)
    assert {file.read_text(encoding="utf-8") for file in tmp_path.iterdir()} == {"own"}


def test_what_a_program_prints_is_bounded() -> None:
    with pytest.raises(OSError, match="printed more than"):
        run_program([sys.executable, "-c", "while True: print('x' * 65536)"], timeout=60)


def test_a_program_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError, match="no-such-program is not installed"):
        run_program(["no-such-program"], timeout=5)


def test_what_a_program_reads_and_writes(tmp_path: Path) -> None:
    found = run_program(
        ["sh", "-c", "cat; pwd; echo $A >&2; exit 3"], stdin="given\n", timeout=20, directory=tmp_path,
        environment={"A": "a", "PATH": os.environ["PATH"]},
    )  # fmt: skip
    assert (found.code, found.stdout, found.stderr) == (3, f"given\n{tmp_path}\n", "a\n")


def test_a_look_finds_what_began_since_the_last_one() -> None:
    descendants = Descendants()
    before = descendants.now()
    started = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    found = descendants.now()
    started.kill()
    started.communicate()
    assert started.pid in found - before
    assert started.pid not in descendants.now()
    assert os.getppid() not in before | found
