"""A fork of a server does what a fresh process does, and ends as one."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from omni_kit.isolation.requests import run_worker
from omni_kit.isolation.servers import can_fork, close_servers
from omni_kit.isolation.worker import StepError, Worker
from omni_kit.parity.candidate import find_candidate
from omni_kit.parity.processes.steps import Load, MakeToy, Open, Run
from omni_kit.parity.processes.workers import SERVICE, preloaded
from omni_kit.targets.sides import LANGUAGE, TRANSFORMERS

pytestmark = pytest.mark.skipif(not can_fork(), reason="this system's libraries do not survive a fork")

ROOT = Path(__file__).parents[2]
OLMOE = ROOT / "reference_models" / "veomni" / "olmoe"
EXPRESSIONS = "tests.isolation.services:expressions"


@dataclass(frozen=True)
class Evaluate:
    """A request: an expression, without blanks at its ends."""

    text: str

    @classmethod
    def title(cls) -> str:
        """Return its name."""
        return "evaluate"

    def as_line(self) -> str:
        """Return the expression."""
        return self.text

    def take(self, side: Any) -> Any:
        """Return nothing: the service evaluates it."""


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]))
    return tmp_path


def worker(logs: Path, *modules: str, timeout: float = 60.0, beyond: tuple[str, ...] = ()) -> Worker:
    return Worker("candidate", logs, service=EXPRESSIONS, modules=modules, timeout=timeout, beyond=beyond)


def server(one: Worker) -> int:
    """Return the process id of the server: the parent of the worker's keeper."""
    return _parent(one.ask(Evaluate("os.getppid()")))


def _parent(number: int) -> int:
    return int(Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[1])


def test_workers_are_forks_of_one_server(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with worker(logs, "json.tool") as one:
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(logs))  # as torch does once its compiler is imported
        with worker(logs, "json.tool") as other:
            assert len({server(each) for each in (one, other)}) == 1
            assert other.ask(Evaluate("os.environ['TORCHINDUCTOR_CACHE_DIR']")) == str(logs)
        assert os.getpid() != server(one)
        assert one.ask(Evaluate("'json.tool' in sys.modules"))
        assert one.ask(Evaluate("os.getpid()")) == one.ask(Evaluate("os.getsid(0)"))


def test_a_server_that_imports_more_is_a_fork_of_one_that_never_has(logs: Path) -> None:
    both = Evaluate("[name in sys.modules for name in ('json.tool', 'wave')]")
    with worker(logs, "json.tool", beyond=("wave",)) as one, worker(logs, "json.tool") as other:
        assert (one.ask(both), other.ask(both)) == ([True, True], [True, False])
        assert _parent(server(one)) == server(other)
        with worker(logs, "json.tool", beyond=("wave",)) as again:
            assert server(again) == server(one)
            os.kill(killed := server(one), signal.SIGKILL)
            _wait_for_end(killed)
            time.sleep(0.2)  # the other server ends nothing when it finds that out
            assert one.ask(both) == [True, True]
        with worker(logs, "json.tool", beyond=("wave",)) as restarted:
            assert restarted.ask(both) == [True, True]
            last = server(restarted)
    close_servers()
    _wait_for_end(last)


@pytest.mark.parametrize("beyond", [(), ("wave",)])
def test_a_fork_holds_no_file_of_its_server(beyond: tuple[str, ...], logs: Path) -> None:
    names = "os.readlink(f'/proc/self/fd/{n}').partition(':')[0] for n in os.listdir('/proc/self/fd')[:-1]"
    files = Evaluate(f"sorted({names})")
    with worker(logs, "json.tool", beyond=beyond) as fork, worker(logs) as fresh:
        assert fork.ask(files) == fresh.ask(files)


def test_modules_that_start_threads_give_fresh_processes(logs: Path) -> None:
    with worker(logs, "tests.isolation.threaded") as one:
        assert one.ask(Evaluate("len(os.listdir('/proc/self/task'))")) == 1
        assert "omni_kit.isolation.serving" in one.ask(Evaluate("open('/proc/self/cmdline').read()")).split("\0")


@pytest.mark.parametrize(("text", "how", "own"), [
    ("os.kill(os.getpid(), 11)", "was ended by SIGSEGV", False),
    ("os.kill(os.getpid(), 9)", "was ended by SIGKILL in 'evaluate', .*memory", False),
    ("sys.exit(0)", "ended with code 0 in 'evaluate', because the code that it ran exited", True),
    ("os._exit(3)", "ended with code 3 in 'evaluate', because the code that it ran exited", True),
])  # fmt: skip
def test_the_end_of_a_fork_is_an_error_and_an_exit_is_the_candidates_fault(
    text: str, how: str, own: bool, logs: Path
) -> None:
    with worker(logs, "json.tool") as one:
        with pytest.raises(StepError, match=how) as ended:
            one.ask(Evaluate(text))
        assert ended.value.blames_candidate is own
        assert not one.alive


def test_a_death_for_lack_of_memory_says_so(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with worker(logs, "json.tool") as one:
        monkeypatch.setattr("omni_kit.isolation.worker.killed_for_memory", lambda: 1_000_000_000)
        with pytest.raises(StepError, match="memory ran out") as ended:
            one.ask(Evaluate("os.kill(os.getpid(), 9)"))
        assert not ended.value.blames_candidate


def test_a_worker_outlives_its_server_and_the_next_one_gets_another(logs: Path) -> None:
    with worker(logs, "json.tool") as one:
        first = server(one)
        os.kill(first, signal.SIGKILL)
        _wait_for_end(first)
        assert one.ask(Evaluate("1 + 1")) == 2
        with worker(logs, "json.tool") as other:
            assert server(other) != first
        child = one.ask(Evaluate("os.getpid()"))
    assert not _runs(child)


def test_the_end_of_a_keeper_is_an_error_and_the_worker_ends(logs: Path) -> None:
    with worker(logs, "json.tool") as one:
        child = one.ask(Evaluate("os.getpid()"))
        os.kill(_parent(child), signal.SIGKILL)
        _wait_for_end(child)
        with pytest.raises(StepError, match="the candidate process") as ended:
            one.ask(Evaluate("1 + 1"))
        assert not ended.value.blames_candidate


def test_a_module_that_ends_its_server_is_an_error(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (logs / "ends_it.py").write_text("import os; os._exit(7)")
    monkeypatch.setenv("PYTHONPATH", f"{os.environ['PYTHONPATH']}{os.pathsep}{logs}")
    with worker(logs, "ends_it") as one, pytest.raises(StepError, match="the candidate process"):
        one.ask(Evaluate("1 + 1"))


def test_a_fork_that_hangs_leaves_its_stack(logs: Path) -> None:
    with worker(logs, "json.tool", timeout=2) as one:
        with pytest.raises(StepError, match="did not finish 'evaluate' in 2 s"):
            one.ask(Evaluate("__import__('time').sleep(600)"))
        assert "Fatal Python error: Aborted" in one.log.read_text(encoding="utf-8")


def test_no_process_outlives_the_one_that_started_it(logs: Path) -> None:
    program = f"""
import os, time
from pathlib import Path
from tests.isolation.test_forks import Evaluate, server, worker
one = worker(Path({str(logs)!r}), "json.tool")
print(one.ask(Evaluate("os.getpid()")), one.ask(Evaluate("os.getppid()")), server(one), flush=True)
one.send(Evaluate("__import__('time').sleep(600)"))
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT) as started:
        assert started.stdout is not None
        numbers = [int(number) for number in started.stdout.readline().split()]
        started.kill()
    _wait_for_end(*numbers)
    assert [number for number in numbers if _runs(number)] == []


def _wait_for_end(*numbers: int) -> None:
    deadline = time.monotonic() + 20
    while any(_runs(number) for number in numbers) and time.monotonic() < deadline:
        time.sleep(0.1)


def _runs(number: int) -> bool:
    status = Path(f"/proc/{number}/stat")
    return status.is_file() and status.read_text().rpartition(")")[2].split()[0] != "Z"


def test_servers_that_are_closed_are_gone(logs: Path) -> None:
    with worker(logs, "json.tool") as one:
        number = server(one)
    close_servers()
    assert not Path(f"/proc/{number}").exists()


@pytest.mark.sweep
def test_figures_of_a_fork_are_those_of_a_fresh_process(tmp_path: Path) -> None:
    """Weights, outputs and gradients of a toy and of an integration that loads it, bit by bit."""
    candidate = find_candidate(OLMOE, None)
    found = []
    for name, modules, beyond in (("fork", preloaded(TRANSFORMERS), candidate.preloaded), ("fresh", (), ())):
        place = tmp_path / name
        inputs = place / "inputs.safetensors"
        with Worker("reference", place, service=SERVICE, modules=modules) as one:
            one.ask(Open(TRANSFORMERS, batch_builder=LANGUAGE, forbidden=["veomni"]))
            one.ask(MakeToy(candidate.source, place, "hub"))
            one.ask(Run(inputs, place / "reference"))
        with Worker("candidate", place, service=SERVICE, modules=modules, beyond=beyond) as one:
            one.ask(Open(candidate.builder, candidate.options, forbidden=candidate.independent_of))
            one.ask(Load(place / "checkpoint", place / "loaded.safetensors"))
            one.ask(Run(inputs, place / "candidate"))
        files = sorted(file for file in place.rglob("*.safetensors"))
        found.append({str(file.relative_to(place)): file.read_bytes() for file in files})
    sides = {f"{side}/{what}.safetensors" for side in ("reference", "candidate") for what in ("outputs", "gradients")}
    assert {"inputs.safetensors", "loaded.safetensors", *sides} <= found[0].keys()
    assert found[0] == found[1]


@pytest.mark.sweep
def test_a_fork_has_threads_and_figures_of_a_fresh_process_and_no_random_state_of_its_server(logs: Path) -> None:
    threads = Evaluate("__import__('torch').get_num_threads()")
    layer = "(lambda one: (one[0], one(one[0].weight).softmax(1).std().backward()))(torch.nn.Sequential(L(99, 99)))"
    seeded = "(lambda torch, L: (torch.manual_seed(3), {}))(__import__('torch'), __import__('torch').nn.Linear)"
    figures = Evaluate(f"{seeded.format(layer)}[1][0].weight.grad.tolist()")
    draws = (
        "__import__('torch').initial_seed()",
        "__import__('numpy').random.random()",
        "__import__('random').random()",
    )
    modules = preloaded(TRANSFORMERS)
    with worker(logs, *modules) as fork, worker(logs, *modules) as other, worker(logs) as fresh:
        assert fork.ask(threads) == fresh.ask(threads)
        assert fork.ask(figures) == fresh.ask(figures)
        for draw in draws:
            assert fork.ask(Evaluate(draw)) != other.ask(Evaluate(draw))


@pytest.mark.parametrize("tells", [
    "os.environ['TMPDIR']", "os.getcwd()", "' '.join(os.environ)", "' '.join(sys.argv)", "' '.join(sys.orig_argv)",
    "open('/proc/self/cmdline').read()", "open('/proc/self/comm').read()",
    "open(f'/proc/{os.getppid()}/cmdline').read()",
    "' '.join(os.listdir('/proc/self/fd'))", "str(sys.modules['__main__'].__dict__.get('__file__'))",
])  # fmt: skip
def test_a_fork_does_not_name_who_started_it(logs: Path, monkeypatch: pytest.MonkeyPatch, tells: str) -> None:
    monkeypatch.setenv("OMNI_KIT_CACHE", str(logs / "cache"))
    with worker(logs, "json.tool") as one:
        told = one.ask(Evaluate(tells))
    told = told.replace(sys.prefix, "")  # a checkout may have the project's name
    assert "omni_kit" not in told.lower().replace("-", "_")


def test_a_process_can_be_the_server_of_its_own_workers(logs: Path) -> None:
    expression = "[hasattr(sys.modules['colorsys'], name) for name in ('here', 'later')]"
    request = {"logs": str(logs), "expression": expression}
    function = "tests.isolation.services:forked_from_here"
    assert run_worker(function, request, timeout=60.0, modules=("colorsys",), path=[ROOT]) == [True, False]
