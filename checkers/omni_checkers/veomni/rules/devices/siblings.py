"""Rules about the generated files of one model for several devices: VEO701 to VEO705."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.files import File, walked
from omni_checkers.engine.rule import Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.symbolic import Class, Program
from omni_checkers.veomni.facts.generated import Generated
from omni_checkers.veomni.facts.regenerate import Regenerated
from omni_checkers.veomni.facts.registry import Returned
from omni_kit.upstream.python.source import dotted

_DEVICES = ("_gpu", "_npu", "_mlu")
_GPU, _NPU = (f"generated/patched_modeling_olmoe_{device}.py" for device in ("gpu", "npu"))
_FILE = """\
# Source: transformers.models.olmoe.modeling_olmoe
from transformers import PreTrainedModel


class OlmoeModel(PreTrainedModel):
    def forward(self, input_ids, attention_mask=None{more}):
        return input_ids


class OlmoeForCausalLM(PreTrainedModel):
    def forward(self, input_ids, labels=None):
        return input_ids
"""
_ONE = """\
from veomni.models.loader import MODELING_REGISTRY


@MODELING_REGISTRY.register("olmoe")
def register_olmoe_modeling(architecture):
    from .generated.patched_modeling_olmoe_gpu import OlmoeForCausalLM

    return OlmoeForCausalLM
"""
_BOTH = """\
from veomni.models.loader import MODELING_REGISTRY
from veomni.utils.device import IS_NPU_AVAILABLE


@MODELING_REGISTRY.register("olmoe")
def register_olmoe_modeling(architecture):
    if IS_NPU_AVAILABLE:
        from .generated.patched_modeling_olmoe_npu import OlmoeForCausalLM
    else:
        from .generated.patched_modeling_olmoe_gpu import OlmoeForCausalLM
    return OlmoeForCausalLM
"""
_CONFIG = """\
from veomni.patchgen.patch_spec import PatchConfig

config = PatchConfig(
    source_module="transformers.models.olmoe.modeling_olmoe",
    target_file="patched_modeling_olmoe_{device}.py",
    description="Olmoe",
)


@config.override_method("OlmoeRMSNorm.forward", description="as it is")
def rms_norm(self, hidden_states):
    return hidden_states
"""
_ROUTER = """\


@config.override_method("OlmoeMLP.forward", description="the fused kernel")
def mlp(self, x):
    return self.down_proj(x)
"""


class EveryFileIsUsed(Rule):
    """Each generated file is the one that a register function returns classes from, on some device.

    Why: a file for another device that no branch imports is generated, reviewed and kept up to date, and the device
    trains with the code for GPUs.

    Fine when: another model directory imports the file.
    """

    id = "VEO701"
    name = "every-generated-file-is-returned-from"
    target = "veomni"
    obligations = ("VEO-NPU-01", "VEO-ENV-05")
    failure_modes = ("gpu-npu-fork-drift",)
    BAD = ({"__init__.py": _ONE, _NPU: _FILE.format(more="")},)
    GOOD = ({"__init__.py": _BOTH, _NPU: _FILE.format(more="")},)

    def check(self, generated: list[Generated], returned: list[Returned]) -> Findings:
        used = {path.value.module.path for path in returned if isinstance(path.value, Class)}
        if not used:
            raise NotApplicable("no register function returns a class of the directory")
        for item in generated:
            if item.file.path not in used:
                message = f"no register function returns a class of {item.file.path.name}, on any device"
                yield Finding(message, item.file.path, 1)


class SiblingsHaveOneInterface(Rule):
    """Generated files for different devices export the same models, whose methods take the same parameters.

    Why: the trainer, the tests and the other patches are written for one of them. On the other device the call that is
    right on a GPU is a TypeError, or the class cannot be imported, and nobody runs that device.

    Fine when: upstream's code differs in nothing but that the class is left out on purpose; say so in an ignore
    comment.
    """

    id = "VEO702"
    name = "device-siblings-have-one-interface"
    target = "veomni"
    obligations = ("VEO-NPU-01", "VEO-NPU-03")
    failure_modes = ("gpu-npu-fork-drift",)
    BAD = ({"__init__.py": _BOTH, _GPU: _FILE.format(more=", cu_seq_lens_q=None"), _NPU: _FILE.format(more="")},)
    GOOD = ({"__init__.py": _BOTH, _GPU: _FILE.format(more=""), _NPU: _FILE.format(more="")},)

    def check(self, generated: list[Generated]) -> Findings:
        for one, other in _pairs(generated):
            for name in sorted(one.classes.keys() - other.classes.keys()):
                if _public(one, name):
                    message = f"{name} of {one.file.path.name} is not in {other.file.path.name}"
                    yield Finding(message, other.file.path, 1)
            for name in sorted(one.classes.keys() & other.classes.keys()):
                for method, ours, theirs in _methods(one, other, name):
                    if (difference := _difference(ours, theirs)) and _public(one, name):
                        message = f"{name}.{method} {difference} in {one.file.path.name}"
                        yield Finding(message, other.file.path, theirs.lineno)


class SiblingsPatchTheSame(Rule):
    """The config for another device patches everything that the config for GPUs patches.

    Why: what it leaves out is upstream's code on that device: no fused loss, no sequence parallelism, no fix.

    Fine when: the patch is for a kernel that the other device does not have; say so in an ignore comment on the first
    line of the config.
    """

    id = "VEO703"
    name = "device-sibling-patches-the-same"
    severity = Severity.info
    target = "veomni"
    obligations = ("VEO-NPU-03", "VEO-PG-45")
    failure_modes = ("gpu-npu-fork-drift",)
    BAD = (
        {
            "olmoe_gpu_patch_gen_config.py": _CONFIG.format(device="gpu") + _ROUTER,
            "olmoe_npu_patch_gen_config.py": _CONFIG.format(device="npu"),
        },
    )
    GOOD = (
        {
            "olmoe_gpu_patch_gen_config.py": _CONFIG.format(device="gpu") + _ROUTER,
            "olmoe_npu_patch_gen_config.py": _CONFIG.format(device="npu") + _ROUTER,
        },
    )

    def check(self, regenerated: list[Regenerated]) -> Findings:
        by_device = {_device(run.config.target_file or ""): run for run in regenerated}
        gpu = by_device.pop("_gpu", None)
        by_device.pop("", None)
        if gpu is None or not by_device:
            raise NotApplicable("there is a config for one kind of device alone")
        for run in by_device.values():
            targets = {_target(applied) for applied in run.result.patches}
            classes = {target.partition(".")[0] for target in targets}
            others = {_target(applied) for applied in gpu.result.patches}
            lost = sorted(o for o in others - targets if o.partition(".")[0] not in targets and o not in classes)
            if targets and lost and gpu.config.source_module == run.config.source_module:
                shown = ", ".join(lost[:4]) + (f" and {len(lost) - 4} more" if len(lost) > 4 else "")
                message = f"{gpu.config.file.path.name} patches {shown}: this config does not"
                yield Finding(message, run.config.file.path, run.config.line)


class KernelsChosenByFile(Rule):
    """The generated file for one device does not ask which device it runs on to choose a kernel.

    Why: the other device has a file of its own. A switch inside is a branch that no run on this device reaches, and
    that nobody looks at when the file for the other device changes.

    Fine when: there is one file for all devices; or the switch moves data and chooses no kernel.
    """

    id = "VEO704"
    name = "no-device-switch-for-kernels"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-NPU-02",)
    failure_modes = ("silent-eager-fallback",)
    BAD = (
        {
            "__init__.py": _BOTH,
            _NPU: _FILE.format(more=""),
            _GPU: """\
# Source: transformers.models.olmoe.modeling_olmoe
from torch import nn
from veomni.utils.device import IS_NPU_AVAILABLE


class OlmoeRMSNorm(nn.Module):
    def forward(self, x):
        if IS_NPU_AVAILABLE:
            return torch_npu.npu_rms_norm(x, self.weight)
        return x * self.weight
""",
        },
    )
    GOOD = ({"__init__.py": _BOTH, _GPU: _FILE.format(more=""), _NPU: _FILE.format(more="")},)

    def check(self, generated: list[Generated]) -> Findings:
        for one, other in _pairs(generated):
            for item in {one.file.path: one, other.file.path: other}.values():
                switches: list[ast.If | ast.IfExp] = [*item.file.nodes(ast.If)]
                switches += item.file.nodes(ast.IfExp)
                for node in switches:
                    if "IS_NPU_AVAILABLE" in ast.unparse(node.test) and (kernel := _kernel(node)):
                        message = f"{kernel} is chosen by device, in a file for one device"
                        yield Finding(message, item.file.path, node.lineno)


class DevicePatchIsApplied(Rule):
    """The `apply_veomni_..._device_patch` of a `device_patch.py` is called by the register function.

    Why: kernels that are chosen at run time are put into the generated module by this call. Without it every choice in
    the training configuration is accepted, and the eager code runs.

    Fine when: the model's users call it.
    """

    id = "VEO705"
    name = "device-patch-is-applied"
    target = "veomni"
    obligations = ("VEO-MOE-27",)
    failure_modes = ("silent-eager-fallback",)
    example_of = "deepseek_v3"
    BAD = (
        {
            "__init__.py": """\
from ...loader import MODELING_REGISTRY


@MODELING_REGISTRY.register("deepseek_v3")
def register_deepseek_v3_modeling(architecture):
    from .generated.patched_modeling_deepseek_v3_gpu import DeepseekV3ForCausalLM

    return DeepseekV3ForCausalLM
"""
        },
    )
    GOOD = (
        {
            "__init__.py": """\
from ...loader import MODELING_REGISTRY


@MODELING_REGISTRY.register("deepseek_v3")
def register_deepseek_v3_modeling(architecture):
    from .device_patch import apply_veomni_deepseek_v3_device_patch
    from .generated import patched_modeling_deepseek_v3_gpu as generated

    apply_veomni_deepseek_v3_device_patch(generated)
    return generated.DeepseekV3ForCausalLM
"""
        },
    )

    def check(self, program: Program, files: dict[Path, File]) -> Findings:
        patches = [
            (file, node)
            for path, file in files.items()
            if path.parent == program.root
            for node in file.nodes(ast.FunctionDef)
            if node.name.startswith("apply_veomni_") and node.name.endswith("_patch")
        ]
        if not patches:
            raise NotApplicable("the directory has no device patch")
        called = {
            (dotted(call.func) or "").rpartition(".")[2]
            for path, file in files.items()
            if "generated" not in path.parts
            for call in file.nodes(ast.Call)
        }
        for file, node in patches:
            if node.name not in called:
                yield Finding(f"{node.name} is never called", file.path, node.lineno)


def _device(name: str) -> str:
    stem = Path(name).stem
    return next((device for device in _DEVICES if stem.endswith(device)), "")


def _pairs(generated: list[Generated]) -> Iterator[tuple[Generated, Generated]]:
    """(file for GPUs, file for another device) of one upstream module."""
    gpu = {item.source_module: item for item in generated if _device(item.file.path.name) == "_gpu"}
    found = [
        (gpu[item.source_module], item)
        for item in generated
        if _device(item.file.path.name) not in {"", "_gpu"} and item.source_module in gpu
    ]
    if not found:
        raise NotApplicable("there is a generated file for one kind of device alone")
    yield from found


def _public(item: Generated, name: str) -> bool:
    """Whether a class is a model: what trainers and register functions may ask for."""
    return any(base.endswith("PreTrainedModel") for base in item.source.bases(item.classes[name]))


def _methods(one: Generated, other: Generated, name: str) -> Iterator[tuple[str, ast.FunctionDef, ast.FunctionDef]]:
    theirs = {f.name: f for f in other.classes[name].body if isinstance(f, ast.FunctionDef)}
    for function in one.classes[name].body:
        other_one = theirs.get(function.name) if isinstance(function, ast.FunctionDef) else None
        if other_one is not None and isinstance(function, ast.FunctionDef):
            yield function.name, function, other_one


def _difference(one: ast.FunctionDef, other: ast.FunctionDef) -> str:
    """How the parameters of two methods differ; annotations do not count."""
    ours, theirs = (
        {arg.arg: None for arg in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs)} for f in (one, other)
    )
    if added := [name for name in ours if name not in theirs]:
        return f"takes '{added[0]}'" if other.args.kwarg is None else ""
    if lost := [name for name in theirs if name not in ours]:
        required = list(theirs)[: len(other.args.args) - len(other.args.defaults)]
        return f"does not take '{lost[0]}'" if lost[0] in required or one.args.kwarg is None else ""
    return "takes its parameters in another order" if list(ours) != list(theirs) else ""


def _target(applied: object) -> str:
    return str(getattr(getattr(applied, "patch", applied), "target", ""))


def _kernel(node: ast.If | ast.IfExp) -> str:
    """The fused kernel that one of the branches calls."""
    for call in (inner for inner in walked(node) if isinstance(inner, ast.Call)):
        name = dotted(call.func) or ""
        if name.startswith(("torch_npu.", "veomni_", "liger_")):
            return name
    return ""
