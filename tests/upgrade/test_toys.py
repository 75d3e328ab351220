"""Toy configs follow upstream's defaults, and keep what a person chose."""

import json
import shutil
from pathlib import Path

import pytest

from omni_kit.pysource.library import Library, find_library
from omni_kit.scaffold import new_model
from omni_kit.upgrade.toys import follow_toys

_KEPT = ("olmoe", "auto")


@pytest.fixture
def newer(tmp_path: Path) -> Library:
    """The installed transformers, whose Olmoe has another epsilon and one more field."""
    root = find_library("transformers").root
    place = tmp_path / "newer" / "transformers"
    shutil.copytree(
        root, place, ignore=lambda folder, names: [n for n in names if folder.endswith("/models") and n not in _KEPT]
    )
    file = place / "models" / "olmoe" / "configuration_olmoe.py"
    text = file.read_text(encoding="utf-8")
    assert "rms_norm_eps: float = 1e-05" in text
    fields = "rms_norm_eps: float = 1e-03\n    router_scale: float = 1.5"
    file.write_text(text.replace("rms_norm_eps: float = 1e-05", fields), encoding="utf-8")
    return find_library("transformers", place)


def test_what_a_person_chose_stays(tmp_path: Path, newer: Library) -> None:
    new_model("foo", "olmoe", target="veomni", into=tmp_path, dry_run=False)
    toy = tmp_path / "foo" / "toy_config.json"
    before = json.loads(toy.read_text(encoding="utf-8"))
    toy.write_text(json.dumps(before | {"vocab_size": 99}), encoding="utf-8")
    old = find_library("transformers")
    assert follow_toys(tmp_path / "foo", tmp_path, old, old, write=True) == []
    assert follow_toys(tmp_path / "foo", tmp_path, old, newer, write=False) == ["foo/toy_config.json"]
    assert follow_toys(tmp_path / "foo", tmp_path, old, newer, write=True) == ["foo/toy_config.json"]
    after = json.loads(toy.read_text(encoding="utf-8"))
    assert after == before | {"vocab_size": 99, "rms_norm_eps": 1e-03, "router_scale": 1.5}
