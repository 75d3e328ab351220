"""The command on a CPU: a plugin that brings kernels of its own, right, wrong, and one that ends its process."""

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from omni_kit.errors import BadInput, Refusal
from omni_kit.kernels.result import fitting_choice, load_choice
from tests.cli.test_schemas import validate
from tests.conftest import run_cli

QWEN3_MOE = Path(__file__).parents[2] / "reference_models" / "veomni" / "qwen3_moe"
KERNELS = """

def _kernels():
    import os
    import torch
    from veomni.ops.kernel_registry import KERNEL_REGISTRY, HardwareRequirement, KernelSpec

    def right(x, weight, eps):
        return torch.nn.functional.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps).to(x.dtype)

    def wrong(x, weight, eps):
        return right(x, weight, eps + 1.0)

    def ending(x, weight, eps):
        os._exit(7)

    for kernel in (right, wrong, ending):
        spec = KernelSpec(kernel.__name__, "rms_norm", "standard", lambda k=kernel: k, HardwareRequirement("any"))
        KERNEL_REGISTRY.register(spec)


_kernels()
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, dict[str, Any]]:
    place = tmp_path_factory.mktemp("kernels")
    plugin = place / "my_qwen3_moe"
    shutil.copytree(QWEN3_MOE, plugin)
    package = plugin / "__init__.py"
    package.write_text(package.read_text(encoding="utf-8") + KERNELS, encoding="utf-8")
    shutil.copyfile(QWEN3_MOE / "toy_config.json", place / "config.json")
    (place / "train.yaml").write_text("# mine\ntrain:\n  lr: 1\n", encoding="utf-8")
    code, answer = run_cli(
        "kernels", str(plugin), "--device", "cpu", "--config", str(place / "config.json"), "--sequence", "16",
        "--micro-batch", "1", "--steps", "2", "--seconds", "1", "--html", str(place / "page.html"),
        "--write-yaml", str(place / "train.yaml"),
    )  # fmt: skip
    (place / "result.json").write_text(json.dumps(answer), encoding="utf-8")
    return place, code, answer


def _kernel(answer: dict[str, Any], slot: str, name: str) -> dict[str, Any]:
    kernels = next(one["kernels"] for one in answer["slots"] if one["slot"] == slot)
    return next(dict(kernel) for kernel in kernels if kernel["name"] == name)


def test_a_cpu_is_measured_and_said_to_be_no_accelerator(measured: tuple[Path, int, dict[str, Any]]) -> None:
    _, code, answer = measured
    assert code == 3
    assert answer["ok"] is False
    assert any("accelerator kernels" in note for note in answer["notes"])
    assert answer["upstream"]["ms"] > 0
    assert answer["recommended"]["ms"] > 0
    assert _kernel(answer, "moe", "fused_triton")["status"] == "missing"


def test_the_answer_keeps_to_its_schema(measured: tuple[Path, int, dict[str, Any]]) -> None:
    validate(measured[2])
    broken = {**measured[2], "slots": [{"slot": "rms_norm"}]}
    with pytest.raises(jsonschema.ValidationError):
        validate(broken)


def test_kernels_are_judged_each_by_itself(measured: tuple[Path, int, dict[str, Any]]) -> None:
    answer = measured[2]
    assert _kernel(answer, "rms_norm", "right")["status"] == "proven"
    assert _kernel(answer, "rms_norm", "eager")["status"] == "plain"
    wrong = _kernel(answer, "rms_norm", "wrong")
    assert wrong["status"] == "wrong"
    assert wrong["max_rel"] > 0.03
    assert wrong["ms"] is None
    assert _kernel(answer, "cross_entropy_loss", "chunk_loss")["status"] == "proven"


def test_a_kernel_that_ends_its_process_is_named_and_the_search_goes_on(
    measured: tuple[Path, int, dict[str, Any]],
) -> None:
    answer = measured[2]
    ending = _kernel(answer, "rms_norm", "ending")
    assert ending["status"] == "failed"
    assert "ended with code 7" in ending["reason"]
    assert answer["recommended"]["ops_implementation"]["rms_norm_implementation"] not in ("wrong", "ending")


def test_the_choice_is_put_into_the_training_file(measured: tuple[Path, int, dict[str, Any]]) -> None:
    place, _, answer = measured
    text = (place / "train.yaml").read_text(encoding="utf-8")
    assert text.startswith("# mine\n")
    assert "lr: 1" in text
    assert yaml.safe_load(text)["model"]["ops_implementation"] == answer["recommended"]["ops_implementation"]


def test_the_page_shows_the_front(measured: tuple[Path, int, dict[str, Any]]) -> None:
    page = (measured[0] / "page.html").read_text(encoding="utf-8")
    assert "<svg" in page
    assert 'class="recommended"' in page
    assert "ended with code 7" in page
    assert "http" not in page.replace("http-equiv", "")


def test_a_kept_result_is_taken_for_models_like_the_one_that_was_measured(
    measured: tuple[Path, int, dict[str, Any]],
) -> None:
    place, _, answer = measured
    assert (
        fitting_choice(place / "result.json", str(place / "config.json")) == load_choice(place / "result.json").chosen
    )
    with pytest.raises(Refusal, match="hidden_size 96, not"):
        fitting_choice(place / "result.json", "qwen3_moe")
    with pytest.raises(Refusal, match="qwen3_moe, not llama"):
        fitting_choice(place / "result.json", "llama")
    (place / "nothing.json").write_text(json.dumps({**answer, "recommended": {}}), encoding="utf-8")
    with pytest.raises(BadInput, match="has no recommendation"):
        fitting_choice(place / "nothing.json", "qwen3_moe")


def test_a_new_model_is_written_with_it(measured: tuple[Path, int, dict[str, Any]], tmp_path: Path) -> None:
    place, _, answer = measured
    given = ("--from", str(place / "config.json"), "--target", "veomni", "--into", str(tmp_path))
    code, written = run_cli("new-model", "mine", *given, "--kernels", str(place / "result.json"))
    assert code == 0, written
    values = yaml.safe_load((tmp_path / "mine/train.yaml").read_text(encoding="utf-8"))
    assert values["model"]["ops_implementation"] == answer["recommended"]["ops_implementation"]
    _, updated = run_cli("update", str(tmp_path / "mine"))
    assert {"path": "mine/train.yaml", "action": "unchanged"} in updated["files"]


def test_brought_kernels_that_were_chosen_come_with_the_model(
    measured: tuple[Path, int, dict[str, Any]], tmp_path: Path
) -> None:
    place, _, answer = measured
    own = {"moe_implementation": "fused_grouped_mm", "attn_implementation": "torch_varlen"}
    chosen = {**answer["recommended"]["ops_implementation"], **own}
    kept = place / "brought.json"
    kept.write_text(
        json.dumps({**answer, "recommended": {**answer["recommended"], "ops_implementation": chosen}}), encoding="utf-8"
    )
    given = ("--from", str(place / "config.json"), "--target", "veomni", "--into", str(tmp_path))
    code, written = run_cli("new-model", "mine", *given, "--kernels", str(kept))
    assert code == 0, written
    assert {"grouped_mm.py", "torch_varlen.py"} <= {file.name for file in (tmp_path / "mine").iterdir()}
    assert not (tmp_path / "mine/liger_large_chunks.py").exists()
    assert "from . import grouped_mm, torch_varlen" in (tmp_path / "mine/__init__.py").read_text(encoding="utf-8")


def test_compiled_blocks_that_were_chosen_are_written_into_the_training(
    measured: tuple[Path, int, dict[str, Any]], tmp_path: Path
) -> None:
    place, _, answer = measured
    assert answer["recommended"]["training"] == {"train.torch_compile.enable": False}
    training = {"train.torch_compile.enable": True, "train.pad_to_length": True}
    kept = place / "compiled.json"
    kept.write_text(
        json.dumps({**answer, "recommended": {**answer["recommended"], "training": training}}), encoding="utf-8"
    )
    given = ("--from", str(place / "config.json"), "--target", "veomni", "--into", str(tmp_path))
    code, written = run_cli("new-model", "mine", *given, "--kernels", str(kept))
    assert code == 0, written
    values = yaml.safe_load((tmp_path / "mine/train.yaml").read_text(encoding="utf-8"))
    assert values["train"]["torch_compile"] == {"enable": True}
    assert values["train"]["pad_to_length"] is True
    assert not any("." in setting for setting in values["model"]["ops_implementation"])
    assert "keep_graphs(self.base.model)" in (tmp_path / "mine/train.py").read_text(encoding="utf-8")
    assert (tmp_path / "mine/compiled_blocks.py").is_file()
    _, updated = run_cli("update", str(tmp_path / "mine"))
    assert {"path": "mine/train.yaml", "action": "unchanged"} in updated["files"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--size", "big"), "not a size"),
        (("--device", "tpu"), "'tpu' is not one of"),
        (("--config", "no/such/config.json"), "there is no"),
        (("--html", "no/such/page.html"), "cannot be written"),
    ],
)
def test_bad_usage_is_told_before_anything_runs(arguments: tuple[str, str], said: str) -> None:
    code, answer = run_cli("kernels", str(QWEN3_MOE), *arguments)
    assert code == 2
    assert said in answer["error"]


@pytest.mark.sweep
def test_a_wrapper_of_diffusers_is_measured_like_a_language_model(tmp_path: Path) -> None:
    wan = QWEN3_MOE.parent / "wan"
    shutil.copyfile(wan / "toy_config.json", tmp_path / "config.json")
    given = ("--config", str(tmp_path / "config.json"), "--sequence", "24", "--steps", "1", "--seconds", "1")
    code, answer = run_cli("kernels", str(wan), "--device", "cpu", *given)
    validate(answer)
    assert code == 3
    assert answer["model"]["model_type"] == "WanTransformer3DModel"
    assert answer["upstream"]["ms"] > 0
    assert answer["default"]["ms"] > 0
    assert _kernel(answer, "attn", "sdpa")["status"] == "plain"
    assert answer["recommended"]["ops_implementation"] == {"attn_implementation": "sdpa"}


def test_an_integration_whose_kernels_nobody_chooses_is_refused() -> None:
    code, answer = run_cli("kernels", str(QWEN3_MOE.parents[1] / "diffusers" / "lumen"))
    assert code == 2
    assert "no configurable kernels" in answer["error"]


@pytest.mark.sweep
def test_a_package_that_the_measuring_process_lacks_is_named_with_its_command(tmp_path: Path) -> None:
    plugin = tmp_path / "my_qwen3_moe"
    shutil.copytree(QWEN3_MOE, plugin)
    package = plugin / "__init__.py"
    package.write_text("import no_such_package_of_kernels\n" + package.read_text(encoding="utf-8"), encoding="utf-8")
    code, answer = run_cli("kernels", str(plugin), "--device", "cpu", "--size", "1m")
    assert code == 3
    assert "no_such_package_of_kernels is not installed" in answer["error"]
    assert answer["hint"] == "pip install no_such_package_of_kernels"


def test_the_config_of_another_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "num_hidden_layers": 1}', encoding="utf-8")
    code, answer = run_cli("kernels", str(QWEN3_MOE), "--config", str(tmp_path / "config.json"))
    assert code == 2
    assert "is of model_type 'llama', the integration of 'qwen3_moe'" in answer["error"]


@pytest.mark.sweep
def test_without_a_device_it_says_what_was_not_measured() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    code, answer = run_cli("kernels", str(QWEN3_MOE), "--size", "1m")
    validate(answer)
    assert code == 3
    assert {one["status"] for slot in answer["slots"] for one in slot["kernels"]} == {"not measured"}
    assert {"rms_norm", "moe", "cross_entropy_loss", "attn"} <= {slot["slot"] for slot in answer["slots"]}
    assert "nothing was measured" in answer["notes"][0]
