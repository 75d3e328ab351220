"""omni-kit skills check, as people and agents call it."""

import json
from pathlib import Path

import pytest

from omni_kit.cli import main

ROTTEN = Path(__file__).parents[2] / "fixtures" / "skills"


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main(["skills", "check", *arguments])
    return code, capsys.readouterr().out


def test_findings_exit_1_with_file_line_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = call(capsys, str(ROTTEN))
    assert code == 1
    assert "8:1  error  SKL401  'omni-kit' has no command 'fly'" in out
    assert "8:1  error  SKL204  this pack has no skill 'gone-skill'" in out
    assert "checked 1 skill, 1 file," in out
    assert "1 suppressed" in out


def test_json_has_the_fields_of_check(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = call(capsys, str(ROTTEN), "--format", "json", "--select", "SKL4")
    answer = json.loads(out)
    assert (code, answer["ok"], answer["schema"]) == (1, False, "omni-kit/skills/1")
    assert [finding["rule"] for finding in answer["findings"]] == ["SKL401"]
    assert answer["checked"] == {"skills": 1, "files": 1, "rules": 2}


def test_github_and_sarif(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = call(capsys, str(ROTTEN), "--format", "github")
    assert (code, out.count("::error ")) == (1, 2)
    sarif = json.loads(call(capsys, str(ROTTEN), "--format", "sarif")[1])
    assert {result["ruleId"] for result in sarif["runs"][0]["results"]} == {"SKL204", "SKL401"}


def test_one_file_will_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, str(ROTTEN / "rotten" / "SKILL.md"))[0] == 1


@pytest.mark.parametrize(
    "arguments",
    [["no/such/place"], ["."], [str(ROTTEN), "--select", "VEO1"], [str(ROTTEN), "--checkout", "no/such/place"]],
)
def test_bad_input_is_exit_2(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call(capsys, *arguments)[0] == 2


def test_what_is_not_installed_is_said_to_be_untested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").mkdir()
    text = (
        "---\nname: a\ndescription: Adds.\n---\n```bash\nno-such-program --x\n```\n```python\nimport no_such_one\n```\n"
    )
    (tmp_path / "a" / "SKILL.md").write_text(text)
    code, out = call(capsys, str(tmp_path))
    assert code == 0
    assert "not tested: 'no-such-program' is not installed" in out
    assert "not tested: 'no_such_one' is not installed" in out


def test_rules_of_skills_are_listed_and_explained_but_are_none_of_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rules", "list", "--target", "skill"]) == 0
    assert "SKL401" in capsys.readouterr().out
    assert main(["rules", "explain", "SKL401"]) == 0
    assert main(["check", str(ROTTEN), "--select", "SKL4"]) == 2
