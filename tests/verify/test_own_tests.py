"""The tests of an integration."""

from pathlib import Path

from omni_kit.verify.own_tests import own_tests, run_own_tests


def package(place: Path, test: str) -> Path:
    (place / "lantern" / "tests").mkdir(parents=True)
    (place / "lantern" / "__init__.py").write_text("# TODO(omni-kit): say which text encoder\nLIT = True\n")
    (place / "lantern" / "tests" / "test_lantern.py").write_text(
        f"from lantern import LIT\n\n\ndef test_it():\n    {test}\n"
    )
    return place / "lantern"


def test_its_tests_run_and_are_counted(tmp_path: Path) -> None:
    found = run_own_tests(package(tmp_path, "assert LIT"))
    assert (found["code"], found["passed"]) == (0, 1)


def test_a_test_that_fails_is_named(tmp_path: Path) -> None:
    found = run_own_tests(package(tmp_path, "assert not LIT"))
    assert (found["code"], found["failed"]) == (1, 1)
    assert found["last"]


def test_an_integration_may_have_no_tests(tmp_path: Path) -> None:
    assert own_tests(tmp_path) == []
