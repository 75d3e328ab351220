"""The commands: exit codes, the contract's fields, and what a person sees."""

import json
from pathlib import Path
from typing import Any

import pytest

from omni_kit.cli import main
from tests.conftest import run_cli
from tests.patchgen.conftest import World, package_dir

UPSTREAM = "class C:\n    def m(self):\n        return 1\n"
CONFIG = "@config.override_method('C.m')\ndef m(self):\n    return 2\n"


def run(*arguments: str) -> tuple[int, dict[str, Any]]:
    return run_cli("patchgen", *arguments)


def test_run_writes_and_reports(world: World, tmp_path: Path) -> None:
    path = world(UPSTREAM, CONFIG)
    code, data = run("run", str(path), "--diff")
    assert code == 0
    assert data["schema"] == "omni-kit/patchgen/1"
    [config] = data["configs"]
    assert config["status"] == "written"
    assert config["target_file"] == "after.py"
    assert config["source_module"] == "upstream_module"
    [patch] = config["patches"]
    assert (patch["kind"], patch["target"], patch["status"]) == ("method_override", "C.m", "applied")
    assert len(patch["upstream_hash"]) == 12
    assert patch["decorators"] == []
    assert Path(config["output"]).is_file()
    assert Path(config["output"]).with_suffix(".diff").is_file()


def test_dry_run_writes_nothing(world: World, tmp_path: Path) -> None:
    code, data = run("run", str(world(UPSTREAM, CONFIG)), "--dry-run", "-o", str(tmp_path / "out"))
    assert code == 0
    assert data["configs"][0]["status"] == "stale"
    assert "nothing was written" in data["notes"][0]
    assert not (tmp_path / "out").exists()


def test_an_error_is_exit_1_with_code_and_line(world: World) -> None:
    code, data = run("run", str(world(UPSTREAM, CONFIG.replace("C.m", "D.m"))))
    assert code == 1
    assert data["ok"] is False
    [said] = data["configs"][0]["diagnostics"]
    assert (said["code"], said["severity"], said["path"]) == ("missing-target", "error", "small_patch_gen_config.py")
    assert said["line"] == 5


@pytest.mark.parametrize(
    "arguments",
    [
        ("run",),
        ("run", "no/such/config.py"),
        ("run", "no.such.module"),
        ("run", "x", "--all"),
        ("run", "--all", "--root", "/no/such/place"),
        ("check", "--all", "--root", "EMPTY"),
        ("list", "--root", "EMPTY"),
        ("drift", "--root", "EMPTY"),
        ("run", "--no-such-option"),
    ],
)
def test_bad_input_is_exit_2_with_a_hint(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, data = run(*(str(tmp_path) if a == "EMPTY" else a for a in arguments))
    assert code == 2
    assert data["schema"] == "omni-kit/error/1"
    assert data["hint"]


def test_check_all_below_the_root(world: World, tmp_path: Path) -> None:
    path = world(UPSTREAM, CONFIG)
    assert run("check", "--root", str(tmp_path))[0] == 1
    assert run("check", str(path), "--fix")[0] == 0
    code, data = run("check", "--root", str(tmp_path))
    assert code == 0
    assert [c["status"] for c in data["configs"]] == ["ok"]


def test_list_finds_imports_that_are_not_installed(world: World, tmp_path: Path) -> None:
    world(UPSTREAM, "import no_such_package\n")
    code, data = run("list", "--root", str(tmp_path))
    assert (code, data["configs"][0]["status"]) == (1, "error")
    assert data["configs"][0]["diagnostics"][0]["code"] == "config-import"


def test_list_is_for_scripts_too(world: World, tmp_path: Path) -> None:
    world(UPSTREAM, CONFIG)
    code, data = run("list", "--root", str(tmp_path))
    assert code == 0
    assert data["configs"][0]["patches"] == [{"kind": "method_override", "target": "C.m", "status": "listed"}]


def test_run_fix_adds_excludes(world: World) -> None:
    upstream = (
        "class A: ...\n\n\nclass B:\n    def m(self):\n        return helper()\n\n\ndef helper():\n    return 1\n"
    )
    path = world(upstream, "config.exclude_from_output('B')\n")
    code, data = run("run", str(path), "--fix")
    assert code == 0
    assert any("helper" in note for note in data["notes"])
    assert '"helper"' in path.read_text()
    assert "helper" not in Path(data["configs"][0]["output"]).read_text()


def test_drift_over_installed_version(tmp_path: Path) -> None:
    installed = str(package_dir("transformers"))
    code, data = run(
        "drift", "veomni.models.transformers.llama.llama_gpu_patch_gen_config", "--from", installed, "--to", installed
    )
    assert code == 0
    assert data["counts"] == {"unchanged": 5}


def test_drift_shows_the_change_to_a_person(world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for version, value in (("then", "old()"), ("now", "new()")):
        place = tmp_path / version / "lib"
        place.mkdir(parents=True)
        (place / "__init__.py").write_text("")
        (place / "mod.py").write_text(f"def f():\n    return {value}\n")
    config = tmp_path / "c_patch_gen_config.py"
    config.write_text(
        "from patchgen import PatchConfig\nconfig = PatchConfig('lib.mod', 'x.py')\n"
        "@config.replace_function('f')\ndef g():\n    fast()\n    return old()\n"
    )
    code = main(
        ["patchgen", "drift", str(config), "--from", str(tmp_path / "then"), "--to", str(tmp_path / "now"),
         "--library", "lib", "--full", "-o", str(tmp_path / "views")]
    )  # fmt: skip
    said = capsys.readouterr().out
    assert code == 1
    assert "copied-lines (1)" in said
    assert "patch> -    return old()" in said
    assert (tmp_path / "views" / "c_patch_gen_config" / "f" / "proposed.py").is_file()


def test_a_person_sees_status_and_reason(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["patchgen", "run", str(world(UPSTREAM, CONFIG.replace("C.m", "C.mm")))]) == 0
    said = capsys.readouterr().out
    assert "written" in said
    assert "injected" in said
    assert "1 checked: 1 passed, 0 failed" in said


@pytest.mark.parametrize("command", ["run", "check", "list", "drift"])
def test_help_says_what_it_does(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["patchgen", command, "--help"]) == 0
    assert "Usage" in capsys.readouterr().out


def test_json_is_one_object(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    main(["patchgen", "run", str(world(UPSTREAM, CONFIG)), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["ok"] is True
