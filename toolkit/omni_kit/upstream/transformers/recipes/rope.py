"""PermuteForRope of a recipe: which rows change places depends on the number of heads, which the config knows."""

from dataclasses import replace

from omni_kit.upstream.model import Model
from omni_kit.upstream.transformers.config_view import ConfigView
from omni_kit.upstream.transformers.models import UpstreamModel
from omni_kit.upstream.transformers.recipes.book import Recipe
from omni_kit.upstream.transformers.recipes.transform import Operation, Transform

PERMUTE = "PermuteForRope"


def with_heads(model: Model) -> Recipe | None:
    """Return the model's recipe, in which every PermuteForRope says how many heads there are and which tensors it
    means.

    Where the config does not say, the operation stays as it is.
    """
    recipe = model.recipe
    if recipe is None or not isinstance(model, UpstreamModel):
        return recipe
    return replace(recipe, transforms=tuple(_bound(transform, model) for transform in recipe.transforms))


def _bound(transform: Transform, model: UpstreamModel) -> Transform:
    if all(operation.name != PERMUTE for operation in transform.operations):
        return transform
    return replace(transform, operations=tuple(_explicit(op, transform, model) for op in transform.operations))


def _explicit(operation: Operation, transform: Transform, model: UpstreamModel) -> Operation:
    given = dict(operation.kwargs)
    heads = _heads(model, given.get("subconfig_key"))
    if operation.name != PERMUTE or operation.args or heads is None:
        return operation
    patterns = transform.targets if len(transform.targets) > 1 else transform.sources
    names = given.get("permute_layer_names")
    permuted = tuple(names is None or any(name in pattern for name in names) for pattern in patterns)
    return Operation(PERMUTE, (), (("heads", heads), ("permuted", permuted), ("inverse", bool(given.get("inverse")))))


def _heads(model: UpstreamModel, sub_config: str | None) -> int | None:
    view = model.built_config
    if sub_config is not None and view.has(sub_config) and isinstance(inner := view.get(sub_config), ConfigView):
        view = inner
    heads = view.get("num_attention_heads") if view.has("num_attention_heads") else None
    return heads if isinstance(heads, int) else None
