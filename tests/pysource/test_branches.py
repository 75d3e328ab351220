"""Branches of functions, as read from source and as taken by Python itself."""

import sys
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from types import FrameType
from typing import Any

import pytest

from omni_kit.pysource.branches import Branch, BranchReader

MODEL = '''
class Attention:
    def __init__(self, config, layer_idx):
        self.window = config.sliding_window if config.use_sliding_window else None

    def forward(self, x, past_key_values=None, **kwargs):
        """Says what it does."""
        if past_key_values is not None:
            x = past_key_values
        scale = self.window
        if scale is None and "shift" in kwargs:
            x = x + 1
        elif not x:
            raise ValueError("no input")
        else:
            x = x + 2
        for item in [x]:
            if item > 2:
                continue
            x = item
        return x


class Head:
    def __init__(self, config):
        self.attention = Attention(config, 0)

    def forward(self, x):
        if x.device.type == "mps":
            x = x.cpu()
        return self.attention.forward(x)

    def extra_repr(self):
        return ""
'''


def read(tmp_path: Path, text: str = MODEL) -> BranchReader:
    file = tmp_path / "model.py"
    file.write_text(dedent(text))
    return BranchReader(file, {"extra_repr": "printing"})


def branch(reader: BranchReader, condition: str) -> Branch:
    return next(one for one in reader.branches if one.condition == condition)


def executed(file: Path, call: Callable[[dict[str, Any]], object]) -> set[tuple[int, int]]:
    """The arcs of a call, as a tracer reports them."""
    names: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), names)
    arcs: set[tuple[int, int]] = set()
    last: dict[FrameType, int] = {}

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if frame.f_code.co_filename != str(file):
            return None
        if event == "line":
            arcs.add((last.get(frame, -frame.f_code.co_firstlineno), frame.f_lineno))
            last[frame] = frame.f_lineno
        elif event == "return":
            arcs.add((last.get(frame, -1), -frame.f_code.co_firstlineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call(names)
    finally:
        sys.settrace(before)
    return arcs


class Config:
    sliding_window = None
    use_sliding_window = False


def test_taken_branches_are_those_that_ran(tmp_path: Path) -> None:
    reader = read(tmp_path)
    arcs = executed(tmp_path / "model.py", lambda names: names["Attention"](Config, 0).forward(1))
    taken = {one.condition for one in reader.branches if one.ran(arcs) and one.condition}
    assert taken == {"past_key_values is None", "x", "[x]", "item > 2"}


def test_the_other_side_of_each_condition(tmp_path: Path) -> None:
    reader = read(tmp_path)
    arcs = executed(tmp_path / "model.py", lambda names: names["Attention"](Config, 0).forward(0, 1, shift=1))
    taken = {one.condition for one in reader.branches if one.ran(arcs) and one.condition}
    assert {"past_key_values is not None", "scale is None and 'shift' in kwargs", "not item > 2"} <= taken
    assert "past_key_values is None" not in taken


@pytest.mark.parametrize(
    ("condition", "fields", "arguments"),
    [
        ("past_key_values is not None", set(), {"past_key_values"}),
        ("scale is None and 'shift' in kwargs", {"sliding_window", "use_sliding_window"}, {"shift"}),
        ("item > 2", set(), {"x", "past_key_values"}),
    ],
)
def test_what_decides_a_condition(tmp_path: Path, condition: str, fields: set[str], arguments: set[str]) -> None:
    decision = branch(read(tmp_path), condition).decision
    assert fields <= decision.fields
    assert arguments <= decision.arguments


def test_what_is_of_no_interest_is_apart_with_a_reason(tmp_path: Path) -> None:
    reader = read(tmp_path)
    assert branch(reader, "not x").apart == "raises"
    assert branch(reader, "x.device.type == 'mps'").apart == "this machine"
    assert {one.apart for one in reader.branches if one.function == "Head.extra_repr"} == {"printing"}
    assert not branch(reader, "past_key_values is not None").apart


def test_a_class_that_nothing_makes_is_an_entry(tmp_path: Path) -> None:
    entries = {one.function.partition(".")[0]: one.entry for one in read(tmp_path).branches}
    assert entries == {"Attention": "", "Head": "Head"}


def test_every_branch_of_a_real_file_lies_in_its_outer_branch() -> None:
    from omni_kit.pysource.library import find_library

    for file in sorted(find_library("transformers").root.glob("models/q*/modeling_*.py"))[::5]:
        for one in BranchReader(file).branches:
            if one.outer is not None:
                assert one.outer.inside[0] <= one.inside[0] <= one.inside[1] <= one.outer.inside[1], (file, one)
