"""A target that somebody else got wrong is named in one line, and the others go on."""

import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from omni_checkers.engine.registry import all_rules
from omni_kit import doctor
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
Changes = Sequence[tuple[str, str]]


def lay_out(place: Path, name: str, changes: Changes, value: str, rules: str = RULES, templates: str = "") -> None:
    """A distribution with the target `name`, its text changed."""
    text = WHOLE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (place / f"{name}.py").write_text(text.replace('name = "harbor"', f'name = "{name}"'), encoding="utf-8")
    (place / "harbor_rules.py").write_text(rules, encoding="utf-8")
    info = place / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[omni_kit.targets]\n{name} = {value}\n{templates}", encoding="utf-8")


@contextmanager
def found(place: Path) -> Iterator[Callable[[], None]]:
    """Distributions that are laid out there are found, once what is handed over was called."""
    with pytest.MonkeyPatch.context() as patch:

        def look() -> None:
            patch.syspath_prepend(str(place))
            importlib.invalidate_caches()
            forget()
            all_rules.cache_clear()

        yield look
    forget()
    all_rules.cache_clear()
    for name in [name for name in sys.modules if name.startswith("harbor")]:
        del sys.modules[name]


@pytest.fixture
def install(tmp_path: Path) -> Iterator[Install]:
    """Installs a distribution with the target `harbor`, its text changed."""
    with found(tmp_path) as look:

        def make(*changes: tuple[str, str], rules: str = RULES, templates: str = "") -> None:
            lay_out(tmp_path, "harbor", changes, "harbor:TARGET", rules, templates)
            look()

        yield make


def test_a_whole_one_is_a_target(install: Install) -> None:
    install()
    assert "harbor" in targets()
    assert faults() == {}


WRONG: list[tuple[Changes, str, str]] = [
    ([], "harbr:TARGET", "No module named 'harbr'"),
    ([], "{}:TARGT", "TARGT"),
    ([], "{}:Harbor", "Harbor is a class"),
    ([("    def find(", "    def look(")], "{}:TARGET", "has no 'find'"),
    ([("    def plan(", "    def draw(")], "{}:TARGET", "its handler of 'llm', has no 'plan'"),
    ([('name = "harbor"', 'name = "veomni"')], "{}:TARGET", "a target of that name already exists"),
]
NAMES = [f"harbor{number}" for number in range(len(WRONG))]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], int]:
    """What doctor says where all of them are installed, and how check ends: once, because they take seconds."""
    place = tmp_path_factory.mktemp("wrong")
    for name, (changes, value, _) in zip(NAMES, WRONG, strict=True):
        lay_out(place, name, changes, value.format(name))
    with found(place) as look, pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "imported", lambda modules: {})  # of what is installed, which takes seconds
        look()
        asked = {name: (run_cli("doctor", "--target", name), faults()[name], name in targets()) for name in NAMES}
        said = run_cli("doctor")[1]["components"]
        statuses = {item["needed_by"].removeprefix("the target "): item["status"] for item in said}
        told = {name: (*asked[name], statuses[name]) for name in NAMES}
        return told, run_cli("check", str(resource_dir("reference_models") / "veomni" / "olmoe"))[0]


@pytest.mark.parametrize(("name", "words"), [(name, one[2]) for name, one in zip(NAMES, WRONG, strict=True)])
def test_one_that_cannot_be_used_is_left_out_and_said(name: str, words: str, wrong: tuple[dict[str, Any], int]) -> None:
    (code, answer), fault, taken, status = wrong[0][name]
    assert not taken
    assert words in fault
    assert (code, words in answer["error"]) == (2, True)
    assert status == "missing"
    assert wrong[1] == 0


def test_a_find_that_raises_keeps_nobody_else_from_looking(install: Install, tmp_path: Path) -> None:
    install(('raise BadInput(f"{path} is no harbor")', 'raise ValueError("fog")'))
    assert run_cli("check", str(resource_dir("reference_models") / "veomni" / "olmoe"))[0] == 0
    code, answer = run_cli("check", str(tmp_path))
    assert code == 2
    assert "harbor: it cannot identify the directory: ValueError: fog" in answer["error"]


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
            "is for the target 'harbour', which does not exist",
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
