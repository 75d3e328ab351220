"""The candidate side of VeOmni: kernels off, its own loader, its own export."""

import json
from pathlib import Path
from typing import Any

import pytest

from omni_kit.parity import make_toy_checkpoint
from tests.forked import run_forked

# VeOmni changes transformers for the whole process, so everything that imports it runs in one of its own.
PRELUDE = """
import dataclasses, importlib.util, json, sys
from pathlib import Path
from omni_kit.targets.veomni.runtime.kernels import eager_operations
from omni_kit.targets.veomni.runtime.side import VeOmniBuilder
from omni_kit.targets.veomni.model_dir import find_model_dir

root = Path(importlib.util.find_spec("veomni").origin).parent / "models" / "transformers"

def opened(name, **changes):
    found = find_model_dir(root / name)
    options = {"path": str(found.path), "style": found.style, "import_name": found.import_name,
               "sys_path": str(found.sys_path), "registered": list(found.registered)} | changes
    builder = VeOmniBuilder()
    return builder, builder.open(options)

def answer(value):
    print("ANSWER" + json.dumps(value))
"""


def run(code: str, *arguments: object) -> Any:
    """What `answer(...)` was given."""
    lines = [line for line in run_forked(PRELUDE + code, *arguments).splitlines() if line.startswith("ANSWER")]
    return json.loads(lines[-1].removeprefix("ANSWER"))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_toy_checkpoint("qwen3_moe", tmp_path_factory.mktemp("toy") / "qwen3_moe")


@pytest.fixture(scope="module")
def facts(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Everything that one process can tell about one model, and then of imports that must be refused."""
    code = """
from omni_kit.errors import BadInput

def refusal(**changes):
    try:
        opened("qwen3", **changes)
    except BadInput as error:
        return error.message

def impostor(architecture): ...

def refused():
    import veomni.models.transformers
    from veomni.models.loader import MODELING_REGISTRY
    MODELING_REGISTRY["qwen3"] = impostor
    opened("qwen3")
    return {
        "elsewhere": refusal(path="/somewhere/else"),
        "unregistered": refusal(registered=["qwen3", "qwen9"]),
        "not its own": refusal(registered=["llama"]),
        "owner": MODELING_REGISTRY["qwen3"].__module__,
    }

checkpoint, out = Path(sys.argv[1]), Path(sys.argv[2])
operations = eager_operations()
builder, described = opened("qwen3_moe")
shapes = builder.shapes(checkpoint)
model = builder.load(checkpoint)
builder.save(model, checkpoint, out)
answer({
    "described": described,
    "operations": {f.name: getattr(operations, f.name) for f in dataclasses.fields(operations)},
    "shapes": shapes,
    "loaded": {name: list(tensor.shape) for name, tensor in model.state_dict().items()},
    "training": model.training,
    "class": type(model).__module__,
    "requires_grad": all(p.requires_grad for p in model.parameters()),
    "devices": sorted({str(p.device) for p in model.parameters()}),
    "dtypes": sorted({str(p.dtype) for p in model.parameters()}),
    "exported": sorted(path.name for path in out.iterdir()),
    **refused(),
})
"""
    return dict(run(code, str(checkpoint), str(tmp_path_factory.mktemp("export") / "out")))


def test_every_kernel_is_eager_but_those_that_have_no_eager_form(facts: dict[str, Any]) -> None:
    kernels = {name: value for name, value in facts["operations"].items() if name.endswith("_implementation")}

    assert len(kernels) > 8
    assert kernels.pop("qat_implementation", "none") == "none"
    stood_in = {name for name, kernel in kernels.items() if kernel != "eager"}
    assert stood_in == {"causal_conv1d_implementation", "chunk_gated_delta_rule_implementation"}


def test_the_model_is_veomnis_own_and_ready_to_train(facts: dict[str, Any]) -> None:
    assert facts["class"].startswith("veomni.models.transformers.qwen3_moe.generated")
    assert facts["training"]
    assert facts["requires_grad"]
    assert facts["devices"] == ["cpu"]
    assert facts["dtypes"] == ["torch.float32"]


def test_shapes_without_weights_are_those_of_the_loaded_model(facts: dict[str, Any]) -> None:
    assert facts["shapes"] == facts["loaded"]
    assert "model.layers.0.mlp.experts.gate_up_proj" in facts["shapes"]


def test_the_export_is_sharded_as_the_trainers_write_it(facts: dict[str, Any]) -> None:
    assert "model.safetensors.index.json" in facts["exported"]
    assert "config.json" in facts["exported"]
    assert sum(name.endswith(".safetensors") for name in facts["exported"]) >= 3


def test_the_version_is_said(facts: dict[str, Any]) -> None:
    assert facts["described"]["library"] == "veomni"
    assert facts["described"]["version"][0].isdigit()


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("elsewhere", "not /somewhere/else"),
        ("unregistered", "does not register 'qwen9'"),
        ("not its own", "'llama' is registered by veomni.models.transformers.llama"),
    ],
)
def test_an_import_that_gives_something_else_is_refused(case: str, words: str, facts: dict[str, Any]) -> None:
    assert words in facts[case]


def test_another_plugins_registration_does_not_stay_on_veomnis_own(facts: dict[str, Any]) -> None:
    """Several integrations may be compared in one process."""
    assert facts["owner"] == "veomni.models.transformers.qwen3"


@pytest.mark.sweep
def test_the_trainer_does_not_sleep_to_log_how_busy_a_cpu_is() -> None:
    code = """
import time
import datasets  # which looks for torchvision itself
from omni_kit.targets.veomni.runtime.trainer import on_cpu, without_torchvision

def seconds():
    began = time.monotonic()
    helper.print_device_mem_info()
    return time.monotonic() - began

without_torchvision()
from veomni.utils import helper
with on_cpu():
    answer(seconds())
"""
    assert run(code) < 0.9
