"""What other repositories use: the composite action and the pre-commit hook, each run in a scratch git repository."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import Subject

ROOT = Path(__file__).parents[2]
_WRONG = {"__init__.py": ('register("olmoe")', 'register("olmo_e")')}
_BIN = Path(sys.executable).parent


def _git(place: Path, *arguments: str) -> None:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    subprocess.run(["git", *who, *arguments], cwd=place, check=True, capture_output=True)


@pytest.fixture
def repository(subject: Subject, tmp_path: Path) -> Path:
    """A git repository with a plugin that is right, and one file elsewhere."""
    place = tmp_path / "repository"
    (place / "plugins").mkdir(parents=True)
    shutil.move(subject(), place / "plugins" / "olmoe")
    (place / "README.md").write_text("models\n", encoding="utf-8")
    (place / "setup.py").write_text("", encoding="utf-8")
    _git(place, "init", "-q")
    _git(place, "add", "-A")
    _git(place, "commit", "-q", "-m", "a model")
    return place


def _break(repository: Path) -> None:
    file = repository / "plugins" / "olmoe" / "__init__.py"
    old, new = _WRONG["__init__.py"]
    file.write_text(file.read_text(encoding="utf-8").replace(old, new), encoding="utf-8")
    _git(repository, "add", "-A")


class TestAction:
    """The steps of action.yml, run by bash as GitHub runs them: inputs become what the steps' `env` says."""

    def run(self, repository: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
        action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
        assert action["runs"]["using"] == "composite"
        inputs = {"verify": "none", **inputs}
        given = {name: inputs.get(name, said.get("default", "")) for name, said in action["inputs"].items()}
        summary = str(repository.parent / "summary.md")
        environment = os.environ | {"PATH": f"{_BIN}{os.pathsep}{os.environ['PATH']}", "OMNI_KIT_CACHE": "cache"}
        environment["GITHUB_STEP_SUMMARY"] = summary
        output = ""
        for step in action["runs"]["steps"]:
            said = {name: self._filled(value, given) for name, value in step["env"].items()}
            command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]]
            done = subprocess.run(
                command, cwd=repository, env=environment | said, capture_output=True, text=True, check=False
            )
            output += done.stdout
            if done.returncode:
                break
        return subprocess.CompletedProcess(command, done.returncode, output, done.stderr)

    @staticmethod
    def _filled(value: str, given: dict[str, str]) -> str:
        for name, text in given.items():
            value = value.replace(f"${{{{ inputs.{name} }}}}", text)
        return value.replace("${{ github.action_path }}", str(ROOT))

    def test_a_model_that_is_right_passes(self, repository: Path) -> None:
        done = self.run(repository, paths="plugins/olmoe")
        assert (done.returncode, "::error" in done.stdout) == (0, False), done.stderr

    def test_a_mistake_is_an_annotation_and_fails(self, repository: Path) -> None:
        _break(repository)
        done = self.run(repository, paths="plugins/olmoe")
        assert done.returncode == 1
        assert "::error file=plugins/olmoe/__init__.py,line=" in done.stdout

    def test_arguments_and_a_report_beside(self, repository: Path) -> None:
        _break(repository)
        done = self.run(
            repository, paths="plugins/olmoe", arguments="--ignore VEO1,VEO2", format="sarif", output="report.sarif"
        )
        assert done.returncode == 0, done.stderr
        assert '"version": "2.1.0"' in (repository / "report.sarif").read_text(encoding="utf-8")

    def test_a_path_that_is_no_model_fails(self, repository: Path) -> None:
        (repository / "docs").mkdir()
        done = self.run(repository, paths="docs")
        assert done.returncode == 2
        assert "nothing to check" in done.stderr

    @pytest.mark.sweep
    def test_the_verdict_becomes_the_summary_of_the_job(self, repository: Path) -> None:
        done = self.run(repository, paths="plugins/olmoe", verify="quick")
        assert done.returncode == 0, done.stdout + done.stderr
        summary = (repository.parent / "summary.md").read_text(encoding="utf-8")
        assert "| forward | ✓ passed |" in summary

    def test_a_verdict_of_another_name_is_refused(self, repository: Path) -> None:
        done = self.run(repository, paths="plugins/olmoe", verify="quikc")
        assert (done.returncode, "quick, full or none" in done.stderr) == (2, True)


class TestPreCommit:
    """The hook of .pre-commit-hooks.yaml, by pre-commit itself; the program is the one of these tests."""

    @pytest.fixture
    def configured(self, repository: Path) -> Path:
        hook, verdict = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
        assert verdict["entry"] == "omni-kit verify --quick"
        assert hook["language"] == "python"
        local = {
            **hook,
            "language": "system",
            "entry": f"{_BIN / hook['entry'].split()[0]} {hook['entry'].split(None, 1)[1]}",
        }
        config = {"repos": [{"repo": "local", "hooks": [local]}]}
        (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        _git(repository, "add", "-A")
        return repository

    def run(self, repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PRE_COMMIT_HOME": str(repository.parent / "home"), "OMNI_KIT_CACHE": "cache"}
        command = [str(_BIN / "pre-commit"), "run", "--verbose", *arguments]
        return subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)

    def test_a_model_that_is_right_passes(self, configured: Path) -> None:
        done = self.run(configured, "--all-files")
        assert done.returncode == 0, done.stdout
        assert "checked 1 model," in done.stdout

    def test_a_mistake_stops_the_commit(self, configured: Path) -> None:
        _break(configured)
        done = self.run(configured)
        assert done.returncode == 1
        assert "VEO101" in done.stdout

    def test_files_elsewhere_are_no_models(self, configured: Path) -> None:
        done = self.run(configured, "--files", "setup.py")
        assert done.returncode == 0, done.stdout
        assert "nothing was checked" in done.stdout
