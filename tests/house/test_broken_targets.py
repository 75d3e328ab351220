"""A target that somebody else got wrong is named in one line, and the others go on."""

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omni_checkers.engine.registry import all_rules
from omni_kit.resources import resource_dir
from omni_kit.targets.registry import faults, forget, targets
from tests.conftest import run_cli

WHOLE = """
from omni_kit.upstream.kinds import Kind


class Handler:
    templates = "plain"

    def plan(self, subject, request):
        from omni_kit.targets.protocol import IntegrationPlan, NewFile

        return IntegrationPlan(base=request.name, files=(NewFile(f"{request.name}/model.py", "model.py.jinja"),))

    def candidate(self, path):
        raise TypeError("no candidate")


class Harbor:
    name = "harbor"
    reads = ("transformers",)
    kinds = {Kind.llm: Handler()}
    rules = "harbor_rules"
    requirements = ()

    def at(self, path):
        return None

    def find(self, path):
        from omni_kit.errors import BadInput

        raise BadInput(f"{path} is no harbor")


TARGET = Harbor()
"""
RULES = """
EXAMPLE = ""


def read_model(path): ...
def inputs(path): ...
def experiments(paths, level): ...
def surroundings(path): ...
"""
Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a distribution with the target `harbor`, its text changed."""

    def make(*changes: tuple[str, str], value: str = "harbor:TARGET", rules: str = RULES, templates: str = "") -> None:
        text = WHOLE
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "harbor.py").write_text(text, encoding="utf-8")
        (tmp_path / "harbor_rules.py").write_text(rules, encoding="utf-8")
        info = tmp_path / "harbor-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: harbor\nVersion: 1.0\n", encoding="utf-8")
        points = f"[omni_kit.targets]\nharbor = {value}\n{templates}"
        (info / "entry_points.txt").write_text(points, encoding="utf-8")
        monkeypatch.syspath_prepend(str(tmp_path))
        importlib.invalidate_caches()
        forget()
        all_rules.cache_clear()

    yield make
    monkeypatch.undo()
    forget()
    all_rules.cache_clear()
    for name in ("harbor", "harbor_rules"):
        sys.modules.pop(name, None)


def test_a_whole_one_is_a_target(install: Install) -> None:
    install()
    assert "harbor" in targets()
    assert faults() == {}


@pytest.mark.parametrize(
    ("changes", "value", "words"),
    [
        ([], "harbr:TARGET", "No module named 'harbr'"),
        ([], "harbor:TARGT", "TARGT"),
        ([], "harbor:Harbor", "Harbor is a class"),
        ([("    def find(", "    def look(")], "harbor:TARGET", "has no 'find'"),
        ([("    def plan(", "    def draw(")], "harbor:TARGET", "its handler of 'llm', has no 'plan'"),
        ([('name = "harbor"', 'name = "veomni"')], "harbor:TARGET", "a target of that name is there already"),
    ],
)
def test_one_that_cannot_be_used_is_left_out_and_said(
    install: Install, changes: list[tuple[str, str]], value: str, words: str
) -> None:
    install(*changes, value=value)
    assert "harbor" not in targets()
    assert words in faults()["harbor"]
    code, answer = run_cli("doctor", "--target", "harbor")
    assert (code, words in answer["error"]) == (2, True)
    broken = [item for item in run_cli("doctor")[1]["components"] if item["needed_by"] == "the target harbor"]
    assert [item["status"] for item in broken] == ["missing"]
    assert run_cli("check", str(resource_dir("reference_models") / "veomni" / "olmoe"))[0] == 0


def test_a_find_that_raises_keeps_nobody_else_from_looking(install: Install, tmp_path: Path) -> None:
    install(('raise BadInput(f"{path} is no harbor")', 'raise ValueError("fog")'))
    assert run_cli("check", str(resource_dir("reference_models") / "veomni" / "olmoe"))[0] == 0
    code, answer = run_cli("check", str(tmp_path))
    assert code == 2
    assert "harbor: it cannot tell what lies there: ValueError: fog" in answer["error"]


def test_a_candidate_that_raises_is_one_line(install: Install, tmp_path: Path) -> None:
    there = "from omni_kit.targets.protocol import Integration\n\n        return [Integration(path, lambda: Kind.llm)]"
    install(
        (
            'from omni_kit.errors import BadInput\n\n        raise BadInput(f"{path} is no harbor")',
            there,
        )
    )
    code, answer = run_cli("parity", str(tmp_path), "--target", "harbor")
    assert code == 2
    assert answer["error"] == f"harbor cannot say how to compare {tmp_path}: TypeError: no candidate"


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        ("import nowhere_at_all\n", "the rules of the target 'harbor' cannot be imported"),
        (
            RULES + "from omni_checkers import Rule\n\n\nclass Leak(Rule):\n    id = 'HAR001'\n    name = 'leak'\n",
            "Leak has no 'target'",
        ),
        (
            RULES + "from omni_checkers import Rule\n\n\nclass Leak(Rule):\n    id = 'HAR001'\n    name = 'leak'\n"
            "    target = 'harbour'\n    BAD = GOOD = ()\n",
            "is for the target 'harbour', which is not there",
        ),
    ],
)
def test_rules_that_are_wrong_are_named(install: Install, rules: str, words: str) -> None:
    install(rules=rules)
    code, answer = run_cli("rules", "list")
    assert code == 2
    assert words in answer["error"]


def test_templates_that_are_not_there_or_wrong_are_named(install: Install, tmp_path: Path) -> None:
    install()
    arguments = ("new-model", "pier", "--from", "llama", "--target", "harbor", "--into", str(tmp_path / "out"))
    assert run_cli(*arguments)[1]["error"] == "harbor has no templates"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ nothing }}\n", "model.py.jinja cannot be rendered: 'nothing' is undefined"),
        ("{% if %}\n", "model.py.jinja:1 cannot be rendered"),
        ("x = (\n", "model.py is not valid Python: '(' was never closed (model.py, line 1)"),
    ],
)
def test_a_template_that_is_wrong_is_named_with_its_line(
    install: Install, tmp_path: Path, template: str, words: str
) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "model.py.jinja").write_text(template, encoding="utf-8")
    install(
        ("TARGET = Harbor()", f"TARGET = Harbor()\nTEMPLATES = {str(tmp_path)!r}"),
        templates="\n[omni_kit.templates]\nharbor = harbor:TEMPLATES\n",
    )
    code, answer = run_cli(
        "new-model", "pier", "--from", "llama", "--target", "harbor", "--into", str(tmp_path / "out")
    )
    assert code == 2
    assert words in answer["error"]
    assert not (tmp_path / "out").exists()
