"""Rules about the generated files of one model for several devices: VEO701 to VEO705."""

import ast
from collections.abc import Iterator
from pathlib import Path

from omni_checkers.engine.files import File, walked
from omni_checkers.engine.rule import Example, Finding, Findings, NotApplicable, Rule, Severity
from omni_checkers.symbolic import Class, Program
from omni_checkers.veomni.examples import GPU_CONFIG, NPU_CONFIG, REGISTER, REGISTER_BOTH, patch_config
from omni_checkers.veomni.facts.generated import Generated
from omni_checkers.veomni.facts.regenerate import Regenerated
from omni_checkers.veomni.facts.registry import Returned
from omni_kit.pysource.signatures import double_star, named, required, signature
from omni_kit.pysource.source import dotted

_DEVICES = ("_gpu", "_npu", "_mlu")
_NORM = """\


{imports}@config.override_method("OlmoeRMSNorm.forward", description="the fused kernel")
def olmoe_rms_norm_forward(self, hidden_states):
{body}"""
_GPU_NORM = "    return nn.functional.rms_norm(hidden_states, self.weight.shape, self.weight, self.variance_epsilon)\n"
_NPU_NORM = """\
    import torch_npu

    return torch_npu.npu_rms_norm(hidden_states, self.weight, epsilon=self.variance_epsilon)[0]
"""
_SWITCH = """\
    if IS_NPU_AVAILABLE:
        import torch_npu

        return torch_npu.npu_rms_norm(hidden_states, self.weight, epsilon=self.variance_epsilon)[0]
"""
_ASKS = 'config.add_import("veomni.utils.device", names=["IS_NPU_AVAILABLE"])\n\n\n'
_LENGTHS = """\


@config.override_method("OlmoeModel.longest", description="for the fused kernel")
def olmoe_longest(self, {parameters}):
    return cu_seq_lens_q.diff().max()
"""
_DEEPSEEK = """\
from ....utils.device import IS_NPU_AVAILABLE
from ...loader import MODELING_REGISTRY


@MODELING_REGISTRY.register("deepseek_v3")
def register_deepseek_v3_modeling(architecture):
    from . import checkpoint_tensor_converter as converter
    from .device_patch import apply_veomni_deepseek_v3_device_patch

    if IS_NPU_AVAILABLE:
        from .generated import patched_modeling_deepseek_v3_npu as generated
    else:
        from .generated import patched_modeling_deepseek_v3_gpu as generated

    if architecture not in (None, "DeepseekV3ForCausalLM"):
        raise ValueError(f"deepseek_v3 is not trained as {architecture}")
    apply_veomni_deepseek_v3_device_patch(generated)
    model = generated.DeepseekV3ForCausalLM
    model._create_checkpoint_tensor_converter = staticmethod(converter.create_deepseek_v3_checkpoint_tensor_converter)
    model._convert_fqn_to_index_mapping = staticmethod(converter.convert_deepseek_v3_fqn_to_index_mapping)
    return model
"""
_APPLIED = "    apply_veomni_deepseek_v3_device_patch(generated)\n"


def _norm(body: str, imports: str = "") -> str:
    """Return a patch of the norm."""
    return _NORM.format(imports=imports, body=body)


def _both(gpu: str = "", npu: str = "") -> Example:
    """Return a model for two devices, with a patch for each."""
    configs = {GPU_CONFIG: patch_config(gpu), NPU_CONFIG: patch_config(npu, device="npu")}
    return {"__init__.py": REGISTER_BOTH, **configs}


class EveryFileIsUsed(Rule):
    """Return classes of each generated file from a register function, on some device.

    Why: a device's file that no branch imports is generated, reviewed and maintained, while the device trains with the
    GPU code.

    Fine when: another model directory imports the file.
    """

    id = "VEO701"
    name = "every-generated-file-is-returned-from"
    target = "veomni"
    obligations = ("VEO-NPU-01", "VEO-ENV-05")
    failure_modes = ("gpu-npu-fork-drift",)
    BAD = ({**_both(), "__init__.py": REGISTER},)
    GOOD = (_both(),)

    def check(self, generated: list[Generated], returned: list[Returned]) -> Findings:
        used = {path.value.module.path for path in returned if isinstance(path.value, Class)}
        if not used:
            raise NotApplicable("no register function returns a class of the directory")
        for item in generated:
            if item.file.path not in used:
                message = f"no register function returns a class of {item.file.path.name}, on any device"
                yield Finding(message, item.file.path, 1)


class SiblingsHaveOneInterface(Rule):
    """Export the same models, with the same method parameters, from the generated files of all devices.

    Why: the trainer, the tests and other patches call one interface. On the other device the call raises TypeError or
    the class cannot be imported, and few people test that device.

    Fine when: the class is left out on purpose and upstream's code is the same; state that in an ignore comment.
    """

    id = "VEO702"
    name = "device-siblings-have-one-interface"
    target = "veomni"
    obligations = ("VEO-NPU-01", "VEO-NPU-03")
    failure_modes = ("gpu-npu-fork-drift",)
    BAD = (
        _both(
            gpu=_LENGTHS.format(parameters="cu_seq_lens_q, cu_seq_lens_k"),
            npu=_LENGTHS.format(parameters="cu_seq_lens_q"),
        ),
    )
    GOOD = (_both(*[_LENGTHS.format(parameters="cu_seq_lens_q")] * 2),)

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
    """Patch for every device what the GPU config patches.

    A missing patch is a warning if it needs only Python, torch, transformers and VeOmni, and the config does not
    mention it. In other cases a kernel may be the reason, and the finding is an information.

    Why: that device runs upstream's code: no fused loss, no sequence parallelism, no fix.

    Fine when: the patch uses a kernel that the other device lacks; state that in an ignore comment on the config's
    first line.
    """

    id = "VEO703"
    name = "device-sibling-patches-the-same"
    severity = Severity.info
    target = "veomni"
    obligations = ("VEO-NPU-03", "VEO-PG-45")
    failure_modes = ("gpu-npu-fork-drift",)
    BAD = (_both(gpu=_norm(_GPU_NORM)),)
    GOOD = (_both(gpu=_norm(_GPU_NORM), npu=_norm(_NPU_NORM)),)

    def check(self, regenerated: list[Regenerated], generated: list[Generated]) -> Findings:
        items = {item.file.path.name: item for item in generated}
        by_device = {_device(run.config.target_file or ""): run for run in regenerated}
        gpu = by_device.pop("_gpu", None)
        by_device.pop("", None)
        if gpu is None or not by_device:
            raise NotApplicable("only one kind of device has a config")
        for run in by_device.values():
            targets = {_target(applied) for applied in run.result.patches}
            classes = {target.partition(".")[0] for target in targets}
            others = {_target(applied) for applied in gpu.result.patches}
            lost = sorted(o for o in others - targets if o.partition(".")[0] not in targets and o not in classes)
            if targets and lost and gpu.config.source_module == run.config.source_module:
                pair = [items.get(config.target_file or "") for config in (gpu.config, run.config)]
                free = [one for one in lost if _runs_anywhere(one, *pair) and not _spoken_of(one, run.config.file)]
                for names, severity in (
                    (free, Severity.warning),
                    ([one for one in lost if one not in free], Severity.info),
                ):
                    if names:
                        shown = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
                        message = f"{gpu.config.file.path.name} patches {shown}, but this config does not"
                        yield Finding(message, run.config.file.path, run.config.line, severity=severity)


class KernelsChosenByFile(Rule):
    """Do not choose kernels by device inside the generated file of one device.

    Why: the other device has its own file. The branch never runs on this device, and nobody maintains it when the other
    device's file changes.

    Fine when: one file serves all devices, or the condition moves data and does not choose a kernel.
    """

    id = "VEO704"
    name = "no-device-switch-for-kernels"
    severity = Severity.warning
    target = "veomni"
    obligations = ("VEO-NPU-02",)
    failure_modes = ("silent-eager-fallback",)
    BAD = (
        _both(
            gpu=_norm(_SWITCH + _GPU_NORM, imports=_ASKS),
            npu=_norm(_NPU_NORM),
        ),
    )
    GOOD = (_both(gpu=_norm(_GPU_NORM), npu=_norm(_NPU_NORM)),)

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
    """Call the `apply_veomni_..._device_patch` of `device_patch.py` in the register function.

    Why: this call installs the kernels that the user chooses at run time. Without it every choice in the training
    configuration is accepted, and the eager code runs.

    Fine when: the model's users call it.
    """

    id = "VEO705"
    name = "device-patch-is-applied"
    target = "veomni"
    obligations = ("VEO-MOE-27",)
    failure_modes = ("silent-eager-fallback",)
    example_of = "deepseek_v3"
    BAD = ({"__init__.py": _DEEPSEEK.replace(_APPLIED, "")},)
    GOOD = ({"__init__.py": _DEEPSEEK},)

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


def _spoken_of(target: str, config: File) -> bool:
    """Return whether a config says anything of a class, in code or in a comment."""
    return target.partition(".")[0] in config.text


def _runs_anywhere(target: str, gpu: Generated | None, other: Generated | None) -> bool:
    """Return whether a patched method asks for nothing that the other file lacks, but for what VeOmni has
    everywhere.
    """
    owner, _, method = target.partition(".")
    if gpu is None or other is None or owner not in gpu.classes:
        return False
    named = [one for one in gpu.classes[owner].body if getattr(one, "name", None) == method]
    asked = {node.id for one in named for node in walked(one) if isinstance(node, ast.Name)}
    own, known = (
        {*one.source.imports, *one.source.functions, *one.source.classes, *one.source.constants} for one in (gpu, other)
    )
    places = [gpu.source.imports.get(name) for name in asked & own - known]
    modules = [place.module if place is not None else "" for place in places]
    return bool(named) and all(one.startswith("veomni.") and not one.startswith("veomni.ops") for one in modules)


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
        raise NotApplicable("only one kind of device has a generated file")
    yield from found


def _public(item: Generated, name: str) -> bool:
    """Return whether a class is a model: what trainers and register functions may ask for."""
    return any(base.endswith("PreTrainedModel") for base in item.source.bases(item.classes[name]))


def _methods(one: Generated, other: Generated, name: str) -> Iterator[tuple[str, ast.FunctionDef, ast.FunctionDef]]:
    theirs = {f.name: f for f in other.classes[name].body if isinstance(f, ast.FunctionDef)}
    for function in one.classes[name].body:
        other_one = theirs.get(function.name) if isinstance(function, ast.FunctionDef) else None
        if other_one is not None and isinstance(function, ast.FunctionDef):
            yield function.name, function, other_one


def _difference(one: ast.FunctionDef, other: ast.FunctionDef) -> str:
    """Return the difference in the parameters of two methods; annotations do not count."""
    ours, theirs = (list(named(signature(function))) for function in (one, other))
    if added := [name for name in ours if name not in theirs]:
        return f"takes '{added[0]}'" if not double_star(signature(other)) else ""
    if lost := [name for name in theirs if name not in ours]:
        needed = lost[0] in required(signature(other)) or not double_star(signature(one))
        return f"does not take '{lost[0]}'" if needed else ""
    return "takes its parameters in a different order" if ours != theirs else ""


def _target(applied: object) -> str:
    return str(getattr(getattr(applied, "patch", applied), "target", ""))


def _kernel(node: ast.If | ast.IfExp) -> str:
    """Return the fused kernel that one of the branches calls."""
    for call in (inner for inner in walked(node) if isinstance(inner, ast.Call)):
        name = dotted(call.func) or ""
        if name.startswith(("torch_npu.", "veomni_", "liger_")):
            return name
    return ""
