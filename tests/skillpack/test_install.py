"""Skills in an agent's folder: what a person changed is theirs."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.skillpack import Agent, Place, add, load_skills, remove, update
from omni_kit.skillpack.install import RECORD


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(folder=tmp_path / "skills")


@pytest.mark.parametrize("agent", list(Agent))
def test_where_an_agent_finds_them(agent: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert Place(agent).path == tmp_path / f".{agent}" / "skills"
    assert Place(agent, project=False).path == tmp_path / "home" / f".{agent}" / "skills"


def test_all_are_added_once(place: Place) -> None:
    assert {change.skill for change in add(place, [])} == {skill.name for skill in load_skills()}
    assert {path.parent.name for path in place.path.glob("*/SKILL.md")} == {skill.name for skill in load_skills()}
    assert {change.action for change in add(place, [])} == {"unchanged"}


def test_what_a_person_changed_stays_and_is_named(place: Place) -> None:
    add(place, ["integrate-model", "veomni-new-model"])
    mine = place.path / "integrate-model" / "SKILL.md"
    mine.write_text("mine")
    changed = [change for change in update(place, []) if change.action != "unchanged"]
    assert [(change.path, change.action) for change in changed] == [(mine, "kept")]
    assert [change.path for change in remove(place, []) if change.action == "kept"] == [mine]
    assert [path for path in place.path.rglob("*") if path.is_file()] == [mine]
    assert mine.read_text() == "mine"


def test_what_was_ours_is_brought_up_to_date(place: Place) -> None:
    add(place, ["veomni-new-model"])
    folder = place.path / "veomni-new-model"
    file, record = folder / "SKILL.md", folder / RECORD
    fresh = file.read_text()
    _pretend(file, record, "of an earlier version")
    _pretend(folder / "gone.md", record, "a page that the skill has no more")
    assert {(c.path.name, c.action) for c in update(place, []) if c.action != "unchanged"} == {
        ("SKILL.md", "updated"),
        ("gone.md", "removed"),
    }
    assert file.read_text() == fresh
    assert not (folder / "gone.md").exists()


def _pretend(file: Path, record: Path, text: str) -> None:
    """Makes it look as if an earlier version had written the file."""
    import hashlib

    said = json.loads(record.read_text())
    said["files"][file.name] = hashlib.sha256(text.encode()).hexdigest()
    file.write_text(text)
    record.write_text(json.dumps(said))


def test_a_folder_that_was_there_is_not_touched(place: Place) -> None:
    other = place.path / "integrate-model" / "SKILL.md"
    other.parent.mkdir(parents=True)
    other.write_text("somebody else's")
    assert [change.action for change in add(place, ["integrate-model"])] == ["conflict"]
    assert other.read_text() == "somebody else's"
    assert [path for path in place.path.rglob("*") if path.is_file()] == [other]
    with pytest.raises(BadInput, match="has no skill that was added"):
        remove(place, [])


def test_a_damaged_record_makes_everything_a_persons(place: Place) -> None:
    add(place, ["integrate-model"])
    (place.path / "integrate-model" / RECORD).write_text("[")
    (place.path / "integrate-model" / "SKILL.md").write_text("mine")
    assert {change.action for change in update(place, [])} == {"conflict"}


@pytest.mark.parametrize("name", ["no-such-skill", "../elsewhere", ""])
def test_an_unknown_name_is_refused(place: Place, name: str) -> None:
    with pytest.raises(BadInput):
        add(place, [name])
    assert not place.path.exists()


def test_nothing_to_update_is_said(place: Place) -> None:
    with pytest.raises(BadInput, match="was added"):
        update(place, [])
    add(place, ["integrate-model"])
    shutil.rmtree(place.path / "integrate-model")
    with pytest.raises(BadInput, match="was added"):
        remove(place, ["integrate-model"])


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "..", ".", "", "/tmp/evil", "integrate-model/../x"])
@pytest.mark.parametrize("change", [remove, update])
def test_a_name_that_leads_elsewhere_is_refused(
    change: Callable[[Place, Sequence[str]], object], name: str, place: Place
) -> None:
    add(place, ["integrate-model"])
    evil = place.path.parent / "evil"
    shutil.copytree(place.path / "integrate-model", evil)
    before = sorted(place.path.parent.rglob("*"))
    with pytest.raises(BadInput, match="is not a valid name"):
        change(place, [name])
    assert sorted(place.path.parent.rglob("*")) == before


def test_a_linked_folder_is_a_persons(place: Place) -> None:
    other = Place(folder=place.path.parent / "other")
    add(place, ["veomni-new-model"])
    add(other, ["integrate-model"])
    (place.path / "integrate-model").symlink_to(other.path / "integrate-model")
    remove(place, [])
    for change in (add, update, remove):
        with pytest.raises(BadInput, match="lies outside"):
            change(place, ["integrate-model"])
    assert (other.path / "integrate-model" / "SKILL.md").is_file()


@pytest.mark.parametrize("leads", ["nowhere", "to a file"])
def test_a_link_in_the_way_is_a_conflict(leads: str, place: Place) -> None:
    link = place.path / "integrate-model" / "SKILL.md"
    link.parent.mkdir(parents=True)
    (link.parent / "mine.md").write_text("mine")
    link.symlink_to("mine.md" if leads == "to a file" else "not_mounted")

    assert {change.action for change in add(place, ["integrate-model"])} == {"conflict"}
    assert sorted(link.parent.iterdir()) == [link, link.parent / "mine.md"]
    assert link.is_symlink()


def test_a_link_instead_of_our_file_stays(place: Place) -> None:
    add(place, ["integrate-model"])
    file = place.path / "integrate-model" / "SKILL.md"
    file.rename(file.with_name("moved.md"))
    file.symlink_to("moved.md")
    remove(place, [])
    assert file.is_symlink()


def test_a_record_that_a_person_wrote_is_a_conflict(place: Place) -> None:
    mine = place.path / "integrate-model" / RECORD
    mine.parent.mkdir(parents=True)
    mine.write_text("{}")
    assert [change.path for change in add(place, ["integrate-model"])] == [mine]
    assert mine.read_text() == "{}"


def test_an_empty_folder_of_a_person_stays(place: Place) -> None:
    add(place, ["integrate-model", "veomni-new-model"])
    mine = place.path / "integrate-model" / "mine" / "deep"
    mine.mkdir(parents=True)
    remove(place, [])
    assert sorted(place.path.rglob("*")) == [mine.parent.parent, mine.parent, mine]


@pytest.mark.parametrize("name", ["", ".", "SKILL.md/x", "references"])
def test_a_record_with_paths_of_no_file(name: str, place: Place) -> None:
    add(place, ["integrate-model"])
    record = place.path / "integrate-model" / RECORD
    said = json.loads(record.read_text())
    record.write_text(json.dumps({**said, "files": {**said["files"], name: "0"}}))
    assert name in {change.path.relative_to(record.parent).as_posix() for change in remove(place, [])} or not name
