"""What the two processes do when something goes wrong in one of them."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_kit.isolation.worker import StepError, Worker
from omni_kit.parity import run_parity
from omni_kit.parity.processes.steps import MakeToy, Open, OpenCheckpoint
from omni_kit.parity.processes.workers import SERVICE, Sides
from omni_kit.targets.sides import LANGUAGE, TRANSFORMERS

from .conftest import MODELING, Edits, Plant

OPEN = Open(TRANSFORMERS, batch_builder=LANGUAGE)
ROUTER = "router_logits = torch.nn.functional.linear(hidden_states, self.weight)"


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with Worker("reference", tmp_path_factory.mktemp("worker"), timeout=60, service=SERVICE) as running:
        running.ask(Open(TRANSFORMERS, batch_builder=LANGUAGE, forbidden=["no_such_framework"]))
        yield running


def test_opening_says_which_library_is_the_reference(worker: Worker) -> None:
    facts = worker.ask(OPEN)

    assert facts["library"] == "transformers"
    assert facts["version"].count(".") >= 2


def test_what_raises_in_the_worker_becomes_one_line_and_the_log_has_the_traceback(worker: Worker) -> None:
    with pytest.raises(StepError) as caught:
        worker.ask(OpenCheckpoint(Path("/nowhere/checkpoint"), Path("/nowhere")))

    assert "\n" not in str(caught.value)
    assert "/nowhere/checkpoint" in str(caught.value)
    assert "Traceback (most recent call last)" in worker.log.read_text(encoding="utf-8")
    assert worker.alive


def test_an_exception_of_the_reference_never_blames_the_candidate(worker: Worker) -> None:
    with pytest.raises(StepError) as caught:
        worker.ask(MakeToy("no_such_model", Path("/nowhere"), "hub"))

    assert "no model_type 'no_such_model'" in str(caught.value)
    assert not caught.value.blames_candidate


def test_a_reply_that_nobody_took_does_not_answer_the_next_question(worker: Worker) -> None:
    worker.send(MakeToy("no_such_model", Path("/nowhere"), "hub"))

    assert worker.ask(OPEN)["library"] == "transformers"


def test_a_package_that_the_reference_must_not_import_is_noticed(worker: Worker) -> None:
    """torch stands for the target framework: the reference does import it."""
    with pytest.raises(StepError, match="the reference process imported torch"):
        worker.ask(Open(TRANSFORMERS, batch_builder=LANGUAGE, forbidden=["no_such_framework", "torch"]))


def test_an_unknown_builder_is_named(worker: Worker) -> None:
    with pytest.raises(StepError, match=r"there is no omni_kit\.no_such_module:Nothing"):
        worker.ask(Open("omni_kit.no_such_module:Nothing"))


def test_a_worker_that_ended_is_said_to_have_ended(tmp_path: Path) -> None:
    with Worker("candidate", tmp_path, timeout=60, service=SERVICE) as worker:
        worker.close_stdin()
        with pytest.raises(StepError, match="the candidate process ended with code 0 in 'open'"):
            worker.ask(OPEN)


@pytest.fixture(scope="module")
def fragile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with Sides(tmp_path_factory.mktemp("fragile"), timeout=120) as running:
        yield running


def test_a_crash_in_the_candidate_is_an_error_and_the_next_run_gets_a_new_process(
    plant: Plant, fragile: Sides, veomni_models: Path
) -> None:
    crashing = plant("crashes", {MODELING: [(ROUTER, f"import os; os.abort()\n        {ROUTER}")]})

    crashed = run_parity(crashing, sides=fragile)
    after = run_parity(veomni_models / "llama", ["forward"], sides=fragile)

    statuses = {level.level: level.status for level in crashed.levels}
    assert statuses == {
        "import": "pass",
        "keys": "pass",
        "roundtrip": "pass",
        "forward": "error",
        "backward": "skip",
        "scenarios": "error",
    }
    assert "SIGABRT" in crashed.level("forward").reason
    assert crashed.exit_code == 3
    assert after.ok


@pytest.mark.sweep
def test_a_hang_in_the_candidate_is_an_error_with_its_stack_in_the_log(plant: Plant, fragile: Sides) -> None:
    """Runs after the slow imports are over: the candidate's process is the one that the crash was replaced by."""
    hanging = plant("hangs", {MODELING: [(ROUTER, f"import time; time.sleep(600)\n        {ROUTER}")]})
    candidate = fragile.worker("candidate")
    candidate.timeout = 6
    started = time.monotonic()

    report = run_parity(hanging, ["forward"], sides=fragile)

    assert report.level("forward").status == "error"
    assert "did not finish 'run' in 6 s" in report.level("forward").reason
    assert report.exit_code == 3
    assert time.monotonic() - started < 300
    log = candidate.log.read_text(encoding="utf-8")
    assert "patched_modeling_qwen3_moe_gpu.py" in log[log.index("Fatal Python error: Aborted") :]


def with_code(*lines: str) -> Edits:
    """Runs these lines in the candidate's forward."""
    return {MODELING: [(ROUTER, "\n        ".join([*lines, ROUTER]))]}


@pytest.mark.sweep
def test_a_candidate_that_ignores_signals_and_stops_itself_is_ended_in_time(plant: Plant, fragile: Sides) -> None:
    deaf = plant(
        "deaf",
        with_code(
            "import os, signal",
            "signal.signal(signal.SIGABRT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)",
            "os.kill(os.getpid(), signal.SIGSTOP)",
            "import time; time.sleep(600)",
        ),
    )
    fragile.worker("candidate").timeout = 5
    started = time.monotonic()

    report = run_parity(deaf, ["forward"], sides=fragile)

    assert report.level("forward").status == "error"
    assert time.monotonic() - started < 60


@pytest.mark.parametrize("said", [
    '{\\"result\\": 5}', pytest.param("no JSON", marks=pytest.mark.sweep),
    pytest.param("[" * 100_000, marks=pytest.mark.sweep),
])  # fmt: skip
def test_what_a_candidate_writes_among_its_answers_is_none(said: str, plant: Plant, fragile: Sides) -> None:
    text = f'b"{said}\\n"' if len(said) < 100 else 'b"[" * 100000 + b"\\n"'
    forging = plant(
        f"forging{len(said)}",
        with_code(
            "import os",
            "for fd in range(3, 64):",
            "    try:",
            f"        os.write(fd, {text})",
            "    except OSError:",
            "        pass",
        ),
    )

    report = run_parity(forging, ["forward", "backward"], sides=fragile)

    assert {level.status for level in report.levels} <= {"fail", "error", "skip"}
    assert not report.ok


def test_a_candidate_finds_nothing_of_what_upstream_answered(plant: Plant, fragile: Sides, tmp_path: Path) -> None:
    """It looks where it stands, and around every path that the code that calls it knows."""
    found, place = tmp_path / "found.txt", str(fragile.log_dir.resolve())
    looking = plant(
        "looking",
        with_code(
            "import os, sys, pathlib",
            "frame, places = sys._getframe(), [pathlib.Path.cwd()]",
            "while frame is not None:",
            "    held = [v for x in frame.f_locals.values() for v in (x, *getattr(x, '__dict__', {}).values())]",
            f"    known = [v for v in held if isinstance(v, pathlib.Path) and {place!r} in str(v)]",
            f"    places += [p for v in known for p in (v.parent, v.parent.parent) if {place!r} in str(p)]",
            "    frame = frame.f_back",
            "names = ('outputs.safetensors', 'gradients.safetensors')",
            "seen = [f'{d}/{n}' for p in set(places) for d, _, f in os.walk(p) for n in f if n in names]",
            f"pathlib.Path({str(found)!r}).write_text('\\n'.join([*map(str, set(places)), *seen]))",
        ),
    )

    report = run_parity(looking, ["forward", "backward"], sides=fragile)

    assert report.ok
    lines = found.read_text().splitlines()
    assert any(line.startswith(place) for line in lines)
    assert [line for line in lines if line.endswith(".safetensors")] == []


def test_what_is_kept_has_upstreams_answers_too(veomni_models: Path, fragile: Sides, tmp_path: Path) -> None:
    run_parity(veomni_models / "llama", ["forward"], sides=fragile, work_dir=tmp_path)

    assert {"outputs.safetensors"} <= {file.name for file in (tmp_path / "reference").iterdir()}
