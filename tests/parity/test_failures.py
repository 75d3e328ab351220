"""Which errors say that something has to be installed, and which are an integration's own."""

import importlib

import pytest

from omni_kit.errors import MissingRequirement
from omni_kit.parity.processes.failures import lacking_package, lacks_package, one_line


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
        importlib.import_module("no_such_package")

    assert one_line(caught.value).startswith("ModuleNotFoundError: No module named 'no_such_package' (")
