"""The kernels that VeOmni's settings can choose for a model, and choosing them.

Everything is read from the installed version: the fields of its settings, its registry of kernels, and its registry
of attention functions.
"""

import ast
import dataclasses
import importlib.util
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import torch
from torch import nn

from omni_kit.resources import resource_dir
from omni_kit.targets.sides import Bindable, KernelChoice, Slot
from omni_kit.targets.veomni.runtime.slots import ATTENTION, COUNTING
from omni_kit.targets.veomni.runtime.stand_ins import NAME as STAND_IN
from omni_kit.targets.veomni.runtime.stand_ins import register_stand_ins

BROUGHT_ATTENTION = "torch_varlen"
BROUGHT = ("grouped_mm", "liger_large_chunks", BROUGHT_ATTENTION)
"""The kernels that omni-kit brings; each registers itself in the file of its name among the templates."""
PLACE = ("model", "ops_implementation")
PLAIN = "eager"
_SUFFIX = "_implementation"
ATTENTION_SETTING = f"attn{_SUFFIX}"
EXPERTS = "moe_experts"
_USUAL_ATTENTION = "sdpa"
_NO_KERNEL: Mapping[str, str] = {"qat_implementation": "none"}


def choices_of(model: nn.Module, slots: Sequence[Slot]) -> list[KernelChoice]:
    """Return the kernel settings that apply to a model.

    Args:
        slots: of the model, as `find_slots` gives them.
    """
    found: dict[str, list[Bindable]] = {}
    for slot in slots:
        operation, _, variant = slot.operation.partition(":")
        if slot.idle:
            continue
        if slot.name == ATTENTION:
            found[ATTENTION_SETTING] = _attentions()
        elif (setting := setting_of(operation)) in _defaults():
            kernels = found.setdefault(setting, [Bindable(PLAIN, plain=True)])
            kernels += [one for one in _registered(operation, variant) if one.name not in _names(kernels)]
    return [_choice(setting, kernels) for setting, kernels in found.items() if len(kernels) > 1]


def bring_kernels() -> None:
    """Register the kernels that omni-kit brings; one that the integration has already stays as it is."""
    from veomni.ops.kernels import moe  # noqa: F401 - VeOmni's own kernels register themselves

    for name in BROUGHT:
        brought(name)


def brought(name: str) -> ModuleType:
    """Return a module among the templates that integrations get as it is; it runs once."""
    if (own := f"omni_kit_{name}") not in sys.modules:
        file = resource_dir("templates") / "veomni" / "text" / f"{name}.py.jinja"
        module = ModuleType(own)
        sys.modules[own] = module
        exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), vars(module))
    return sys.modules[own]


def setting_of(operation: str) -> str:
    """Return the field of VeOmni's settings that chooses the kernel of an operation."""
    return f"moe{_SUFFIX}" if operation == EXPERTS else f"{operation}{_SUFFIX}"


def attention_choice() -> KernelChoice:
    """Return the ways of computing attention for a model whose own code calls torch's."""
    others = [one for one in _attentions() if one.name not in (PLAIN, _USUAL_ATTENTION)]
    return _choice(ATTENTION_SETTING, [Bindable(_USUAL_ATTENTION, plain=True), *others])


def _choice(setting: str, kernels: Sequence[Bindable]) -> KernelChoice:
    fallback = _USUAL_ATTENTION if setting == ATTENTION_SETTING else PLAIN
    return KernelChoice(setting.removesuffix(_SUFFIX), setting, _defaults()[setting], fallback, tuple(kernels))


def _names(kernels: Sequence[Bindable]) -> set[str]:
    return {kernel.name for kernel in kernels}


def _fields() -> dict[str, dataclasses.Field[Any]]:
    from veomni.arguments.arguments_types import OpsImplementationConfig

    return {field.name: field for field in dataclasses.fields(OpsImplementationConfig)}


def _defaults() -> dict[str, str]:
    return {name: str(field.default) for name, field in _fields().items()}


def _registered(operation: str, variant: str) -> Iterator[Bindable]:
    """Yield the kernels of VeOmni's registry for an operation, by their names in settings."""
    from veomni.ops.kernel_registry import KERNEL_REGISTRY

    for name, spec in KERNEL_REGISTRY._specs.get((operation, variant), {}).items():
        if name not in (COUNTING, STAND_IN):
            yield Bindable(f"fused_{name}" if operation == EXPERTS else name, _missing(spec))


def _missing(spec: Any) -> str:
    """Return why a kernel cannot run on this machine; empty if it can."""
    if not spec.hardware.is_satisfied():
        return f"needs {spec.hardware.device_type}{_capability(spec.hardware)}"
    try:
        spec.factory()
    except (ImportError, RuntimeError, AttributeError) as error:
        return " ".join(str(error).split())[:200] or type(error).__name__
    return ""


def _capability(hardware: Any) -> str:
    least = getattr(hardware, "min_compute_capability", None)
    return f" of compute capability {least / 10:.1f} or more" if least else ""


def _attentions() -> list[Bindable]:
    """Return the ways of computing attention that the settings name."""
    from veomni.arguments.arguments_types import OpsImplementationConfig

    named = get_type_hints(OpsImplementationConfig)[ATTENTION_SETTING]
    literal = next((option for option in get_args(named) if get_origin(option) is Literal), named)
    return [Bindable(name, _attention_missing(name)) for name in (BROUGHT_ATTENTION, *get_args(literal))]


def _attention_missing(name: str) -> str:
    """Return why transformers, or VeOmni over it, cannot compute this attention on this machine."""
    from transformers import utils
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
    from veomni.utils import import_utils

    if name == PLAIN:
        return ""
    if name == BROUGHT_ATTENTION and importlib.util.find_spec("torch.nn.attention.varlen") is None:
        return "needs torch 2.10 or later"
    own = f"veomni_{name}_with_sp"
    if own not in ALL_ATTENTION_FUNCTIONS and name not in ALL_ATTENTION_FUNCTIONS:
        return "is not a function registered by transformers or VeOmni"
    short = name.replace("flash_attention_", "flash_attn_")
    asked = [getattr(module, f"is_{short}_available", None) for module in (utils, import_utils)]
    if not all(available() for available in asked if available is not None):
        return f"the package of {name} is not installed, or finds no device"
    if (own in ALL_ATTENTION_FUNCTIONS or name == BROUGHT_ATTENTION) and not torch.cuda.is_available():
        return "needs gpu"
    return ""


def built_in(module: ModuleType) -> set[str]:
    """Return the settings whose slots are asked while a model is built: another kernel there needs another model."""
    tree = ast.parse(inspect.getsource(module))
    builders = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == "__init__")
    asked = {part.id for node in builders for part in ast.walk(node) if isinstance(part, ast.Name)}
    return {setting_of(slot.op_name) for name, slot in slots_of(module).items() if name in asked}


def bind(model: nn.Module, settings: Any) -> None:
    """Binds the slots of a model that is built already, and chooses its attention."""
    from veomni.models.auto import _bind_veomni_ops
    from veomni.ops import apply_ops_config

    apply_ops_config(settings)
    _bind_veomni_ops(sys.modules[type(model).__module__], settings)
    for module in model.modules():
        if (config := getattr(module, "config", None)) is not None:
            config._attn_implementation = settings.attn_implementation


def slots_of(module: ModuleType) -> dict[str, Any]:
    """Return the slots that a module declares, or imports, by name."""
    from veomni.ops.dispatch import OpSlot

    return {name: value for name, value in vars(module).items() if isinstance(value, OpSlot)}


def eager_operations(**kernels: str) -> Any:
    """Return VeOmni's settings with these kernels selected and every other slot eager, where it has an eager form."""
    from veomni.arguments.arguments_types import OpsImplementationConfig

    names = [
        field.name for field in dataclasses.fields(OpsImplementationConfig) if field.name.endswith("_implementation")
    ]
    eager = {name: _NO_KERNEL.get(name, "eager") for name in names}
    stand_ins = {name: kernel for name, kernel in register_stand_ins().items() if name in eager}
    return OpsImplementationConfig(**{**eager, **stand_ins, **kernels})
