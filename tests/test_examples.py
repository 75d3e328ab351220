"""The worked examples: listed, read and copied by whatever name an agent has for them."""

from pathlib import Path

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
    (tmp_path / "olmoe").mkdir()
    with pytest.raises(BadInput, match="exists"):
        copy_example(find_example("olmoe"), tmp_path)
    assert list((tmp_path / "olmoe").iterdir()) == []


@pytest.mark.parametrize("name", ["nonsense", "", "..", "../../etc", "veomni"])
def test_no_such_example(name: str) -> None:
    with pytest.raises(BadInput, match="no worked example"):
        find_example(name)


def test_no_such_file() -> None:
    with pytest.raises(BadInput, match=r"has no file '\.\./qwen3_moe/README\.md'"):
        find_example("olmoe").read("../qwen3_moe/README.md")
