"""A checkpoint that says of itself that its experts are canonical."""

from pathlib import Path

from omni_kit.convert import convert
from omni_kit.layout import check_layout, read_checkpoint
from omni_kit.layout.taxonomy import Disk
from tests.conftest import Checkpoints


def test_a_canonical_gpt_oss_is_read_as_it_lies(checkpoint: Checkpoints, tmp_path: Path) -> None:
    """By its recipe alone gate and up would alternate; the mark says that they do not any more."""
    hub = checkpoint("gpt_oss")
    assert {tree.disk for tree in check_layout(str(hub)).subtrees} == {Disk.fused_transposed_interleaved}
    convert(str(hub), tmp_path / "canonical", to="canonical")
    verdict = check_layout(str(tmp_path / "canonical"))
    assert {tree.disk for tree in verdict.subtrees} == {Disk.fused}
    assert verdict.verdict == "native"
    assert "canonical-form" in {finding.code for finding in verdict.findings}


def test_a_hub_checkpoint_has_no_mark(checkpoint: Checkpoints) -> None:
    assert not read_checkpoint(checkpoint("gpt_oss")).canonical


def test_canonical_is_nothing_to_warn_of_where_the_module_is(checkpoint: Checkpoints, tmp_path: Path) -> None:
    convert(str(checkpoint("olmoe")), tmp_path / "canonical", to="canonical")
    verdict = check_layout(str(tmp_path / "canonical"))
    assert verdict.ok
    assert "canonical-form" not in {finding.code for finding in verdict.findings}
