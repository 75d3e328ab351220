"""What a project says: pyproject.toml, a baseline, and the cache between runs."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest

from omni_checkers import Finding, Report, check
from omni_checkers.engine import cache as cache_module
from omni_checkers.engine.cache import Cache, digest
from omni_checkers.engine.command import run_check
from omni_kit.authenticated_cache import read_keyed
from omni_kit.cli import main
from omni_kit.diagnostics.baseline import Baseline
from omni_kit.diagnostics.settings import Settings, find_settings
from omni_kit.errors import BadInput
from omni_kit.pysource.library import Library, find_library
from tests.conftest import run_cli

from .conftest import Subject

_WRONG = {"__init__.py": ('register("olmoe")', 'register("olmo_e")')}


class _Newer(Library):
    """A library that says that it is of another version."""

    version = "99"


_TABLE = "[tool.omni-kit.check]\n"


def run(path: Path) -> Report:
    """A run of somebody who stands in the directory around a model."""
    with contextlib.chdir(path.parent):
        return run_check([path], cached=False)


class TestSettings:
    def test_ignore(self, subject: Subject) -> None:
        path = subject(edits=_WRONG)
        (path.parent / "pyproject.toml").write_text(_TABLE + 'ignore = ["VEO101"]\n', encoding="utf-8")
        assert run(path).findings == []

    def test_select_is_replaced_by_the_command_line(self, subject: Subject) -> None:
        path = subject(edits=_WRONG)
        (path.parent / "pyproject.toml").write_text(_TABLE + 'select = ["VEO2"]\n', encoding="utf-8")
        assert run(path).findings == []
        with contextlib.chdir(path.parent):
            assert run_check([path], select=["VEO1"], cached=False).findings

    def test_per_file_ignores_are_counted_as_suppressed(self, subject: Subject) -> None:
        path = subject(edits=_WRONG)
        text = _TABLE + 'per-file-ignores = { "olmoe/__init__.py" = ["VEO1"], "*.md" = ["VEO"] }\n'
        (path.parent / "pyproject.toml").write_text(text, encoding="utf-8")
        report = run(path)
        assert (report.findings, report.suppressed) == ([], 1)

    def test_per_file_ignores_of_other_files_do_not_count(self, subject: Subject) -> None:
        path = subject(edits=_WRONG)
        text = _TABLE + 'per-file-ignores = { "olmoe/generated/*" = ["VEO"] }\n'
        (path.parent / "pyproject.toml").write_text(text, encoding="utf-8")
        assert len(run(path).findings) == 1

    def test_strict(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text(_TABLE + "strict = true\n", encoding="utf-8")
        assert find_settings(tmp_path / "a" / "b").strict

    def test_a_pyproject_without_the_table_is_passed_over(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text(_TABLE + 'ignore = ["veo1"]\n', encoding="utf-8")
        inner = tmp_path / "inner"
        inner.mkdir()
        (inner / "pyproject.toml").write_text('[project]\nname = "inner"\n', encoding="utf-8")
        assert find_settings(inner).ignore == ("VEO1",)

    @pytest.mark.parametrize(
        "text",
        [
            "[tool.omni-kit.check",
            _TABLE + "ignored = []",
            _TABLE + 'select = "VEO1"',
            _TABLE + "per-file-ignores = 1",
            _TABLE + "select = [1]",
            _TABLE + 'strict = "yes"',
            _TABLE + "baseline = []",
            _TABLE + "per-file-ignores = { a = 3 }",
            "tool = 3",
            "[tool]\nomni-kit = []",
            "[tool.omni-kit]\ncheck = 1",
            "x = " + "[" * 2000 + "]" * 2000,
        ],
    )
    def test_what_is_not_understood_is_bad_input(self, text: str, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
        with pytest.raises(BadInput, match=r"pyproject\.toml"):
            find_settings(tmp_path)


class TestWhoseSettings:
    """What is judged does not choose its judge."""

    def test_those_around_the_checked_path_do_not_count_and_that_is_said(
        self, subject: Subject, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = subject(edits={**_WRONG, "pyproject.toml": _TABLE + 'ignore = ["VEO"]\n'})
        monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
        report = run_check([path], cached=False)
        assert [finding.rule for finding in report.findings] == ["VEO101"]
        assert report.notes == [
            f"the settings in {path / 'pyproject.toml'} are not read: change to that directory, or pass --config"
        ]

    def test_one_path_does_not_bring_settings_for_another(self, subject: Subject, tmp_path: Path) -> None:
        path = subject(edits=_WRONG)
        other = tmp_path / "more" / "olmoe"
        shutil.copytree(path, other)
        (other / "pyproject.toml").write_text(_TABLE + 'ignore = ["VEO101"]\n', encoding="utf-8")
        with contextlib.chdir(tmp_path):
            assert len(run_check([other, path], cached=False).findings) == 2

    def test_a_named_file_counts_alone(self, subject: Subject, tmp_path: Path) -> None:
        path = subject(edits=_WRONG)
        (path.parent / "pyproject.toml").write_text(_TABLE + "strict = true\n", encoding="utf-8")
        file = tmp_path / "gate.toml"
        file.write_text(_TABLE + 'ignore = ["VEO101"]\n', encoding="utf-8")
        with contextlib.chdir(path.parent):
            report = run_check([path], cached=False, config=file)
        assert (report.findings, report.strict, report.settings.file) == ([], False, file)

    @pytest.mark.parametrize("text", [None, "[project]\nname = 'x'\n"])
    def test_a_named_file_without_settings_is_bad_input(self, text: str | None, olmoe: Path, tmp_path: Path) -> None:
        if text is not None:
            (tmp_path / "gate.toml").write_text(text, encoding="utf-8")
        with pytest.raises(BadInput, match=r"gate\.toml"):
            run_check([olmoe], config=tmp_path / "gate.toml")

    def test_every_run_says_what_it_took_from_where(
        self, subject: Subject, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = subject(edits=_WRONG)
        monkeypatch.chdir(path.parent)
        assert run_cli("check", str(path))[1]["settings"]["file"] is None
        (path.parent / "pyproject.toml").write_text(_TABLE + 'ignore = ["VEO4"]\n', encoding="utf-8")
        said = run_cli("check", str(path), "--ignore", "VEO5")[1]["settings"]
        assert (said["file"], said["ignore"]) == (str(path.parent / "pyproject.toml"), ["VEO4", "VEO5"])
        for form in ("human", "github", "sarif"):
            capsys.readouterr()
            assert main(["check", str(path), "--format", form]) == 1
            assert f"settings: ignore VEO4 ({path.parent / 'pyproject.toml'})" in capsys.readouterr().err


class TestBaseline:
    @pytest.mark.parametrize("text", ["", "print('mine')\n", "{}", "[]", '{"schema": "omni-kit/check/1"}', "\xff"])
    def test_a_file_that_is_no_baseline_is_not_overwritten(self, text: str, olmoe: Path, tmp_path: Path) -> None:
        file = tmp_path / "mine.json"
        file.write_text(text, encoding="latin-1")
        with pytest.raises(BadInput, match="not overwritten"):
            run_check([olmoe], write_baseline=file)
        assert file.read_text(encoding="latin-1") == text

    def test_one_that_was_written_before_is(self, subject: Subject, tmp_path: Path) -> None:
        path = subject(edits=_WRONG)
        file = tmp_path / "baseline.json"
        for _ in range(2):
            assert run_check([path], write_baseline=file, cached=False).notes == [f"wrote 1 finding to {file}"]
        (tmp_path / "link.json").symlink_to(file)
        with pytest.raises(BadInput, match="not a regular file"):
            run_check([path], write_baseline=tmp_path / "link.json")

    @pytest.mark.parametrize(
        "text",
        [
            "", "[]", "3", "{", '{"schema": "omni-kit/baseline/1"}', '{"schema": "omni-kit/baseline/1", "findings": 3}',
            '{"schema": "omni-kit/baseline/1", "findings": [3]}',
            '{"schema": "omni-kit/baseline/1", "findings": [{"rule": [], "path": "a", "text": "b"}]}',
            '{"schema": "omni-kit/baseline/1", "findings": ' + "[" * 5000 + "]" * 5000 + "}",
        ],
    )  # fmt: skip
    def test_a_baseline_of_another_shape_is_bad_input(self, text: str, olmoe: Path, tmp_path: Path) -> None:
        (tmp_path / "known.json").write_text(text, encoding="utf-8")
        with pytest.raises(BadInput, match="is not a baseline"):
            run_check([olmoe], baseline=tmp_path / "known.json")

    def test_known_findings_are_not_reported(self, subject: Subject, tmp_path: Path) -> None:
        path = subject(edits=_WRONG)
        file = tmp_path / "baseline.json"
        written = run_check([path], write_baseline=file, cached=False)
        assert (written.ok, written.matched) == (True, 1)
        report = run_check([path], baseline=file, cached=False)
        assert (report.findings, report.matched, report.stale, report.ok) == ([], 1, [], True)

    def test_they_stay_known_when_lines_move(self, subject: Subject, tmp_path: Path) -> None:
        path = subject(edits=_WRONG)
        file = tmp_path / "baseline.json"
        run_check([path], write_baseline=file, cached=False)
        init = path / "__init__.py"
        init.write_text("# a remark\n\n" + init.read_text(encoding="utf-8"), encoding="utf-8")
        assert run_check([path], baseline=file, cached=False).matched == 1

    def test_a_second_finding_of_the_same_kind_is_new(self, tmp_path: Path) -> None:
        code = tmp_path / "a.py"
        code.write_text("x\nx\n", encoding="utf-8")
        one, two = (Finding("wrong", code, line, rule="VEO301") for line in (1, 2))
        baseline = Baseline(tmp_path / "baseline.json")
        baseline.write([one])
        assert baseline.read().split([one, two]) == ([two], 1, [])

    def test_a_mended_finding_is_a_stale_entry(self, subject: Subject, tmp_path: Path) -> None:
        path = subject(edits=_WRONG)
        file = tmp_path / "baseline.json"
        run_check([path], write_baseline=file, cached=False)
        init = path / "__init__.py"
        init.write_text(init.read_text(encoding="utf-8").replace('"olmo_e"', '"olmoe"'), encoding="utf-8")
        report = run_check([path], baseline=file, cached=False)
        assert [entry["rule"] for entry in report.stale] == ["VEO101"]
        assert "1 entry of the baseline without a finding" in report.notes[0]

    def test_it_may_be_named_in_pyproject(self, subject: Subject) -> None:
        path = subject(edits=_WRONG)
        run_check([path], write_baseline=path.parent / "known.json", cached=False)
        (path.parent / "pyproject.toml").write_text(_TABLE + 'baseline = "known.json"\n', encoding="utf-8")
        assert run(path).matched == 1

    @pytest.mark.parametrize("text", [None, "", "[]", '{"schema": "other/1", "findings": []}', '{"schema": 1}'])
    def test_what_is_no_baseline_is_bad_input(self, text: str | None, olmoe: Path, tmp_path: Path) -> None:
        file = tmp_path / "baseline.json"
        if text is not None:
            file.write_text(text, encoding="utf-8")
        with pytest.raises(BadInput, match=r"baseline\.json"):
            check([olmoe], select=["VEO1"], settings=Settings(baseline=file))


class TestCache:
    def test_another_version_of_a_library_that_rules_read_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        before = digest([], libraries=["transformers", "diffusers"])
        real = find_library

        def newer(name: str) -> Library:
            found = real(name)
            return _Newer(found.name, found.root) if name == "diffusers" else found

        monkeypatch.setattr(cache_module, "find_library", newer)
        assert digest([], libraries=["transformers", "diffusers"]) != before
        assert digest([], libraries=["transformers"]) == digest([], libraries=["transformers"])

    def test_a_second_run_judges_nothing_and_says_the_same(
        self, subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, cache = subject(edits=_WRONG), Cache(tmp_path / "cache")
        first = check([path], cache=cache)
        monkeypatch.setattr("omni_checkers.engine.run.judge", None)
        assert check([path], cache=cache).as_json() == first.as_json()
        assert check([path], cache=cache).findings == first.findings

    def test_it_serves_another_selection(
        self, subject: Subject, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path, cache = subject(edits=_WRONG), Cache(tmp_path / "cache")
        check([path], cache=cache, select=["VEO4"])
        monkeypatch.setattr("omni_checkers.engine.run.judge", None)
        assert [finding.rule for finding in check([path], cache=cache, select=["VEO1"]).findings] == ["VEO101"]

    @pytest.mark.parametrize("name", ["__init__.py", "generated/patched_modeling_olmoe_gpu.py", "toy_config.json"])
    def test_a_changed_file_is_judged_anew(self, name: str, subject: Subject, tmp_path: Path) -> None:
        path, cache = subject(), Cache(tmp_path / "cache")
        check([path], cache=cache)
        with (path / name).open("a", encoding="utf-8") as file:
            file.write("\n")
        assert cache.read(path, _digest(path)) == {}

    def test_a_new_file_is_seen(self, subject: Subject, tmp_path: Path) -> None:
        path, cache = subject(), Cache(tmp_path / "cache")
        assert check([path], cache=cache).findings == []
        (path / "more.py").write_text("def (:\n", encoding="utf-8")
        assert [finding.rule for finding in check([path], cache=cache).findings] == ["OMK002"]

    def test_the_aggregate_counts(self, subject: Subject, tmp_path: Path) -> None:
        path, cache = subject("qwen3_moe"), Cache(tmp_path / "cache")
        assert check([path], cache=cache, select=["VEO103"]).findings == []
        (path.parent / "__init__.py").write_text("from . import llama\n", encoding="utf-8")
        assert check([path], cache=cache, select=["VEO103"]).findings

    def test_the_package_around_it_counts(self, subject: Subject) -> None:
        path = subject("qwen3_moe")
        before = _digest(path)
        (path.parents[3] / "veomni" / "more.py").write_text("x = 1\n", encoding="utf-8")
        cache_module._stamps.cache_clear()
        assert _digest(path) != before

    def test_a_changed_rule_judges_anew(self, olmoe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        before = _digest(olmoe)
        monkeypatch.setattr(cache_module, "_program", lambda: "another version")
        assert _digest(olmoe) != before

    @pytest.mark.parametrize("text", ["", "[]", '{"digest": 1}', "\0"])
    def test_a_damaged_entry_is_no_entry(self, text: str, olmoe: Path, tmp_path: Path) -> None:
        cache = Cache(tmp_path)
        check([olmoe], cache=cache, select=["VEO1"])
        (file,) = (tmp_path / "check").iterdir()
        file.write_text(text, encoding="utf-8")
        assert cache.read(olmoe, _digest(olmoe)) == {}
        assert check([olmoe], cache=cache, select=["VEO1"]).findings == []

    def test_a_place_that_cannot_be_written_to_is_no_error(self, olmoe: Path, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("", encoding="utf-8")
        assert check([olmoe], cache=Cache(tmp_path / "file"), select=["VEO1"]).findings == []

    def test_the_directory_may_be_given(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, olmoe: Path) -> None:
        monkeypatch.setenv("OMNI_KIT_CACHE", str(tmp_path))
        run_check([olmoe], select=["VEO1"])
        (file,) = (tmp_path / "check").iterdir()
        assert json.loads(read_keyed(file))["model"] == str(olmoe)


def _digest(path: Path) -> str:
    from omni_checkers.veomni import inputs, surroundings

    return digest(inputs(path), surroundings(path))


class TestProcesses:
    def test_many_models_give_the_same_as_one_by_one(self, veomni_models: Path) -> None:
        models = [veomni_models / name for name in ("llama", "qwen2", "qwen3", "qwen2_vl", "gemma3")]
        together = check(models, select=["VEO1", "VEO5"])
        alone = [check([model], select=["VEO1", "VEO5"]) for model in models]
        assert together.findings == sorted((f for r in alone for f in r.findings), key=lambda f: (f.path, f.line))
        assert together.results == [result for report in alone for result in report.results]
