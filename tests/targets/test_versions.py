"""Which versions a target takes: its metadata, else what it declares; and what is said about another one."""

import importlib.metadata
import shlex
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from omni_checkers.engine.command import run_check
from omni_kit.cli import main
from omni_kit.errors import MissingRequirement
from omni_kit.pysource.library import find_library
from omni_kit.record import record_version
from omni_kit.scaffold import new_model
from omni_kit.targets.protocol import Target
from omni_kit.targets.provenance import other_version
from omni_kit.targets.registry import get_target
from omni_kit.targets.veomni.installing import INSTALL_VEOMNI
from omni_kit.targets.versions import broken_pins, library_for, pins, refuse_what_does_not_run, unmet
from tests.conftest import run_cli

VEOMNI = f"veomni {importlib.metadata.version('veomni')}"
_KEPT = ("llama", "auto", "__init__.py")


@pytest.fixture
def another_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A version that VeOmni does not take is installed, as far as metadata goes."""
    folder = tmp_path / "site" / "transformers-99.1.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: transformers\nVersion: 99.1\n", encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return "99.1"


def stated(target: Target) -> dict[str, str]:
    return {pin.library: str(pin.specifier) for pin in pins(target)}


def test_veomni_takes_what_its_files_and_its_metadata_state() -> None:
    target = get_target("veomni")
    assert stated(target) == {"transformers": "==5.9.0", "diffusers": "==0.37.0"}
    assert not list(broken_pins(target))


def test_a_target_that_is_not_installed_takes_what_the_extra_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    extra = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    real = importlib.metadata.requires

    def requires(name: str) -> list[str]:
        return [f'{one} ; extra == "veomni"' for one in extra["veomni"]] if name == "omni-kit" else real(name) or []

    monkeypatch.setattr("omni_kit.targets.veomni.pinned.requires", requires)
    monkeypatch.setattr("omni_kit.targets.veomni.pinned.find_spec", lambda name: None)
    assert get_target("veomni").versions["transformers"] == "==5.9.0"  # type: ignore[attr-defined]


def test_the_command_installs_what_the_extra_pins() -> None:
    extra = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    pinned = {one for one in extra["veomni"] if "==" in one}
    assert pinned
    assert pinned <= set(shlex.split(INSTALL_VEOMNI))


def test_metadata_counts_before_what_a_target_declares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "veomni-7.0.dist-info"
    folder.mkdir()
    text = "Metadata-Version: 2.1\nName: veomni\nVersion: 7.0\nRequires-Dist: transformers<8,>=7.1\n"
    (folder / "METADATA").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    (pin,) = (one for one in pins(get_target("veomni")) if one.library == "transformers")
    assert (pin.owner, pin.takes("7.3"), pin.takes("8.0")) == ("veomni 7.0", True, False)
    assert pin.against("8.0").startswith("veomni 7.0 requires transformers ")
    assert pin.install == "pip install 'transformers<8,>=7.1'"


@pytest.mark.sweep
@pytest.mark.usefixtures("another_transformers")
def test_doctor_reports_another_version() -> None:
    code, data = run_cli("doctor", "--target", "veomni")
    (row,) = (item for item in data["components"] if item["status"] == "other version")
    assert (code, row["name"], row["version"], row["needed_by"]) == (3, "transformers", "99.1", "veomni")
    assert row["fix"] == "pip install transformers==5.9.0"
    assert row["problem"] == f"{VEOMNI} pins transformers 5.9.0; 99.1 is installed"


def test_new_model_reads_the_version_that_the_target_takes(
    another_transformers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("omni_kit.targets.versions.sys.prefix", str(tmp_path / "elsewhere"))
    found = new_model("foo", "llama", target="veomni", into=tmp_path, dry_run=True)
    assert found.notes == (
        f"{VEOMNI} pins transformers 5.9.0; 99.1 is installed: the integration is derived from 99.1; "
        "pip install transformers==5.9.0",
    )
    beside = tmp_path / ".venv" / "transformers-5.9.0"
    beside.mkdir(parents=True)
    import transformers

    (beside / "transformers").symlink_to(Path(transformers.__file__).parent)
    root, note = library_for(get_target("veomni"), "transformers", (tmp_path,))
    assert root is not None
    assert "transformers 5.9.0 is read at" in note


@pytest.mark.parametrize(("code", "runs"), [("", True), ("raise ImportError('no Qwen2_5Omni')", False)])
def test_parity_ends_where_the_target_does_not_run(
    code: str, runs: bool, another_transformers: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "veomni.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    if runs:
        (line,) = refuse_what_does_not_run(get_target("veomni"))
        assert line == f"{VEOMNI} pins transformers 5.9.0; 99.1 is installed; pip install transformers==5.9.0"
        return
    with pytest.raises(MissingRequirement, match=r"99\.1 is installed, on which it cannot be imported: .*Qwen2_5Omni"):
        refuse_what_does_not_run(get_target("veomni"))


def test_nothing_is_imported_where_the_versions_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(modules: Any) -> Any:
        raise AssertionError(modules)

    monkeypatch.setattr("omni_kit.targets.versions.imported", fail)
    assert refuse_what_does_not_run(get_target("veomni")) == []


def _released(place: Path, name: str, version: str, *requires: str) -> None:
    folder = place / f"{name}-{version}.dist-info"
    folder.mkdir(parents=True)
    lines = [f"Requires-Dist: {line}\n" for line in requires]
    text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{''.join(lines)}"
    (folder / "METADATA").write_text(text, encoding="utf-8")


def test_a_dependency_in_another_version_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _released(tmp_path, "needy", "1.0", "packaging>=9999", "packaging>=1; extra == 'x'", "absent_one>=3")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert unmet("needy") == ["packaging>=9999"]
    assert unmet("packaging") == []
    assert unmet("absent_one") == []


def test_parity_names_the_dependency_that_blocks_a_given_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "transformers"
    package.mkdir()
    (package / "__init__.py").write_text("raise ImportError('packaging is too old')", encoding="utf-8")
    _released(tmp_path, "transformers", "99.1", "packaging>=9999")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingRequirement, match=r"99\.1 is read, on which .*too old") as refusal:
        refuse_what_does_not_run(get_target("veomni"), [tmp_path])
    assert refusal.value.hint == "pip install 'packaging>=9999'"
    assert "omni-kit-libraries" not in refusal.value.message


@pytest.mark.sweep
def test_commands_and_notes_name_the_library_that_was_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import transformers

    place = tmp_path / "unpacked" / "transformers"
    shutil.copytree(
        Path(transformers.__file__).parent, place,
        ignore=lambda folder, names: [n for n in names if folder.endswith("/models") and n not in _KEPT],
    )  # fmt: skip
    entry = place / "__init__.py"
    entry.write_text(entry.read_text().replace(f'"{transformers.__version__}"', '"99.1"'), encoding="utf-8")
    made = new_model("foo", "llama", target="veomni", into=tmp_path, transformers=place.parent)
    assert made.notes == (f"{VEOMNI} pins transformers 5.9.0; 99.1 is read",)
    given = f"--transformers {place.parent}"
    assert [given in command for command in made.plan.next] == ["check" not in one for one in made.plan.next]
    readme = (tmp_path / "foo" / "README.md").read_text(encoding="utf-8")
    shown = [line.partition("#")[0] for line in readme.splitlines() if line.startswith("omni-kit")]
    assert {line.split()[1]: given in line for line in shown} == {
        "patchgen": True, "check": False, "parity": True, "doctor": False,
    }  # fmt: skip
    assert f"`omni-kit parity foo --levels train {given}`" in readme
    installed = find_library("transformers")
    assert other_version(tmp_path / "foo", installed).startswith("foo was made from transformers 99.1, and 5.9.0 is")
    assert other_version(tmp_path / "foo", find_library("transformers", place)) == ""
    head = f"# Based on: transformers=={installed.version}\n"
    (tmp_path / "foo" / "generated" / "patched.py").write_text(head, encoding="utf-8")
    assert other_version(tmp_path / "foo", installed) == ""
    (tmp_path / "foo" / "generated" / "patched.py").write_text("#  Based on: transformers==98.0\n", encoding="utf-8")
    assert "made from transformers 98.0" in other_version(tmp_path / "foo", installed)
    codes = {one.rule for one in run_check([tmp_path / "foo"]).findings}
    assert codes == {"VEO111", "VEO412"}
    main(["patchgen", "run", "--dry-run", str(tmp_path / "foo" / "foo_gpu_patch_gen_config.py")])
    assert capsys.readouterr().out.startswith("note: foo was made from transformers 98.0")
    assert record_version(tmp_path / "foo", "transformers", installed.version)
    assert not record_version(tmp_path / "foo", "transformers", installed.version)
    (tmp_path / "foo" / "generated" / "patched.py").unlink()
    assert other_version(tmp_path / "foo", installed) == ""
