"""Pages that are made to cost time, or to end the check: each is a finding on its own, and the others are checked."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from omni_checkers.skills import check_skills
from tests.conftest import first

_HEAD = "---\nname: {}\ndescription: Adds two numbers. Use when asked for a sum.\n---\n# Example\n\n"
_PAIRS = list(zip("abcdefgh", "bcdefghi", strict=True))
_BOMB = "a: &a [x]\n" + "".join(f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in _PAIRS)


def _block(language: str, text: str) -> str:
    return f"{_HEAD}```{language}\n{text}\n```\n"


_COSTLY = {
    "heredocs": _block("bash", "\n".join(f"cat <<E{number}" for number in range(3000))),
    "one-heredoc": _block("bash", "cat <<EOF\n" * 3000),
    "keywords": _block("bash", "{ " * 50_000),
    "wrappers": _block("bash", "env " * 5000 + "ls"),
    "comments": _HEAD + "<!-- omni-kit: ignore[SKL301] no reason -->\n" * 10_000,
    "spans": _HEAD + "`--flies` `a b`\n# Heading\n" * 1000,
    "path": _HEAD + "`" + "a/" * 50_000 + "b`\n",
}
_WRONG = {
    "bomb": (_block("yaml", f"{_BOMB}z: *i"), "SKL301", "aliases repeat too much"),
    "front-bomb": (f"---\nname: front-bomb\n{_BOMB}description: *i\n---\n# Example\n", "SKL101", "aliases repeat"),
    "front-date": ("---\nname: {}\ndescription: 2024-02-31\n---\n# Example\n", "SKL101", "day is out of range"),
    "front-digits": (f"---\nname: {{}}\ndescription: {'1' * 6000}\n---\n# Example\n", "SKL101", "Exceeds the limit"),
    "json": (_block("json", "[" * 100_000), "SKL301", "nested too deeply"),
    "json-digits": (_block("json", "1" * 6000), "SKL301", "Exceeds the limit"),
    "toml": (_block("toml", "a = " + "[" * 100_000), "SKL301", "nested too deeply"),
    "toml-date": (_block("toml", "a = 2024-02-31"), "SKL301", "Invalid date"),
    "yaml": (_block("yaml", "[" * 5000), "SKL301", "nested more than"),
    "yaml-date": (_block("yaml", "a: 2024-02-31"), "SKL301", "day is out of range"),
    "python": (_block("python", "(" * 20_000), "SKL301", "too many nested parentheses"),
}


def _pack(root: Path, pages: dict[str, str]) -> Path:
    for name, text in {**pages, "dead": _block("python", "import json\n\njson.dumpss(1)")}.items():
        (root / name).mkdir(parents=True)
        (root / name / "SKILL.md").write_text(text.replace("{}", name, 1), encoding="utf-8")
    return root


def test_a_bad_page_is_a_finding_and_the_others_are_checked(tmp_path: Path) -> None:
    pages = {name: page for name, (page, _, _) in _WRONG.items()}
    report = check_skills([_pack(tmp_path, pages)])
    found = {(one.path.parent.name, one.rule): one.message for one in report.findings}

    assert {name: why in found.get((name, rule), "") for name, (_, rule, why) in _WRONG.items()} == dict.fromkeys(
        _WRONG, True
    )
    assert ("dead", "SKL502") in found
    assert "OMK003" not in {one.rule for one in report.findings}


@pytest.mark.parametrize("name", first(3, _COSTLY))
def test_a_page_costs_time_by_its_length(name: str, tmp_path: Path) -> None:
    started = time.process_time()
    report = check_skills([_pack(tmp_path, {name: _COSTLY[name]})], ignore=["SKL4"])

    assert time.process_time() - started < 15
    assert "OMK003" not in {one.rule for one in report.findings}


def test_a_rule_that_fails_on_a_page_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from omni_checkers.skills.rules.form import Size

    def fails(self: Size, skill: object) -> list[object]:
        raise OSError("the disk is gone")

    monkeypatch.setattr(Size, "check", fails)
    report = check_skills([_pack(tmp_path, {"bad": _HEAD})])

    assert {(one.path.parent.name, one.message) for one in report.findings if one.rule == "OMK003"} >= {
        ("bad", "SKL104 failed: OSError: the disk is gone")
    }
    assert "SKL502" in {one.rule for one in report.findings}
    assert not report.ok


def test_pipes_links_and_devices_are_no_files(tmp_path: Path) -> None:
    pack = _pack(tmp_path / "pack", {"other": _HEAD})
    for name in ("SKILL.md", "other/x.py", "other/y.md"):
        (pack / "pipe").mkdir(exist_ok=True)
        os.mkfifo(pack / name if "/" in name else pack / "pipe" / name)
    (pack / "other" / "root").symlink_to("/")
    (pack / "other" / "zeros.md").symlink_to("/dev/zero")
    (pack / "other" / "itself.md").symlink_to("itself.md")

    report = check_skills([pack])
    assert sorted(path.name for path in report.models) == ["dead", "other"]


@pytest.mark.parametrize(("program", "why"), [
    ("kill -SEGV $$", "SIGSEGV ended bash"), ("exec sleep 30", "did not parse it within"),
])  # fmt: skip
def test_a_shell_that_comes_to_no_verdict_is_a_finding(
    program: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = tmp_path / "bin" / "bash"
    shell.parent.mkdir()
    shell.write_text(f"#!/bin/sh\n{program}\n", encoding="utf-8")
    shell.chmod(0o755)
    monkeypatch.setenv("PATH", str(shell.parent), prepend=os.pathsep)
    monkeypatch.setattr("omni_checkers.skills.rules.code._LIMIT", 1)

    report = check_skills([_pack(tmp_path / "pack", {"shell": _block("bash", f"echo {why!r}")})])
    assert [one.message for one in report.findings if why in one.message and one.rule == "SKL301"]


class TestWhatIsRun:
    """Programs run with --help only where they are known to answer it; the scripts here work whatever they are told."""

    @pytest.fixture
    def script(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Path, str], Path]:
        """Makes a program in a folder, puts that on PATH, and returns the file by which it shows that it ran."""

        def make(folder: Path, extra: str = "") -> Path:
            ran = tmp_path / "ran"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "works").write_text(f"#!/bin/sh\n{extra}\necho --flag; touch {ran}\n", encoding="utf-8")
            (folder / "works").chmod(0o755)
            monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
            return ran

        return make

    def check(self, pack: Path, *, ask: bool = False) -> list[str]:
        _pack(pack, {"runs": _block("bash", "works --flag")})
        return check_skills([pack], ask=ask).notes

    def describe(self, prefix: Path) -> None:
        """Adds a man page that names --help."""
        page = prefix / "share" / "man" / "man1" / "works.1"
        page.parent.mkdir(parents=True)
        page.write_text("\\fB\\-\\-help\\fR", encoding="utf-8")

    def test_an_unknown_script_is_not(self, script: Callable[..., Path], tmp_path: Path) -> None:
        ran = script(tmp_path / "usr" / "bin")
        notes = self.check(tmp_path / "pack")
        assert not ran.exists()
        assert "not tested: 'works' may not support --help and was not run; --ask runs it" in notes

    def test_a_described_script_that_does_not_treat_help_is_not(
        self, script: Callable[..., Path], tmp_path: Path
    ) -> None:
        ran = script(tmp_path / "usr" / "bin")
        self.describe(tmp_path / "usr")
        self.check(tmp_path / "pack")
        assert not ran.exists()

    def test_a_described_one_that_treats_it_is_and_is_named(self, script: Callable[..., Path], tmp_path: Path) -> None:
        ran = script(tmp_path / "usr" / "bin", "# --help")
        self.describe(tmp_path / "usr")
        notes = self.check(tmp_path / "pack")
        assert ran.exists()
        assert f"run with --help: {tmp_path / 'usr' / 'bin' / 'works'}" in notes

    def test_asking_takes_the_rest(self, script: Callable[..., Path], tmp_path: Path) -> None:
        ran = script(tmp_path / "usr" / "bin")
        self.check(tmp_path / "pack", ask=True)
        assert ran.exists()

    @pytest.mark.parametrize("linked", [False, True])
    def test_one_of_the_repository_never_is(self, linked: bool, script: Callable[..., Path], tmp_path: Path) -> None:
        repository = tmp_path / "repository"
        (repository / ".git").mkdir(parents=True)
        ran = script(repository / "bin", "# --help")
        self.describe(repository)
        if linked:
            (tmp_path / "usr").mkdir()
            (tmp_path / "usr" / "bin").symlink_to(repository / "bin")
            os.environ["PATH"] = f"{tmp_path / 'usr' / 'bin'}{os.pathsep}{os.environ['PATH']}"
        record = repository / "lib" / "python3.11" / "site-packages" / "works.dist-info" / "RECORD"
        record.parent.mkdir(parents=True)
        record.write_text("../../../bin/works,,\n", encoding="utf-8")
        self.check(repository / "docs" / "skills", ask=True)
        assert not ran.exists()

    def test_what_an_installed_distribution_brings_is(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
        _pack(tmp_path, {"runs": _block("bash", "ruff check --no-such-flag x")})
        report = check_skills([tmp_path])
        assert "'ruff check' has no --no-such-flag" in {one.message for one in report.findings}
