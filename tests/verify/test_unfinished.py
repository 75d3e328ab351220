"""To-dos of an integration, and the findings that repeat none."""

from pathlib import Path

import pytest

from omni_kit.diagnostics.finding import Finding, Severity
from omni_kit.verify.unfinished import left_to_do, told_apart

MARKED = """\
# TODO(omni-kit): call dispatch here (DFU111)
class Attention:
    def forward(self, x):
        return x.softmax(-1)


# TODO(omni-kit): guard this import
import einops

print(einops)
"""


@pytest.fixture
def lantern(tmp_path: Path) -> Path:
    folder = tmp_path / "lantern"
    folder.mkdir()
    (folder / "lantern.py").write_text(MARKED)
    return folder


def test_to_dos_are_listed_with_their_lines(lantern: Path) -> None:
    (lantern / "toy.json").write_text('{\n  "width": 4,\n  "_todo": ["set depth"]\n}\n')
    (lantern / "train.yaml").write_text("steps: 1\n# TODO(omni-kit): choose a rate\n")
    (lantern / "README.md").write_text("Marked as `# TODO(omni-kit): ...`.\n")
    found = {(one.path, one.line, one.what) for one in left_to_do(lantern)}
    assert found == {
        ("lantern.py", 1, "call dispatch here (DFU111)"),
        ("lantern.py", 7, "guard this import"),
        ("toy.json", 3, "set depth"),
        ("train.yaml", 2, "choose a rate"),
    }


@pytest.mark.parametrize(
    ("rule", "line", "marked"),
    [
        ("DFU111", 4, True),  # in the class, whose to-do names the rule
        ("DFU101", 3, False),  # in the class, and another fault
        ("DFU133", 8, True),  # in the statement that the to-do marks
        ("DFU133", 10, False),  # after it
    ],
)
def test_a_finding_that_repeats_a_to_do_is_told_apart(lantern: Path, rule: str, line: int, marked: bool) -> None:
    finding = Finding("wrong", (lantern / "lantern.py").resolve(), line, rule=rule, severity=Severity.error)
    found = told_apart([finding], lantern)
    assert [one.marked for one in found.findings] == [marked]
    assert len(found.unmarked) == (not marked)


def test_remarks_are_no_findings(lantern: Path) -> None:
    remark = Finding("odd", (lantern / "lantern.py").resolve(), 4, rule="DFU111", severity=Severity.info)
    assert told_apart([remark], lantern).findings == []
