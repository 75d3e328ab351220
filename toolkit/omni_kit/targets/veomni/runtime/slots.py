"""The kernel slots of a VeOmni integration: which it declares, what may fill them, and who calls them."""

import ast
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

from omni_kit.targets.sides import Slot
from omni_kit.targets.veomni.runtime.references import REFERENCES, fused_experts
from omni_kit.targets.veomni.runtime.stand_ins import NAME as STAND_IN

COUNTING = "reference"
ATTENTION = "attention"
_SEEN: dict[str, list[str]] = {}


def find_slots(model: nn.Module, import_name: str, unjudged: str = "") -> list[Slot]:
    """Return every slot that the integration's imported modules declare, in the order of the source.

    Args:
        model: what was built; a slot that only other classes use is idle in it.
        unjudged: why upstream's attention cannot judge packed attention; empty if it can.
    """
    modeling = sys.modules[type(model).__module__]
    modules = [module for name, module in sys.modules.items() if name.startswith(f"{import_name}.")]
    built = {type(module).__name__ for module in model.modules()}
    found = [slot for module in modules for slot in _of_module(module, modeling, built)]
    return found + _attention(modeling, type(model), unjudged)


def _of_module(module: ModuleType, modeling: ModuleType, built: set[str]) -> Iterator[Slot]:
    from veomni.ops.dispatch import OpSlot

    declared = {name: value for name, value in vars(module).items() if isinstance(value, OpSlot)}
    if not declared or not module.__file__:
        return
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    lines, users = _declarations(tree), _users(tree)
    for name, slot in declared.items():
        if name not in lines:  # imported from where it is declared
            continue
        bindable = module is modeling  # VeOmni binds what lies beside the class that it builds, and nothing else
        operation = f"{slot.op_name}:{slot.variant}"
        kernels, missing = kernels_of(slot) if bindable else ([], [])
        source, idle = f"{module.__file__}:{lines[name]}", _idle(users.get(name), built)
        yield Slot(name, operation, source, kernels, idle, missing)


def _attention(modeling: ModuleType, model_class: Any, unjudged: str) -> list[Slot]:
    """Attention is chosen by name from a registry of functions; an integration that asks it has such a slot, too."""
    tree = ast.parse(inspect.getsource(modeling))
    asked = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _asks_registry(node)]
    if not asked:
        return []
    flash = getattr(model_class, "_supports_flash_attn", False)
    idle = unjudged if flash else "the model takes no flash attention"
    return [Slot(ATTENTION, "attention:packed", f"{modeling.__file__}:{min(asked)}", (COUNTING,), idle)]


def _asks_registry(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id == "ALL_ATTENTION_FUNCTIONS"


def _declarations(tree: ast.Module) -> dict[str, int]:
    """Name -> line of its first assignment at the top."""
    lines: dict[str, int] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    lines.setdefault(target.id, node.lineno)
    return lines


def _users(tree: ast.Module) -> dict[str, set[str]]:
    """Name -> the classes that mention it, themselves or through functions of the module."""
    mentions = {
        node.name: {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        for node in tree.body
        if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    users: dict[str, set[str]] = {}
    for name in mentions.keys() - functions:
        for mentioned in _reached(name, mentions, functions):
            users.setdefault(mentioned, set()).add(name)
    return users


def _reached(name: str, mentions: Mapping[str, set[str]], functions: set[str]) -> set[str]:
    """Return the names that a definition mentions, directly or through mentioned functions."""
    reached: set[str] = set()
    todo = [name]
    while todo:
        new = mentions[todo.pop()] - reached
        reached |= new
        todo += new & functions
    return reached


def _idle(users: set[str] | None, built: set[str]) -> str:
    """Return why a slot cannot be called in the built model; a slot that nothing mentions has no such reason."""
    if not users or users & built:
        return ""
    return f"only {', '.join(sorted(users)[:2])} would call it, and the model that was built has none"


def kernels_of(slot: Any) -> tuple[list[str], list[str]]:
    """Return the counting reference, where there is one, and what VeOmni has for this accelerator; and what cannot
    load.
    """
    from veomni.ops.kernel_registry import KERNEL_REGISTRY

    key = (slot.op_name, slot.variant)
    found, missing = [COUNTING] if key in REFERENCES else [], []
    for name, spec in KERNEL_REGISTRY._specs.get(key, {}).items() if torch.cuda.is_available() else ():
        if name in (COUNTING, STAND_IN) or not spec.hardware.is_satisfied():
            continue
        try:
            spec.factory()
            found.append(name)
        except (ImportError, RuntimeError) as error:
            missing.append(f"{name} ({' '.join(str(error).split())[:200]})")
    return found, missing


class Counting:
    """A reference that notes what it was called with, under the name of the slot that it fills."""

    def __init__(self, name: str, function: Callable[..., Any]) -> None:
        self.name = self.__name__ = name  # VeOmni logs the kernels that it finds by their __name__
        self._function = function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        note_call(self.name, args, kwargs)
        return self._function(*args, **kwargs)


def note_call(name: str, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Write a call down."""
    _SEEN.setdefault(name, []).append(call_told(args, kwargs))


def call_told(args: Any, kwargs: Mapping[str, Any]) -> str:
    """Return the arguments of a call, in short."""
    told = [_told(value) for value in args] + [f"{key}={_told(value)}" for key, value in kwargs.items()]
    return ", ".join(told)


def calls_seen() -> dict[str, list[str]]:
    """Slot -> the arguments of each call since the last question."""
    seen = dict(_SEEN)
    _SEEN.clear()
    return seen


def _told(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, nn.Module):
        return type(value).__name__
    if isinstance(value, (tuple, list)) and value and isinstance(value[0], torch.Tensor):
        return f"{len(value)} x {_told(value[0])}"
    return repr(value)[:40]


@contextmanager
def filled(name: str, kernel: str) -> Iterator[None]:
    """While VeOmni binds the slots of a model that it builds, this one gets a kernel after all."""
    from veomni.models import auto

    bind = auto._bind_veomni_ops

    def bound(module: ModuleType, config: Any) -> bool:
        done: bool = bind(module, config)
        _point_at_experts(module, None)  # no longer at what another model left there
        if name != ATTENTION:
            _fill(module, name, kernel)
        return done

    auto._bind_veomni_ops = bound
    try:
        yield
    finally:
        auto._bind_veomni_ops = bind


def _fill(module: ModuleType, name: str, kernel: str) -> None:
    slot = getattr(module, name)
    if kernel != COUNTING:
        slot.bind(kernel)
    else:
        slot._kernel, slot._impl_name = Counting(name, REFERENCES[slot.op_name, slot.variant]), COUNTING
    if slot.op_name == "moe_experts" and kernel == COUNTING:
        _point_at_experts(module, Counting(name, fused_experts))
    elif slot.op_name == "moe_experts":
        from veomni.ops.kernels import moe

        moe.apply_veomni_fused_moe_patch(fused_moe_kernel=kernel)


def _point_at_experts(module: ModuleType, kernel: Counting | None) -> None:
    """Some experts ask the slot only whether it is filled, and call what VeOmni's pointer leads to.

    On the way there VeOmni checks for 16 bits, as its kernels need them; the reference does not.
    """
    from veomni.ops.kernels import moe

    moe._fused_moe_forward = kernel
    if hasattr(module, "fused_moe_forward"):
        module.fused_moe_forward = kernel or moe.fused_moe_forward  # type: ignore[attr-defined]
