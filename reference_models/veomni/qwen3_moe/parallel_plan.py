"""Expert parallelism for Qwen3Moe: the sharded parameters, along the expert dimension."""

from torch.distributed.tensor import Shard
from veomni.distributed.parallel_plan import ParallelPlan


def get_parallel_plan() -> ParallelPlan:
    """Every key names a stacked expert parameter; a key without a match would silently shard nothing."""
    return ParallelPlan(
        extra_parallel_plan={
            "ep": {
                "model.layers.*.mlp.experts.gate_up_proj": Shard(0),
                "model.layers.*.mlp.experts.down_proj": Shard(0),
            }
        }
    )
