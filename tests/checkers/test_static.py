"""The default level reads and runs nothing of what it judges; what the other levels run has a limit."""

import os
import sys
import time
from pathlib import Path

import pytest

from omni_checkers.engine import apart
from omni_checkers.veomni.runs import experiment
from tests.conftest import run_cli

from .conftest import Subject

CONFIG = "olmoe_gpu_patch_gen_config.py"
PLANTED = [
    "from pathlib import Path\nPath('planted').write_text('x')",
    "open('planted', 'w').write('x')",
    "import os\nos.system('touch planted')",
    "import os\nos._exit(0)",
    "import sys\nsys.exit(0)",
    "raise SystemExit(0)",
    "while True:\n    pass",
    "import omni_checkers.engine.judge as judge\njudge.judge = lambda *a, **k: {}",
    "import gc\n[o.clear() for o in gc.get_objects() if isinstance(o, list)]",
    "import torch\ntorch.plant()",
]


@pytest.mark.parametrize("code", PLANTED)
def test_code_of_a_config_does_not_run(code: str, subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is wrong besides is found all the same."""
    path = subject(
        edits={
            CONFIG: ("config = PatchConfig(", f"{code}\n\nconfig = PatchConfig("),
            "torch.py": f"{code}\n",
            "parallel_plan.py": "import os\n\nos._exit(0)\n",
            "olmoe_npu_patch_gen_config.py": f"{code}\n",
        }
    )
    monkeypatch.chdir(path)
    exit_code, answer = run_cli("check", str(path), "--no-cache")
    rules = {finding["rule"] for finding in answer["findings"]}
    assert exit_code == 1
    assert "VEO414" in rules  # the config for NPUs has no PatchConfig
    assert not (path / "planted").exists()


def test_a_config_that_cannot_be_read_is_said_where_it_matters(subject: Subject) -> None:
    path = subject(edits={CONFIG: ("config = PatchConfig(", "exec('x = 1')\n\nconfig = PatchConfig(")})
    _, answer = run_cli("check", str(path), "--no-cache")
    found = [finding for finding in answer["findings"] if "without running it: it uses exec" in finding["message"]]
    assert [(one["rule"], Path(one["path"]).name, one["severity"]) for one in found] == [("VEO402", CONFIG, "error")]
    text = (path / CONFIG).read_text(encoding="utf-8").splitlines()
    assert text[found[0]["line"] - 1] == "exec('x = 1')"


def test_a_run_has_a_limit_and_nothing_goes_on_behind_it(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "open('child', 'w').write(str(child.pid)); time.sleep(60)"
    )
    started = time.perf_counter()
    said = apart.run_limited([sys.executable, "-c", code], "", os.environ, str(tmp_path), 2.0)
    assert said == "gave no answer in 2 seconds"
    assert time.perf_counter() - started < 20
    child = int((tmp_path / "child").read_text(encoding="utf-8"))
    while time.perf_counter() - started < 20 and _runs(child):
        time.sleep(0.05)  # a signal takes a moment
    assert not _runs(child)


def _runs(process: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return ") Z " not in Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return False


def test_a_run_that_ends_without_an_answer_says_so(tmp_path: Path) -> None:
    said = apart.run_limited([sys.executable, "-c", "print('fine')"], "", os.environ, str(tmp_path), 20.0)
    assert said == "ended with code 0 and no answer: no message"


def test_a_model_that_hangs_on_import_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experiment, "IMPORT_LIMIT", 0.2)
    monkeypatch.setattr(experiment, "_imported", lambda model: time.sleep(60))
    assert experiment._apart({})["error"] == "gave no answer in 0 seconds"
