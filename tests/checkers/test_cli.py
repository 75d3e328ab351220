"""omni-kit check and omni-kit rules, as people and agents call them."""

import json
from pathlib import Path
from typing import Any

import pytest

from omni_kit.cli import main

from .conftest import Subject

_WRONG_KEY = {"__init__.py": ('register("olmoe")', 'register("olmo_e")')}


@pytest.fixture(autouse=True)
def cache_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test leaves anything in the user's cache."""
    monkeypatch.setenv("OMNI_KIT_CACHE", str(tmp_path / "cache"))


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main([str(argument) for argument in arguments])
    return code, capsys.readouterr().out


def call_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out = call(capsys, *arguments, "--format", "json")
    return code, json.loads(out)


class TestCheck:
    def test_a_clean_model_exits_0_and_says_what_it_looked_at(
        self, olmoe: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out = call(capsys, "check", str(olmoe))
        assert code == 0
        assert "checked 1 model, 9 files" in out
        assert "no findings" in out

    def test_an_error_exits_1_and_is_shown_with_file_line_and_why(
        self, subject: Subject, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, out = call(capsys, "check", str(subject(edits=_WRONG_KEY)))
        assert code == 1
        assert "__init__.py" in out
        assert "error  VEO101  'olmo_e' is not a model_type" in out
        assert "why: VeOmni looks up the class" in out

    def test_json_has_the_common_fields(self, subject: Subject, capsys: pytest.CaptureFixture[str]) -> None:
        code, data = call_json(capsys, "check", str(subject(edits=_WRONG_KEY)))
        assert (code, data["ok"], data["schema"]) == (1, False, "omni-kit/check/1")
        assert data["findings"][0]["rule"] == "VEO101"

    @pytest.mark.parametrize("arguments", [["--select", "VEO2"], ["--select", "VEO2,VEO3"], ["--ignore", "veo101"]])
    def test_selection(self, arguments: list[str], subject: Subject, capsys: pytest.CaptureFixture[str]) -> None:
        assert call(capsys, "check", str(subject(edits=_WRONG_KEY)), *arguments)[0] == 0

    def test_warnings_fail_when_strict(self, subject: Subject, capsys: pytest.CaptureFixture[str]) -> None:
        nested = 'getattr(config, "text_config", config)', "config.text_config"
        path = str(subject("qwen3_vl_moe", {"checkpoint_tensor_converter.py": nested}))
        assert call(capsys, "check", path, "--select", "VEO203")[0] == 0
        assert call(capsys, "check", path, "--select", "VEO203", "--strict")[0] == 1

    @pytest.mark.parametrize("arguments", [["/nowhere"], ["--select", "VEO1", "/nowhere"], []])
    def test_nothing_to_check_exits_2(self, arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
        assert call(capsys, "check", *arguments)[0] == 2

    def test_a_directory_without_a_model_exits_2_in_json(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, data = call_json(capsys, "check", str(tmp_path))
        assert code == 2
        assert data["schema"] == "omni-kit/error/1"
        assert "nothing to check" in data["error"]

    def test_an_unknown_target_exits_2(self, olmoe: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert call(capsys, "check", str(olmoe), "--target", "vllm")[0] == 2

    def test_an_unknown_rule_exits_2(self, olmoe: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert call(capsys, "check", str(olmoe), "--select", "VEO9")[0] == 2


class TestProject:
    def test_a_baseline_is_written_and_used(
        self, subject: Subject, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path, file = str(subject(edits=_WRONG_KEY)), str(tmp_path / "known.json")
        code, out = call(capsys, "check", path, "--write-baseline", file)
        assert code == 0
        assert "wrote 1 finding " in out
        code, data = call_json(capsys, "check", path, "--baseline", file)
        assert (code, data["baseline"]) == (0, {"matched": 1, "stale": []})

    def test_a_missing_baseline_exits_2(self, olmoe: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert call(capsys, "check", str(olmoe), "--baseline", "/nowhere.json")[0] == 2

    def test_fix_mends_and_says_so(self, subject: Subject, capsys: pytest.CaptureFixture[str]) -> None:
        factory = "create_olmoe_checkpoint_tensor_converter"
        path = subject(edits={"__init__.py": (f"staticmethod({factory})", factory)})
        assert call(capsys, "check", str(path))[0] == 1
        code, out = call(capsys, "check", str(path), "--fix")
        assert code == 0
        assert "fixed 2 findings" in out

    def test_settings_of_the_project_are_used(
        self, subject: Subject, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = subject(edits=_WRONG_KEY)
        monkeypatch.chdir(path.parent)
        text = '[tool.omni-kit.check]\nignore = ["VEO101"]\n'
        (path.parent / "pyproject.toml").write_text(text, encoding="utf-8")
        assert call(capsys, "check", str(path))[0] == 0

    def test_a_second_run_is_served_from_the_cache(
        self, olmoe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        first = call_json(capsys, "check", str(olmoe))
        monkeypatch.setattr("omni_checkers.engine.run.judge", None)
        assert call_json(capsys, "check", str(olmoe)) == first


class TestRules:
    def test_list_has_the_fields_of_the_contract(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, data = call_json(capsys, "rules", "list")
        assert (code, data["schema"]) == (0, "omni-kit/rules/1")
        keys = {
            "id",
            "name",
            "severity",
            "target",
            "kinds",
            "level",
            "summary",
            "obligations",
            "fixable",
            "since",
            "status",
        }
        assert all(rule.keys() == keys for rule in data["rules"])
        assert len(data["rules"]) >= 14

    def test_list_for_a_person(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert "VEO201" in call(capsys, "rules", "list")[1]

    def test_list_of_one_target(self, capsys: pytest.CaptureFixture[str]) -> None:
        _, data = call_json(capsys, "rules", "list", "--target", "veomni")
        assert {rule["target"] for rule in data["rules"]} == {"veomni"}

    def test_explain_shows_why_and_both_examples(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, out = call(capsys, "rules", "explain", "veo201")
        assert code == 0
        for part in ("VEO201", "Why: ", "Fine when: ", "VEO-MOE-24", "Bad", "Good", "staticmethod"):
            assert part in out

    def test_explain_in_json(self, capsys: pytest.CaptureFixture[str]) -> None:
        _, data = call_json(capsys, "rules", "explain", "VEO202")
        (rule,) = data["rules"]
        assert rule["why"]
        assert "checkpoint_tensor_converter.py" in rule["bad"][0]

    @pytest.mark.parametrize("prefix", ["LAY", "veo", "PGN7", "VEO415."])
    def test_explain_of_a_prefix_lists_what_begins_so(self, prefix: str, capsys: pytest.CaptureFixture[str]) -> None:
        code, out = call(capsys, "rules", "explain", prefix)
        lines = out.splitlines()
        assert code == 0
        assert len(lines) >= 2
        assert all(line.startswith(prefix.upper()) and line.endswith(".") for line in lines)
        _, data = call_json(capsys, "rules", "explain", prefix)
        assert [rule["id"] for rule in data["rules"]] == [line.split()[0] for line in lines]

    def test_explain_of_an_unknown_rule_names_the_nearest(self, capsys: pytest.CaptureFixture[str]) -> None:
        _, data = call_json(capsys, "rules", "explain", "VE0201")
        assert "VEO201" in data["hint"]

    def test_explain_of_an_unknown_rule_exits_2(self, capsys: pytest.CaptureFixture[str]) -> None:
        code, data = call_json(capsys, "rules", "explain", "VEO999")
        assert code == 2
        assert "unknown rule" in data["error"]
