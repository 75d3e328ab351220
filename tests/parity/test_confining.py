"""What the candidate's process can reach of the reference's results: nothing."""

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from omni_kit.isolation.confinement import can_confine
from omni_kit.isolation.worker import StepError
from omni_kit.parity.compare.attention import load_calls, save_calls
from omni_kit.parity.compare.files import config_difference, load_tensors, save_tensors, stored_dtypes
from omni_kit.parity.compare.trace import ModuleCall, Recording
from omni_kit.parity.processes.steps.training import read_record
from omni_kit.parity.processes.workers import Sides
from omni_kit.parity.run import run_parity
from tests.parity.conftest import MODELING, Plant

pytestmark = pytest.mark.skipif(not can_confine(), reason="this system cannot take rights from a process")

ROUTER = "router_logits = torch.nn.functional.linear(hidden_states, self.weight)"


def test_a_candidate_that_looks_for_the_answers_finds_none(plant: Plant, sides: Sides, tmp_path: Path) -> None:
    """It opens every file of tensors that it finds below the directory of upstream's results."""
    said = tmp_path / "said"
    (sides.closed / "planted.safetensors").write_bytes(b"whatever else is there by then")
    lines = (
        "from pathlib import Path",
        f"for file in Path({str(sides.closed)!r}).rglob('*.safetensors'):",
        "    try: size = len(file.read_bytes())",
        "    except PermissionError: size = 'closed'",
        f"    with open({str(said)!r}, 'a') as out: out.write(f'{{size}}\\n')",
        ROUTER,
    )
    thief = plant("thief", {MODELING: [(ROUTER, "\n        ".join(lines))]})

    report = run_parity(thief, ["forward"], sides=sides)

    assert report.ok
    assert set(said.read_text().split()) == {"closed"}


def test_processes_that_run_reach_a_directory_that_was_made_later(plant: Plant, tmp_path: Path) -> None:
    """What lies beside the way to the closed directory, and was made after a process began, is closed to that one."""
    with Sides(tmp_path / "logs") as sides:
        first = run_parity(plant("early", {}), ["keys"], sides=sides)
        before = sides.worker("candidate")
        assert before.reaches(tmp_path / "logs")
        later = Path(sides.closed.parent, f"{sides.closed.name}-later")
        try:
            assert not before.reaches(later)
            second = run_parity(plant("late", {}), ["keys"], sides=sides, work_dir=later)
        finally:
            subprocess.run(["rm", "-rf", str(later)], check=True)
        assert (first.ok, second.ok) == (True, True)
        assert sides.worker("candidate") is not before


# Tries to write to the cache at once, and starts a child in a session of its own that does so when the command is over.
ESCAPES = """import subprocess, sys
try:
    open({entry!r}, "w")
except PermissionError:
    open({said!r}, "w").write("refused")
late = '''import os, time
while not os.path.exists({over!r}):
    time.sleep(0.05)
open({late!r}, 'w')
open({entry!r}, 'w')'''
subprocess.Popen([sys.executable, "-c", late], start_new_session=True)
"""


def test_what_a_candidate_starts_ends_with_it_and_the_cache_is_closed(
    plant: Plant, cache: Path, tmp_path: Path
) -> None:
    entry, said, late, over = cache / "forged.json", tmp_path / "said", tmp_path / "late", tmp_path / "over"
    path = plant("escapes", {})
    init = path / "__init__.py"
    escape = ESCAPES.format(entry=str(entry), said=str(said), late=str(late), over=str(over))
    init.write_text(escape + init.read_text(encoding="utf-8"), encoding="utf-8")
    with Sides(tmp_path / "logs") as sides:
        assert run_parity(path, ["import"], sides=sides).ok
    over.touch()
    time.sleep(1)
    assert said.read_text(encoding="utf-8") == "refused"
    assert not late.exists()
    assert not entry.exists() or entry.read_bytes() == b""


@pytest.mark.parametrize("file", ["inputs.safetensors", "checkpoint/config.json", "state.safetensors"])
def test_a_candidate_that_changes_what_upstream_is_compared_on(
    plant: Plant, sides: Sides, tmp_path: Path, file: str
) -> None:
    """It writes the same bytes again: that it writes is enough."""
    change = (
        "import os, shutil",
        f"for root, _, files in os.walk({str(sides.log_dir)!r}):",
        f"    file = os.path.join(root, {file!r})",
        "    if os.path.isfile(file): shutil.copy(file, file + '.new'); os.replace(file + '.new', file)",
        ROUTER,
    )
    name = f"changes_{Path(file).stem}"
    report = run_parity(plant(name, {MODELING: [(ROUTER, "\n        ".join(change))]}), ["forward"], sides=sides)
    assert not report.ok
    assert f"changed {Path(file).name}" in str(report.levels)


def test_results_are_read_where_they_lie(tmp_path: Path) -> None:
    """The process that compares reaches what the candidate cannot: it follows no link, and waits for no pipe."""
    other, own = tmp_path / "other", tmp_path / "own"
    save_tensors({"a": torch.ones(2)}, other / "outputs.safetensors")
    assert load_tensors(other / "outputs.safetensors")["a"].tolist() == [1, 1]
    own.mkdir()
    (own / "file").symlink_to(other / "outputs.safetensors")
    (own / "directory").symlink_to(other)
    os.mkfifo(own / "pipe")
    (own / "damaged").write_bytes(b"0" * 20)
    for file in ("missing", "damaged", "file", "directory/outputs.safetensors", "pipe"):
        with pytest.raises(StepError) as error:
            load_tensors(own / file)
        assert error.value.blames_candidate


def _replaced(file: Path, how: str) -> None:
    """Put something in the place of a result that no honest process leaves there."""
    other = file.with_name("other")
    file.rename(other)
    if how == "a link":
        file.symlink_to(other)
    elif how == "a pipe":
        os.mkfifo(file)
    elif how == "nothing":
        pass
    else:
        file.write_text(how, encoding="utf-8")


STEP = {"step": 1, "loss": 1.0, "mean": 1.0, "norm": 1.0, "max_norm": 1.0, "optimizer": {"lr": 1e-3}, "batches": [[{}]]}
FORGED: dict[str, Any] = {
    "a number": 3,
    "no steps": {"adapters": {}, "final": {}},
    "steps that are a number": {"steps": 3},
    "a step that is a text": {"steps": ["one"]},
    "a loss that is a text": {"steps": [{**STEP, "mean": "1.0"}]},
    "a loss that is a flag": {"steps": [{**STEP, "loss": True}]},
    "no norm": {"steps": [{name: value for name, value in STEP.items() if name != "norm"}]},
    "another optimizer": {"steps": [{**STEP, "optimizer": {"lr": 1e-3, "maximize": 1}}]},
    "a rate that is a dict": {"steps": [{**STEP, "optimizer": {"lr": {}}}]},
    "batches that are a dict": {"steps": [{**STEP, "batches": {}}]},
    "a sample that is a number": {"steps": [{**STEP, "batches": [[3]]}]},
    "weights that are a list": {"final": []},
    "a weight that is a number": {"final": {"weight": 3.0}},
}


@pytest.mark.parametrize("name", FORGED)
def test_a_record_that_no_trainer_writes_is_the_candidates(name: str, tmp_path: Path) -> None:
    honest = {"steps": [STEP], "adapters": {}, "final": {"weight": torch.ones(2)}}
    torch.save(honest, tmp_path / "rank0.pt")
    assert read_record(tmp_path / "rank0.pt")["steps"] == [STEP]
    forged = FORGED[name]
    whole = name not in {"a number", "no steps"}
    torch.save({**honest, **forged} if whole else forged, tmp_path / "rank0.pt")
    with pytest.raises(StepError, match="cannot be read") as error:
        read_record(tmp_path / "rank0.pt")
    assert error.value.blames_candidate


HOSTILE = ("a link", "a pipe", "nothing", "", "[" * 100_000, '{"calls":', '[{"number": 1}]', "9" * 6_000, "null")


@pytest.mark.parametrize("how", HOSTILE, ids=lambda text: text[:12])
def test_no_result_is_read_through_links_or_pipes_and_a_damaged_one_is_the_candidates(tmp_path: Path, how: str) -> None:
    directory, upstream = tmp_path / "candidate", tmp_path / "upstream"
    readers: dict[str, Callable[[], object]] = {
        "trace.json": lambda: Recording.load(directory),
        "attention.json": lambda: load_calls(directory),
        "a.safetensors": lambda: stored_dtypes(directory),
        "rank0.pt": lambda: read_record(directory / "rank0.pt"),
        "config.json": lambda: config_difference(upstream, directory),
    }
    Recording().save(directory)
    save_calls({"attention": [{"is_causal": True}]}, directory)
    save_tensors({"weight": torch.ones(2)}, directory / "a.safetensors")
    torch.save({"steps": [], "adapters": {}, "final": {}}, directory / "rank0.pt")
    (directory / "trace.safetensors").rename(tmp_path / "trace.safetensors")
    (directory / "config.json").write_text('{"model_type": "olmoe"}', encoding="utf-8")
    upstream.mkdir()
    (upstream / "config.json").write_text('{"model_type": "olmoe"}', encoding="utf-8")
    for name, read in readers.items():
        if name != "trace.json":
            assert read() is not None
        _replaced(directory / name, how)
        if name in {"a.safetensors", "config.json"} and how == "nothing":
            continue
        with pytest.raises(StepError, match=name) as error:
            read()
        assert error.value.blames_candidate


def test_calls_that_name_no_call_are_the_candidates_fault(tmp_path: Path) -> None:
    call = ModuleCall(0, "", 0, -1, "Model", "", "")
    for hostile in (replace(call, number=7), replace(call, parent=3), replace(call, parent=0)):
        Recording([hostile]).save(tmp_path)
        with pytest.raises(StepError, match="not numbered in order"):
            Recording.load(tmp_path)
    Recording([call]).save(tmp_path)
    assert Recording.load(tmp_path).calls == [call]
