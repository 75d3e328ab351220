"""The library replaces attributes with `omni_kit.targets.replacing`; mocks stay in tests."""

import ast

import pytest

from .imports import modules


def mocks(text: str) -> list[int]:
    """Return the lines that import or name `unittest.mock` or pytest's MonkeyPatch."""
    found: set[int] = set()
    if "mock" not in text and "MonkeyPatch" not in text:
        return []
    for node in ast.walk(ast.parse(text)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        names += [f"{node.module}.{name}" for name in names] if isinstance(node, ast.ImportFrom) else []
        names += [ast.unparse(node)] if isinstance(node, ast.Attribute) else []
        if any(f"{name}.".startswith(("unittest.mock.", "mock.", "pytest.MonkeyPatch.")) for name in names):
            found.add(getattr(node, "lineno", 0))
    return sorted(found)


@pytest.mark.parametrize("text", [
    "from unittest.mock import patch", "from unittest import mock", "import unittest.mock as m", "import mock",
    "import unittest\nunittest.mock.patch('a')", "from pytest import MonkeyPatch",
])  # fmt: skip
def test_a_mock_is_seen(text: str) -> None:
    assert mocks(text)


@pytest.mark.parametrize("text", ["from omni_kit.targets.replacing import replaced", "from mockery import patch"])
def test_what_is_no_mock_is_left_alone(text: str) -> None:
    assert not mocks(text)


def test_the_library_uses_no_mock() -> None:
    found = {module: mocks(file.read_text(encoding="utf-8")) for module, file in modules().items()}
    assert not {module: lines for module, lines in found.items() if lines}
