"""check-layout --emit-converter: the converter alone."""

import ast
from pathlib import Path

import pytest

from omni_kit.errors import BadInput
from omni_kit.layout import check_layout
from omni_kit.scaffold.converter import write_converter
from tests.conftest import Checkpoints


def test_it_stands_alone(checkpoint: Checkpoints, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    assert write_converter(check_layout(str(checkpoint("olmoe"))), file) == f"wrote {file}"
    tree = ast.parse(file.read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"veomni.models.checkpoint_tensor_loading"}
    names = {node.name for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert {"create_mine_checkpoint_tensor_converter", "convert_mine_fqn_to_index_mapping"} <= names
    write_converter(check_layout(str(checkpoint("olmoe"))), file)


def test_none_is_needed(checkpoint: Checkpoints, tmp_path: Path) -> None:
    said = write_converter(check_layout(str(checkpoint("llama"))), tmp_path / "mine.py")
    assert said == "no converter was written: the checkpoint has no experts"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "called"),
    [
        ("my-out 1.py", "MyOut1"),
        ("1.py", "Model1"),
        ("class.py", "Class"),
        ("a.b.c.txt", "ABC"),
        ("Mine.py", "Mine"),
        ("--.py", "Model"),
        ("mine", "Mine"),
        ("größe².py", "Größe"),
    ],
)
def test_a_file_of_any_name_has_a_class_of_a_sensible_one(
    checkpoint: Checkpoints, tmp_path: Path, name: str, called: str
) -> None:
    write_converter(check_layout(str(checkpoint("olmoe"))), tmp_path / name)
    tree = ast.parse((tmp_path / name).read_text())
    classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
    assert [found.removesuffix("CheckpointTensorConverter") for found in classes] == [called]


def test_a_directory_is_no_file_to_write(checkpoint: Checkpoints, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is a directory"):
        write_converter(check_layout(str(checkpoint("olmoe"))), tmp_path)


def test_what_is_there_stays(checkpoint: Checkpoints, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("mine\n")
    with pytest.raises(BadInput, match="exists and differs"):
        write_converter(check_layout(str(checkpoint("olmoe"))), file)
    assert file.read_text() == "mine\n"
