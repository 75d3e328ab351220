"""An integration's own tests."""

import io
import os
import re
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from omni_kit.errors import MissingRequirement
from omni_kit.files import files_matching
from omni_kit.isolation.requests import run_worker
from omni_kit.isolation.servers import Start, fork_server
from omni_kit.isolation.worker import environment
from omni_kit.parity.processes.workers import SERVICE

_TIMEOUT = 900.0
_FOLDER = "tests"
_COUNTED = re.compile(r"(\d+) (passed|failed|error|skipped)")


def own_tests(directory: Path) -> list[Path]:
    """Return the files of tests in an integration's own directory."""
    return [*files_matching(directory, f"{_FOLDER}/**/test_*.py")]


def run_own_tests(directory: Path, modules: Sequence[str] = ()) -> dict[str, Any]:
    """Run them in a process of their own; the counts by outcome, and as `last` the first failure in one line.

    Args:
        modules: what the sides of a comparison import in any case: tests that compare find it imported.

    Raises:
        MissingRequirement: pytest is not installed.
        StepError: they ended their process, or took too long.
    """
    if find_spec("pytest") is None:
        raise MissingRequirement("its tests need pytest, which is not installed", "pip install pytest")
    request = {"directory": str(directory.resolve()), "modules": [*modules]}
    found: dict[str, Any] = run_worker(f"{__name__}:ran", request, timeout=_TIMEOUT, modules=modules, threads=None)
    return found


def ran(request: dict[str, Any]) -> dict[str, Any]:
    """Run the tests of a directory in this process, which finds its package."""
    modules, directory = tuple(request["modules"]), request["directory"]
    above = str(Path(directory).parent)
    sys.path.insert(0, above)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [above, os.environ.get("PYTHONPATH")]))
    fork_server(Start((), environment(SERVICE, (), None), "", modules))
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
