"""The configs that VeOmni ships run unmodified and give what VeOmni commits."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from omni_kit.patchgen import ConfigResult
from omni_kit.patchgen.header import read_header
from tests.patchgen.conftest import VEOMNI_CONFIGS

NAMES = [path.stem for path in VEOMNI_CONFIGS]
Results = dict[str, ConfigResult]


def module_code(text: str) -> str:
    """A module without its docstring, which VeOmni's generator moves behind the imports."""
    tree = ast.parse(text)
    tree.body = [n for n in tree.body if not (isinstance(n, ast.Expr) and isinstance(n.value, ast.Constant))]
    return ast.dump(tree)


def test_there_are_all_of_them() -> None:
    assert len(VEOMNI_CONFIGS) == 29


@pytest.mark.parametrize("name", NAMES)
def test_result_equals_what_is_committed(name: str, veomni_results: Results) -> None:
    result = veomni_results[name]
    assert result.path is not None
    committed = result.path.parent / "generated" / result.target_file
    assert result.status == "written", result.diagnostics
    assert module_code(result.text) == module_code(committed.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_every_patch_is_applied_and_recorded(name: str, veomni_results: Results) -> None:
    result = veomni_results[name]
    assert result.patches
    assert {a.status for a in result.patches} <= {"applied", "injected", "shadowed"}
    recorded = read_header(result.text)
    assert set(recorded) == {f"{a.patch.kind} {a.patch.target}" for a in result.patches if a.done}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_needs_real_imports(name: str, veomni_results: Results) -> None:
    assert veomni_results[name].notes == []


def test_injecting_is_said_aloud(veomni_results: Results) -> None:
    injected = [a for r in veomni_results.values() for a in r.patches if a.status == "injected"]
    said = [d for r in veomni_results.values() for d in r.diagnostics if d.code == "injected"]
    assert len(injected) == len(said) > 60


def test_upstream_comments_above_the_code_stay(veomni_results: Results) -> None:
    for result in veomni_results.values():
        assert result.generated is not None
        upstream = result.generated.source.text
        licence = upstream[: upstream.index("import ")].rpartition("\n")[0]
        kept = [line for line in licence.splitlines() if line.startswith("#")]
        assert all(line in result.text for line in kept)


def test_result_knows_no_path_of_this_machine(veomni_results: Results) -> None:
    for result in veomni_results.values():
        assert str(Path(sys.prefix)) not in result.text
        assert "site-packages" not in result.text


def test_nothing_heavy_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from omni_kit.patchgen import run_config\n"
        f"run_config({str(VEOMNI_CONFIGS[0])!r}, Path({str(tmp_path)!r}))\n"
        "print([m for m in ('torch', 'transformers', 'veomni', 'libcst', 'rich') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_diff_lies_beside_and_leads_to_the_result(veomni_results: Results) -> None:
    result = veomni_results["qwen3_moe_gpu_patch_gen_config"]
    assert result.output is not None
    assert result.output.with_suffix(".diff").read_text(encoding="utf-8") == result.diff
    assert result.diff.startswith("--- a/transformers/models/qwen3_moe/modeling_qwen3_moe.py\n+++ b/patched_modeling_")
    added = [line[1:] for line in result.diff.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert all(line in result.text for line in added)


def test_duplicate_decorator_of_upstream_is_named(veomni_results: Results) -> None:
    codes = {d.code for d in veomni_results["qwen3_omni_moe_gpu_patch_gen_config"].diagnostics}
    assert "duplicate-decorator" in codes
