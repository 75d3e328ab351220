"""The layout that a hub checkpoint is expected to have, when no checkpoint is at hand: from the recipe alone."""

from omni_kit.layout.taxonomy import Disk, Memory, pair_orientation
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.traits import expert_parameters


def expected_layout(model: UpstreamModel) -> tuple[Disk | None, tuple[str, ...]]:
    """The layout on disk, and the leaf names of gate, up and down.

    A recipe that merges a list of modules means experts split by number; experts without a recipe lie on disk as they
    lie in memory. None where the recipe does something else.
    """
    if not expert_parameters(model.skeleton):
        return Disk.none, ()
    shapes = {
        p.name.rpartition(".")[2]: tuple(d or 0 for d in p.shape or ()) for p in expert_parameters(model.skeleton)
    }
    held = pair_orientation(shapes.get("gate_up_proj", ()), shapes.get("down_proj", ()))
    converters = [t for t in (model.recipe.transforms if model.recipe else ()) if t.converts]
    about_experts = [t for t in converters if "experts" in "".join(t.sources)]
    if not about_experts:
        return (Disk.fused if held is Memory.canonical else Disk.none), ("gate_up_proj", "down_proj")
    names: dict[int, tuple[str, ...]] = {}
    for transform in about_experts:
        operations = [operation.name for operation in transform.operations]
        if operations == ["Transpose"]:
            return Disk.fused_transposed, ("gate_up_proj", "down_proj")
        if operations not in (["MergeModulelist", "Concatenate"], ["MergeModulelist"]):
            return None, ()
        names[len(transform.sources)] = tuple(
            source.rpartition(".*.")[2].removesuffix("$") for source in transform.sources
        )
    return (Disk.per_expert, (*names[2], *names[1])) if set(names) == {1, 2} else (None, ())
