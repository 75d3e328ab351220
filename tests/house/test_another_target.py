"""A target that exists only here goes through the whole house, registered as any third party registers one."""

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_checkers.engine.registry import all_rules
from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.targets.registry import forget
from tests.conftest import first, run_cli

FIXTURE = Path(__file__).parents[1] / "fixtures" / "target"


@pytest.fixture(autouse=True, scope="module")
def lantern(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The target is installed: its distribution lies on the path, and what was cached without it is forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FIXTURE))
        patch.setenv("PYTHONPATH", os.pathsep.join([str(FIXTURE), os.environ.get("PYTHONPATH", "")]))
        patch.setenv("OMNI_KIT_CACHE", str(tmp_path_factory.mktemp("cache")))
        importlib.invalidate_caches()
        _forget()
        yield
    _forget()
    for name in [name for name in sys.modules if name.partition(".")[0] == "lantern"]:
        del sys.modules[name]


def _forget() -> None:
    forget()
    all_rules.cache_clear()


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An integration as new-model makes it; not to be changed."""
    root = tmp_path_factory.mktemp("lanterns")
    code, answer = run_cli("new-model", "porch", "--from", "olmoe", "--target", "lantern", "--into", str(root))
    assert (code, answer["notes"]) == (0, [])
    return root / "porch"


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Processes that find the target."""
    with Sides(tmp_path_factory.mktemp("sides")) as both:
        yield both


def edited(plugin: Path, place: Path, old: str, new: str) -> Path:
    """A copy with a text replaced in its model."""
    copy = place / plugin.name
    copy.mkdir(parents=True)
    for file in plugin.iterdir():
        text = file.read_text(encoding="utf-8")
        (copy / file.name).write_text(text.replace(old, new), encoding="utf-8")
    assert new in (copy / "model.py").read_text(encoding="utf-8")
    return copy


@pytest.mark.sweep
def test_doctor_looks_for_what_it_requires() -> None:
    code, answer = run_cli("doctor", "--target", "lantern")
    found = {component["name"]: component for component in answer["components"]}
    assert code == 3
    assert (found["torch"]["status"], found["no-wick"]["status"]) == ("ok", "missing")
    assert found["no-wick"]["fix"] == "pip install no-wick"
    assert "veomni" not in found


def test_inspect_tells_what_it_would_take() -> None:
    code, answer = run_cli("inspect", "olmoe")
    assert code == 0
    assert answer["targets"]["lantern"]["files"] == ["olmoe/model.py", "olmoe/integration.json"]
    assert answer["targets"]["lantern"]["patches"][0]["decision"] == "patch"
    assert "veomni" in answer["targets"]


def test_each_kind_has_its_templates(plugin: Path, tmp_path: Path) -> None:
    code, _ = run_cli("new-model", "hall", "--from", "llama", "--target", "lantern", "--into", str(tmp_path))
    assert code == 0
    assert "porch, a bright lamp" in (plugin / "model.py").read_text(encoding="utf-8")
    assert "hall, a plain lamp" in (tmp_path / "hall" / "model.py").read_text(encoding="utf-8")
    assert (plugin / ".omni-kit.toml").is_file()


def test_in_tree_edits_what_the_checkout_has(tmp_path: Path) -> None:
    aggregate = tmp_path / "lantern_models" / "__init__.py"
    aggregate.parent.mkdir()
    aggregate.write_text('ALL = ["attic"]\n', encoding="utf-8")
    arguments = ("new-model", "hall", "--from", "llama", "--target", "lantern", "--style", "in-tree")
    code, _ = run_cli(*arguments, "--into", str(tmp_path))
    assert code == 0
    assert aggregate.read_text(encoding="utf-8") == 'ALL = ["attic", "hall"]\n'
    assert (tmp_path / "lantern_models" / "hall" / ".omni-kit.toml").is_file()


def test_a_kind_that_several_targets_take_wants_one_named(tmp_path: Path) -> None:
    code, answer = run_cli("new-model", "hall", "--from", "llama", "--into", str(tmp_path))
    assert code == 2
    assert "choose with --target" in answer["hint"]
    assert list(tmp_path.iterdir()) == []


def test_a_kind_that_it_does_not_know_is_refused(tmp_path: Path) -> None:
    code, answer = run_cli("new-model", "hall", "--from", "qwen3_vl", "--target", "lantern", "--into", str(tmp_path))
    assert code == 1
    assert "kind 'vlm'; lantern integrations are scaffolded for llm, moe" in answer["notes"][0]
    assert not list(tmp_path.iterdir())


def test_its_rule_fires_and_stays_quiet(plugin: Path, tmp_path: Path) -> None:
    """The rule lies two folders deep in its package."""
    assert run_cli("check", str(plugin))[1]["findings"] == []
    dark = edited(plugin, tmp_path, "class Lamp", "class Dark")
    code, answer = run_cli("check", str(dark))
    assert code == 1
    assert [(found["rule"], Path(found["path"]).name) for found in answer["findings"]] == [("LAN001", "model.py")]
    assert answer["checked"]["models"] == 1


def test_a_folder_of_integrations_is_walked(plugin: Path) -> None:
    assert run_cli("check", str(plugin.parent), "--target", "lantern")[1]["checked"]["models"] == 1


def test_a_path_of_no_target_says_what_each_of_them_misses(tmp_path: Path) -> None:
    assert run_cli("check", str(tmp_path))[1]["error"].endswith("is empty")
    (tmp_path / "notes.txt").touch()
    code, answer = run_cli("check", str(tmp_path))
    assert code == 2
    assert "has no integration.json" in answer["error"]
    assert "no __init__.py" in answer["error"]
    assert "integration.json" not in run_cli("check", str(tmp_path), "--target", "veomni")[1]["error"]


def test_parity_runs_what_its_sides_can_do(plugin: Path) -> None:
    code, answer = run_cli("parity", str(plugin), "--target", "lantern")
    assert {level["level"]: level["status"] for level in answer["levels"]} == dict.fromkeys(
        ["import", "keys", "roundtrip", "forward"], "pass"
    )
    assert code == 0
    assert "backward" in answer["not_run"]


@pytest.mark.sweep
def test_a_level_that_it_has_no_use_for_is_not_applicable(plugin: Path) -> None:
    code, answer = run_cli("parity", str(plugin), "--levels", "modules,dtype,backward,sp")
    levels = {level["level"]: level for level in answer["levels"]}
    assert code == 3
    assert (levels["modules"]["status"], levels["dtype"]["status"]) == ("pass", "pass")
    assert levels["backward"]["reason"] == "not applicable: the sides offer no gradient"
    assert levels["sp"]["status"] == "skip"


@pytest.mark.parametrize(
    ("old", "new", "level", "words"),
    first(
        2,
        [
            ("return self.bright(hidden), self", "return self.bright(hidden) * 1.01, self", "forward", "bright"),
            ("torch.tanh(", "torch.nn.functional.hardtanh(", "modules", "inner"),
            (
                "self.colour(hidden)",
                "self.colour(hidden) + 9 * (hidden.dtype != torch.float32)",
                "dtype",
                "rounds elsewhere than upstream",
            ),
            ("nn.Linear(hidden, 3)", "nn.Linear(hidden, 4)", "keys", "colour.weight"),
            ("return self.bright(hidden), self", "return self.bright(hidden) / 0 * 0, self", "forward", "not finite"),
        ],
    ),
)
def test_what_is_wrong_is_found(
    plugin: Path, tmp_path: Path, old: str, new: str, level: str, words: str, sides: Sides
) -> None:
    report = run_parity(edited(plugin, tmp_path, old, new), [level], sides=sides)
    assert report.exit_code == 1
    assert report.levels[0].status == "fail"
    assert words in json.dumps(report.to_json())


def test_what_the_candidate_must_not_import_is_noticed(plugin: Path, tmp_path: Path) -> None:
    wrong = edited(plugin, tmp_path, "import torch\n", "import lamp, torch\n")
    code, answer = run_cli("parity", str(wrong), "--levels", "forward")
    assert (code, answer["levels"][0]["status"]) == (1, "fail")
    assert "the candidate process imported lamp" in json.dumps(answer)


@pytest.mark.sweep
def test_answers_that_nobody_judges_are_an_error_and_no_pass(plugin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sides = importlib.import_module("lantern.sides")
    monkeypatch.setattr(sides.Points, "judged", lambda self, names: [])
    code, answer = run_cli("parity", str(plugin), "--levels", "dtype")
    assert code == 3
    assert answer["levels"][0]["status"] == "error"
    assert "no upstream output can be judged" in answer["levels"][0]["reason"]


def test_a_feed_that_lacks_something_is_named_before_anything_runs(
    plugin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = importlib.import_module("lantern.sides")
    monkeypatch.delattr(sides.Points, "frames")
    code, answer = run_cli("parity", str(plugin), "--levels", "import")
    assert code != 0
    assert "the batch builder lantern.sides:Points has no 'frames'" in json.dumps(answer)


def test_the_page_shows_what_was_drawn(plugin: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    code, _ = run_cli("parity", str(plugin), "--levels", "forward", "--html", str(page))
    assert code == 0
    text = page.read_text(encoding="utf-8")
    assert text.count("<img ") == 2
    assert "colour, upstream" in text
    assert "inner" in text
