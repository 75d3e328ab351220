"""new-model: what it writes, what it refuses, and what it never touches."""

import ast
import json
import shutil
from pathlib import Path

import pytest

from omni_kit.documents import read_yaml
from omni_kit.errors import BadInput, Refusal
from omni_kit.files import write_atomic
from omni_kit.patchgen import run_config
from omni_kit.record import is_written
from omni_kit.resources import resource_dir
from omni_kit.scaffold import new_model
from omni_kit.scaffold import write as write_module
from omni_kit.targets.veomni.checkout import MODELS
from tests.conftest import Checkpoints, first


def tree(root: Path) -> dict[str, str]:
    return {p.relative_to(root).as_posix(): p.read_text() for p in sorted(root.rglob("*")) if p.is_file()}


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A VeOmni checkout as far as wiring goes: the aggregate, and the lists of test cases."""
    root = tmp_path / "veomni-checkout"
    package = root / "veomni"
    (package / "models" / "transformers" / "llama").mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "0.1.12"\n')
    (package / "models" / "__init__.py").touch()
    (package / "models" / "transformers" / "llama" / "__init__.py").touch()
    aggregate = 'from . import (\n    llama,\n    qwen3,\n)\n\n\n__all__ = [\n    "llama",\n    "qwen3",\n]\n'
    (root / MODELS / "__init__.py").write_text(aggregate)
    (root / "tests" / "models").mkdir(parents=True)
    (root / "tests" / "e2e").mkdir()
    case = (
        'pytest.param("./tests/toy_config/llama31_toy/config.json", False, _DEFAULT_RTOL, _DEFAULT_ATOL, id="llama3.1")'
    )
    (root / "tests" / "models" / "test_models_patch.py").write_text(
        f"TEST_CASES = [\n    {case},\n    {case[:-1]}),\n]\n"
    )
    (root / "tests" / "e2e" / "test_e2e_parallel.py").write_text("text_test_cases = [\n    1,\n    2,\n]\n")
    return root


def test_plugin_of_a_moe_model(checkpoint: Checkpoints, tmp_path: Path) -> None:
    scaffold = new_model("olmoe", str(checkpoint("olmoe")), target="veomni", into=tmp_path)
    assert not scaffold.refused
    assert {change.action for change in scaffold.changes} == {"create"}
    assert set(tree(tmp_path / "olmoe")) == {
        ".omni-kit.base.json", ".omni-kit.toml", "README.md", "__init__.py", "checkpoint_tensor_converter.py",
        "generated/__init__.py",
        "make_data.py", "olmoe_gpu_patch_gen_config.py", "parallel_plan.py", "tests/test_olmoe_parity.py",
        "toy_config.json", "train.py", "train.yaml", "train_lora.yaml",
    }  # fmt: skip
    assert all(command.startswith("omni-kit ") for command in scaffold.plan.next)


def test_a_model_type_that_the_checkout_registers_is_refused_in_tree(checkout: Path) -> None:
    own = checkout / MODELS / "llama" / "__init__.py"
    own.write_text(
        'from veomni.models.loader import MODELING_REGISTRY\n\n\n@MODELING_REGISTRY.register("llama")\n'
        "def register_llama_modeling(architecture):\n    return None\n"
    )
    before = tree(checkout)
    with pytest.raises(BadInput, match="llama of this checkout registers 'llama' already") as caught:
        new_model("my_llama", "llama", target="veomni", style="in-tree", into=checkout)
    assert "--style plugin" in caught.value.hint
    assert tree(checkout) == before
    assert new_model("my_qwen", "qwen2", target="veomni", style="in-tree", into=checkout).refused == ()


def test_experts_that_keep_their_forward_get_no_plan_and_the_reason_is_said(tmp_path: Path) -> None:
    """Upstream's loop over gpt_oss's experts indexes all of them: a process that held half would fail in it."""
    scaffold = new_model("my_oss", "gpt_oss", target="veomni", into=tmp_path)
    plan = next(decision for decision in scaffold.plan.decisions if decision.what == "parallel plan")
    assert plan.choice == "none"
    assert "needs them all in one process" in plan.reason
    assert not (tmp_path / "my_oss" / "parallel_plan.py").exists()
    assert "get_parallel_plan" not in (tmp_path / "my_oss" / "my_oss_gpu_patch_gen_config.py").read_text()


def test_plugin_of_a_dense_model(tmp_path: Path) -> None:
    new_model("my_llama", "llama", target="veomni", into=tmp_path)
    written = tree(tmp_path / "my_llama")
    assert "checkpoint_tensor_converter.py" not in written
    assert "parallel_plan.py" not in written
    assert "lora" not in written["__init__.py"]
    assert "get_parallel_plan" not in written["my_llama_gpu_patch_gen_config.py"]


@pytest.mark.parametrize(
    "model_type",
    first(
        4, ["llama", "qwen2", "qwen3_moe", "mixtral", "gemma3_text", "granitemoe", "deepseek_v3", "glm4_moe", "phi3"]
    ),
)
def test_every_scaffold_generates(model_type: str, tmp_path: Path) -> None:
    """Whatever was recognised: the config runs, nothing in it misses its target, and the result compiles."""
    new_model(model_type, model_type, target="veomni", into=tmp_path)
    result = run_config(tmp_path / model_type / f"{model_type}_gpu_patch_gen_config.py")
    assert [item.message for item in result.diagnostics if item.severity == "error"] == []
    assert {applied.status for applied in result.patches} <= {"applied", "injected"}
    ast.parse((tmp_path / model_type / "generated" / f"patched_modeling_{model_type}_gpu.py").read_text())


@pytest.mark.parametrize("model_type", ["gpt_oss", "llama4_text"])
def test_no_converter_where_the_module_holds_what_lies_on_disk(
    model_type: str, checkpoint: Checkpoints, tmp_path: Path
) -> None:
    """Both are transposed on disk and in memory alike: turning them would be the fault."""
    scaffold = new_model("m", str(checkpoint(model_type)), target="veomni", into=tmp_path)
    decision = next(d for d in scaffold.plan.decisions if d.what == "checkpoint converter")
    assert decision.choice == "none"
    assert "as on disk" in decision.reason
    assert not (tmp_path / "m" / "checkpoint_tensor_converter.py").exists()


def test_a_directory_whose_name_reads_as_yaml(checkpoint: Checkpoints, tmp_path: Path) -> None:
    place = tmp_path / "a: b #\ntrain: {evil: 1}\n"
    shutil.copytree(checkpoint("olmoe"), place)
    new_model("olmoe", str(place), target="veomni", into=tmp_path, kernels={"a: 1\nevil": "b: 1"})
    for file in ("train.yaml", "train_lora.yaml"):
        model = read_yaml((tmp_path / "olmoe" / file).read_text(encoding="utf-8"))["model"]
        assert model["model_path"] == str(place)
        assert model["ops_implementation"]["a: 1\nevil"] == "b: 1"


def test_again_changes_nothing(checkpoint: Checkpoints, tmp_path: Path) -> None:
    new_model("olmoe", str(checkpoint("olmoe")), target="veomni", into=tmp_path)
    before = tree(tmp_path)
    scaffold = new_model("olmoe", str(checkpoint("olmoe")), target="veomni", into=tmp_path)
    assert {change.action for change in scaffold.changes} == {"unchanged"}
    assert tree(tmp_path) == before


def test_what_a_person_edited_stays(tmp_path: Path) -> None:
    new_model("olmoe", "olmoe", target="veomni", into=tmp_path)
    edited = tmp_path / "olmoe" / "parallel_plan.py"
    edited.write_text(edited.read_text() + "# mine\n")
    (tmp_path / "olmoe" / "__init__.py").unlink()
    before = tree(tmp_path)
    scaffold = new_model("olmoe", "olmoe", target="veomni", into=tmp_path)
    assert scaffold.refused == (
        "olmoe/parallel_plan.py exists with different content that omni-kit did not write; --force overwrites it",
    )
    assert tree(tmp_path) == before
    assert not new_model("olmoe", "olmoe", target="veomni", into=tmp_path, force=True).refused
    assert "# mine" not in edited.read_text()


def test_own_files_may_be_rewritten(tmp_path: Path) -> None:
    """A file that nobody changed since it was written is updated without asking."""
    new_model("m", "olmoe", target="veomni", into=tmp_path)
    scaffold = new_model("m", "mixtral", target="veomni", into=tmp_path)
    assert not scaffold.refused
    assert "MixtralExperts" in (tmp_path / "m" / "m_gpu_patch_gen_config.py").read_text()


def test_of_a_directory_and_a_model_type_of_one_name_it_is_said_which_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert new_model("m", "olmoe", target="veomni", into=tmp_path / "new", dry_run=True).notes == ()
    (tmp_path / "olmoe").mkdir()
    (tmp_path / "olmoe" / "config.json").write_text('{"model_type": "olmoe"}')
    (note,) = new_model("m", "olmoe", target="veomni", into=tmp_path / "new", dry_run=True).notes
    assert note == f"read {tmp_path / 'olmoe'}; pass transformers:olmoe for the name in transformers"


def test_dry_run_writes_nothing(tmp_path: Path) -> None:
    scaffold = new_model("olmoe", "olmoe", target="veomni", into=tmp_path / "new", dry_run=True)
    assert {change.action for change in scaffold.changes} == {"create"}
    assert not (tmp_path / "new").exists()
    assert "+config = PatchConfig(" in "".join(change.diff() for change in scaffold.changes)


def test_in_tree(checkout: Path) -> None:
    before = tree(checkout)
    scaffold = new_model("olmoe", "olmoe", target="veomni", style="in-tree", into=checkout)
    after = tree(checkout)
    assert not scaffold.refused
    init = f"{MODELS}/__init__.py"
    assert after[init] == before[init].replace("    llama,\n", "    llama,\n    olmoe,\n", 1).replace(
        '    "qwen3",\n]', '    "qwen3",\n    "olmoe",\n]'
    )
    assert "from ...loader import MODELING_REGISTRY" in after[f"{MODELS}/olmoe/__init__.py"]
    assert "from ....distributed.parallel_plan import" in after[f"{MODELS}/olmoe/parallel_plan.py"]
    assert json.loads(after["tests/toy_config/olmoe_toy/config.json"])["model_type"] == "olmoe"
    assert 'id="olmoe"' in after["tests/models/test_models_patch.py"]
    assert '"./tests/toy_config/olmoe_toy"' in after["tests/e2e/test_e2e_parallel.py"]
    again = new_model("olmoe", "olmoe", target="veomni", style="in-tree", into=checkout)
    assert {change.action for change in again.changes} == {"unchanged"}


def test_in_tree_needs_a_checkout(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a VeOmni checkout"):
        new_model("olmoe", "olmoe", target="veomni", style="in-tree", into=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["my-model", "3d", "class", "a/b", "../up", "", "a.b"])
def test_bad_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is not a Python identifier"):
        new_model(name, "olmoe", target="veomni", into=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "why"), [
    ("ﬁle", "reads 'ﬁle' as 'file'"), ("__init__", "a special meaning"), ("__main__", "a special meaning"),
])  # fmt: skip
def test_names_that_python_reads_otherwise(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=why):
        new_model(name, "olmoe", target="veomni", into=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_link_that_leads_nowhere_is_a_conflict(tmp_path: Path) -> None:
    link = tmp_path / "olmoe" / "parallel_plan.py"
    link.parent.mkdir()
    link.symlink_to("not_mounted")

    scaffold = new_model("olmoe", "olmoe", target="veomni", into=tmp_path)

    assert [change.path for change in scaffold.changes if change.action == "conflict"] == ["olmoe/parallel_plan.py"]
    assert scaffold.refused
    assert [*link.parent.iterdir()] == [link]
    assert not new_model("olmoe", "olmoe", target="veomni", into=tmp_path, force=True).refused


@pytest.mark.parametrize(("name", "text"), [
    (".omni-kit.toml", "# mine\n"), (".omni-kit.toml", "[answers]\nname = 'olmoe'\n"), (".omni-kit.base.json", "{}"),
])  # fmt: skip
def test_a_record_that_a_person_wrote_is_a_conflict(name: str, text: str, tmp_path: Path) -> None:
    mine = tmp_path / "olmoe" / name
    mine.parent.mkdir()
    mine.write_text(text)

    assert new_model("olmoe", "olmoe", target="veomni", into=tmp_path).refused
    assert (mine.read_text(), [*mine.parent.iterdir()]) == (text, [mine])


def test_records_of_the_worked_examples_are_our_own() -> None:
    records = [*resource_dir("reference_models").glob("*/*/.omni-kit.*")]
    assert records
    assert all(is_written(record.name, record.read_text()) for record in records)


def test_a_link_out_of_the_directory_is_refused(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    outside.mkdir()
    inside.mkdir()
    (inside / "olmoe").symlink_to(outside)
    with pytest.raises(BadInput, match="lies outside"):
        new_model("olmoe", "olmoe", target="veomni", into=inside)
    assert not list(outside.iterdir())


@pytest.mark.parametrize(
    ("source", "target", "says"),
    [
        ("olmoe", "no_such_target", "unknown target 'no_such_target'"),
        ("no_such_model", "veomni", "'no_such_model' is neither"),
        ("mllama", "veomni", "by none of get_image_features"),
        ("t5", "veomni", r"an encoder-decoder \(.*configuration_t5.py:\d+\)"),
        ("evolla", "veomni", r"EvollaForProteinText2Text \(.*modeling_evolla.py:\d+\) is not among"),
        ("qwen2_5_omni", "veomni", r"modeling_qwen2_5_omni.py:\d+\) has no forward"),
    ],
)
def test_unknown_things(source: str, target: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=says):
        new_model("m", source, target=target, into=tmp_path)
    assert not list(tmp_path.iterdir())


def test_kind_is_checked(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="of kind 'moe', not 'llm'"):
        new_model("m", "olmoe", target="veomni", into=tmp_path, kind="llm")


NO_TIME = """
from torch import nn


class Net(nn.Module):
    def __init__(self, width: int = 64):
        super().__init__()
        self.layer = nn.Linear(4, width)

    def forward(self, x, labels):
        return self.layer(x)
"""


def test_a_person_may_say_that_an_authors_class_denoises(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(NO_TIME)
    source = f"{tmp_path}/model.py::Net"
    with pytest.raises(Refusal, match="of kind 'other'") as refused:
        new_model("m", source, target="diffusers", into=tmp_path / "out")
    assert "(x, labels)" in refused.value.hint
    assert "--kind dit" in refused.value.hint
    made = new_model("m", source, target="diffusers", into=tmp_path / "out", kind="dit", dry_run=True)
    assert any(file.path.endswith("transformer_m.py") for file in made.plan.files)
    with pytest.raises(Refusal, match="not 'moe'"):
        new_model("m", source, target="diffusers", into=tmp_path / "out", kind="moe")


def test_into_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="is a file"):
        new_model("m", "olmoe", target="veomni", into=tmp_path / "file")


def test_truncated_checkpoint(checkpoint: Checkpoints, tmp_path: Path) -> None:
    place = tmp_path / "ckpt"
    shutil.copytree(checkpoint("olmoe"), place)
    shard = sorted(place.glob("*.safetensors"))[0]
    shard.write_bytes(shard.read_bytes()[:-10])
    with pytest.raises(BadInput, match="is truncated"):
        new_model("m", str(place), target="veomni", into=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_incomplete_checkpoint(checkpoint: Checkpoints, tmp_path: Path) -> None:
    """A converter is never written for a checkpoint that does not fill the model."""
    place = tmp_path / "ckpt"
    shutil.copytree(checkpoint("olmoe"), place)
    config = json.loads((place / "config.json").read_text())
    (place / "config.json").write_text(json.dumps({**config, "num_experts": 7}))
    with pytest.raises(BadInput, match="experts are missing"):
        new_model("m", str(place), target="veomni", into=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_damaged_answers(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / ".omni-kit.toml").write_text("answers = [")
    with pytest.raises(BadInput, match="cannot read"):
        new_model("m", "olmoe", target="veomni", into=tmp_path)


@pytest.mark.parametrize("name", ["torch", "veomni", "os", "json", "omni_kit"])
def test_a_plugin_does_not_hide_an_installed_package(name: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=f"'{name}' is an installed package"):
        new_model(name, "llama", target="veomni", into=tmp_path)
    assert tree(tmp_path) == {}


def test_a_plugin_does_not_hide_a_package_that_the_library_looks_for(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="'xlstm' is a package that transformers uses if it is there"):
        new_model("xlstm", "xlstm", target="veomni", into=tmp_path)
    assert tree(tmp_path) == {}
    assert new_model("my_xlstm", "xlstm", target="veomni", into=tmp_path, dry_run=True).refused == ()


def test_what_lies_in_the_way_is_found_before_anything_is_written(tmp_path: Path) -> None:
    """Text of another encoding, a link to itself, a directory in place of a file, a file in place of a directory."""
    for number, plant in enumerate((_latin, _loop, _directory, _file)):
        root = tmp_path / str(number)
        plant(root / "m")
        before = sorted(root.rglob("*"))
        with pytest.raises(BadInput, match="m"):
            new_model("m", "llama", target="veomni", into=root)
        assert sorted(root.rglob("*")) == before


def _latin(place: Path) -> None:
    place.mkdir(parents=True)
    (place / "__init__.py").write_bytes(b"# \xe9\n")


def _loop(place: Path) -> None:
    place.mkdir(parents=True)
    (place / "toy_config.json").symlink_to(place / "toy_config.json")


def _directory(place: Path) -> None:
    (place / "README.md").mkdir(parents=True)


def _file(place: Path) -> None:
    place.mkdir(parents=True)
    (place / "tests").touch()


@pytest.mark.sweep
def test_a_failure_half_way_takes_back_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_model("m", "olmoe", target="veomni", into=tmp_path)
    before = tree(tmp_path)
    real, left = write_atomic, iter(range(4))

    def full(path: Path, text: str) -> None:
        if next(left, None) is None and text not in before.values():
            raise BadInput(f"cannot write {path}: No space left on device")
        real(path, text)

    monkeypatch.setattr(write_module, "write_atomic", full)
    with pytest.raises(BadInput, match="No space left"):
        new_model("m", "deepseek_v3", target="veomni", into=tmp_path)
    assert tree(tmp_path) == before
    left = iter(range(3))
    with pytest.raises(BadInput, match="No space left"):
        new_model("n", "olmoe", target="veomni", into=tmp_path / "new" / "place")
    assert not (tmp_path / "new").exists()
