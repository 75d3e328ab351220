"""VEO402: a generated file is what its config generates, for omni-kit's generator and for VeOmni's."""

import ast
from pathlib import Path

import pytest

from omni_checkers.veomni.facts import regenerate
from omni_kit.patchgen import run_config
from tests.conftest import first

from .conftest import Edits, Subject, found, status

OLMOE = "generated/patched_modeling_olmoe_gpu.py"
LLAMA = "generated/patched_modeling_llama_gpu.py"
CONFIG = "olmoe_gpu_patch_gen_config.py"


@pytest.mark.parametrize(
    ("model", "edits", "says"),
    [
        ("olmoe", {OLMOE: ("return q_embed, k_embed", "return k_embed, q_embed")}, "apply_rotary_pos_emb"),
        ("olmoe", {OLMOE: ("def rotate_half(", "EXTRA = 1\n\n\ndef rotate_half(")}, "EXTRA"),
        ("olmoe", {OLMOE: ("import torch\n", "import torch\nimport math\n")}, "this statement"),
        ("olmoe", {CONFIG: ("self.variance_epsilon)", "1e-6)")}, "OlmoeRMSNorm"),
        ("olmoe", {CONFIG: ('"OlmoeExperts"', '"OlmoeExpert"')}, "no longer generates"),
        ("olmoe", {CONFIG: ("config = PatchConfig(", "config = PatchConfig(\n    nothing=1,")}, "no longer generates"),
        ("llama", {LLAMA: ("return q_embed, k_embed", "return k_embed, q_embed")}, "apply_rotary_pos_emb"),
        ("llama", {LLAMA: ("class LlamaModel(", "class LlamaModels(")}, "LlamaModel"),
        ("llama", {LLAMA: ("Rotates half", "Turns half")}, "rotate_half"),
        ("llama", {LLAMA: ("from torch import nn\n", "import math\nfrom torch import nn\n")}, "this statement"),
        ("llama", {LLAMA: ("from torch import nn\n", "")}, "from torch import nn is missing"),
        ("llama", {LLAMA: ("import Cache, DynamicCache", "import Cache as DynamicCache")}, "this statement"),
        ("llama", {LLAMA: ("logger = logging.get_logger(__name__)\n", "")}, "logger is missing"),
    ],
)
def test_a_file_that_differs(model: str, edits: Edits, says: str, subject: Subject) -> None:
    findings = found(subject(model, edits), "VEO402")
    assert [says in finding.message for finding in findings] == [True]


@pytest.mark.parametrize("model", ["llama", "qwen3_moe", "gpt_oss"])
def test_a_file_of_veomnis_own_generator_is_fine(model: str, subject: Subject) -> None:
    assert status(subject(model), "VEO402") == "pass"


@pytest.mark.parametrize(
    ("model", "edits"),
    [
        ("olmoe", {OLMOE: ("import torch\n", "# a remark\nimport torch\n\n")}),
        ("llama", {LLAMA: ("import torch\nfrom torch import nn\n", "from torch import nn\nimport torch\n")}),
        ("llama", {LLAMA: ('"""Rotates half the hidden', '"""\n    Rotates half the hidden')}),
    ],
)
def test_formatting_and_comments_do_not_count(model: str, edits: Edits, subject: Subject) -> None:
    assert status(subject(model, edits), "VEO402") == "pass"


@pytest.mark.parametrize("model", first(2, ["llama", "qwen3_vl_moe", "deepseek_v3", "qwen3_5"]))
def test_what_is_told_without_formatting_is_what_formatting_tells(
    model: str, veomni_models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert status(veomni_models / model, "VEO402") == "pass"
    monkeypatch.setattr(regenerate, "_same_unformatted", lambda *_: False)
    assert status(veomni_models / model, "VEO402") == "pass"


def test_after_running_the_config_again_all_is_well(subject: Subject) -> None:
    path = subject(edits={CONFIG: ("self.variance_epsilon)", "1e-6)")})
    assert found(path, "VEO402")
    run_config(path / CONFIG)
    assert status(path, "VEO402") == "pass"


def test_the_line_is_that_of_the_edit(subject: Subject) -> None:
    path = subject(edits={OLMOE: ("    return q_embed, k_embed", "    return k_embed, q_embed")})
    (finding,) = found(path, "VEO402")
    assert finding.generated is not None
    file, line = finding.generated
    assert file == path / OLMOE
    assert file.read_text(encoding="utf-8").splitlines()[line - 1] == "    return k_embed, q_embed"


def test_only_statements_that_veomnis_generator_drops_may_be_missing(subject: Subject) -> None:
    """A top-level if is dropped by it; a function is not."""
    path = subject("llama")
    file = path / LLAMA
    tree = ast.parse(file.read_text(encoding="utf-8"))
    tree.body = [node for node in tree.body if getattr(node, "name", "") != "rotate_half"]
    header = file.read_text(encoding="utf-8").partition("\n\n")[0]
    file.write_text(f"{header}\n\n{ast.unparse(tree)}\n", encoding="utf-8")
    (finding,) = found(path, "VEO402")
    assert finding.message.startswith("rotate_half is missing")


def test_without_a_config_there_is_nothing_to_compare(subject: Subject) -> None:
    path: Path = subject(edits={CONFIG: None})
    assert status(path, "VEO402") == "not-applicable: the directory has no patch config"


def test_a_diff_that_is_not_the_files(subject: Subject) -> None:
    path = subject()
    run_config(path / CONFIG, diff=True)
    assert status(path, "VEO402") == "pass"
    diff = (path / OLMOE).with_suffix(".diff")
    diff.write_text(f"{diff.read_text(encoding='utf-8')}+more\n", encoding="utf-8")
    (finding,) = found(path, "VEO402")
    assert (finding.rule, finding.path) == ("VEO402.4", diff)
