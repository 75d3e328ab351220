"""The demo's injected fault: what counts as catching it."""

from omni_kit.demo import caught_by
from omni_kit.parity.report.report import LevelResult


def test_a_wrong_converter_is_caught_where_weights_are_loaded() -> None:
    levels = [LevelResult("keys", "pass"), LevelResult("roundtrip", "fail", "4 of 25 tensors differ")]
    assert caught_by(levels) == ["parity roundtrip: 4 of 25 tensors differ"]


def test_another_failure_alone_does_not_catch_it() -> None:
    assert caught_by([LevelResult("keys", "fail", "it cannot be imported"), LevelResult("roundtrip", "skip")]) == []
