"""The worked examples: listed, read and copied by whatever name an agent has for them."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from omni_kit.errors import BadInput
from omni_kit.examples import copy_example, examples, find_example
from omni_kit.inspection import inspect


def test_what_inspect_names_can_be_read() -> None:
    nearest = inspect("olmoe")["nearest_reference"]
    assert find_example(nearest) == find_example("olmoe") == find_example("veomni/olmoe")
    assert "PatchConfig" in find_example(nearest).read("olmoe_gpu_patch_gen_config.py")


def test_every_example_is_copied_whole(tmp_path: Path) -> None:
    for example in examples():
        place = copy_example(example, tmp_path / example.target)
        assert [(place / file).read_text() for file in example.files] == [example.read(file) for file in example.files]


def test_what_is_there_is_not_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "olmoe" / "mine"
    mine.parent.mkdir()
    mine.touch()
    with pytest.raises(BadInput, match="is there already"):
        copy_example(find_example("olmoe"), tmp_path)
    assert list((tmp_path / "olmoe").iterdir()) == [mine]


def test_what_appears_meanwhile_is_not_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = tmp_path / "olmoe" / "mine"
    copy = shutil.copytree

    def slow(*args: Any, **kwargs: Any) -> None:
        copy(*args, **kwargs)
        mine.parent.mkdir()
        mine.touch()

    monkeypatch.setattr(shutil, "copytree", slow)
    with pytest.raises(BadInput, match="cannot write"):
        copy_example(find_example("olmoe"), tmp_path)
    assert list(tmp_path.rglob("*")) == [mine.parent, mine]


def test_a_copy_that_is_interrupted_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = shutil.copytree

    def interrupted(*args: Any, **kwargs: Any) -> None:
        copy(*args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "copytree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        copy_example(find_example("olmoe"), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["nonsense", "", "..", "../../etc", "veomni"])
def test_no_such_example(name: str) -> None:
    with pytest.raises(BadInput, match="no reference model named"):
        find_example(name)


def test_no_such_file() -> None:
    with pytest.raises(BadInput, match=r"has no file '\.\./qwen3_moe/README\.md'"):
        find_example("olmoe").read("../qwen3_moe/README.md")
