"""Killed at any moment, a conversion is finished by --resume, and nobody can tell afterwards."""

import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from omni_kit.convert import convert, run
from omni_kit.convert.destination import STATE
from omni_kit.errors import BadInput
from tests.convert.conftest import Toys, contents

OPTIONS = ("--to", "canonical", "--shard-size", "5MB", "--jobs", "2", "--resume")


def start(source: Path, destination: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "omni_kit", "convert", str(source), str(destination), *OPTIONS]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL)


def kill_while_writing(source: Path, destination: Path, delay: float) -> bool:
    """Kills a run a moment after its first unfinished file appears; returns whether it was still running."""
    process = start(source, destination)
    while process.poll() is None and not list(destination.glob(".*.partial")):
        time.sleep(0.001)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    return process.wait() == -signal.SIGKILL


@pytest.mark.sweep
def test_killed_again_and_again(large: Path, tmp_path: Path) -> None:
    wanted, found = tmp_path / "wanted", tmp_path / "found"
    convert(str(large), wanted, to="canonical", shard_size="5MB")
    moments = random.Random(0)
    killed = 0
    for _ in range(3):
        killed += kill_while_writing(large, found, moments.random() * 0.04)
        whole = {file.name for file in found.glob("*.safetensors")}
        complete = contents(wanted)
        assert all((found / name).read_bytes() == complete[name] for name in whole), "a final name on half a file"
    assert killed
    assert start(large, found).wait() == 0
    assert contents(found) == contents(wanted)
    assert start(large, found).wait() == 0, "what is complete stays as it is"
    assert contents(found) == contents(wanted)


def interrupted(source: Path, place: Path, finished: int) -> dict[str, bytes]:
    """A destination as a kill leaves it, after some files; returns what it should become."""
    convert(str(source), place, to="canonical", shard_size="50KB")
    wanted = contents(place)
    for name in [n for n in wanted if n.endswith(".safetensors")][finished:]:
        (place / name).rename(place / f".{name}.partial")
    (place / "model.safetensors.index.json").unlink()
    return wanted


def state_of(source: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The state file that a run of the same command begins with."""
    kept: list[bytes] = []
    unlink = Path.unlink

    def keep(path: Path, missing_ok: bool = False) -> None:
        if path.name == STATE:
            kept.append(path.read_bytes())
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", keep)
    convert(str(source), place, to="canonical", shard_size="50KB")
    monkeypatch.undo()
    return kept[0]


@pytest.mark.parametrize("finished", [0, 1, 3])
def test_only_the_rest_is_done(toy: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished: int) -> None:
    source, place = toy("qwen3_moe"), tmp_path / "out"
    state = state_of(source, tmp_path / "other", monkeypatch)
    wanted = interrupted(source, place, finished)
    (place / STATE).write_bytes(state)
    kept = {file.name: file.stat().st_mtime_ns for file in place.glob("*.safetensors")}
    assert len(kept) == finished
    done = convert(str(source), place, to="canonical", shard_size="50KB", resume=True, verify=True)
    assert (done.resumed, done.verified) == (True, True)
    assert contents(place) == wanted
    assert {name: (place / name).stat().st_mtime_ns for name in kept} == kept


@pytest.mark.parametrize("boots", [["another"], ["another", "this"], [""], None])
def test_after_another_boot_nothing_is_trusted(
    toy: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, boots: list[str] | None
) -> None:
    """What a machine had not yet put on disk when it went down may be there by name and size, and hold zeros."""
    source, place = toy("qwen3_moe"), tmp_path / "out"
    state = json.loads(state_of(source, tmp_path / "other", monkeypatch))
    monkeypatch.setattr(run, "boot_of_machine", lambda: "" if boots == [""] else "this")
    wanted = interrupted(source, place, 2)
    (place / STATE).write_text(json.dumps(state | {"boots": boots}))
    first, second = sorted(place.glob("*.safetensors"))
    first.write_bytes(bytes(first.stat().st_size))
    second.write_bytes(b"")

    done = convert(str(source), place, to="canonical", shard_size="50KB", resume=True)

    assert not done.resumed
    assert contents(place) == wanted


def test_without_resume_it_is_refused(toy: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(toy("qwen3_moe"), tmp_path / "other", monkeypatch)
    place = tmp_path / "out"
    place.mkdir()
    (place / STATE).write_bytes(state)
    with pytest.raises(BadInput, match="contains an interrupted conversion"):
        convert(str(toy("qwen3_moe")), place, to="canonical", shard_size="50KB")


@pytest.mark.parametrize("changed", [{"to": "hub"}, {"dtype": "float16"}, {"shard_size": "5GB"}])
def test_other_options_are_refused(
    toy: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, str]
) -> None:
    state = state_of(toy("qwen3_moe"), tmp_path / "other", monkeypatch)
    place = tmp_path / "out"
    interrupted(toy("qwen3_moe"), place, 2)
    (place / STATE).write_bytes(state)
    before = contents(place)
    options = {"to": "canonical", "shard_size": "50KB"} | changed
    with pytest.raises(BadInput, match="another source or other options"):
        convert(str(toy("qwen3_moe")), place, resume=True, **options)  # type: ignore[arg-type]
    assert contents(place) == before


def test_a_finished_file_of_another_size_is_refused(toy: Toys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(toy("qwen3_moe"), tmp_path / "other", monkeypatch)
    place = tmp_path / "out"
    interrupted(toy("qwen3_moe"), place, 2)
    (place / STATE).write_bytes(state)
    first = min(place.glob("*.safetensors"))
    first.write_bytes(first.read_bytes()[:-4])
    with pytest.raises(BadInput, match="differs from the written file"):
        convert(str(toy("qwen3_moe")), place, to="canonical", shard_size="50KB", resume=True)


def test_a_damaged_state_is_refused(toy: Toys, tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.mkdir()
    for text, said in (("{", "cannot read"), ("[]", "another source"), (json.dumps({}), "another source")):
        (place / STATE).write_text(text)
        with pytest.raises(BadInput, match=said):
            convert(str(toy("qwen3_moe")), place, to="canonical", resume=True)


def test_killed_before_the_state_was_written(toy: Toys, tmp_path: Path) -> None:
    place = tmp_path / "out"
    place.mkdir()
    (place / f".{STATE}.partial").write_text("{")
    with pytest.raises(BadInput, match="interrupted conversion"):
        convert(str(toy("qwen3_moe")), place, to="canonical")
    done = convert(str(toy("qwen3_moe")), place, to="canonical", resume=True)
    assert not done.resumed
    assert not list(place.glob(".*"))


def test_resume_where_nothing_was_begun(toy: Toys, tmp_path: Path) -> None:
    assert not convert(str(toy("qwen3_moe")), tmp_path / "out", to="canonical", resume=True).resumed


def test_a_complete_result_of_another_plan_is_not_taken_for_this_one(toy: Toys, tmp_path: Path) -> None:
    convert(str(toy("qwen3_moe")), tmp_path / "out", to="hub")
    with pytest.raises(BadInput, match="is not empty"):
        convert(str(toy("qwen3_moe")), tmp_path / "out", to="canonical", resume=True)
