"""The one Output object."""

import json
from typing import Any

import pytest
import typer

from omni_kit import __version__
from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.output import Format, Output, bounded


def finish(output: Output, **given: Any) -> int:
    with pytest.raises(typer.Exit) as exit_:
        output.finish(**{"data": {"x": [1]}, "ok": True, "human": lambda console: console.print("hello"), **given})
    return int(exit_.value.exit_code)


def test_json_has_the_common_fields(capsys: pytest.CaptureFixture[str]) -> None:
    assert finish(Output("inspect", Format.json), notes=["n"]) == 0
    expected = {"schema": "omni-kit/inspect/1", "ok": True, "omni_kit": __version__, "x": [1], "notes": ["n"]}
    assert json.loads(capsys.readouterr().out) == expected


@pytest.mark.parametrize(("given", "code"), [({"ok": True}, 0), ({"ok": False}, 1), ({"ok": False, "exit_code": 3}, 3)])
def test_ok_is_the_exit_code(given: dict[str, Any], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert finish(Output("x", Format.json), **given) == code
    assert json.loads(capsys.readouterr().out)["ok"] is (code == 0)


def test_human_goes_to_stdout_and_talk_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output("x")
    output.say("working")
    finish(output, notes=["and [this]"])
    captured = capsys.readouterr()
    assert captured.out == "hello\nnote: and [this]\n"
    assert captured.err == "working\n"


def test_json_is_silent_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output("x", Format.json)
    output.say("working")
    with output.status("working"):
        pass
    assert list(output.progress([1, 2], "working")) == [1, 2]
    assert capsys.readouterr().err == ""


def test_long_lists_are_cut_and_counted() -> None:
    cut = bounded({"items": list(range(500)), "inner": {"more": list(range(201))}, "few": [1]})
    assert (len(cut["items"]), cut["items_total"]) == (200, 500)
    assert (len(cut["inner"]["more"]), cut["inner"]["more_total"]) == (200, 201)
    assert "few_total" not in cut


def test_full_cuts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    finish(Output("x", Format.json, full=True), data={"items": list(range(500))})
    assert len(json.loads(capsys.readouterr().out)["items"]) == 500


def test_json_has_no_nan() -> None:
    assert bounded({"a": float("nan"), "b": [float("inf")], "c": 1.5}) == {"a": None, "b": [None], "c": 1.5}


def test_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert Output("x", Format.json).fail(BadInput("no\n such  thing", "do that")) == 2
    expected = {"schema": "omni-kit/error/1", "ok": False, "error": "no such thing", "hint": "do that"}
    assert json.loads(capsys.readouterr().out) == expected
    assert Output("x").fail(MissingRequirement("no torch", "pip install [x]")) == 3
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "error: no torch\nhint:  pip install [x]\n"
