"""A level that failed on the older version is not blamed on the upgrade."""

import shutil
from pathlib import Path

import pytest

from omni_kit.patchgen.run import run_configs
from omni_kit.pysource.library import find_library
from omni_kit.upgrade import upgrade
from omni_kit.upgrade.older import OlderLevels, older_levels
from omni_kit.upgrade.result import Bump, ModelUpgrade
from omni_kit.verify.card import Card, Stage
from omni_kit.verify.pins import pins
from tests.cli.test_schemas import validate

ROOT = Path(__file__).parents[2]


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OMNI_KIT_CACHE", str(tmp_path / "cache"))
    return Path(shutil.copytree(ROOT / "reference_models" / "veomni" / "olmoe", tmp_path / "olmoe"))


def test_remarks_name_what_failed_and_what_passed_before() -> None:
    older = OlderLevels({"forward": "failed", "keys": "passed", "sp": "not tested"}, "parity")
    assert older.cell() == "1 of 3"
    assert older.remark(["forward", "keys"], "a 1") == "forward failed on a 1, too; keys passed on a 1"
    assert older.remark(["sp", "dtype"], "a 1") == ""
    assert OlderLevels().cell() == "-"


def test_a_card_of_these_files_and_this_version_is_read(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = find_library("transformers")
    stages = [Stage("check", "passed"), Stage("keys", "passed"), Stage("forward", "failed", "differs")]
    card = Card("olmoe", {"weights": "", "quick": False, "device": "cpu"}, stages, pins=pins(plugin, None, "cpu"))
    (plugin / "card.md").write_text(card.markdown(), encoding="utf-8")
    found = older_levels(plugin, (), library)
    assert (dict(found.levels), found.source) == ({"keys": "passed", "forward": "failed"}, "card.md")
    monkeypatch.setattr("omni_kit.upgrade.older._compared", lambda *_: OlderLevels({}, "compared"))
    (plugin / "parallel_plan.py").write_text("", encoding="utf-8")
    assert older_levels(plugin, (), library).source == "compared"


@pytest.mark.sweep
def test_an_old_fault_is_named_as_one(plugin: Path) -> None:
    (config,) = plugin.glob("*_patch_gen_config.py")
    text = config.read_text(encoding="utf-8")
    broken = text.replace("self.weight * hidden_states", "2.0 * self.weight * hidden_states")
    assert broken != text
    config.write_text(broken, encoding="utf-8")
    run_configs([config])
    where = find_library("transformers").root
    (model,) = upgrade(plugin, where, where).models
    parity = next(one for one in model.stages if one.stage == "parity")
    assert parity.status == "failed"
    assert "forward" in parity.reason
    assert f"failed on transformers {find_library('transformers').version}, too" in parity.reason
    assert model.as_json()["levels_before"]["source"] == "parity"


def test_the_schema_has_the_older_levels() -> None:
    older = OlderLevels({"forward": "failed"}, "card.md")
    answer = Bump("a 1", "a 2", [ModelUpgrade("olmoe", older=older)]).as_json()
    validate({"schema": "omni-kit/upgrade/1", "ok": False, "omni_kit": "0", "notes": [], **answer})
