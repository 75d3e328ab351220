"""The folder that a repository's imports start from."""

from dataclasses import replace
from pathlib import Path

import pytest

from omni_kit.upstream.repositories.repository import repository_of


@pytest.mark.parametrize(("line", "root"), [
    ("from models.net import Net", "."),
    ("from net import Net", "models"),
    ("from models.network import Net", "models"),
    ("import torch", "models"),
])  # fmt: skip
def test_imports_of_a_file_that_imports_nothing_say_where_they_start(tmp_path: Path, line: str, root: str) -> None:
    (tmp_path / "README.md").write_text("a repository\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text("import torch\n")
    for end in ("\n", "\r", "\r\n"):
        (tmp_path / "train.py").write_bytes(f"import os{end}{line}{end}".encode())
        assert repository_of(tmp_path / "models" / "net.py").root == (tmp_path / root).resolve()


@pytest.mark.parametrize(("line", "root"), [
    ("from .parts import Block", "."),
    ("from parts import Block", "models"),
])  # fmt: skip
def test_relative_imports_need_folders_around_them(tmp_path: Path, line: str, root: str) -> None:
    """A package without an `__init__.py` is one, too."""
    (tmp_path / "README.md").write_text("a repository\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "parts.py").write_text("class Block: ...\n")
    (tmp_path / "models" / "net.py").write_text(f"{line}\n")
    assert repository_of(tmp_path / "models" / "net.py").root == (tmp_path / root).resolve()


@pytest.mark.parametrize(("line", "root"), [("from .net import Net", "."), ("from net import Net", "models")])
def test_relative_imports_of_files_next_to_it_make_a_package(tmp_path: Path, line: str, root: str) -> None:
    (tmp_path / "README.md").write_text("a repository\n")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.py").write_text("import torch\n")
    (tmp_path / "models" / "sampling.py").write_text(f"{line}\n")
    assert repository_of(tmp_path / "models" / "net.py").root == (tmp_path / root).resolve()


@pytest.mark.parametrize(("name", "found"), [("helpers", True), ("json", False), ("torch", False)])
def test_programs_import_files_next_to_them_by_plain_names(name: str, found: bool, tmp_path: Path) -> None:
    """A file called like an installed module is not taken for it."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / f"{name}.py").write_text("class Block: ...\n")
    repository = replace(repository_of(tmp_path / "models" / f"{name}.py"), root=tmp_path.resolve())
    assert (repository.module_file(name) is not None) is found


@pytest.mark.parametrize(("beside", "found"), [("setup.py", True), ("notes.txt", False)])
def test_packages_that_people_install_from_a_folder_are_found(beside: str, found: bool, tmp_path: Path) -> None:
    (tmp_path / "kernels" / "scans_of_nobody" / "ops").mkdir(parents=True)
    for name in ("__init__.py", "ops/__init__.py", "ops/scan.py"):
        (tmp_path / "kernels" / "scans_of_nobody" / name).write_text("")
    (tmp_path / "kernels" / beside).write_text("")
    (tmp_path / "net.py").write_text("from scans_of_nobody.ops.scan import scan\n")
    repository = replace(repository_of(tmp_path / "net.py"), root=tmp_path)
    assert (repository.module_file("scans_of_nobody.ops.scan") is not None) is found
    assert repository.module_file("json") is None


@pytest.mark.parametrize(("module", "found"), [("glow.glow", "glow/glow.py"), ("glow", None), ("dim", "glow/dim.py")])
def test_a_file_of_the_same_name_does_not_hide_the_folder_around_it(
    module: str, found: str | None, tmp_path: Path
) -> None:
    (tmp_path / "glow").mkdir()
    for name in ("glow", "dim"):
        (tmp_path / "glow" / f"{name}.py").write_text("")
    repository = replace(repository_of(tmp_path / "glow" / "glow.py"), root=tmp_path)
    assert repository.module_file(module) == (tmp_path / found if found is not None else None)


@pytest.mark.parametrize(("line", "root"), [("from .parts import Block", "."), ("from ..parts import Block", "..")])
def test_a_root_with_an_init_is_a_package_where_imports_start_above_it(line: str, root: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "models").mkdir(parents=True)
    for name in ("README.md", "LICENSE", "__init__.py", "models/__init__.py", "models/parts.py", "parts.py"):
        (folder / name).write_text("")
    (folder / "models" / "net.py").write_text(f"{line}\n")
    assert repository_of(folder / "models" / "net.py").root == (folder / root).resolve()


@pytest.mark.parametrize(("line", "root"), [("from models.parts import Block", "."), ("import torch", "..")])
def test_a_package_is_the_root_where_only_its_own_folder_resolves_imports(line: str, root: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    (folder / "models").mkdir(parents=True)
    for name in ("__init__.py", "models/__init__.py", "models/parts.py"):
        (folder / name).write_text("")
    (folder / "models" / "net.py").write_text(f"{line}\n")
    assert repository_of(folder / "models" / "net.py").root == (folder / root).resolve()


@pytest.mark.parametrize(("line", "root"), [
    ("from .parts.net import Net", ".."), ("from parts.net import Net", "."), ("from .parts import other, net", ".."),
    ("from .parts import networks", "parts"),
])  # fmt: skip
def test_relative_imports_of_files_above_it_make_a_package(line: str, root: str, tmp_path: Path) -> None:
    folder = tmp_path / "project" / "models"
    (folder / "parts").mkdir(parents=True)
    for name in ("README.md", "LICENSE", "models/__init__.py"):
        (tmp_path / "project" / name).write_text("")
    (folder / "process.py").write_text(f"{line}\n")
    (folder / "parts" / "net.py").write_text("from torch import nn\n")
    assert repository_of(folder / "parts" / "net.py").root == (folder / root).resolve()
