"""update: what changed upstream comes in, what people changed stays, and both in one place are shown to them."""

import json
import shutil
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.record import ANSWERS, BASE, digest
from omni_kit.scaffold import new_model, update
from omni_kit.scaffold.update import follow_references

FILE = "parallel_plan.py"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As new-model makes it; not to be changed."""
    place = tmp_path_factory.mktemp("made")
    new_model("m", "olmoe", target="veomni", into=place)
    return place / "m"


@pytest.fixture
def integration(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "m")
    return tmp_path / "m"


def written_by_an_older_version(integration: Path, old: str) -> None:
    """As if the templates had said `old` when the integration was made."""
    base = json.loads((integration / BASE).read_text())
    answers = (integration / ANSWERS).read_text()
    before = digest(base[f"m/{FILE}"])
    (integration / BASE).write_text(json.dumps({**base, f"m/{FILE}": old}))
    (integration / ANSWERS).write_text(answers.replace(before, digest(old)))
    (integration / FILE).write_text(old)


def tree(root: Path) -> dict[str, str]:
    return {p.relative_to(root).as_posix(): p.read_text() for p in sorted(root.rglob("*")) if p.is_file()}


def actions(result: object) -> dict[str, str]:
    return {change.path: change.action for change in result.changes if change.action != "unchanged"}  # type: ignore[attr-defined]


def test_nothing_to_do(integration: Path) -> None:
    before = tree(integration)
    (integration / "__init__.py").write_text((integration / "__init__.py").read_text() + "# mine\n")
    result = update(integration)
    assert (actions(result), result.notes, result.ok) == ({}, (), True)
    assert tree(integration) == {**before, "__init__.py": before["__init__.py"] + "# mine\n"}


def test_a_file_that_nobody_changed_is_replaced(integration: Path) -> None:
    new = (integration / FILE).read_text()
    written_by_an_older_version(integration, new.replace("Shard(0)", "Shard(1)"))
    result = update(integration, dry_run=True)
    assert actions(result)[f"m/{FILE}"] == "update"
    assert "Shard(1)" in (integration / FILE).read_text()
    update(integration)
    assert (integration / FILE).read_text() == new
    assert actions(update(integration)) == {}


def test_both_changed_in_different_places(integration: Path) -> None:
    new = (integration / FILE).read_text()
    written_by_an_older_version(integration, new.replace("Shard(0)", "Shard(1)"))
    (integration / FILE).write_text((integration / FILE).read_text() + "\n\n# mine\n")
    result = update(integration)
    assert result.ok
    assert (integration / FILE).read_text() == new + "\n\n# mine\n"
    assert actions(update(integration)) == {}


def test_both_changed_the_same_line(integration: Path) -> None:
    new = (integration / FILE).read_text()
    written_by_an_older_version(integration, new.replace("Shard(0)", "Shard(1)"))
    (integration / FILE).write_text(new.replace("Shard(0)", "Shard(2)"))
    result = update(integration)
    assert not result.ok
    assert result.notes == (f"m/{FILE} has conflict markers: resolve them",)
    text = (integration / FILE).read_text()
    assert all(part in text for part in ("<<<<<<< yours", "Shard(2)", "Shard(1)", "Shard(0)", ">>>>>>> new"))


def test_references_follow_upstreams_lines_in_what_people_changed() -> None:
    base = "# pipelines/a.py:7\nA = 1\nB = 2  # pipelines/a.py:30\n"
    yours = "# pipelines/a.py:7\n# mine, see own.py:7\nA = 1\n"
    new = base.replace(":7", ":9").replace(":30", ":32")
    assert follow_references(yours, base, new) == (yours.replace("a.py:7", "a.py:9"), new)


def test_a_reference_that_now_means_two_places_stays() -> None:
    base = "# a.py:7\nA = 1\n# a.py:7\nB = 2\n"
    assert follow_references(base, base, base.replace(":7\nB", ":8\nB")) == (base, base)


def test_without_the_first_text_nothing_is_guessed(integration: Path) -> None:
    new = (integration / FILE).read_text()
    written_by_an_older_version(integration, new.replace("Shard(0)", "Shard(1)"))
    (integration / FILE).write_text("# mine\n")
    (integration / BASE).write_text("[1, 2")
    result = update(integration)
    assert actions(result)[f"m/{FILE}"] == "conflict"
    assert "left unchanged" in result.notes[0]
    assert (integration / FILE).read_text() == "# mine\n"


def test_what_was_removed_stays_away_and_what_is_gone_is_said(integration: Path) -> None:
    (integration / FILE).unlink()
    answers = integration / ANSWERS
    answers.write_text(answers.read_text() + '"m/older.py" = "0123456789abcdef"\n')
    (integration / "older.py").touch()
    result = update(integration)
    assert result.notes == (
        f"m/{FILE} was removed and is not restored; new-model --force restores it",
        "m/older.py is no longer part of the integration; it was left unchanged",
    )
    assert not (integration / FILE).exists()
    assert (integration / "older.py").exists()


def test_a_model_that_moved(integration: Path, tmp_path: Path) -> None:
    answers = integration / ANSWERS
    answers.write_text(answers.read_text().replace('source = "olmoe"', 'source = "./gone"'))
    with pytest.raises(BadInput, match="gone"):
        update(integration)
    assert update(integration, source="olmoe").ok


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("answers = 3", "must contain only strings"),
        ("[answers]\nname = 3", "must contain only strings"),
        ("[answers]\nname = 'm'", "has no source"),
        ("[[[", "cannot read"),
        ("[answers]\nname='m'\nsource='olmoe'\ntarget='veomni'\nstyle='other'", "style 'other'"),
        ("[answers]\nname='m'\nsource='olmoe'\ntarget='veomni'\nstyle='plugin'", "is not the directory"),
        (
            "[answers]\nname='m'\nsource='olmoe'\ntarget='veomni'\nstyle='plugin'\n[files]\n'../x/a'='b'",
            "is not the directory",
        ),
    ],
)
def test_records_of_another_shape(text: str, reason: str, integration: Path) -> None:
    (integration / ANSWERS).write_text(text)
    before = tree(integration)
    with pytest.raises(BadInput, match=reason):
        update(integration)
    assert tree(integration) == before


def test_a_directory_without_a_record(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"has no \.omni-kit\.toml"):
        update(tmp_path)


@pytest.mark.parametrize("name", ["../evil", "/tmp/evil", "a/b", "__init__", "class"])
def test_a_name_that_leads_elsewhere_is_refused(name: str, integration: Path) -> None:
    record = integration / ANSWERS
    record.write_text(record.read_text().replace('name = "m"', f'name = "{name}"'))
    before = {file: file.read_bytes() for file in integration.rglob("*") if file.is_file()}
    with pytest.raises(BadInput):
        update(integration)
    assert {file: file.read_bytes() for file in integration.parent.rglob("*") if file.is_file()} == before


@pytest.mark.parametrize("path", ["/a/b/c.py", "../../c.py", "", "..", "/"])
def test_a_record_of_paths_that_lead_elsewhere(path: str, integration: Path) -> None:
    record = integration / ANSWERS
    head = record.read_text().partition("[files]")[0]
    record.write_text(f"{head}[files]\n{json.dumps(path)} = '0'\n{json.dumps(str(integration / 'x.py'))} = '0'\n")
    with pytest.raises(BadInput, match="is not the directory"):
        update(integration)


def test_a_link_that_leads_nowhere_stays(integration: Path) -> None:
    plan = integration / FILE
    plan.unlink()
    plan.symlink_to("not_mounted")

    assert not update(integration).ok
    assert plan.is_symlink()
