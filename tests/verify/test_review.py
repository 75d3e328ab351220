"""Differences to a fresh scaffold, and what speaks of each."""

import shutil
from pathlib import Path

import pytest

from omni_kit.parity.candidate import find_owned
from omni_kit.resources import resource_dir
from omni_kit.verify.review import Remark, Review, explained, remarks_of, review

CONFIG = "olmoe_gpu_patch_gen_config.py"


@pytest.fixture
def olmoe(tmp_path: Path) -> Path:
    return Path(shutil.copytree(resource_dir("reference_models") / "veomni" / "olmoe", tmp_path / "olmoe"))


def edit(file: Path, old: str, new: str) -> int:
    """Replace a text; return the line that it is in."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    return text[: text.index(old)].count("\n") + 1


def reviewed(path: Path, *remarks: Remark, source: str | None = None) -> Review:
    owner, candidate = find_owned(path)
    return explained(review(candidate, owner.name, source), candidate, remarks)


def test_a_fresh_scaffold_does_not_differ(olmoe: Path) -> None:
    found = reviewed(olmoe)
    assert (found.hunks, found.missing, found.own) == ([], [], [])


@pytest.mark.parametrize("recorded", [True, False])
def test_a_difference_that_nobody_speaks_of_is_unexplained(olmoe: Path, recorded: bool) -> None:
    line = edit(olmoe / "parallel_plan.py", "down_proj", "up_proj")
    if not recorded:
        (olmoe / ".omni-kit.toml").unlink()
    (hunk,) = reviewed(olmoe).hunks
    assert (hunk.path, hunk.line, hunk.by) == ("parallel_plan.py", line, "unexplained")
    assert "-" in hunk.diff
    assert "up_proj" in hunk.diff


def test_a_finding_in_the_same_lines_or_function_speaks_of_it(olmoe: Path) -> None:
    line = edit(olmoe / "parallel_plan.py", "down_proj", "up_proj")
    plan = olmoe / "parallel_plan.py"
    found = reviewed(olmoe, Remark("VEO302", "no such parameter", plan, line), Remark("VEO100", "another", plan, 1))
    assert found.hunks[0].by == "VEO302"
    assert [one.by for one in found.elsewhere] == ["VEO100"]


def test_a_level_speaks_of_the_function_that_was_generated_from_the_lines(olmoe: Path) -> None:
    edit(olmoe / CONFIG, "variance = hidden_states.pow(2)", "variance = 2 * hidden_states.pow(2)")
    generated = olmoe / "generated" / "patched_modeling_olmoe_gpu.py"
    at = generated.read_text().splitlines().index("        input_dtype = hidden_states.dtype") + 1
    (hunk,) = reviewed(olmoe, *remarks_of("forward", "1 of 5 outputs differ", [f"{generated}:{at}"])).hunks
    assert hunk.by == "forward"
    other = generated.read_text().splitlines().index("    def _init_weights(self, module):") + 1
    (hunk,) = reviewed(olmoe, *remarks_of("forward", "1 of 5 outputs differ", [f"{generated}:{other}"])).hunks
    assert hunk.by == "unexplained"


def test_files_of_one_side_alone_are_named(olmoe: Path) -> None:
    (olmoe / "parallel_plan.py").unlink()
    (olmoe / "more.py").write_text("")
    found = reviewed(olmoe)
    assert (found.missing, found.own) == (["parallel_plan.py"], ["more.py"])
