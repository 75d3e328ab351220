"""The default level reads and runs nothing of what it judges; what the other levels run has a limit."""

from pathlib import Path

import pytest

from omni_kit.diagnostics.definition import family_of
from tests.conftest import first, run_cli

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


@pytest.mark.parametrize("code", first(4, PLANTED))
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
    rules = {family_of(finding["rule"]) for finding in answer["findings"]}
    assert exit_code == 1
    assert "VEO414" in rules  # the config for NPUs has no PatchConfig
    assert not (path / "planted").exists()


def test_a_config_that_cannot_be_read_is_said_where_it_matters(subject: Subject) -> None:
    path = subject(edits={CONFIG: ("config = PatchConfig(", "exec('x = 1')\n\nconfig = PatchConfig(")})
    _, answer = run_cli("check", str(path), "--no-cache")
    found = [finding for finding in answer["findings"] if "without running it: it uses exec" in finding["message"]]
    assert [(one["rule"], Path(one["path"]).name, one["severity"]) for one in found] == [("VEO402.1", CONFIG, "error")]
    text = (path / CONFIG).read_text(encoding="utf-8").splitlines()
    assert text[found[0]["line"] - 1] == "exec('x = 1')"
