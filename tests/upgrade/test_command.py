"""What `upgrade` writes, reuses and excuses, and its exit codes."""

import shutil
from pathlib import Path

import pytest

from omni_kit.patchgen.upgrade.outcome import ConfigOutcome, PatchOutcome
from omni_kit.pysource.library import find_library
from omni_kit.upgrade import upgrade
from omni_kit.upgrade.result import Bump, ModelUpgrade, StageResult
from tests.conftest import run_cli

ROOT = Path(__file__).parents[2]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNI_KIT_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(ROOT / "reference_models" / "veomni" / "olmoe", tmp_path / "olmoe"))


def test_a_report_needs_an_existing_directory(plugin: Path, tmp_path: Path) -> None:
    for name in ("a.md", "a.html"):
        place = tmp_path / "missing" / name
        code, answer = run_cli("upgrade", str(plugin), "--from", "5.9.0", "--report", str(place))
        assert code == 2
        assert "is not a directory" in answer["error"]
        assert not place.parent.exists()


@pytest.mark.sweep
def test_a_dry_run_writes_no_report(plugin: Path, tmp_path: Path) -> None:
    installed = str(find_library("transformers").root)
    report = tmp_path / "report.md"
    run_cli("upgrade", str(plugin), "--from", installed, "--dry-run", "--report", str(report))
    assert not report.exists()
    assert not (tmp_path / "cache" / "upgrades").exists()


def test_older_findings_do_not_count(plugin: Path) -> None:
    where = find_library("transformers").root
    plan = plugin / "parallel_plan.py"
    plan.write_text(plan.read_text(encoding="utf-8").replace("model.layers", "model.layerz"), encoding="utf-8")
    first = upgrade(plugin, where, where, compare=False).models[0]
    check = next(one for one in first.stages if one.stage == "check")
    assert check.status == "passed"
    assert "older than this upgrade" in check.reason
    plan.write_text(plan.read_text(encoding="utf-8").replace("model.layerz", "model.layerx"), encoding="utf-8")
    again = upgrade(plugin, where, where, compare=False).models[0]
    assert next(one for one in again.stages if one.stage == "check").status == "failed"


@pytest.mark.parametrize(("status", "code"), [("passed", 0), ("not tested", 3), ("failed", 1)])
def test_exit_codes(status: str, code: int) -> None:
    stage = StageResult("parity", status)  # type: ignore[arg-type]
    assert Bump("a 1", "a 2", [ModelUpgrade("a", stages=[stage])]).exit_code == code


@pytest.mark.sweep
def test_a_resumed_run_reports_what_the_first_one_merged(plugin: Path) -> None:
    where = find_library("transformers").root
    first = upgrade(plugin, where, where, compare=False)
    (outcome,) = first.models[0].configs
    kept = [one.as_json() for one in outcome.patches]
    kept[0] |= {"status": "merged", "reason": "1 upstream line added, 0 removed"}
    kept.append({"target": "OlmoeGone.forward", "status": "dropped", "reason": "upstream does the same since 6.0"})
    outcome.continue_from(kept)
    assert (first.models[0].count("merged"), first.models[0].count("dropped")) == (1, 1)
    assert "OlmoeGone.forward: upstream does the same" in first.markdown()
    assert first.verdict.startswith("0 of 1 model verified")


@pytest.mark.sweep
def test_a_resumed_run_takes_over_the_stages_of_unchanged_models(plugin: Path) -> None:
    where = find_library("transformers").root
    said: list[str] = []
    upgrade(plugin, where, where, say=said.append)
    assert "forward: pass" in said
    said.clear()
    again = upgrade(plugin, where, where, resume=True, say=said.append).models[0]
    assert "forward: pass" not in said
    assert [(one.stage, one.status) for one in again.stages] == [
        ("patchgen", "passed"), ("check", "passed"), ("parity", "passed"),
    ]  # fmt: skip
    (plugin / "README.md").write_text("Changed.\n", encoding="utf-8")
    changed = upgrade(plugin, where, where, resume=True, compare=False).models[0]
    assert changed.stages[-1].status == "not tested"


def test_a_merge_without_stages_is_not_a_verification() -> None:
    patch = PatchOutcome(
        "A.forward", "conflict", "both change it", effects=["Keep the patch: x.", "Take upstream's: y."]
    )
    broken = ConfigOutcome("b_patch_gen_config.py", Path("b_patch_gen_config.py"), error="cannot be loaded")
    config = ConfigOutcome("a_patch_gen_config.py", Path("a_patch_gen_config.py"), [patch])
    bump = Bump("a 1", "a 2", [ModelUpgrade("a", configs=[config, broken])])
    assert bump.verdict == "1 model, 1 conflict; not verified"
    assert bump.models[0].row()[5] == "-"
    assert "A.forward: both change it. Keep the patch: x. Take upstream's: y." in bump.markdown()
    assert "b_patch_gen_config.py: cannot be loaded" in bump.page()
