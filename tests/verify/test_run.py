"""The verdict on the worked example: what stands passes, and nothing that its files say changes what is asked."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.parity.candidate import find_candidate
from omni_kit.resources import resource_dir
from omni_kit.verify import Card, Stage, run, verify, verify_again
from omni_kit.verify.pins import pins
from omni_kit.verify.previous_run import Earlier
from omni_kit.verify.run import silenced
from tests.cli.test_schemas import validate

OLMOE = resource_dir("reference_models") / "veomni" / "olmoe"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMNI_KIT_CACHE", str(cache))


@pytest.fixture(autouse=True, scope="module")
def _few_levels() -> Iterator[None]:
    """Of the default levels, those whose stages are looked at here: the others take most of a run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "parse_levels", lambda *_: ["import", "keys", "roundtrip", "forward", "backward"])
        yield


@pytest.fixture
def olmoe(tmp_path: Path) -> Path:
    shutil.copytree(OLMOE, tmp_path / "olmoe", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path / "olmoe"


@pytest.fixture
def wan(tmp_path: Path) -> Path:
    """A copy of the worked example of a diffusion transformer, whose toy cannot be built: no level runs."""
    shutil.copytree(OLMOE.parent / "wan", tmp_path / "wan", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "wan" / "toy_config.json").write_text("{}", encoding="utf-8")
    return tmp_path / "wan"


def leave_to_do(directory: Path) -> None:
    """Leave the unit of steps to a person."""
    file = next(directory.glob("*_condition/modeling_*.py"))
    file.write_text(f"{file.read_text(encoding='utf-8')}\n# TODO(omni-kit): the unit of steps\n", encoding="utf-8")


def statuses(card: Card) -> dict[str, str]:
    return {stage.stage: stage.status for stage in card.stages}


_READS = """import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(_HERE.parent), str(_HERE / "more")]
from linked import FACTOR
from olmoe_beside import FACTOR as BESIDE

assert FACTOR and BESIDE
(_HERE / ".git" / "factor").read_text()
try:
    (_HERE.parent / "absent").read_text()
except OSError:
    pass

"""


@pytest.fixture(scope="module")
def verified(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Card]:
    """The quick verdict on a copy of the worked example.

    The copy contains a linked folder and .git, and imports a module beside it.
    """
    root = tmp_path_factory.mktemp("verified")
    place = root / "plugins" / "olmoe"
    shutil.copytree(OLMOE, place, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("elsewhere/linked.py", "plugins/olmoe_beside.py", "plugins/olmoe/.git/factor"):
        (root / file).parent.mkdir(exist_ok=True)
        (root / file).write_text("FACTOR = 1.0\n", encoding="utf-8")
    (place / "more").symlink_to(root / "elsewhere")
    plan = place / "parallel_plan.py"
    plan.write_text(_READS + plan.read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMNI_KIT_CACHE", str(cache))
        return place, verify(place, quick=True)


def test_a_quick_verdict_passes_and_is_not_complete(verified: tuple[Path, Card]) -> None:
    card = verified[1]
    found = statuses(card)

    assert card.exit_code == 3
    assert {found[name] for name in ("generated", "check", "keys", "roundtrip", "forward", "backward")} == {"passed"}
    assert found["layout"] == "not applicable"
    assert {found[name] for name in ("sp", "ep", "prove")} == {"not tested"}
    assert not any(stage.resumed for stage in card.stages)


def test_its_json_is_what_the_schema_says(verified: tuple[Path, Card]) -> None:
    head = {"schema": "omni-kit/verify/1", "ok": False, "omni_kit": "0", "differences": [], "signer": None, "notes": []}
    validate({**head, "review": None, **verified[1].to_json()})


def test_what_passed_on_the_same_files_is_not_run_again(verified: tuple[Path, Card]) -> None:
    again = verify(verified[0], quick=True)

    passed = {stage.stage for stage in again.stages if stage.status == "passed"}
    assert {stage.stage for stage in again.stages if stage.resumed} == passed - {"generated", "check", "todo"}


def test_other_pins_are_another_verdict(verified: tuple[Path, Card]) -> None:
    found = pins(verified[0], find_candidate(verified[0]), "cpu")

    assert Earlier(found).stages
    assert not Earlier({**found, "files": {**found["files"], "README.md": "0"}}).stages


def test_the_card_pins_what_was_loaded_from_elsewhere(verified: tuple[Path, Card]) -> None:
    pinned = verified[1].pins["files"]

    assert {".git/factor", "../../elsewhere/linked.py", "../olmoe_beside.py"} <= pinned.keys()
    assert len([name for name in pinned if name.startswith("..")]) == 2  # and no file of a library, or of the run


@pytest.mark.parametrize("file", [".git/factor", "more/linked.py", "../olmoe_beside.py", "../absent"])
def test_a_stage_does_not_outlive_what_it_loaded(file: str, verified: tuple[Path, Card]) -> None:
    place, card = verified

    def kept() -> dict[str, Stage]:
        return Earlier(pins(place, find_candidate(place), "cpu")).stages

    assert statuses(card)["forward"] == "passed"
    assert "forward" in kept()
    changed = place / file
    old = changed.read_bytes() if changed.exists() else None
    changed.write_text("FACTOR = 1.5\n", encoding="utf-8")
    assert not kept()
    changed.unlink() if old is None else changed.write_bytes(old)
    assert "forward" in kept()


def test_what_fails_in_a_fresh_run_has_not_passed_before(cache: Path) -> None:
    earlier = [Stage("forward", "passed"), Stage("sp", "passed"), Stage("ep", "passed")]
    Earlier({"test": 1}).keep(earlier, [])
    now = [Stage("forward", "failed"), Stage("sp", "not tested", left_out=True), Stage("ep", "not tested")]
    Earlier({"test": 1}).keep(now, [])

    assert [*Earlier({"test": 1}).stages] == ["sp"]


def test_nothing_is_kept_of_a_run_that_cannot_say_what_it_loaded(cache: Path) -> None:
    Earlier({"test": 2}).keep([Stage("forward", "passed")], None)

    assert not Earlier({"test": 2}).stages


@pytest.mark.sweep
def test_a_card_run_again_says_what_became_different(verified: tuple[Path, Card], tmp_path: Path) -> None:
    place, card = verified
    file = tmp_path / "card.json"
    file.write_text(card.dumps(), encoding="utf-8")
    modeling = place / "generated" / "patched_modeling_olmoe_gpu.py"
    text = modeling.read_text(encoding="utf-8")
    assert "self.act_fn(gate) * up\n" in text
    modeling.write_text(text.replace("self.act_fn(gate) * up\n", "self.act_fn(gate) * up * 1.01\n"), encoding="utf-8")

    lines: list[str] = []
    again = verify_again(file, lines.append, allow_path=True)

    assert lines[0] == f"running the code in {place.resolve()}"
    assert "generated: failed: " in "".join(lines)  # the reason is printed with the stage, not only at the end
    assert next(line for line in lines if line.startswith("forward: ")).startswith("forward: fail: ")
    assert "keys: pass" in lines
    assert {"generated: failed, the card says passed", "forward: failed, the card says passed"} <= {*again.differences}
    assert "files: generated/patched_modeling_olmoe_gpu.py differs" in again.differences
    assert again.card.exit_code == 1


@pytest.mark.parametrize("named", ["absolute", "../elsewhere/olmoe", "link"])
def test_a_card_runs_no_code_outside_the_working_directory(
    named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "elsewhere" / "olmoe"
    place.mkdir(parents=True)
    ran = tmp_path / "ran"
    (place / "__init__.py").write_text(f"open({str(ran)!r}, 'w')\n", encoding="utf-8")
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(place)
    monkeypatch.chdir(tmp_path / "here")
    path = str(place) if named == "absolute" else named
    Path("card.json").write_text(Card(path, {}, [Stage("forward", "passed")]).dumps(), encoding="utf-8")

    with pytest.raises(BadInput, match=r"elsewhere/olmoe, outside the working directory$"):
        verify_again(Path("card.json"))
    assert not ran.exists()


def test_what_comments_silence_is_named(olmoe: Path) -> None:
    plan = olmoe / "parallel_plan.py"
    plan.write_text("# omni-kit: ignore[VEO301] it is right\n" + plan.read_text(encoding="utf-8"), encoding="utf-8")

    assert list(silenced(olmoe)) == ["parallel_plan.py:1 VEO301"]


def test_what_is_no_integration_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        verify(tmp_path)


def test_a_to_do_is_to_be_finished_and_no_finding_that_fails(wan: Path, tmp_path: Path) -> None:
    before = verify(wan, quick=True)
    assert statuses(before)["check"] == "passed"
    file = tmp_path / "card.json"
    file.write_text(before.dumps(), encoding="utf-8")
    leave_to_do(wan)
    again = verify_again(file, allow_path=True)
    card = again.card
    (check,) = [stage for stage in card.stages if stage.stage == "check"]

    assert (check.status, statuses(card)["todo"]) == ("not tested", "not tested")
    assert check.reason == "1 finding at to-dos: unfinished: the unit of steps"
    assert "check: not tested, the card says passed" in again.differences
    assert any(one.startswith("files: wan_condition/modeling_") for one in again.differences)
    assert card.exit_code == 3


def test_a_to_do_covers_up_no_other_finding(wan: Path) -> None:
    leave_to_do(wan)
    (wan / "make_data.py").write_text("def make(:\n", encoding="utf-8")

    assert statuses(verify(wan, quick=True))["check"] == "failed"
