"""What is executed is measured, in forks too, and what is not is reported with what it needs."""

import os
import runpy
from collections.abc import Mapping
from pathlib import Path

import pytest

from omni_kit.parity.processes.executed import Execution, read_executed, write_executed
from omni_kit.parity.report.branches import BranchReport, UnexecutedBranch, branch_report
from omni_kit.pysource.branches import Arcs

pytest.importorskip("coverage")

OWN = """
class Block:
    def __init__(self, config):
        if config["sparse"]:
            self.part = Part()
        else:
            self.part = None

    def forward(self, x, mask=None):
        if mask is not None:
            x = x * mask
        if self.part is not None:
            x = self.part.forward(x)
        return x


class Part:
    def forward(self, x):
        return x + 1


class OtherHead:
    def forward(self, x):
        if x:
            return x
        return None


def run(sparse, mask=None):
    return Block({"sparse": sparse}).forward(1, mask)
"""


def measured(place: Path, sparse: bool, mask: int | None = None) -> dict[str, Arcs]:
    file = place / "model.py"
    file.write_text(OWN)
    execution = Execution()
    execution.begin([str(place)])
    runpy.run_path(str(file))["run"](sparse, mask)
    return dict(execution.end())


def lines(report: BranchReport) -> dict[str, UnexecutedBranch]:
    return {one.function: one for one in report.untaken}


def test_what_was_not_executed_says_what_it_needs(tmp_path: Path) -> None:
    report = branch_report(measured(tmp_path, sparse=False), tmp_path)
    found = [str(one) for one in report.untaken]
    assert "model.py:5 not executed: needs config['sparse']" in found
    assert "model.py:11 not executed: needs mask is not None" in found
    assert "model.py:18 not executed: needs Part at line 5, which needs config['sparse']" in found
    assert [(one.function, one.apart) for one in report.apart] == [("OtherHead.forward", "other heads")]
    assert report.taken < report.counted


def test_what_was_executed_is_not_reported(tmp_path: Path) -> None:
    executed: dict[str, set[tuple[int, int]]] = {}
    for sparse, mask in ((False, None), (True, 2)):
        for file, arcs in measured(tmp_path, sparse, mask).items():
            executed.setdefault(file, set()).update(arcs)
    report = branch_report(executed, tmp_path)
    assert not report.untaken
    assert report.share == 1


def test_a_copy_of_upstream_is_reported_once(tmp_path: Path) -> None:
    own, upstream = tmp_path / "own", tmp_path / "upstream"
    executed: dict[str, Arcs] = {}
    for place in (own, upstream):
        place.mkdir()
        executed |= measured(place, sparse=False)
    alone, both = branch_report(measured(own, sparse=False), own), branch_report(executed, own)
    assert alone.counted == both.counted
    assert {one.path for one in both.untaken} == {str(own / "model.py")}


def test_tests_and_patch_configs_are_not_measured(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    executed: Mapping[str, Arcs] = measured(tmp_path / "tests", sparse=False)
    assert branch_report(executed, tmp_path) == BranchReport(0, 0, [], [])


def test_a_fork_has_results_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(OWN)
    execution = Execution()
    execution.begin([str(tmp_path)])
    run = runpy.run_path(str(file))["run"]
    run(False)
    if not (child := os.fork()):
        execution.begin_in_fork()
        run(True)
        write_executed(tmp_path / "executed.json", execution.end())
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    told = read_executed(tmp_path / "executed.json")
    assert any(5 in arc for arc in told[str(file)])
    assert not any(7 in arc for arc in told[str(file)])
    execution.add(told)
    assert any(5 in arc for arc in execution.end()[str(file)])
    assert not execution.end()
