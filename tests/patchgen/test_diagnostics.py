"""Every diagnostic fires where it should, and stays quiet next to it; the pairs are found by name."""

from pathlib import Path

import pytest

from omni_kit.patchgen import run_config
from omni_kit.patchgen.codes import DEFINITIONS
from omni_kit.patchgen.diagnostics import Diagnostic, Severity, error, strictly, warning
from omni_kit.patchgen.spec import Origin
from tests.patchgen.conftest import FIXTURES

FOLDER = FIXTURES / "diagnostics"
PAIRS = sorted(p.stem.removesuffix("_fires") for p in FOLDER.glob("*_fires.py"))
# Said about a run, not about a config: tested with the commands that say them.
OF_RUNS = {
    "cannot-load",
    "unreadable",
    "foreign-file",
    "no-source-module",
    "format-failed",
    "same-output",
    "stale",
    "not-generated",
    "orphan",
}
# A safety net: every known clash of patches has a code of its own.
UNREACHED = {"overlapping-patches"}


def found(name: str, tmp_path: Path) -> list[Diagnostic]:
    return run_config(FOLDER / f"{name}.py", tmp_path, write=False).diagnostics


@pytest.mark.parametrize("name", PAIRS)
def test_fires(name: str, tmp_path: Path) -> None:
    assert name.replace("_", "-") in [d.code for d in found(f"{name}_fires", tmp_path)]


@pytest.mark.parametrize("name", PAIRS)
def test_stays_quiet(name: str, tmp_path: Path) -> None:
    assert name.replace("_", "-") not in [d.code for d in found(f"{name}_quiet", tmp_path)]


@pytest.mark.parametrize("name", PAIRS)
def test_quiet_twin_generates(name: str, tmp_path: Path) -> None:
    """Quiet must not mean that something else stopped it first."""
    result = run_config(FOLDER / f"{name}_quiet.py", tmp_path, write=False)
    assert result.status in ("stale", "unchanged"), result.diagnostics


def test_every_code_has_a_pair() -> None:
    assert {name.replace("_", "-") for name in PAIRS} | OF_RUNS | UNREACHED == set(DEFINITIONS)


@pytest.mark.parametrize("name", PAIRS)
def test_says_where(name: str, tmp_path: Path) -> None:
    code = name.replace("_", "-")
    for diagnostic in found(f"{name}_fires", tmp_path):
        if diagnostic.code == code:
            assert diagnostic.path == f"{name}_fires.py"
            assert diagnostic.line > 0
            assert "\n" not in diagnostic.message


def test_missing_target_names_what_was_meant(tmp_path: Path) -> None:
    message = next(d.message for d in found("missing_target_fires", tmp_path))
    assert "Norm.forward" in message


def test_output_fields_names_the_lost_field(tmp_path: Path) -> None:
    lost = next(d for d in found("output_fields_fires", tmp_path) if d.code == "output-fields")
    assert "router_logits" in lost.names
    assert lost.severity is Severity.error


def test_excluded_references_are_told_apart(tmp_path: Path) -> None:
    said = [d.message for d in found("excluded_reference_fires", tmp_path) if d.code == "excluded-reference"]
    assert any("SmallPreTrainedModel._init_weights" in m and "isinstance" in m for m in said)
    assert any("speak_with" in m and "quoted annotation" in m for m in said)
    assert any("__all__" in m for m in said)
    assert any("Model.__init__" in m and "in its body" in m for m in said)


def test_strictly_turns_warnings_into_errors() -> None:
    origin = Origin("/somewhere/config.py", 3)
    strict = strictly([warning("no-change", "as upstream", origin), error("stale", "old")])
    assert [d.severity for d in strict] == [Severity.error, Severity.error]
    assert strict[0].path == "config.py"
    assert strict[0].line == 3


def test_an_unknown_code_is_refused() -> None:
    with pytest.raises(AssertionError):
        error("no-such-code", "something")
