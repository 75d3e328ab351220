"""Statements that upstream changed in one way wherever it had them, in a patch that moved them."""

import pytest

from omni_kit.patchgen.upgrade.merging import merge_definition
from omni_kit.patchgen.upgrade.repeated_changes import follow_everywhere

BASE = """\
def lengths(self, x, kind):
    if kind == 1:
        size = length(x)
        out = x + size
    elif kind == 2:
        size = length(x)
        out = x - size
    return out
"""
OURS = """\
def ours(self, x, kind):
    if kind == 1:
        size = length(x)
        out = x + size
    elif kind:
        if self.mixed:
            size = length(x)
            out = x - size
    return out
"""
THEIRS = BASE.replace("length(x)", "length(x, self.window)")


def test_a_moved_statement_follows() -> None:
    same = follow_everywhere(BASE, OURS, THEIRS)
    assert same is not None
    merged = merge_definition(*same)
    assert not merged.clashes
    assert merged.text == OURS.replace("length(x)", "length(x, self.window)")


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (OURS, BASE.replace("length(x)", "length(x, self.window)", 1)),
        (OURS.replace("            size = length(x)\n", "            size = 0\n"), THEIRS),
        (OURS, THEIRS.replace("self.window", "kind")),
    ],
    ids=["upstream changed one", "the patch dropped one", "it reads another local"],
)
def test_other_changes_are_left_to_the_merge(ours: str, theirs: str) -> None:
    assert follow_everywhere(BASE, ours, theirs) is None
