"""The hooks of a model, called as VeOmni calls them, and what comes back judged against the model that was built."""

import ast
import inspect
import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from torch import nn

from omni_kit.errors import in_short
from omni_kit.targets.veomni.runtime.branches import registry_faults
from omni_kit.targets.veomni.runtime.converting import converter_faults, prediction_faults
from omni_kit.upstream.places import INDEX_SUFFIX
from omni_kit.upstream.transformers.traits import EXPERT_COUNTS

# Called once and handed to worker processes, which are spawned.
_COLLATING = ("get_extra_collate_infos", "get_metadata_collate_func", "get_position_id_func")
INDEX = f"model{INDEX_SUFFIX}"
_TARGETS = ("gate_proj", "up_proj", "down_proj")
Fault = tuple[str, str]


def faults_of(model: Any, checkpoint: Path) -> tuple[list[str], list[Fault]]:
    """Return the hooks that were called, and of each that is wrong its name and what is wrong.

    Args:
        model: built by VeOmni, on the meta device.
        checkpoint: in upstream's layout, with an index.
    """
    called, wrong = [], []
    config = model.config.to_dict()
    for name, call in _CALLS.items():
        try:
            found = call(model, checkpoint)
            if found is None:
                continue
            wrong += [(name, said) for said in found]
        except Exception as error:  # the hook's own
            wrong.append((name, in_short(error)))
        called.append(name)
    after = model.config.to_dict()
    if changed := [key for key, value in config.items() if after.get(key) != value]:
        wrong.append(("the config", f"a hook changes its {changed[0]}: the model keeps and saves the change"))
    untried, faults = registry_faults(model)
    called.append("what is registered" + (f", but for {', '.join(untried)}" if untried else ""))
    return called, [*wrong, *(("what is registered", said) for said in faults)]


def _no_split(model: Any, checkpoint: Path) -> Iterator[str] | None:
    """FSDP2 shards by the classes named here, and by nothing else."""
    names = list(getattr(model, "_no_split_modules", None) or [])
    there = {type(module).__name__ for module in model.modules()}
    if not names:
        return iter(["it is empty: FSDP2 gathers the whole model at once"])
    if not there.intersection(names):
        return iter([f"it names {', '.join(sorted(names))}, but no module has such a class"])
    return iter([])


def _plan(model: Any, checkpoint: Path) -> Iterator[str] | None:
    if not hasattr(model, "get_parallel_plan"):
        return None
    return _plan_faults(model, model.get_parallel_plan())


def _plan_faults(model: nn.Module, plan: Any) -> Iterator[str]:
    from veomni.distributed.parallel_plan import ParallelPlan
    from veomni.distributed.utils import check_fqn_match

    if not isinstance(plan, ParallelPlan):
        yield f"it returns {type(plan).__name__}, not a ParallelPlan"
        return
    parameters = dict(model.named_parameters())
    for what, patterns in plan.extra_parallel_plan.items():
        matched = {
            name: shard for pattern, shard in patterns.items() for name in parameters if check_fqn_match(pattern, name)
        }
        for pattern in patterns:
            if not any(check_fqn_match(pattern, name) for name in parameters):
                yield f"{what}: '{pattern}' matches no parameter"
        if what == "ep":
            yield from _experts(model, parameters, matched)


def _experts(model: Any, parameters: Mapping[str, nn.Parameter], matched: Mapping[str, Any]) -> Iterator[str]:
    """Every stack of experts is cut along its experts, biases too."""
    config = model.config.get_text_config() if hasattr(model.config, "get_text_config") else model.config
    counts = {getattr(config, name) for name in EXPERT_COUNTS if isinstance(getattr(config, name, None), int)}
    for name, shard in matched.items():
        dim = getattr(shard, "dim", None)
        if dim is None:
            yield f"{name} is not sharded, but {shard}"
        elif counts and parameters[name].size(dim) not in counts:
            shape = list(parameters[name].shape)
            yield f"{name} is sharded along dimension {dim} of {shape}, which is not its experts' dimension"
    modules = {name.rpartition(".")[0] for name in matched}
    for name, parameter in parameters.items():
        stacked = name.rpartition(".")[0] in modules and parameter.dim() > 1 and parameter.size(0) in counts
        if stacked and name not in matched:
            yield f"{name} is a stack of experts, too, and not in the plan: its ranks would hold all of them"


def _collating(model: Any, checkpoint: Path) -> Iterator[str] | None:
    there = [name for name in _COLLATING if callable(getattr(model, name, None))]
    return _unpicklable(model, there) if there else None


def _unpicklable(model: Any, names: list[str]) -> Iterator[str]:
    for name in names:
        answer = getattr(model, name)()
        try:
            pickle.loads(pickle.dumps(answer))  # our own dumps, of our own process
        except Exception as error:
            yield f"{name}: what it returns cannot be sent to a worker of the data loader: {error}"
        if callable(answer) and (said := _misfit(answer, name.removeprefix("get_"))):
            yield f"{name}: VeOmni's collator cannot call what it returns: {said}"


def _misfit(function: Callable[..., Any], name: str) -> str:
    """Return why the calls of VeOmni's collator do not fit; empty if they do, or if it calls in several ways."""
    ways = _ways_of_calling(name)
    try:
        if len(ways) == 1:
            inspect.signature(function).bind(*[None] * next(iter(ways)))
    except TypeError as error:
        return str(error)
    return ""


@cache
def _ways_of_calling(name: str) -> frozenset[int]:
    """Return the argument counts of VeOmni's collator for a function kept under this name, all positional."""
    from veomni.data import data_collator

    calls = [node for node in ast.walk(ast.parse(inspect.getsource(data_collator))) if isinstance(node, ast.Call)]
    known = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == name]
    by_place = all(not call.keywords and not any(isinstance(a, ast.Starred) for a in call.args) for call in known)
    return frozenset(len(call.args) for call in known) if by_place else frozenset()


def _converter(model: Any, checkpoint: Path) -> Iterator[str] | None:
    factory = getattr(model, "_create_checkpoint_tensor_converter", None)
    if factory is None:
        return None
    made = factory(model) if callable(factory) else factory
    if made is None:
        return iter([])
    lacking = [name for name in ("can_handle", "convert", "finalize") if not callable(getattr(made, name, None))]
    if lacking:
        return iter([f"what it returns has no '{name}': VeOmni ignores it or ends there" for name in lacking])
    other = factory(model) if callable(factory) else factory
    return chain(converter_faults(model, made, checkpoint), prediction_faults(model, other, checkpoint))


def _index(model: Any, checkpoint: Path) -> Iterator[str] | None:
    from veomni.models.checkpoint_tensor_loading import (
        get_fqn_to_index_mapping_converter,
        maybe_convert_fqn_to_index_mapping,
        parse_fqn_to_index_mapping_from_json,
    )

    if get_fqn_to_index_mapping_converter(model) is None or not (checkpoint / INDEX).is_file():
        return None
    before = parse_fqn_to_index_mapping_from_json(str(checkpoint / INDEX))
    after = maybe_convert_fqn_to_index_mapping(before, model) or {}
    return _index_faults(before, after, {name for name, _ in model.named_parameters()}, set(model.state_dict()))


def _foreign(keys: Iterable[str], names: Iterable[str]) -> list[str]:
    """The keys of parts that a model does not have at all."""
    parts = {name.partition(".")[0] for name in names}
    return [key for key in keys if key.partition(".")[0] not in parts]


def _index_faults(
    before: Mapping[str, int], after: Mapping[str, int], parameters: set[str], names: set[str]
) -> Iterator[str]:
    foreign = _foreign(after, names)
    if strange := sorted(set(after) - names - set(foreign)):
        yield f"it names {strange[0]}, which is not a parameter, and {len(strange) - 1} more"
    if lost := sorted(parameters - set(after)):
        yield f"it drops {lost[0]}, which would not be exported, and {len(lost) - 1} more"
    if len(set(before.values())) > 1 and len(set(after.values())) == 1:
        yield "it puts everything into one shard"


def _lora(model: Any, checkpoint: Path) -> Iterator[str] | None:
    """Adapters on fused experts are parameters: names of modules have to be translated."""
    experts = [name for name, parameter in model.named_parameters() if parameter.dim() == 3 and ".experts." in name]
    if not experts:
        return None
    if not hasattr(model, "_convert_lora_targets_to_parameters"):
        return iter([f"it is missing: LoRA on {', '.join(_TARGETS)} leaves out {experts[0]}, which is a stack"])
    from veomni.lora.target_mapping import resolve_fused_moe_lora_targets

    found = resolve_fused_moe_lora_targets(model, {"lora_modules": list(_TARGETS)})
    named = list(found.get("target_parameters") or [])
    if not named:
        return iter(["it translates none of gate_proj, up_proj and down_proj into a parameter"])
    left = [name for name in experts if name not in _matching(named, experts)]
    lost = [f"for {', '.join(_TARGETS)}, it leaves out {name}" for name in dict.fromkeys(map(_any_layer, left))]
    return iter([*lost, *_exchanged(model, experts)])


def _exchanged(model: Any, experts: Sequence[str]) -> Iterator[str]:
    """Projections that, asked for alone, give others' stacks and not the one that is named after them."""
    from veomni.lora.target_mapping import resolve_fused_moe_lora_targets

    for target in _TARGETS:
        word = target.removesuffix("_proj")
        own = [name for name in experts if word in name.rpartition(".")[2].split("_")]
        found = resolve_fused_moe_lora_targets(model, {"lora_modules": [target]})
        given = _matching(list(found.get("target_parameters") or []), experts)
        if own and given and not set(own) & set(given):
            yield f"for {target} alone, it returns {_any_layer(given[0])}"


def _matching(patterns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names that a pattern of VeOmni's matches."""
    return [name for name in names if any(fnmatch(name, one) or name.endswith(f".{one}") for one in patterns)]


def _any_layer(name: str) -> str:
    return ".".join("*" if part.isdigit() else part for part in name.split("."))


def _tying(model: Any, checkpoint: Path) -> Iterator[str] | None:
    """A config.json may say that embeddings are tied: then VeOmni ties them after loading, whatever the model has.

    Not asked of a model without a head: there VeOmni fails for every model, which no integration can fix.
    """
    import torch
    from veomni.models.module_utils import post_process_after_weight_loading

    parts = [part for part in model.modules() if hasattr(part, "get_output_embeddings")]
    if not any(part.get_output_embeddings() is not None for part in parts):
        return None
    told = type(model.config).from_dict({**model.config.to_dict(), "tie_word_embeddings": True})
    with torch.device("meta"):
        made = type(model)._from_config(told, attn_implementation="eager")
    try:
        post_process_after_weight_loading(made, {})
    except Exception as error:
        return iter([f"a config.json with tie_word_embeddings raises {type(error).__name__}: {error}"])
    return iter([])


def _loading(model: Any, checkpoint: Path) -> Iterator[str] | None:
    """Yield the keys that a loading hook drops only in part: a whole checkpoint has them and the model does not."""
    import torch

    hooks = list(model._load_state_dict_pre_hooks.values())
    if not hooks or not (checkpoint / INDEX).is_file():
        return None
    keys = json.loads((checkpoint / INDEX).read_text(encoding="utf-8"))["weight_map"]
    foreign = _foreign(keys, model.state_dict())
    state = {key: torch.empty(0, device="meta") for key in keys}
    for hook in hooks:
        hook(state, "", {}, True, [], [], [])
    kept = [key for key in foreign if key in state]
    if not kept or kept == foreign:
        return iter([])
    return iter([f"it drops parts that the model does not have, but keeps {kept[0]}: a strict load ends there"])


_CALLS: Mapping[str, Callable[[Any, Path], Iterator[str] | None]] = {
    "_no_split_modules": _no_split,
    "get_parallel_plan": _plan,
    "hooks of the collator": _collating,
    "_create_checkpoint_tensor_converter": _converter,
    "_convert_fqn_to_index_mapping": _index,
    "_convert_lora_targets_to_parameters": _lora,
    "tying of embeddings": _tying,
    "hooks for loading": _loading,
}
