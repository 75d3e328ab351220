"""Blocks under torch.compile as a choice next to kernels: of decoders by VeOmni's own function, of wrappers by theirs.

Every choice of a decoder's kernels is compiled from a copy of the block's forward, so that no graph of one choice
serves another.
"""

import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any, cast

import torch
from torch import nn

from omni_kit.targets.graphs import graphs_compiled
from omni_kit.targets.sides import Bindable, KernelCall, KernelChoice
from omni_kit.targets.veomni.dit.transformer import WRAPPER
from omni_kit.targets.veomni.runtime.kernel_calls import kept, plain_code
from omni_kit.targets.veomni.runtime.kernels import (
    ATTENTION_SETTING,
    BROUGHT_ATTENTION,
    EXPERTS,
    PLAIN,
    brought,
    setting_of,
)
from omni_kit.targets.veomni.text.context import COMPILED, PADDED

SETTING, OFF, BLOCKS = "torch_compile", "off", "blocks"
_OUTSIDE = frozenset(map(setting_of, ("cross_entropy_loss", "load_balancing_loss")))
_EXPERTS = "fused_grouped_mm"
_VEOMNI = "veomni.distributed.torch_compile"
_MARKS = ("forward", "_veomni_forward_compiled", "_veomni_original_forward", "_veomni_compile_config")
_copies: dict[tuple[Any, ...], FunctionType] = {}


def compile_choice(model: nn.Module, choices: Sequence[KernelChoice]) -> list[KernelChoice]:
    """Return the choice of compiled blocks, for models with decoder blocks.

    Inside of compiled blocks, operations take plain code, which the compiler fuses; experts take torch's `grouped_mm`,
    and attention a kernel that keeps packed samples apart, because VeOmni compiles for packed rows alone.

    Args:
        choices: the kernels of the model.
    """
    if importlib.util.find_spec(_VEOMNI) is None or not _blocks(model):
        return []
    along, missing = dict[str, str](), _refused(model)
    for choice in choices:
        if choice.setting in _OUTSIDE:
            continue
        wanted = [PLAIN]
        if choice.setting == setting_of(EXPERTS):
            wanted = [_EXPERTS]
        elif choice.setting == ATTENTION_SETTING:
            wanted = [one.name for one in choice.kernels if "flash" in one.name] + [BROUGHT_ATTENTION]
        usable = {one.name for one in choice.kernels if not one.missing}
        along[choice.setting] = next((name for name in wanted if name in usable), wanted[-1])
        if along[choice.setting] not in usable:
            missing = missing or f"needs {along[choice.setting]} as {choice.setting}, which cannot run here"
    blocks = Bindable(BLOCKS, missing, along=along, training={COMPILED: True, PADDED: True})
    return [_choice(blocks, COMPILED)]


def wrapper_choice(model: nn.Module) -> list[KernelChoice]:
    """Return the choice of compiled blocks, for wrappers that can compile theirs."""
    missing = "" if torch.cuda.is_available() else "needs gpu"
    return [_choice(Bindable(BLOCKS, missing, training={WRAPPER: True}), WRAPPER)] if _compiles(model) else []


def _choice(blocks: Bindable, path: str) -> KernelChoice:
    return KernelChoice(SETTING, SETTING, OFF, OFF, (Bindable(OFF, plain=True, training={path: False}), blocks))


def _compiles(model: nn.Module) -> bool:
    return callable(getattr(type(model), WRAPPER.rpartition(".")[2], None))


def _refused(model: nn.Module) -> str:
    """Return why VeOmni, or this machine, compiles no blocks of a model."""
    from veomni.distributed.torch_compile import CompileConfig, _is_multimodal_model, validate_compile_model

    try:
        validate_compile_model(model, CompileConfig(enable=True))
    except RuntimeError as error:
        return " ".join(str(error).split())[:200]
    if _is_multimodal_model(model):
        return "is measured for models of text alone"
    return "" if torch.cuda.is_available() else "needs gpu"


def _blocks(model: nn.Module) -> list[nn.Module]:
    from veomni.distributed.torch_compile import _decoder_block_class_names

    names = _decoder_block_class_names(model)
    return [module for module in model.modules() if type(module).__name__ in names]


def select_blocks(model: nn.Module, chosen: Mapping[str, str], backend: str = "inductor") -> None:
    """Compile the blocks of a model if `chosen` says so; otherwise undo it.

    Args:
        chosen: setting -> kernel, bound already.
        backend: of torch.compile.
    """
    from veomni.distributed.torch_compile import CompileConfig, compile_decoder_blocks

    for block in _blocks(model):
        for name in _MARKS:
            vars(block).pop(name, None)
    if (undo := vars(model).pop("_omni_kit_graphs", None)) is not None:
        undo.remove()
    if chosen.get(SETTING, OFF) == OFF:
        return
    _begin(model)
    key = tuple(sorted(item for item in chosen.items() if item[0] not in _OUTSIDE))
    for block in _blocks(model):
        setattr(block, "forward", MethodType(_copied(type(block).forward, key), block))  # noqa: B010 - typed otherwise
    compile_decoder_blocks(model, CompileConfig(enable=True, backend=backend))
    vars(model)["_omni_kit_graphs"] = brought("compiled_blocks").keep_graphs(model)


def select_wrapper_blocks(model: nn.Module, chosen: Mapping[str, str]) -> None:
    """Compile the blocks of a wrapper by its own method if `chosen` says so; otherwise undo it."""
    for block in wrapper_blocks(model):
        vars(block).pop("forward", None)
    if chosen.get(SETTING, OFF) != OFF:
        _begin(model)
        cast(Any, model).compile_blocks()


def wrapper_blocks(model: nn.Module) -> list[nn.Module]:
    """Return the blocks that a wrapper compiles, in order."""
    names = getattr(model, "_no_split_modules", None) or ()
    return [module for module in model.modules() if type(module).__name__ in names]


def _begin(model: nn.Module) -> None:
    """Make the state that trainers make: without it, VeOmni logs inside of blocks."""
    from veomni.distributed import parallel_state

    if parallel_state._PARALLEL_STATE is None:
        parallel_state.init_parallel_state(device_type=next(model.parameters()).device.type)


def _copied(function: Any, key: tuple[Any, ...]) -> FunctionType:
    """Return a copy of a function with code of its own, by which torch keeps graphs; the same one for the same key."""
    if (function, key) not in _copies:
        code, closure = function.__code__.replace(), function.__closure__
        copy = FunctionType(code, function.__globals__, function.__name__, function.__defaults__, closure)
        copy.__kwdefaults__ = function.__kwdefaults__
        _copies[function, key] = copy
    return _copies[function, key]


def decoder_calls(model: nn.Module, steps: Sequence[Callable[[], Any]]) -> list[KernelCall | str]:
    """Return `block_calls` of a decoder; attention of the reference goes by its definition.

    Args:
        steps: forward and backward on rows of one length, each packed differently.

    Raises:
        RuntimeError: blocks do not compile, or compile again for another packing.
    """
    attention = cast(Any, model).config._attn_implementation
    calls = block_calls(_blocks(model), steps[0], partial(_plain, sys.modules[type(model).__module__], attention))
    before = graphs_compiled()
    for step in steps[1:]:
        step()
    if more := graphs_compiled() - before:
        raise RuntimeError(f"{more} graphs are compiled again for {len(steps) - 1} rows that are packed differently")
    return calls


def block_calls(
    blocks: Sequence[nn.Module], step: Callable[[], Any], reference: Callable[..., Any] | None = None
) -> list[KernelCall | str]:
    """Return one call of each form of compiled blocks.

    Args:
        step: forward and backward of their model.
        reference: of a block and its arguments; None takes the block's own forward without the compiler.
    """
    calls: dict[tuple[Any, ...], KernelCall] = {}

    def catch(block: nn.Module, args: Any, kwargs: dict[str, Any]) -> None:
        form = tuple((name, type(module)) for name, module in block.named_modules())
        if form not in calls:
            first = next(value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor))
            told = f"{type(block).__name__} {'x'.join(map(str, first.shape))}"
            calls[form] = KernelCall(told, _compiled, reference or _own, (block, *kept(args)), kept(kwargs))

    hooks = [block.register_forward_pre_hook(catch, with_kwargs=True) for block in blocks]
    try:
        step()
    finally:
        for hook in hooks:
            hook.remove()
    return list(calls.values())


def _compiled(block: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return block.forward(*args, **brought("compiled_blocks").mark_samples(kwargs))


def _own(block: nn.Module, *args: Any, **kwargs: Any) -> Any:
    return type(block).forward(block, *args, **kwargs)


def _plain(module: Any, attention: str, block: nn.Module, *args: Any, **kwargs: Any) -> Any:
    with plain_code(module, attention):
        return _own(block, *args, **kwargs)
