"""Finding libraries without importing them."""

import subprocess
import sys
from pathlib import Path

import pytest

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.pysource.library import Library, find_library


def test_installed_version_is_read(library: Library) -> None:
    import transformers

    assert library.version == transformers.__version__
    assert library.root == Path(transformers.__file__).parent


def test_nothing_is_imported() -> None:
    code = (
        "import sys; from omni_kit.pysource.library import find_library; find_library('transformers').version;"
        "print(sorted(m for m in ('torch', 'transformers') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("inside", ["", "transformers", "src/transformers"])
def test_unpacked_library_is_found(tmp_path: Path, inside: str) -> None:
    package = tmp_path / "src" / "transformers" if inside.startswith("src") else tmp_path / "transformers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "9.9.9"\n')
    given = tmp_path / inside if inside == "transformers" else tmp_path
    assert find_library("transformers", given).version == "9.9.9"


def test_a_directory_without_it_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="contains no transformers package"):
        find_library("transformers", tmp_path)


def test_absent_library_names_the_command() -> None:
    with pytest.raises(MissingRequirement) as error:
        find_library("no_such_library_at_all")
    assert error.value.hint == "pip install no_such_library_at_all"


def test_modules_and_files_correspond(library: Library) -> None:
    module = "transformers.models.olmoe.modeling_olmoe"
    file = library.module_file(module)
    assert file is not None
    assert library.module_name(file) == module
    assert library.module_file("torch.nn") is None
    assert library.module_file("transformers.no_such_module") is None
