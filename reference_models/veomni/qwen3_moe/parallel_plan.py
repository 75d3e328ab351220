"""Expert parallelism for Qwen3Moe: which parameters are cut, along the dimension that counts experts."""

from torch.distributed.tensor import Shard
from veomni.distributed.parallel_plan import ParallelPlan


def get_parallel_plan() -> ParallelPlan:
    """Every key is the name of a stacked expert parameter; a key that matched none would cut nothing, silently."""
    return ParallelPlan(
        extra_parallel_plan={
            "ep": {
                "model.layers.*.mlp.experts.gate_up_proj": Shard(0),
                "model.layers.*.mlp.experts.down_proj": Shard(0),
            }
        }
    )
