"""A copy whose locals are called otherwise: its slips are told all the same, and names that mean another thing stay."""

import ast

import pytest

from omni_checkers.codediff.align import ClonePair, rename_locals
from omni_checkers.codediff.changes import alterations, left_out

from .test_changes import MEANT, ORIGINAL, SLIPS, function

OTHERWISE = {"weights": "scores", "answer": "result", "key": "states"}


def _copy(old: str, new: str) -> ClonePair:
    """The changed original with three locals called otherwise."""
    ours = function(ORIGINAL.replace(old, new) if old else ORIGINAL)
    for node in ast.walk(ours):
        if isinstance(node, ast.Name):
            node.id = OTHERWISE.get(node.id, node.id)
    return ClonePair(ours, function(ORIGINAL))


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_told(slip: str) -> None:
    assert len(list(alterations(rename_locals(_copy(*SLIPS[slip]))))) == 1


@pytest.mark.parametrize("meant", MEANT)
def test_what_is_meant_is_not(meant: str) -> None:
    copy = rename_locals(_copy(*MEANT[meant]))
    assert list(alterations(copy)) == []
    assert list(left_out(copy)) == []


def test_lines_keep_their_places_and_the_copy_itself_its_names() -> None:
    copy = _copy("", "")
    shown = ast.unparse(copy.ours)
    again = rename_locals(copy)
    assert [line.number for line in again.mine] == [line.number for line in copy.mine]
    assert {line.code for line in again.mine} == {line.code for line in again.original}
    assert ast.unparse(copy.ours) == shown


def test_a_short_line_shows_no_name() -> None:
    """`return first` and `return second` are of one shape, whatever the two hold."""
    ours = function("def forward(self, x):\n    first = self.up(x)\n    return first\n")
    theirs = function("def forward(self, x):\n    second = self.down(x.float(), self.scale)\n    return second\n")
    copy = ClonePair(ours, theirs)
    assert rename_locals(copy) is copy
