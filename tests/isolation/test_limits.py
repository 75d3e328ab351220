"""What takes more than its share ends, in one line, within seconds, and leaves nothing behind."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omni_kit.isolation.confinement import Confinement
from omni_kit.isolation.limits import Limits, own_shared_memory
from omni_kit.isolation.requests import CALLING, Call
from omni_kit.isolation.servers import can_fork
from omni_kit.isolation.worker import StepError, Worker
from tests.conftest import sampled

pytestmark = pytest.mark.skipif(not can_fork(), reason="this system does not say what processes use")

ROOT = Path(__file__).parents[2]
SHARED = Path("/dev/shm")
LIMITS = Limits(memory=400_000_000, processes=40, disk=50_000_000)

MEMORY = "used more than 0.4 GB of memory in 'call'"
PROCESSES = "started more than 40 processes in 'call'"
DISK = "wrote more than 0.1 GB of temporary files in 'call'"
BLOCK = "os.urandom(1 << 20)"
# Each takes more of something until it is stopped; a pause keeps it from being over before anybody looks.
GREEDY = {
    "memory": (f"kept = []\nwhile len(kept) < 1500: kept.append(bytearray({BLOCK})); time.sleep(0.002)", MEMORY),
    "memory of children": (
        f"for _ in range(6):\n if not os.fork(): kept = bytearray({BLOCK} * 120); time.sleep(600)\ntime.sleep(600)",
        MEMORY,
    ),
    "memory of a daemon": (
        f"if not os.fork():\n os.setsid()\n if not os.fork(): kept = bytearray({BLOCK} * 600); time.sleep(600)\n"
        " os._exit(0)\ntime.sleep(600)",
        MEMORY,
    ),
    "mapped memory": (
        f"import mmap\nfile = os.memfd_create('a'); os.truncate(file, 600 << 20); kept = mmap.mmap(file, 600 << 20)\n"
        f"for at in range(600): kept[at << 20 : (at + 1) << 20] = {BLOCK}; time.sleep(0.002)\ntime.sleep(600)",
        MEMORY,
    ),
    "processes": ("for _ in range(200): os.fork() or time.sleep(600)\ntime.sleep(600)", PROCESSES),
    "a fork bomb": ("while True:\n os.fork(); time.sleep(0.02)", PROCESSES),
    "sessions": ("while True:\n if not os.fork(): os.setsid(); time.sleep(600)\n time.sleep(0.005)", PROCESSES),
    "a bomb of sessions": (
        "end = time.monotonic() + 3\nwhile time.monotonic() < end: os.fork() or os.setsid()\nos._exit(0)", PROCESSES
    ),
    "threads": (
        "import threading\nwhile True: threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
        "started more than 320 threads in 'call'",
    ),
    "temporary files": (
        f"import tempfile\nfor at in range(300): open(os.path.join(tempfile.gettempdir(), str(at)), 'wb')"
        f".write({BLOCK}); time.sleep(0.005)\ntime.sleep(600)",
        DISK,
    ),
    "one long temporary file": (
        f"file = open(os.environ['TMPDIR'] + '/a', 'wb')\nfor _ in range(300): file.write({BLOCK}); time.sleep(0.005)"
        "\nfile.flush(); time.sleep(600)",
        DISK,
    ),
    "shared memory": (f"file = open('/dev/shm/a', 'wb')\nfor _ in range(300): file.write({BLOCK})", "No space left"),
    "open files": ("kept = []\nwhile True: kept.append(os.open('/dev/null', 0))", "Too many open files"),
    "pipes": ("kept = []\nwhile True: kept.append(os.pipe())", "Too many open files"),
    "nested calls": ("def deeper(): return deeper()\ndeeper()", "RecursionError"),
}  # fmt: skip


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Worker]]:
    """Start confined workers, whose temporary directories are below one that is empty afterwards."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))

    def started(limits: Limits = LIMITS) -> Worker:
        return Worker(
            "candidate", tmp_path / "logs", timeout=60, threads=1, confinement=Confinement.of_candidate(),
            limits=limits, service=CALLING, argument="tests.isolation.services:execute", path=[ROOT],
        )  # fmt: skip

    before = {*os.listdir(SHARED)}
    yield started
    assert [*place.iterdir()] == []
    assert {*os.listdir(SHARED)} == before


@pytest.mark.parametrize(
    "greed", sampled(GREEDY, "memory", "a fork bomb", "threads", "one long temporary file", "open files")
)
def test_what_takes_too_much_ends_as_the_candidates_error(start: Callable[..., Worker], greed: str) -> None:
    code, says = GREEDY[greed]
    began = time.monotonic()
    with start() as worker, pytest.raises(StepError) as error:
        worker.ask(Call(f"import os, time\n{code}"))
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert error.value.blames_candidate
    assert time.monotonic() - began < 20


def test_what_stays_below_its_limits_goes_on(start: Callable[..., Worker]) -> None:
    code = (
        f"import os, time\nkept = bytearray({BLOCK} * 100)\nfor _ in range(10):\n"
        " if not os.fork(): time.sleep(1); os._exit(0)\n"
        f"open('/dev/shm/a', 'wb').write({BLOCK}); open(os.environ['TMPDIR'] + '/a', 'wb').write({BLOCK})\n"
        "for _ in range(10): os.wait()"
    )
    with start() as worker:
        assert worker.ask(Call(code)) is None
        assert worker.alive


def test_shared_memory_is_its_own(start: Callable[..., Worker]) -> None:
    """Of other processes it sees nothing there, and names that others could wait for are its own."""
    beside = SHARED / f"omni-kit-{os.getpid()}"
    beside.write_text("of others", encoding="utf-8")
    try:
        with start() as worker:
            worker.ask(Call("import os; assert os.listdir('/dev/shm') == [], os.listdir('/dev/shm')"))
            worker.ask(Call("from multiprocessing import get_context; get_context('fork').Lock().acquire()"))
            worker.ask(Call("open('/dev/shm/mine', 'w').write('mine')"))
            assert not (SHARED / "mine").exists()
    finally:
        beside.unlink()


def test_the_machine_says_what_may_be_used() -> None:
    found = Limits.of_machine()
    assert found is not None
    assert 0 < found.memory < os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < found.shared < found.memory
    assert found.disk > 0


LEFT = {
    "directories that are deeper than paths can be": (
        "os.chdir(os.environ['TMPDIR'])\nfor _ in range(3000): os.mkdir('d'); os.chdir('d')"
    ),
    "a link in its place": (
        "os.chdir('/'); os.rmdir(os.environ['TMPDIR']); os.symlink({victim!r}, os.environ['TMPDIR'])"
    ),
    "a file in its place": "os.chdir('/'); os.rmdir(os.environ['TMPDIR']); open(os.environ['TMPDIR'], 'w')",
    "what nobody may read": (
        "place = os.environ['TMPDIR']; os.mkdir(place + '/a'); open(place + '/a/b', 'w')\n"
        "os.chmod(place + '/a', 0); os.chmod(place, 0)"
    ),
    "what cannot be changed": (
        "import subprocess; file = os.environ['TMPDIR'] + '/a'; open(file, 'w')\n"
        "assert subprocess.run(['chattr', '+i', file], stderr=subprocess.DEVNULL).returncode"
    ),
}


@pytest.mark.parametrize("left", LEFT)
def test_nothing_is_left_and_nothing_of_others_goes(start: Callable[..., Worker], left: str, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("of others", encoding="utf-8")
    with start() as worker:
        worker.ask(Call(f"import os\n{LEFT[left].format(victim=str(victim))}"))
    assert (victim / "file").read_text(encoding="utf-8") == "of others"


@pytest.mark.parametrize("code", [
    "import ctypes; assert ctypes.CDLL(None).umount2(b'/dev/shm', 2) == 0",
    "import ctypes; assert ctypes.CDLL(None).mount(b'none', b'/dev/shm', b'tmpfs', 32, b'size=90%') == 0",
    "open(f'/proc/{os.getppid()}/root/dev/shm/a', 'w')",
    "open('/proc/1/root/dev/shm/a', 'w')",
    "os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1000')",
    "os.setpriority(os.PRIO_PROCESS, 0, -20)",
    "os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(9))",
])  # fmt: skip
def test_limits_cannot_be_lifted(start: Callable[..., Worker], code: str) -> None:
    with start() as worker, pytest.raises(StepError, match="Error"):
        worker.ask(Call(f"import os\n{code}"))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_user_without_privileges_has_shared_memory_of_their_own() -> None:
    pid = os.fork()
    if not pid:
        os.setgid(65534)
        os.setuid(65534)
        os._exit(0 if own_shared_memory(1 << 20) and os.listdir(SHARED) == [] and os.getuid() == 65534 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert sys.platform == "linux"
