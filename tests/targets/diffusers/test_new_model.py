"""From a repository to an integration that is proven: as a plugin, and in a checkout."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omni_checkers import check
from omni_kit.errors import BadInput, Refusal
from omni_kit.formatting import ruff_binary
from omni_kit.parity import run_parity
from omni_kit.parity.processes.workers import Sides
from omni_kit.scaffold import new_model
from omni_kit.scaffold.new_model import Scaffold, rendered
from omni_kit.scaffold.render import templates_of
from omni_kit.targets.diffusers.transformer.plan import make_plan
from omni_kit.targets.protocol import NewFile, Request
from omni_kit.targets.registry import get_target
from omni_kit.upstream.subject import open_source

from .checkouts import copied_checkout

ROOT = Path(__file__).parents[3]
HERON = f"{ROOT / 'tests' / 'fixtures' / 'repositories' / 'heron'}::HeronNet"
LUMEN = f"{ROOT / 'reference_models' / 'diffusers' / '_upstream' / 'lumen'}::Lumen"
EXAMPLE = ROOT / "reference_models" / "diffusers" / "lumen"
MADE = (("lumen", LUMEN, "both"), ("heron_net", HERON, None))
LEVELS = ("import", "keys", "roundtrip", "forward", "backward", "modules")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of the installed diffusers, with two models made in it; the first with blocks."""
    root = copied_checkout(tmp_path_factory.mktemp("checkout"))
    for name, source, kind in MADE:
        assert not new_model(name, source, target="diffusers", style="in-tree", into=root, kind=kind).refused
    return root


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    """Two processes for the comparisons of this file whose packages have names of their own."""
    with Sides(tmp_path_factory.mktemp("sides")) as both:
        yield both


@pytest.mark.sweep
def test_a_repository_that_nothing_was_fitted_to_is_at_parity(tmp_path: Path, sides: Sides) -> None:
    made = new_model("heron_net", HERON, target="diffusers", into=tmp_path)
    assert any("attention is written out" in todo.what for todo in made.plan.todo)
    report = run_parity(tmp_path / "heron_net", LEVELS, sides=sides)
    assert [level.status for level in report.levels] == ["pass"] * len(LEVELS), report.levels


DOVE = """\
import torch
from torch import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(self.norm(x)).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        attn = (q @ k.transpose(-2, -1)) * (c // self.heads) ** -0.5
        attn = attn.softmax(dim=-1)
        return self.proj((attn @ v).transpose(1, 2).reshape(b, n, c))


class Dove(nn.Module):
    def __init__(self, in_channels=4, dim=64, depth=2, heads=4, text_dim=32):
        super().__init__()
        self.x_in, self.t_in, self.c_in = nn.Linear(in_channels, dim), nn.Linear(1, dim), nn.Linear(text_dim, dim)
        self.blocks = nn.ModuleList([Attention(dim, heads) for _ in range(depth)])
        self.out = nn.Linear(dim, in_channels)

    def forward(self, x, t, context):
        b, c, h, w = x.shape
        x = self.x_in(x.flatten(2).transpose(1, 2)) + (self.t_in(t[:, None]) + self.c_in(context).mean(1))[:, None]
        for block in self.blocks:
            x = x + block(x)
        return self.out(x).transpose(1, 2).reshape(b, c, h, w)
"""


@pytest.mark.sweep
def test_attention_that_was_written_out_is_at_parity(tmp_path: Path, sides: Sides) -> None:
    (tmp_path / "dove.py").write_text(DOVE, encoding="utf-8")
    made = new_model("dove_net", f"{tmp_path / 'dove.py'}::Dove", target="diffusers", into=tmp_path)
    assert "softmax" not in next(one.new for one in made.changes if one.path.endswith("transformer_dove_net.py"))
    report = run_parity(tmp_path / "dove_net", ("keys", "forward", "backward"), prove=True, sides=sides)
    assert report.ok, report.levels
    assert report.prove is not None
    assert any("to_q, to_k" in fault.name for fault in report.prove.planted)
    assert not report.prove.idle
    assert report.prove.located == report.prove.faults


@pytest.mark.sweep
def test_the_ports_own_tests_use_the_toy_that_the_authors_class_takes(tmp_path: Path) -> None:
    text = DOVE.replace("        self.x_in,", "        assert dim % 96 == 0\n        self.x_in,", 1)
    authors, into = tmp_path / "authors", tmp_path / "ports"
    authors.mkdir()
    (authors / "picky.py").write_text(text, encoding="utf-8")
    made = new_model("dove_toy", f"{authors / 'picky.py'}::Dove", target="diffusers", into=into)
    toy = json.loads((into / "dove_toy" / "toy_config.json").read_text(encoding="utf-8"))
    assert toy["dim"] % 96 == 0
    assert toy["_shapes"]["context"][-1] == toy["text_dim"]
    assert any(one.what == "toy" and f"dim={toy['dim']}" in one.reason for one in made.plan.decisions)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(into / "dove_toy" / "tests")],
        cwd=authors, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]
    again = new_model("dove_toy", f"{authors / 'picky.py'}::Dove", target="diffusers", into=into, dry_run=True)
    assert {change.action for change in again.changes} == {"unchanged"}  # though it runs nothing


def test_a_class_that_cannot_run_keeps_the_planned_toy(tmp_path: Path) -> None:
    text = DOVE.replace("        self.x_in,", "        raise ValueError('no such disk')\n        self.x_in,", 1)
    (tmp_path / "broken.py").write_text(text, encoding="utf-8")
    made = new_model("dove_off", f"{tmp_path / 'broken.py'}::Dove", target="diffusers", into=tmp_path)
    decision = next(one for one in made.plan.decisions if one.what == "toy")
    assert (decision.choice, "no such disk" in decision.reason) == ("not confirmed by running", True)


@pytest.mark.parametrize("runs", [True, False])
def test_a_pipeline_raises_where_no_run_can_compare_it(runs: bool, tmp_path: Path) -> None:
    text = FIXED if runs else FIXED.replace("__init__()\n", "__init__()\n        raise ValueError('no such disk')\n")
    (tmp_path / "fixed.py").write_text(text, encoding="utf-8")
    made = make_plan(open_source(f"{tmp_path / 'fixed.py'}::Fixed"), Request("dove_fixed", tmp_path)).confirm
    assert made is not None
    pipeline = rendered(made(), templates_of(get_target("diffusers"), "transformer"))[1][
        "dove_fixed/pipeline_dove_fixed.py"
    ]
    raises = ["raise NotImplementedError", "parity cannot compare them", "no such disk"]
    raises.append("sampling loop was analysed, and not proven")
    assert [one in pipeline for one in raises] == [not runs] * 4


FIXED = """import torch
from torch import nn


class Fixed(nn.Module):
    def __init__(self, num_classes=10, width=8):
        super().__init__()
        self.labels = nn.Embedding(num_classes, width)
        self.conv_in, self.conv_out = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, t, labels):
        return self.conv_out(self.conv_in(x) + self.labels(labels)[..., None, None] * t[:, None, None, None])


def sample(model, x, labels, num_steps):
    times = torch.linspace(1, 0, num_steps + 1)
    for now, later in zip(times[:-1], times[1:]):
        answer = model(x, now.expand(len(x)), labels)
        x = x + (later - now) * answer
    return x
"""


@pytest.mark.sweep
def test_written_tests_take_channels_that_no_argument_names_from_the_latents_of_the_toy(tmp_path: Path) -> None:
    (tmp_path / "fixed.py").write_text(FIXED, encoding="utf-8")
    new_model("dove_fixed", f"{tmp_path / 'fixed.py'}::Fixed", target="diffusers", into=tmp_path)
    written = (tmp_path / "dove_fixed" / "tests" / "test_dove_fixed.py").read_text(encoding="utf-8")
    assert "class_labels" in written
    assert 'LATENTS = tuple(SHAPES["x"])\nCHANNELS = LATENTS[1]\n' in written


def test_steps_that_became_invalid_python_are_a_to_do_and_the_pipeline_raises(tmp_path: Path) -> None:
    plan = make_plan(open_source(LUMEN), Request("lumen_off", tmp_path))
    templates = templates_of(get_target("diffusers"), "transformer")
    assert rendered(plan, templates)[0] is plan
    broken = replace(plan, files=[*plan.files, NewFile("lumen_off/authors_sampling.py", text="def sample(:\n")])
    _, files = rendered(broken, templates)
    assert "lumen_off/authors_sampling.py" not in files
    pipeline = files["lumen_off/pipeline_lumen_off.py"]
    assert "what was made of them is not valid (authors_sampling.py is not valid Python" in pipeline
    assert "raise NotImplementedError" in pipeline
    with pytest.raises(BadInput, match="not valid Python"):
        rendered(replace(broken, simpler=None), templates)
    assert plan.simpler is not None  # what a program says may be of several lines
    _, files = rendered(plan.simpler("it failed:\n    $ install it"), templates)
    assert "it failed: $ install it)" in files["lumen_off/pipeline_lumen_off.py"]


JOINED = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, in_channels=4, width=8):
        super().__init__()
        self.conv_in = nn.Conv2d(2 * in_channels, width, 3, padding=1)
        self.conv_out = nn.Conv2d(width, in_channels, 3, padding=1)

    def forward(self, x, t, cond{more}):
        x = self.conv_in(torch.cat([x, cond], dim=1)) + t[:, None, None, None]{text}
        return self.conv_out(x)
"""


@pytest.mark.parametrize(("more", "text", "prompt"), [
    ("", "", ""), (", txt", " + txt.mean((1, 2))[:, None, None, None]", "txt"),
])  # fmt: skip
def test_an_argument_of_the_size_of_latents_is_no_prompt(more: str, text: str, prompt: str, tmp_path: Path) -> None:
    (file := tmp_path / "authors" / "net.py").parent.mkdir()
    file.write_text(JOINED.format(more=more, text=text), encoding="utf-8")
    source, into = f"{file}::Net", tmp_path / "out"
    new_model("joined", source, target="diffusers", into=into)
    toy = json.loads((into / "joined/toy_config.json").read_text())
    assert ("encoder_hidden_states" in toy["_arguments"].values()) is bool(prompt)
    assert toy["_arguments"].get(prompt, "encoder_hidden_states") == "encoder_hidden_states"
    assert "cond" not in toy["_arguments"]
    pipeline = (into / "joined/pipeline_joined.py").read_text()
    assert ("def encode_prompt" in pipeline) is bool(prompt)
    again = new_model("joined", source, target="diffusers", into=into, dry_run=True)
    assert {change.action for change in again.changes} == {"unchanged"}


CLAMPED = """\
class Norm(nn.Module):
    def __init__(self, dim, eps=1e-12):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return self.weight * x / x.norm(dim=-1, keepdim=True).clamp(min=self.eps)


class Attention("""


@pytest.mark.sweep
def test_an_epsilon_that_changes_no_bit_is_idle(tmp_path: Path, sides: Sides) -> None:
    text = DOVE.replace("class Attention(", CLAMPED, 1).replace("nn.LayerNorm(dim)", "Norm(dim)")
    (tmp_path / "clamped.py").write_text(text, encoding="utf-8")
    new_model("dove_norm", f"{tmp_path / 'clamped.py'}::Dove", target="diffusers", into=tmp_path)
    proof = run_parity(tmp_path / "dove_norm", prove=True, sides=sides).prove
    assert proof is not None
    assert any(name.startswith("norm-epsilon-tenfold") for name in proof.idle)
    assert not any(name.startswith("norm-epsilon-tenfold") for name in proof.missed)


@pytest.mark.sweep
def test_faults_of_conversions_are_noticed_and_located(sides: Sides) -> None:
    report = run_parity(EXAMPLE, prove=True, sides=sides)
    assert report.ok
    assert report.prove is not None
    kinds = {fault.kind for fault in report.prove.planted}
    assert kinds >= {
        "norms-swapped", "layers-swapped", "gate-and-value-swapped", "chunks-out-of-order",
        "rotary-rows-of-the-other-kind",
    }  # fmt: skip
    assert report.prove.detected == report.prove.faults
    # One third of the authors' fused layer has no module of its own there: its attention is blamed. And of a norm whose
    # weight gets no gradient, every other gradient stays as it is.
    known = (
        "weight-left-as-initialised in transformer_blocks.0.attn.to_v",
        "weights-cut-off in transformer_blocks.0.norm2",
    )
    assert [one for one in report.prove.mislocated if not one.startswith(known)] == []


@pytest.mark.sweep
def test_a_wrong_conversion_is_found_and_blamed(tmp_path: Path, sides: Sides) -> None:
    """No round trip shows it: each shape is right."""
    new_model("lamp", LUMEN, target="diffusers", into=tmp_path)
    file = tmp_path / "lamp" / "conversion.py"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(".to_q.", ".Q.").replace(".to_k.", ".to_q.").replace(".Q.", ".to_k."))
    report = run_parity(tmp_path / "lamp", ("roundtrip", "forward"), sides=sides)
    assert {level.level: level.status for level in report.levels}["roundtrip"] == "pass"
    assert {level.level: level.status for level in report.levels}["forward"] == "fail"
    assert report.first_divergence is not None
    assert report.first_divergence.module == "transformer_blocks.0.attn"


@pytest.mark.sweep
def test_the_delivered_tests_pass(tmp_path: Path) -> None:
    shutil.copytree(EXAMPLE, tmp_path / "lumen")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "lumen/tests"],
        cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]


def test_a_new_model_can_be_imported_from_a_checkout(checkout: Path) -> None:
    asked = (
        "import diffusers, sys; from diffusers import LumenPipeline, LumenTransformer2DModel as M;"
        "from diffusers import HeronNetPipeline, HeronNetTransformer2DModel;"
        "assert diffusers.__file__.startswith(sys.argv[1]);"
        "from diffusers.loaders import LumenLoraLoaderMixin;"
        "from diffusers.loaders.peft import _SET_ADAPTER_SCALE_FN_MAPPING;"
        "assert issubclass(LumenPipeline, LumenLoraLoaderMixin);"
        "assert 'LumenTransformer2DModel' in _SET_ADAPTER_SCALE_FN_MAPPING;"
        "from diffusers.utils.dummy_pt_objects import LumenTransformer2DModel;"
        "from diffusers.utils.dummy_torch_and_transformers_objects import LumenPipeline;"
        "from diffusers import LumenModularPipeline, LumenBlocks;"
        "assert type(LumenModularPipeline().blocks) is LumenBlocks;"
        "from diffusers.utils.dummy_torch_and_transformers_objects import LumenModularPipeline, LumenBlocks;"
        "from diffusers.modular_pipelines.modular_pipeline import MODULAR_PIPELINE_MAPPING as T;"
        "from diffusers.pipelines.auto_pipeline import _get_model;"
        "assert T[_get_model('LumenPipeline')]() == 'LumenModularPipeline';"
        "from diffusers.loaders.single_file_model import SINGLE_FILE_LOADABLE_CLASSES as S;"
        "print(M.__module__, S['LumenTransformer2DModel']['checkpoint_mapping_fn'].__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", asked, str(checkout)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
    )  # fmt: skip
    expected = ["diffusers.models.transformers.transformer_lumen", "convert_lumen_transformer_checkpoint_to_diffusers"]
    assert done.stdout.split() == expected, done.stderr[-2000:]


def test_blocks_lie_beside_and_the_gate_finds_nothing_in_either(checkout: Path) -> None:
    package = checkout / "src" / "diffusers"
    standard, blocks = package / "pipelines" / "lumen", package / "modular_pipelines" / "lumen"
    assert "class LumenModularPipeline(ModularPipeline, LumenLoraLoaderMixin, FromSingleFileMixin):" in (
        blocks / "modular_pipeline.py"
    ).read_text(encoding="utf-8")
    report = check([standard, blocks], target="diffusers")
    assert not [one for one in report.findings if any(one.path.is_relative_to(home) for home in (standard, blocks))]
    pages = (checkout / "docs" / "source" / "en" / "_toctree.yml").read_text(encoding="utf-8")
    assert "  - local: api/modular_diffusers/lumen\n    title: LumenModularPipeline\n" in pages


def test_the_mixin_for_lora_is_a_copy_for_its_own_model(checkout: Path) -> None:
    text = (checkout / "src" / "diffusers" / "loaders" / "lora_pipeline.py").read_text(encoding="utf-8")
    own = text.partition("class LumenLoraLoaderMixin")[2].partition("\nclass ")[0]
    assert "Specific to [`LumenPipeline`]" in own
    copied = [line for line in own.splitlines() if "# Copied from" in line]
    assert len(copied) == own.count("    def ")
    assert [line for line in copied if "->" in line and not line.endswith("->LumenTransformer2DModel")] == []
    test = (checkout / "tests" / "lora" / "test_lora_layers_lumen.py").read_text(encoding="utf-8")
    assert "LumenPipeline.save_lora_weights" in test
    assert "target_modules=['to_q', 'to_k', 'to_v']".replace("'", '"') in test


def test_both_forms_of_lazy_imports_have_the_names_in_order(checkout: Path) -> None:
    text = (checkout / "src" / "diffusers" / "__init__.py").read_text(encoding="utf-8")
    lines = [line.strip() for line in text.splitlines()]
    assert lines.index('"LumenTransformer2DModel",') == lines.index('"LTXVideoTransformer3DModel",') + 1
    assert lines.index("LumenPipeline,") > lines.index('"LumenPipeline",')
    pages = (checkout / "docs" / "source" / "en" / "_toctree.yml").read_text(encoding="utf-8").splitlines()
    assert pages[5:7] == ["  - local: api/models/lumen_transformer2d", "    title: LumenTransformer2DModel"]


@pytest.fixture(scope="module")
def again(checkout: Path) -> Scaffold:
    """What a second time would write."""
    return new_model("lumen", LUMEN, target="diffusers", style="in-tree", into=checkout, kind="both", dry_run=True)


@pytest.mark.sweep
def test_a_second_time_nothing_changes(again: Scaffold) -> None:
    assert {change.action for change in again.changes} == {"unchanged"}


@pytest.mark.sweep
@pytest.mark.parametrize(("name", "source", "kind"), MADE[1:])
def test_a_second_time_nothing_changes_of_another(name: str, source: str, kind: str | None, checkout: Path) -> None:
    again = new_model(name, source, target="diffusers", style="in-tree", into=checkout, kind=kind, dry_run=True)
    assert {change.action for change in again.changes} == {"unchanged"}


@pytest.mark.sweep
def test_what_is_written_is_formatted_as_the_checkout_says(checkout: Path, again: Scaffold) -> None:
    files = [change.path for change in again.changes if change.path.endswith(".py")]
    for arguments in (["check", "--select=I,F401"], ["format", "--check"]):
        done = subprocess.run(
            [ruff_binary(), *arguments, *files], cwd=checkout, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


def test_nothing_of_ours_stands_beside_the_code_but_hidden_files(checkout: Path) -> None:
    names = {file.name for file in (checkout / "src" / "diffusers" / "pipelines" / "lumen").iterdir()}
    assert {name for name in names if not name.startswith((".omni-kit", "__pycache__"))} == {
        "__init__.py", "pipeline_lumen.py", "pipeline_output.py"
    }  # fmt: skip


@pytest.mark.sweep
def test_the_tests_in_a_checkout_pass(checkout: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=checkout, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(checkout / "src")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:]


def test_tests_are_made_of_the_testers_that_a_checkout_has(checkout: Path) -> None:
    testers = checkout / "tests" / "models" / "testing_utils"
    testers.mkdir(parents=True)
    names = "BaseModelTesterConfig, ModelTesterMixin, AttentionTesterMixin"
    (testers / "__init__.py").write_text(f"from .common import {names}\n", encoding="utf-8")
    made = new_model("ibis", LUMEN, target="diffusers", style="in-tree", into=checkout, dry_run=True)
    shutil.rmtree(testers)
    text = next(one.new for one in made.changes if one.path.endswith("test_models_transformer_ibis.py"))
    assert "class TestIbisTransformerAttention(IbisTransformerTesterConfig, AttentionTesterMixin):" in text
    assert "TrainingTesterMixin" not in text


@pytest.mark.sweep
def test_the_checkouts_own_model_is_at_parity(checkout: Path) -> None:
    report = run_parity(
        checkout / "src" / "diffusers" / "pipelines" / "lumen", ("import", "keys", "roundtrip", "forward")
    )
    assert report.ok, report.levels


def test_a_checkout_of_another_version_is_refused(tmp_path: Path) -> None:
    package = tmp_path / "src" / "diffusers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "0.8.0"\n', encoding="utf-8")
    with pytest.raises(BadInput, match=r"another version of diffusers \(0.8.0\)"):
        new_model("lumen", LUMEN, target="diffusers", style="in-tree", into=tmp_path)
    assert [path.name for path in tmp_path.rglob("*.py")] == ["__init__.py"]


def test_blocks_of_somebody_else_are_refused_and_nothing_is_written(tmp_path: Path) -> None:
    root = copied_checkout(tmp_path)
    (root / "src" / "diffusers" / "modular_pipelines" / "own").mkdir()
    before = sorted(root.rglob("*"))
    with pytest.raises(BadInput, match="has src/diffusers/modular_pipelines/own already"):
        new_model("own", LUMEN, target="diffusers", style="in-tree", into=root, kind="both")
    assert sorted(root.rglob("*")) == before


def test_what_the_library_has_already_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="takes models of repository"):
        new_model("flux", "FluxTransformer2DModel", target="diffusers", into=tmp_path)


def test_other_targets_take_no_repositories(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="is of repository"):
        new_model("lumen", LUMEN, target="veomni", into=tmp_path)


def test_a_package_that_the_reference_needs_is_named(tmp_path: Path, sides: Sides) -> None:
    needs = broken(tmp_path, "from nowhere_to_be_found.deep import thing", sides, made="thing(dim)")
    assert "not installed: nowhere_to_be_found" in needs
    assert "pip install nowhere_to_be_found" in needs


def test_a_broken_reference_is_bad_input(tmp_path: Path, sides: Sides) -> None:
    with pytest.raises(BadInput, match=r"NameError: name 'undefined' is not defined \(.*m.py:3\)"):
        broken(tmp_path, "x = undefined", sides)


def broken(folder: Path, line: str, sides: Sides, made: str = "nn.Linear(dim, dim)") -> str:
    """What parity says of a reference with this line in it."""
    (folder / "m.py").write_text(
        f"import torch.nn as nn\n\n{line}\n\nclass Net(nn.Module):\n    def __init__(self, dim=8):\n"
        f"        super().__init__()\n        self.a = {made}\n\n"
        "    def forward(self, x, t):\n        return self.a(x)\n",
        encoding="utf-8",
    )
    new_model("brk", f"{folder / 'm.py'}::Net", target="diffusers", into=folder)
    report = run_parity(folder / "brk", ("import", "keys"), sides=sides)
    assert report.exit_code == 3
    return " ".join(level.reason for level in report.levels)


@pytest.mark.parametrize(("shape", "given"), [
    ([1, 6, 8, 4], {"height": 16, "width": 8, "output_type": "pt"}),
    ([1, 3, 32], {"latents": [1, 3, 32], "output_type": "latent"}),
])  # fmt: skip
def test_the_ports_own_tests_follow_the_axes_that_a_person_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: list[int], given: dict[str, object]
) -> None:
    toy = json.loads((EXAMPLE / "toy_config.json").read_text(encoding="utf-8"))
    stated = {**toy, "_inputs": {"x": {"shape": shape}}}
    (tmp_path / "toy_config.json").write_text(json.dumps(stated), encoding="utf-8")
    (tmp_path / "tests").mkdir()
    test = Path(shutil.copy(EXAMPLE / "tests" / "test_lumen.py", tmp_path / "tests"))
    monkeypatch.syspath_prepend(EXAMPLE.parent)
    drawn = runpy.run_path(str(test))["drawn"]
    seen = drawn(lambda **more: SimpleNamespace(images=more))
    told = {name: seen[name] for name in ("height", "width", "latents", "output_type") if name in seen}
    assert {name: [*one.shape] if name == "latents" else one for name, one in told.items()} == given


def test_new_model_takes_the_inputs_that_a_person_stated(tmp_path: Path) -> None:
    (tmp_path / "keyed.py").write_text(
        "import torch.nn as nn\n\n\nclass Keyed(nn.Module):\n    def __init__(self, dim=8):\n"
        "        super().__init__()\n        self.a = nn.Conv2d(4, 4, 1)\n\n    def forward(self, x, t, key):\n"
        "        if key.sum() != 91:\n            raise ValueError('no')\n        return self.a(x) * key.mean()\n",
        encoding="utf-8",
    )

    def made() -> tuple[str, dict[str, Any]]:
        done = new_model("keyed_port", f"{tmp_path / 'keyed.py'}::Keyed", target="diffusers", into=tmp_path)
        toy = json.loads((tmp_path / "keyed_port" / "toy_config.json").read_text(encoding="utf-8"))
        assert not done.refused or toy.get("_shapes", {}).get("x") == [7]
        return next(one.choice for one in done.plan.decisions if one.what == "toy"), toy

    first, toy = made()
    assert first == "not confirmed by running"
    file = tmp_path / "keyed_port" / "toy_config.json"
    file.write_text(json.dumps({**toy, "_inputs": {"key": [[91.0]]}}), encoding="utf-8")
    second, toy = made()
    assert (second, toy["_inputs"], toy["_example"]["answer"][1]) == ("confirmed by running", {"key": [[91.0]]}, 4)
    assert made() == (second, toy)
    file.write_text(json.dumps({**toy, "_shapes": {"x": [7]}}), encoding="utf-8")  # which running finds
    assert made()[1]["_shapes"] == {"x": [7]}


def test_the_toy_says_which_class_it_is_of() -> None:
    toy = json.loads((EXAMPLE / "toy_config.json").read_text(encoding="utf-8"))
    assert toy["_reference"] == "reference_models/diffusers/_upstream/lumen::Lumen"
    assert toy["_arguments"]["x"] == "hidden_states"
