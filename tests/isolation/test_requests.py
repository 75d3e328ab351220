"""One function, run once in a process of its own: what it returns, and every way in which it does not."""

import time
from pathlib import Path

import pytest

from omni_kit.isolation.requests import run_worker, run_workers
from omni_kit.isolation.worker import StepError

ROOT = Path(__file__).parents[2]
VALUE, EXECUTE = "tests.isolation.services:value", "tests.isolation.services:execute"

# Writes a reply to every pipe that it has.
FORGED = """import os
for file in range(3, 20):
    try:
        os.write(file, b'{"result": 1}\\n')
    except OSError:
        pass
0"""


def test_the_value_comes_back() -> None:
    assert run_worker(VALUE, "{'a': [1, None, 'ä']}", timeout=20, path=[ROOT]) == {"a": [1, None, "ä"]}


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise ValueError('no')", "ValueError: no"),
        ("import no_such_module", "no_such_module is not installed"),
        ("import os; os._exit(0)", "ended with code 0"),
        ("import sys; sys.exit(5)", "ended with code 5"),
        ("import os; os.kill(os.getpid(), 11)", "was ended by SIGSEGV"),
        (FORGED, "the worker process wrote to its result channel"),
        (f"{FORGED}; os._exit(0)", "the worker process wrote to its result channel"),
    ],
)
def test_what_gives_no_value_is_an_error(code: str, says: str) -> None:
    with pytest.raises(StepError, match=says):
        run_worker(EXECUTE, code, timeout=20, path=[ROOT])


def test_a_function_that_is_not_there_is_an_error() -> None:
    with pytest.raises(StepError, match="no_such_function"):
        run_worker("tests.isolation.services:no_such_function", 0, timeout=20, path=[ROOT])


@pytest.mark.parametrize("code", ["time.sleep(600)", "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"])
def test_a_function_that_hangs_has_a_limit(code: str) -> None:
    started = time.monotonic()
    with pytest.raises(StepError, match=r"did not finish 'call' in 1 s$"):
        run_worker(EXECUTE, f"import time; {code}", timeout=1, path=[ROOT])
    assert time.monotonic() - started < 30


def test_several_keep_their_order_and_one_that_dies_hides_no_other() -> None:
    texts = ["1", "__import__('os')._exit(1)", "2", "1 / 0", "3"]
    found = [*run_workers(VALUE, texts, timeout=20, path=[ROOT], modules=["json.tool"])]
    assert [one if isinstance(one, int) else type(one) for one in found] == [1, StepError, 2, StepError, 3]


def test_what_runs_is_ended_when_nobody_waits_for_the_rest() -> None:
    waiting = run_workers(VALUE, ["1", "__import__('time').sleep(600)", "2"], timeout=900, path=[ROOT])
    started = time.monotonic()
    assert next(waiting) == 1
    waiting.close()
    assert time.monotonic() - started < 30


def test_directories_of_the_path_come_first(tmp_path: Path) -> None:
    (tmp_path / "json_of_mine.py").write_text("value = 7", encoding="utf-8")
    assert run_worker(VALUE, "__import__('json_of_mine').value", timeout=20, path=[tmp_path, ROOT]) == 7
