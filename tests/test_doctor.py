"""doctor: what is there, and the command for what is not."""

import importlib.metadata
from dataclasses import replace
from pathlib import Path

import pytest

from omni_kit import doctor
from omni_kit.isolation.importing import imported
from omni_kit.targets.protocol import Requirement
from omni_kit.targets.veomni.installing import exporting_torch
from tests.conftest import run_cli


@pytest.fixture(scope="module")
def examined() -> list[doctor.Component]:
    """The components of this environment, all imported."""
    return doctor.examine("veomni")


@pytest.fixture
def unimported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is imported: only what the packages' metadata say counts."""
    monkeypatch.setattr(doctor, "imported", lambda modules: {})


def test_what_is_installed_is_ok(examined: list[doctor.Component]) -> None:
    found = {item.name: item for item in examined if "parity" in item.needed_by}
    assert found["torch"].version == importlib.metadata.version("torch")
    assert {item.status for item in found.values()} == {"ok"}
    assert {item.fix for item in found.values()} == {""}


@pytest.mark.usefixtures("unimported")
def test_what_is_missing_names_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == "torch":
            raise importlib.metadata.PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    code, data = run_cli("doctor")
    torch = next(item for item in data["components"] if item["name"] == "torch")
    assert (code, data["ok"]) == (3, False)
    assert (torch["status"], torch["version"], torch["fix"]) == ("missing", None, "pip install torch accelerate")


@pytest.mark.usefixtures("unimported")
@pytest.mark.parametrize(("transformers", "said"), [("99.1", ["99.1 is installed"]), ("5.9.0", [])])
def test_a_version_that_a_missing_target_does_not_take_is_said(
    transformers: str, said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.metadata.version

    def version(name: str) -> str:
        if name == "veomni":
            raise importlib.metadata.PackageNotFoundError(name)
        return transformers if name == "transformers" else real(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    found = [item.problem for item in doctor.examine() if item.status == "other version"]
    assert [one.partition("; ")[2] for one in found] == said


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise ImportError('libtorch_cpu.so: cannot open shared object file')", "ImportError: libtorch_cpu.so"),
        ("import os; os._exit(7)", "ended with code 7"),
        ("print('noise'); raise SystemExit(0)", "SystemExit: 0"),
    ],
)
def test_what_cannot_be_imported_says_why_and_hides_nothing_else(
    code: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_one.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    found = imported(["json", "broken_one", "no_such_module", "decimal"])
    assert found.keys() == {"broken_one", "no_such_module"}
    assert says in found["broken_one"].text
    assert (found["broken_one"].lacks, found["no_such_module"].lacks) == ("", "no_such_module")


def test_what_is_installed_and_broken_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "accelerate.py").write_text("raise ImportError('no')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(doctor, "imported", lambda modules: imported([one for one in modules if one == "accelerate"]))
    code, data = run_cli("doctor", "--target", "veomni")
    found = {item["name"]: item for item in data["components"] if "parity" in item["needed_by"]}
    assert (code, found["accelerate"]["status"], found["torch"]["status"]) == (3, "broken", "ok")
    version = importlib.metadata.version("accelerate")
    assert found["accelerate"]["fix"] == f"pip install --force-reinstall --no-deps accelerate=={version}"


@pytest.mark.sweep
def test_a_package_that_lacks_another_names_that_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "accelerate.py").write_text("import no_such_package")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    _, data = run_cli("doctor", "--target", "veomni")
    found = {item["name"]: item for item in data["components"] if "parity" in item["needed_by"]}
    assert (found["accelerate"]["fix"], found["accelerate"]["status"]) == ("pip install no_such_package", "broken")
    problem = f"no_such_package is not installed; {tmp_path / 'accelerate.py'}:1 imports it"
    assert found["accelerate"]["problem"] == problem


def test_a_program_that_is_gone_or_does_not_run_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "ruff"
    broken.write_text("#!/bin/sh\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(doctor, "ruff_binary", lambda: str(broken))
    monkeypatch.setattr(doctor, "_ty", lambda: None)
    monkeypatch.setattr(doctor, "imported", lambda modules: {})
    code, data = run_cli("doctor", "--target", "veomni")
    found = {item["name"]: item for item in data["components"]}
    assert (code, found["ruff"]["status"], found["ruff"]["problem"]) == (3, "broken", "`--version` ends with code 3")
    assert (found["ty"]["status"], found["ty"]["problem"]) == ("broken", "its program is missing")


def test_a_version_that_a_use_does_not_accept_is_broken() -> None:
    needed = Requirement("typer", "export", "pip install 'typer<1'", accepts=lambda: ("0.1", "99"))
    found = doctor.Component("typer", "0.29.2", "export", "ok", "")
    assert doctor.refused(needed, found) == "export accepts 0.1, 99, not 0.29.2"
    assert doctor.refused(replace(needed, accepts=lambda: ("0.29",)), found) == ""
    assert doctor.refused(replace(needed, accepts=tuple), found) == ""


def test_the_trainer_is_imported_and_its_export_names_the_versions_of_torch(examined: list[doctor.Component]) -> None:
    found = {(item.name, item.needed_by): item for item in examined}
    assert ("veomni", "veomni: training text") in found
    torch = found["torch", "veomni: export"]
    prefixes = exporting_torch()
    assert prefixes
    assert (torch.status == "ok") == str(torch.version).startswith(tuple(f"{one}." for one in prefixes))
