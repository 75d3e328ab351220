"""Versions that a repository pins."""

from importlib.metadata import version
from pathlib import Path

import pytest

from omni_kit.upstream.repositories.pins import other_versions
from omni_kit.upstream.repositories.repository import REPOSITORY, Repository

INSTALLED = version("numpy")


@pytest.mark.parametrize(("file", "line", "told"), [
    ("requirements.txt", "numpy==0.1.2", f"numpy==0.1.2 (installed: {INSTALLED})"),
    ("setup.py", "setup(install_requires=[\n    'numpy==0.1.2',\n])", f"numpy==0.1.2 (installed: {INSTALLED})"),
    ("requirements.txt", f"numpy=={INSTALLED}", ""),
    ("requirements.txt", "numpy>=0.1", ""),
    ("requirements.txt", "scipy==0.1", ""),  # the model does not need it
    ("notes.txt", "numpy==0.1.2", ""),
])  # fmt: skip
def test_another_major_version_is_reported(file: str, line: str, told: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(line)
    assert other_versions(Repository(REPOSITORY, tmp_path), ["numpy", "scipy_of_nobody"]) == told
