"""--fix: what findings know how to mend, and nothing else."""

import ast
from pathlib import Path

import pytest

from omni_checkers import Edit, Finding, check
from omni_checkers.engine.command import run_check
from omni_checkers.engine.fix import apply_fixes, edited

from .conftest import Edits, Subject

_INIT, _CONVERTER = "__init__.py", "checkpoint_tensor_converter.py"
_NESTED = ('getattr(config, "text_config", config)', "config.text_config")


_FACTORY = "create_olmoe_checkpoint_tensor_converter"
_ATTACHED = f"model_class._create_checkpoint_tensor_converter = staticmethod({_FACTORY})"
_BY_SETATTR = 'setattr(model_class, "_create_checkpoint_tensor_converter", lambda m: None)'
_IN_LINES = "    qwen3_vl,\n    qwen3_vl_moe,\n    seed_oss,\n"
_AGGREGATE = "../__init__.py"
_SHORT = "from . import (\n    llama,\n)\n"

CASES: dict[str, tuple[str, str, Edits, str]] = {
    "staticmethod": ("VEO201", "olmoe", {_INIT: (f"staticmethod({_FACTORY})", _FACTORY)}, f"{_ATTACHED}\n"),
    "setattr": ("VEO201", "olmoe", {_INIT: (_ATTACHED, _BY_SETATTR)}, ", staticmethod(lambda m: None))"),
    "text-config": ("VEO203", "qwen3_vl_moe", {_CONVERTER: _NESTED}, f"text_config = {_NESTED[0]}\n"),
    "aggregate": ("VEO103", "qwen3_vl_moe", {_AGGREGATE: ("    qwen3_vl_moe,\n", "")}, _IN_LINES),
    "aggregate-in-one-line": (
        "VEO103",
        "qwen3_vl_moe",
        {_AGGREGATE: "from . import llama, wan\n"},
        "from . import llama, qwen3_vl_moe, wan\n",
    ),
    "aggregate-at-the-end": (
        "VEO103",
        "qwen3_vl_moe",
        {_AGGREGATE: _SHORT},
        "from . import (\n    llama,\n    qwen3_vl_moe,\n)\n",
    ),
}


@pytest.mark.parametrize(("rule", "model", "edits", "expected"), CASES.values(), ids=CASES)
def test_a_fix_mends_its_finding(rule: str, model: str, edits: Edits, expected: str, subject: Subject) -> None:
    path = subject(model, edits)
    file = path / next(iter(edits))
    assert check([path], select=[rule]).findings
    report = run_check([path], select=[rule], fix=True, cached=False)
    assert report.findings == []
    assert report.notes[0].startswith("fixed ")
    assert expected in file.read_text(encoding="utf-8")
    ast.parse(file.read_text(encoding="utf-8"))


def test_what_cannot_be_mended_stays(subject: Subject) -> None:
    path = subject(edits={_INIT: ('register("olmoe")', 'register("olmo_e")')})
    before = (path / _INIT).read_text(encoding="utf-8")
    report = run_check([path], select=["VEO1"], fix=True, cached=False)
    assert [finding.rule for finding in report.findings] == ["VEO101"]
    assert (path / _INIT).read_text(encoding="utf-8") == before


def test_without_fix_nothing_is_written(subject: Subject) -> None:
    path = subject("qwen3_vl_moe", {_CONVERTER: _NESTED})
    before = (path / _CONVERTER).read_text(encoding="utf-8")
    assert run_check([path], select=["VEO203"], cached=False).findings[0].edits
    assert (path / _CONVERTER).read_text(encoding="utf-8") == before


def test_a_fix_touches_nothing_else(subject: Subject) -> None:
    path = subject("qwen3_vl_moe", {_CONVERTER: _NESTED})
    before = (path / _CONVERTER).read_text(encoding="utf-8")
    run_check([path], select=["VEO203"], fix=True, cached=False)
    assert (path / _CONVERTER).read_text(encoding="utf-8") == before.replace(_NESTED[1], _NESTED[0])


def test_positions_count_bytes_and_edits_do_not_disturb_each_other() -> None:
    text = "é = a\nb = 'ü'; c = d\n"
    path = Path("x.py")
    nodes = [node.value for node in ast.parse(text).body if isinstance(node, ast.Assign)]
    edits = [edit for node in nodes for edit in Edit.around(path, node, "f(", ")")]
    assert edited(text, edits) == "é = f(a)\nb = f('ü'); c = f(d)\n"


def test_edits_that_overlap_wait_for_the_next_run(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1 + 2\n", encoding="utf-8")
    whole = Finding("", file, edits=(Edit(file, (1, 4), (1, 9), "3"),))
    part = Finding("", file, edits=(Edit(file, (1, 4), (1, 5), "0"),))
    assert apply_fixes([whole, part]) == [whole]
    assert file.read_text(encoding="utf-8") == "x = 3\n"


def test_the_same_edit_of_two_findings_is_made_once(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1\n", encoding="utf-8")
    edits = (Edit(file, (1, 4), (1, 4), "f("), Edit(file, (1, 5), (1, 5), ")"))
    assert len(apply_fixes([Finding("a", file, edits=edits), Finding("b", file, edits=edits)])) == 2
    assert file.read_text(encoding="utf-8") == "x = f(1)\n"
