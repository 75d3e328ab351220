"""Nothing that a conversion did not write is replaced, removed or copied; a source that changed is not mixed in."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from omni_kit.convert import convert
from omni_kit.convert.destination import STATE
from omni_kit.errors import BadInput
from tests.convert.conftest import Toys, contents
from tests.convert.test_resume import interrupted, state_of


@pytest.fixture
def source(toy: Toys, tmp_path: Path) -> Path:
    """A checkpoint that a test may change."""
    shutil.copytree(toy("qwen3_moe"), tmp_path / "source")
    return tmp_path / "source"


def begun(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A destination as a kill leaves it."""
    state = state_of(source, tmp_path / "other", monkeypatch)
    interrupted(source, tmp_path / "out", 2)
    (tmp_path / "out" / STATE).write_bytes(state)
    return tmp_path / "out"


def resume(source: Path, place: Path) -> None:
    assert convert(str(source), place, to="canonical", shard_size="50KB", resume=True).resumed


@pytest.mark.parametrize("name", [".mine.partial", "mine.txt", ".hidden"])
def test_what_somebody_put_beside_stays(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place = begun(source, tmp_path, monkeypatch)
    (place / name).write_text("mine")
    resume(source, place)
    assert (place / name).read_text() == "mine"


@pytest.mark.parametrize("name", [".mine.partial", ".model.safetensors.partial"])
def test_a_partial_that_nobody_began_is_not_ours(source: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("mine")
    for again in (False, True):
        with pytest.raises(BadInput, match="is not empty"):
            convert(str(source), tmp_path / "out", to="canonical", resume=again)
    assert contents(tmp_path / "out") == {name: b"mine"}


@pytest.mark.parametrize("name", ["config.json", "model-00001-of-00007.safetensors"])
def test_another_file_under_a_name_that_is_to_be_written(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    place = begun(source, tmp_path, monkeypatch)
    target = place / name if name == "config.json" else min(place.glob("*.safetensors"))
    size = target.stat().st_size if target.exists() else 4
    target.write_bytes(b"m" * size)
    before = contents(place)
    with pytest.raises(BadInput, match="differs from the written file"):
        resume(source, place)
    assert contents(place) == before


def test_a_link_in_the_destination_is_not_followed(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = begun(source, tmp_path, monkeypatch)
    partial = min(place.glob(".*.safetensors.partial"))
    partial.unlink()
    (tmp_path / "precious").write_text("precious")
    partial.symlink_to(tmp_path / "precious")
    with pytest.raises(BadInput, match="is a link"):
        resume(source, place)
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_destination_inside_the_source_is_refused(source: Path) -> None:
    before = sorted(source.iterdir())
    for place in (source / "out", source / "a" / "b"):
        with pytest.raises(BadInput, match="is inside the source directory"):
            convert(str(source), place, to="canonical")
    assert sorted(source.iterdir()) == before


def test_a_refusal_leaves_no_folder(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(BadInput, match="has 1000 free"):
        convert(str(source), tmp_path / "a" / "b" / "out", to="canonical")
    assert not (tmp_path / "a").exists()


def test_a_link_that_leads_outside_does_not_come_along(source: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    (source / "notes.txt").symlink_to(tmp_path / "secret.txt")
    (source / "README.md").write_text("read me")
    (source / "also.md").symlink_to("README.md")
    done = convert(str(source), tmp_path / "out", to="canonical")
    assert not (tmp_path / "out" / "notes.txt").exists()
    assert (tmp_path / "out" / "also.md").read_text() == "read me"
    assert "left behind: notes.txt" in done.notes


def test_what_lies_where_the_shards_lie_comes_along(source: Path, tmp_path: Path) -> None:
    """As in a download cache, where every file is a link."""
    (tmp_path / "snapshot").mkdir()
    for file in source.iterdir():
        (tmp_path / "snapshot" / file.name).symlink_to(file)
    convert(str(tmp_path / "snapshot"), tmp_path / "out", to="canonical")
    assert (tmp_path / "out" / "config.json").read_bytes() == (source / "config.json").read_bytes()


@pytest.mark.parametrize("how", ["in place", "replaced"])
def test_a_source_of_the_same_size_and_time_is_not_mixed_in(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    place = begun(source, tmp_path, monkeypatch)
    shard = sorted(source.glob("*.safetensors"))[-1]
    times = shard.stat().st_atime_ns, shard.stat().st_mtime_ns
    other = {name: np.zeros_like(tensor) for name, tensor in load_file(shard).items()}
    written = shard if how == "in place" else tmp_path / "other.safetensors"
    save_file(other, written, metadata={"format": "pt"})
    written.replace(shard)
    os.utime(shard, ns=times)
    before = contents(place)
    with pytest.raises(BadInput, match="another source or other options"):
        resume(source, place)
    assert contents(place) == before
