"""What is found at a path, or why nothing can be compared there."""

import shutil
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.parity.candidate import find_candidate
from omni_kit.resources import resource_dir

OLMOE = resource_dir("reference_models") / "veomni" / "olmoe"
GENERATED = "generated/patched_modeling_olmoe_gpu.py"


@pytest.fixture
def olmoe(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLMOE, tmp_path / "olmoe"))


def test_a_generated_file_that_is_imported_and_missing_is_one_error_with_the_command(olmoe: Path) -> None:
    (olmoe / GENERATED).unlink()
    with pytest.raises(BadInput, match=f"{GENERATED}, which the integration imports, has not been") as raised:
        find_candidate(olmoe)
    assert raised.value.hint == f"run: omni-kit patchgen run {olmoe}"


def test_a_generated_file_that_nothing_imports_may_be_missing(olmoe: Path) -> None:
    config = (olmoe / "olmoe_gpu_patch_gen_config.py").read_text()
    (olmoe / "other_patch_gen_config.py").write_text(config.replace("modeling_olmoe_gpu.py", "modeling_olmoe_npu.py"))
    assert find_candidate(olmoe).path == olmoe
