"""Which errors say that something has to be installed, and which are an integration's own."""

import importlib
import json
import shutil
from pathlib import Path

import pytest

from omni_kit.errors import BadInput, MissingRequirement
from omni_kit.isolation.failures import install, lacking_package, lacks_package, one_line
from omni_kit.parity import run_parity

OLMOE = Path(__file__).parents[2] / "reference_models" / "veomni" / "olmoe"


def raised(statement: str) -> Exception:
    try:
        exec(statement, {})
    except Exception as error:
        return error
    raise AssertionError(f"{statement} raises nothing")


@pytest.mark.parametrize(
    ("error", "package"),
    [
        (raised("import no_such_package.part"), "no_such_package"),
        (raised("raise ImportError('`kernels` is not installed')"), ""),
        (MissingRequirement("torch is not installed", "pip install torch"), ""),
    ],
)
def test_what_has_to_be_installed(error: Exception, package: str) -> None:
    assert lacks_package(error)
    assert lacking_package(error) == package


def test_a_lazy_import_names_the_package_behind_it() -> None:
    """As transformers raises it: the missing package is the cause of an error that names none."""
    lazy = "try:\n    import no_such_package\nexcept ImportError as e:\n    raise ModuleNotFoundError('no Auto') from e"
    error = raised(lazy)
    assert lacking_package(error) == "no_such_package"
    assert one_line(error) == "no_such_package is not installed; <string>:2 imports it: pip install no_such_package"


@pytest.mark.parametrize(
    "error",
    [
        raised("from json import no_such_name"),
        raised("import json.no_such_module"),
        raised("raise ValueError('wrong')"),
    ],
)
def test_what_is_the_integrations_own_fault(error: Exception) -> None:
    assert not lacks_package(error)
    assert not lacking_package(error)


def test_the_line_names_the_error_and_its_place() -> None:
    with pytest.raises(ModuleNotFoundError) as caught:
        importlib.import_module("json.no_such_module")

    assert one_line(caught.value).startswith("ModuleNotFoundError: No module named 'json.no_such_module' (")


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("num_hidden_layers", 10**9, "num_hidden_layers is 1000000000"),
        ("hidden_size", [1], r"hidden_size is \[1\]"),
        ("num_experts", 10**30, "num_experts is"),
    ],
)
def test_a_toy_that_is_no_config_is_bad_input_at_once(key: str, value: object, says: str, tmp_path: Path) -> None:
    shutil.copytree(OLMOE, tmp_path / "olmoe")
    file = tmp_path / "olmoe" / "toy_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(BadInput, match=says):
        run_parity(tmp_path / "olmoe")


@pytest.mark.parametrize(("module", "package"), [("pywt", "PyWavelets"), ("einops", "einops")])
def test_a_module_is_installed_by_the_name_that_pip_knows(module: str, package: str) -> None:
    assert install(module) == f"pip install {package}"
