"""An integration that is made again: what people changed stays, what authors changed comes, and else nothing does."""

import shutil
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.pysource.source import read_source
from omni_kit.scaffold import new_model
from omni_kit.scaffold.update import update

UPSTREAM = Path(__file__).parents[3] / "reference_models" / "diffusers" / "_upstream"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ported model with both pipelines, beside its authors' files; not to be changed."""
    place = tmp_path_factory.mktemp("made")
    shutil.copytree(UPSTREAM, place / "authors")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        new_model("crane", "authors/lumen::Lumen", target="diffusers", kind="both", class_name="CraneDenoiser")
    return place


@pytest.fixture
def crane(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, in the working directory."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "crane"


def changed(directory: Path) -> set[str]:
    found = update(directory)
    assert found.ok, found.notes
    return {change.path.removeprefix(f"{directory.name}/") for change in found.changes if change.action != "unchanged"}


def test_an_update_of_what_nobody_changed_changes_nothing(crane: Path) -> None:
    """The model keeps the class name that it was given."""
    assert "class CraneDenoiser(" in (crane / "transformer_crane.py").read_text(encoding="utf-8")
    assert not changed(crane)


@pytest.mark.parametrize(("source", "target", "class_name", "message"), [
    (f"{UPSTREAM}/lumen::Lumen", "diffusers", "2d", "is not the name of a class"),
    (f"{UPSTREAM}/lumen::Lumen", "diffusers", "ModelMixin", "is a name of diffusers"),
    ("qwen3_moe", "veomni", "Mine", "keeps the class names"),
])  # fmt: skip
def test_a_class_name_that_cannot_be_given(
    source: str, target: str, class_name: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=message):
        new_model("crane", source, target=target, into=tmp_path, class_name=class_name)
    assert not [*tmp_path.iterdir()]


def test_what_authors_change_comes_beside_what_people_changed(crane: Path) -> None:
    own = crane / "modular" / "encoders.py"
    own.write_text("# mine\n" + own.read_text(encoding="utf-8"), encoding="utf-8")
    file = crane.parent / "authors" / "lumen" / "model.py"
    file.write_text(file.read_text(encoding="utf-8").replace("mlp_ratio=4.0,", "mlp_ratio=3.0,"), encoding="utf-8")
    read_source.cache_clear()  # files are read once in a run, and this is another one
    assert "transformer_crane.py" in changed(crane)  # and not the toy, which has values that were found to run
    assert "mlp_ratio=3.0," in (crane / "transformer_crane.py").read_text(encoding="utf-8")
    assert own.read_text(encoding="utf-8").startswith("# mine\n")


@pytest.mark.sweep
def test_blocks_of_a_pipeline_that_is_there_are_updated(tmp_path: Path) -> None:
    new_model("blocks", "WanPipeline", target="diffusers", kind="modular", into=tmp_path)
    assert not changed(tmp_path / "blocks")
    (tmp_path / "blocks" / "decoders.py").unlink()
    assert update(tmp_path / "blocks").notes == (
        "blocks/decoders.py was removed and is not restored; new-model --force restores it",
    )
