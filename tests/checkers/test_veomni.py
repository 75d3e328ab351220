"""The rules on all of VeOmni: every finding there is a defect that was proven by a run."""

from collections import Counter
from pathlib import Path

import pytest

from omni_checkers import Report, check

KNOWN = {
    # Per-expert checkpoints, which transformers writes and reads, leave the stacked experts randomly initialised:
    # "Find missing key(s) in state dict: {'model.layers.3.mlp.experts.down_proj', ...}, initialize them."
    ("VEO204", "glm_moe_dsa"): 2,
    ("VEO204", "qwen3_5_moe"): 2,
}


@pytest.fixture(scope="module")
def report(veomni_models: Path) -> Report:
    return check([veomni_models.parents[1]])


def test_the_findings_are_the_known_defects(report: Report) -> None:
    assert Counter((finding.rule, _model(finding.path)) for finding in report.findings) == KNOWN


def _model(path: Path) -> str:
    return path.parts[path.parts.index("transformers") + 1]


def test_every_model_that_registers_was_looked_at(report: Report) -> None:
    assert {path.name for path in report.models} >= {"deepseek_v3", "qwen3_moe", "qwen3_omni_moe", "llama", "flux"}
    assert len(report.models) >= 20
    assert report.files > 100


@pytest.mark.parametrize("model", ["deepseek_v3", "deepseek_v4", "qwen3_moe", "qwen3_omni_moe", "qwen3_vl_moe"])
def test_rules_about_experts_judge_models_with_experts(model: str, report: Report) -> None:
    """Precision by looking away would be worth nothing."""
    judged = {result.rule for result in report.results if result.model.name == model and result.status == "pass"}
    assert judged >= {
        "VEO101",
        "VEO102",
        "VEO103",
        "VEO201",
        "VEO203",
        "VEO301",
        "VEO302",
        "VEO401",
        "VEO402",
        "VEO403",
    }


def test_reasons_are_given_for_what_was_not_judged(report: Report) -> None:
    assert all(result.reason for result in report.results if result.status == "not-applicable")


def test_torch_is_not_imported(veomni_models: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from pathlib import Path; from omni_checkers import check;"
        f"check([Path({str(veomni_models / 'qwen3_moe')!r})]);"
        "print(sorted({'torch', 'transformers', 'veomni', 'omni_kit.cli', 'omni_kit.scaffold'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_same_run_gives_the_same_report(veomni_models: Path) -> None:
    path = veomni_models / "glm_moe_dsa"
    first, second = check([path]), check([path])
    assert first.as_json() == second.as_json()
