"""Findings about generated code are told where people write it: the patch config first, the generated file second."""

import json
from pathlib import Path

import pytest

from omni_checkers import Finding, check
from omni_checkers.engine.cache import Cache
from omni_kit.diagnostics.github import as_github
from omni_kit.diagnostics.sarif import as_sarif
from omni_kit.patchgen import run_config
from tests.conftest import run_cli

from .conftest import Subject

CONFIG = "olmoe_gpu_patch_gen_config.py"
GENERATED = "generated/patched_modeling_olmoe_gpu.py"
LINE = "    variance = hidden_states.pow(2).mean(-1, keepdim=True)"
PATCH = f'''

@config.override_method("OlmoeMLP.forward", description="a kernel by hand")
def mlp_forward(self, hidden_states):
    """Runs the block."""
    gate = self.gate_proj(hidden_states)
{LINE}
    return self.down_proj(unheard_of(gate) * variance)
'''


@pytest.fixture
def wrong(subject: Subject) -> Path:
    """A model whose config brings a name that is not defined; the generated file is edited to match."""
    path = subject()
    config = path / CONFIG
    config.write_text(config.read_text(encoding="utf-8") + PATCH.replace("unheard_of", "abs"), encoding="utf-8")
    assert run_config(config).status == "written"
    for file in (config, path / GENERATED):
        text = file.read_text(encoding="utf-8")
        file.write_text(text.replace("abs(gate)", "unheard_of(gate)"), encoding="utf-8")
    return path


def text_at(path: Path, line: int) -> str:
    return path.read_text(encoding="utf-8").splitlines()[line - 1]


def undefined(path: Path) -> Finding:
    (finding,) = check([path], select=["VEO403"]).findings
    return finding


def test_the_line_of_the_config_comes_first(wrong: Path) -> None:
    finding = undefined(wrong)
    assert finding.path == wrong / CONFIG
    assert "unheard_of(gate)" in text_at(finding.path, finding.line)
    assert finding.generated is not None
    assert finding.generated[0] == wrong / GENERATED
    assert "unheard_of(gate)" in text_at(*finding.generated)


def test_upstreams_own_code_leads_to_the_config_itself(subject: Subject) -> None:
    path = subject(edits={GENERATED: ("return torch.cat((-x2, x1), dim=-1)", "return torch.cat((-x3, x1), dim=-1)")})
    finding = undefined(path)
    assert finding.path == path / CONFIG
    assert text_at(finding.path, finding.line).startswith("config = PatchConfig(")


def test_a_file_that_no_config_makes_is_named_itself(subject: Subject) -> None:
    path = subject(edits={CONFIG: None, GENERATED: ("-x2, x1", "-x3, x1")})
    finding = undefined(path)
    assert (finding.path, finding.generated) == (path / GENERATED, None)


def test_code_elsewhere_is_named_itself(subject: Subject) -> None:
    (finding,) = check([subject(edits={"__init__.py": ('register("olmoe")', 'register("olmo_e")')})]).findings
    assert finding.generated is None


def test_a_comment_in_the_config_silences_it(wrong: Path) -> None:
    config = wrong / CONFIG
    comment = "  # omni-kit: ignore[VEO403] bound at run time"
    text = config.read_text(encoding="utf-8").replace("* variance)", f"* variance){comment}")
    config.write_text(text, encoding="utf-8")
    report = check([wrong], select=["VEO403"])
    assert (report.findings, report.suppressed) == ([], 1)


def test_every_form_says_both(wrong: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = run_cli("check", str(wrong), "--select", "VEO403")
    (said,) = answer["findings"]
    assert (code, Path(said["path"]).name, Path(said["generated"]["path"]).name) == (1, CONFIG, Path(GENERATED).name)
    report = check([wrong], select=["VEO403"])
    assert GENERATED in next(as_github(report))
    (result,) = as_sarif(report)["runs"][0]["results"]
    assert GENERATED in json.dumps(result["relatedLocations"])
    cache = Cache(tmp_path / "cache")
    assert check([wrong], cache=cache).findings == check([wrong], cache=cache).findings
