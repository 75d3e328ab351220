"""An integration's own tests and its remaining to-dos."""

import io
import re
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omni_kit.errors import MissingRequirement
from omni_kit.files import files_matching
from omni_kit.isolation.requests import run_worker
from omni_kit.targets.protocol import TODO_MARK

_TIMEOUT = 900.0
_FOLDER = "tests"
_COUNTED = re.compile(r"(\d+) (passed|failed|error|skipped)")


def own_tests(directory: Path) -> list[Path]:
    """Return the files of tests in an integration's own directory."""
    return [*files_matching(directory, f"{_FOLDER}/**/test_*.py")]


def run_own_tests(directory: Path) -> dict[str, Any]:
    """Run them in a process of their own; the counts by outcome, and as `last` the first failure in one line.

    Raises:
        MissingRequirement: pytest is not installed.
        StepError: they ended their process, or took too long.
    """
    if find_spec("pytest") is None:
        raise MissingRequirement("its tests need pytest, which is not installed", "pip install pytest")
    found: dict[str, Any] = run_worker(
        f"{__name__}:ran", str(directory.resolve()), timeout=_TIMEOUT, path=[directory.resolve().parent]
    )
    return found


def ran(directory: str) -> dict[str, Any]:
    """Run the tests of a directory in this process."""
    import pytest

    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(said):
        code = pytest.main(
            [f"{directory}/{_FOLDER}", "-q", "--tb=line", "-p", "no:cacheprovider", "--rootdir", directory]
        )
    lines = [line for line in said.getvalue().splitlines() if line.strip()]
    counts = {what: int(number) for number, what in _COUNTED.findall(lines[-1] if lines else "")}
    failed = next((line for line in lines if line.startswith(("FAILED", "ERROR", "E  "))), lines[-1] if lines else "")
    return {**counts, "code": int(code), "last": failed[:300]}


def left_to_do(directory: Path) -> Iterator[str]:
    """Yield every to-do of the files in a directory: "path:line what"."""
    for file in files_matching(directory, "**/*.py"):
        for number, line in enumerate(file.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if f"{TODO_MARK}: " in line:
                where = f"{file.relative_to(directory).as_posix()}:{number}"
                yield f"{where} {line.partition(f'{TODO_MARK}: ')[2].strip()}"
