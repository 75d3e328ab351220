"""Which directories hold a pipeline: broken files of others are in nobody's way."""

import shutil
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.resources import resource_dir
from omni_kit.targets.sglang_diffusion.finding import at, find

FLUX = resource_dir("reference_models") / "sglang_diffusion" / "flux_t2i"


@pytest.mark.parametrize("broken", [b"def (", b"\xff\xfe EntryClass", b"EntryClass = (\n"])
def test_a_broken_file_hides_no_pipeline(broken: bytes, tmp_path: Path) -> None:
    shutil.copytree(FLUX, tmp_path / "flux_t2i", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "flux_t2i" / "aaa.py").write_bytes(broken)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "__init__.py").write_bytes(broken)

    assert [one.path.name for one in find(tmp_path)] == ["flux_t2i"]
    assert at(tmp_path / "other") is None


def test_a_folder_without_any_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        find(tmp_path)
