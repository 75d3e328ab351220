"""Files that no person writes, and files in other encodings: a finding where it belongs, or none; never an end."""

import codecs
import os
import shutil
import time
from pathlib import Path

import pytest

from omni_checkers import Finding, check
from omni_kit.diagnostics.definition import family_of
from tests.conftest import first, sampled

from .conftest import Subject

GENERATED = "generated/patched_modeling_olmoe_gpu.py"
DEEP = {
    "sums": "X = " + "+".join(["1"] * 5000),
    "conditions": "if x:\n    pass\n" + "elif x:\n    pass\n" * 9000,
    "attributes": "X = a" + ".b" * 5000,
    "signs": "X = " + "-" * 20000 + "1",
    "negations": "X = " + "not " * 5000 + "1",
    "calls": "X = f" + "()" * 5000,
    "functions": "X = " + "lambda: " * 3000 + "1",
    "brackets": "X = " + "(" * 1000 + "1" + ")" * 1000,
    "blocks": "".join(" " * depth + "if x:\n" for depth in range(200)) + " " * 200 + "pass",
    "digits": "X = " + "9" * 5000,
    "nulls": "X = 1\0",
    "a parameter twice": "def f(a, a):\n    pass",
    "a value from nowhere": "return 3",
}
ODD = {
    "a class of its own name": "from .modeling_other import Foo\n\n\nclass Foo(Foo):\n    pass\n",
    "classes in a circle": "class A(B):\n    pass\n\n\nclass B(A):\n    pass\n",
    "a class of itself": "class A(A):\n    pass\n",
    "very many lines": "x = 1\n" * 20000,
    "a long chain": "X = " + " + ".join(["1"] * 800) + "\n",
    "a long choice": "x = 1\nif x == 0:\n    y = 0\n" + "".join(f"elif x == {n}:\n    y = {n}\n" for n in range(250)),
    "half a pair": "X = '\\ud800'\n",
}


def found(path: Path) -> list[Finding]:
    """All findings; that takes no long time."""
    started = time.perf_counter()
    findings = check([path]).findings
    assert time.perf_counter() - started < 30
    return findings


@pytest.mark.parametrize("name", sampled(DEEP, *[*DEEP][::3]))
@pytest.mark.parametrize("place", first(1, ["more.py", "__init__.py"]))
def test_what_cannot_be_parsed_is_a_finding_on_its_file(name: str, place: str, subject: Subject) -> None:
    path = subject()
    with (path / place).open("a", encoding="utf-8") as file:
        file.write(f"{DEEP[name]}\n")
    assert (path / place, "OMK002") in {(finding.path, finding.rule) for finding in found(path)}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("place", first(2, ["more.py", GENERATED, "__init__.py"]))
def test_what_is_odd_ends(name: str, place: str, subject: Subject) -> None:
    path = subject()
    with (path / place).open("a", encoding="utf-8") as file:
        file.write(ODD[name])
    findings = found(path)
    assert not {finding.rule for finding in findings} & {"OMK002", "OMK003"}
    assert place != GENERATED or "VEO402" in {family_of(finding.rule) for finding in findings}


def test_what_is_parsed_and_cannot_be_gone_through_is_said_of_its_file(tmp_path: Path) -> None:
    from omni_checkers.engine.files import read_file
    from omni_checkers.engine.own_rules import too_deep

    (tmp_path / "deep.py").write_text("x = 1\nX = " + "+".join(["1"] * 900) + "\n", encoding="utf-8")
    (tmp_path / "flat.py").write_text("x = 1\n", encoding="utf-8")
    deep, flat = read_file(tmp_path / "deep.py"), read_file(tmp_path / "flat.py")
    (finding,) = too_deep([flat, deep])
    assert (finding.path, finding.line) == (tmp_path / "deep.py", 2)
    assert "nested too deeply to check: 90" in finding.message
    assert list(too_deep([flat])) == []


@pytest.mark.parametrize("place", first(2, ["more.py", GENERATED, "__init__.py", "olmoe_gpu_patch_gen_config.py"]))
@pytest.mark.parametrize("encoding", ["utf-8-sig", "gb18030", "crlf"])
def test_encodings_that_python_takes_are_fine(encoding: str, place: str, subject: Subject) -> None:
    path = subject(edits={"more.py": "X = 1\n"})
    text = (path / place).read_text(encoding="utf-8")
    if encoding == "utf-8-sig":
        (path / place).write_bytes(codecs.BOM_UTF8 + text.encode())
    elif encoding == "gb18030":
        (path / place).write_bytes(f"# -*- coding: gb18030 -*-\n# \xe9\n{text}".encode("gb18030"))
    else:
        (path / place).write_bytes(text.replace("\n", "\r\n").encode())
    assert found(path) == []


def test_a_file_of_an_unknown_encoding_is_a_finding(subject: Subject) -> None:
    findings = found(subject(edits={"more.py": "# coding: klingon\nX = 1\n"}))
    assert [(finding.rule, finding.path.name) for finding in findings] == [("OMK002", "more.py")]


def test_a_broken_model_among_others_does_not_drop_out_of_sight(olmoe: Path, tmp_path: Path) -> None:
    for name in ("fine", "broken"):
        shutil.copytree(olmoe, tmp_path / name)
    (tmp_path / "broken" / "__init__.py").write_text("from x import MODELING_REGISTRY\ndef (:\n", encoding="utf-8")
    report = check([tmp_path], select=["OMK"])
    assert [path.name for path in report.models] == ["broken", "fine"]
    assert [finding.path for finding in report.findings] == [tmp_path / "broken" / "__init__.py"]


@pytest.mark.parametrize("encoding", ["rot13", "hex", "undefined", "nonsense"])
def test_an_encoding_that_is_none_of_text_is_invalid_python(encoding: str, tmp_path: Path) -> None:
    from omni_checkers.engine.files import read_file

    file = tmp_path / "odd.py"
    file.write_text(f"# coding: {encoding}\nX = '{'a' * 100}'\n", encoding="utf-8")
    assert read_file(file).error is not None


def test_a_pipe_in_a_model_does_not_hold_the_check(subject: Subject) -> None:
    model = subject()
    for name in ("pipe.py", "pipe.yaml", "pipe.json", "generated/pipe.py"):
        os.mkfifo(model / name)
    assert not check([model]).findings
