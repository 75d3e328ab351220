"""Ulysses sequence parallelism for WanTransformer3DModel, as its own plan says.

The plan (`_cp_plan`) says which arguments and results of which modules are cut along which dimension, and where the
shares are joined. Attention is computed over whole sequences, with a part of the heads in each process. Shares may
differ by one token: for the exchange they are padded to one length, and what comes back is cut to size again.
"""

import inspect
from collections.abc import Callable

import torch
import torch.distributed as dist
from diffusers.models._modeling_parallel import ContextParallelInput, ContextParallelOutput
from veomni.distributed.parallel_state import get_parallel_state
from veomni.distributed.sequence_parallel import (
    gather_heads_scatter_seq,
    gather_outputs,
    gather_seq_scatter_heads,
)

# The arguments whose tokens attention joins, in the order in which it does and a mask counts; None where that is unknown.
_STREAMS = ()


class SequenceShare:
    """Hooks that shard and gather at one model's modules; no-ops without sequence parallelism."""

    def __init__(self, model, plan):
        self._inputs = plan.get("", {})
        self._held: dict[str, int] = {}  # stream -> how many of its tokens this process holds, in the current block
        self._uneven = False  # from the first time on: a block may be run again for an earlier sample
        for name, entry in plan.items():
            for module in _modules(model, name) if name else ():
                self._attach(module, entry)
            if name.endswith(".0") and _STREAMS:
                for module in _modules(model, f"{name[:-1]}*"):
                    self._watch(module)

    @property
    def enabled(self) -> bool:
        """Whether sequences are sharded across processes."""
        return get_parallel_state().ulysses_enabled

    def begin(self, sample: dict) -> dict:
        """The arguments of one call of the model, those cut that the plan cuts there."""
        if not self.enabled:
            return sample
        cuts = {name: self._cut(sample[name], cut) for name, cut in self._inputs.items() if name in sample}
        return {**sample, **cuts}

    def exchanged(self, attend: Callable, query, key, value, mask):
        """Attention over whole sequences.

        Args:
            attend: attention of query, key, value and mask.
            query, key, value: this process's tokens with all heads, [batch, tokens, heads, width].
            mask: None, or over keys in its last dimension: this process's, or all.

        Returns:
            The same tokens with all heads, [batch, tokens, heads, width].
        """
        size = get_parallel_state().ulysses_size
        if query.shape[2] % size or key.shape[2] % size:
            raise ValueError(f"{size} processes cannot share {query.shape[2]} heads, {key.shape[2]} of keys, evenly")
        asking, answering = (self._lengths(tensor.shape[1], tensor.device) for tensor in (query, key))
        if mask is not None:
            mask = self._whole_mask(mask, answering, query.shape[2])
        answer = attend(_whole(query, asking), _whole(key, answering), _whole(value, answering), mask)
        return _own(answer, asking)

    def _attach(self, module, entry) -> None:
        if not isinstance(entry, dict):
            joins = [entry] if isinstance(entry, ContextParallelOutput) else list(entry)
            module.register_forward_hook(lambda _, args, output: self._joined(output, joins))
            return
        taken = {name: cut for name, cut in entry.items() if isinstance(name, str)}
        given = {
            index: cut for index, cut in entry.items() if isinstance(cut, ContextParallelInput) and cut.split_output
        }
        if taken:
            order = list(inspect.signature(module.forward).parameters)
            module.register_forward_pre_hook(
                lambda _, args, kwargs: self._cut_arguments(taken, order, args, kwargs), with_kwargs=True
            )
        if given:
            module.register_forward_hook(lambda _, args, output: self._cut_results(given, output))

    def _watch(self, module) -> None:
        """Record how many tokens of each stream a block receives."""
        order = list(inspect.signature(module.forward).parameters)

        def note(_, args, kwargs):
            given = {**dict(zip(order, args, strict=False)), **kwargs}
            self._held = {name: given[name].shape[1] for name in _STREAMS}

        module.register_forward_pre_hook(note, with_kwargs=True)

    def _cut_arguments(self, cuts, order, args, kwargs):
        if not self.enabled:
            return None
        args, kwargs = list(args), dict(kwargs)
        for name, cut in cuts.items():
            if name in kwargs:
                kwargs[name] = self._cut(kwargs[name], cut)
            elif (index := order.index(name)) < len(args):
                args[index] = self._cut(args[index], cut)
        return tuple(args), kwargs

    def _cut_results(self, cuts, output):
        if not self.enabled:
            return None
        results = [output] if isinstance(output, torch.Tensor) else list(output)
        for index, cut in cuts.items():
            results[index] = self._cut(results[index], cut)
        return results[0] if isinstance(output, torch.Tensor) else tuple(results)

    def _joined(self, output, joins):
        if not self.enabled:
            return None
        results = [output] if isinstance(output, torch.Tensor) else list(output)
        for index, join in enumerate(joins):
            if join is not None:
                own = results[index].shape[join.gather_dim]
                results[index] = _joined(results[index], join.gather_dim, self._lengths(own, results[index].device))
        return results[0] if isinstance(output, torch.Tensor) else tuple(results)

    def _cut(self, value, cut):
        """This process's share of a tensor, or of each in a list; another number of dimensions is left as it is."""
        if isinstance(value, (list, tuple)):
            cuts = cut if isinstance(cut, (list, tuple)) else [cut] * len(value)
            return type(value)(self._cut(one, how) for one, how in zip(value, cuts, strict=True))
        if value is None or (cut.expected_dims is not None and value.dim() != cut.expected_dims):
            return value
        state, length = get_parallel_state(), value.shape[cut.split_dim]
        if length < state.ulysses_size:
            raise ValueError(f"{state.ulysses_size} processes cannot share {length} tokens")
        self._uneven |= length % state.ulysses_size != 0
        return value.tensor_split(state.ulysses_size, cut.split_dim)[state.ulysses_rank]

    def _lengths(self, own: int, device) -> list[int]:
        """How many tokens each process holds where this one holds `own`."""
        state = get_parallel_state()
        if not self._uneven:
            return [own] * state.ulysses_size
        held = torch.tensor([own], device=device)
        every = [torch.empty_like(held) for _ in range(state.ulysses_size)]
        dist.all_gather(every, held, group=state.ulysses_group)
        return torch.cat(every).tolist()

    def _whole_mask(self, mask, lengths: list[int], heads: int):
        """A mask over all keys in the order in which the exchange puts them, for this process's heads."""
        state = get_parallel_state()
        if mask.dim() == 4 and mask.shape[1] == heads:
            mask = mask.chunk(state.ulysses_size, dim=1)[state.ulysses_rank]
        if mask.dim() > 2 and mask.shape[-2] != 1:
            raise ValueError("a mask that differs from query to query cannot be shared among processes")
        if mask.shape[-1] == lengths[state.ulysses_rank] != sum(lengths):
            padded = _padded(mask, -1, max(lengths)).contiguous()
            every = [torch.empty_like(padded) for _ in lengths]
            dist.all_gather(every, padded, group=state.ulysses_group)
            return _trimmed(torch.cat(every, dim=-1), -1, lengths)
        if mask.shape[-1] != sum(lengths):
            raise ValueError(f"a mask over {mask.shape[-1]} keys, of which there are {sum(lengths)}")
        if _STREAMS is None:
            raise ValueError("a mask over joined sequences whose order is not known cannot be shared among processes")
        if sum(self._held.values()) != lengths[state.ulysses_rank]:
            return mask  # over one sequence, in the order that it has
        totals = [sum(self._lengths(self._held[name], mask.device)) for name in _STREAMS]
        parts = [torch.arange(total, device=mask.device).tensor_split(len(lengths)) for total in totals]
        starts = [sum(totals[:index]) for index in range(len(totals))]
        order = [part + start for held in zip(*parts, strict=True) for part, start in zip(held, starts, strict=True)]
        return mask[..., torch.cat(order)]


def _modules(model, name: str) -> list:
    """The modules that a plan names: "blocks.0", "blocks.*"; the last one for a number that there is not.

    Upstream's plan may count the layers of the published size.
    """
    found = [model]
    for part in name.split("."):
        if part == "*":
            found = [child for module in found for child in module.children()]
        elif part.isdigit():
            found = [module[min(int(part), len(module) - 1)] for module in found]
        else:
            found = [getattr(module, part) for module in found]
    return found


def _padded(tensor, dim: int, length: int):
    """A tensor padded with trailing zeros up to a length."""
    shape = list(tensor.shape)
    shape[dim] = length - shape[dim]
    return torch.cat([tensor, tensor.new_zeros(shape)], dim=dim) if shape[dim] else tensor


def _trimmed(tensor, dim: int, lengths: list[int]):
    """Shares that follow each other, padded to the longest, without what they were padded with."""
    if min(lengths) == max(lengths):
        return tensor
    parts = zip(tensor.split(max(lengths), dim=dim), lengths, strict=True)
    return torch.cat([part.narrow(dim, 0, length) for part, length in parts], dim=dim)


def _joined(tensor, dim: int, lengths: list[int]):
    """The shares of all processes; the gradient of each comes back to it, summed."""
    padded = _padded(tensor, dim, max(lengths))
    return _trimmed(gather_outputs(padded, gather_dim=dim, group=get_parallel_state().ulysses_group), dim, lengths)


def _whole(tensor, lengths: list[int]):
    """All tokens with this process's heads, of this process's tokens with all heads."""
    group = get_parallel_state().ulysses_group
    return _trimmed(
        gather_seq_scatter_heads(_padded(tensor, 1, max(lengths)), seq_dim=1, head_dim=2, group=group), 1, lengths
    )


def _own(tensor, lengths: list[int]):
    """The inverse of `_whole`."""
    state = get_parallel_state()
    padded = torch.cat([_padded(part, 1, max(lengths)) for part in tensor.split(lengths, dim=1)], dim=1)
    own = gather_heads_scatter_seq(padded, head_dim=2, seq_dim=1, group=state.ulysses_group)
    return own[:, : lengths[state.ulysses_rank]]
