"""A recipe run on expressions: hub names to memory names, and back."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from omni_kit.errors import BadInput
from omni_kit.plurals import counted
from omni_kit.upstream.transformers.recipes.book import Recipe
from omni_kit.upstream.transformers.recipes.expression import Expression
from omni_kit.upstream.transformers.recipes.operations import Shape, inverse_operation, run_operation
from omni_kit.upstream.transformers.recipes.reading import anchored
from omni_kit.upstream.transformers.recipes.transform import Transform

Tensors = dict[str, Expression]
Shapes = Mapping[str, Shape | None]

SCALE = "_scale_inv"
_LOOKAROUND = re.compile(r"\(\?.+?\)?\)")
_GROUP = re.compile(r"\(.+?\)")
# renamings that only replace text; any other kind may count or depend on other keys
_PLAIN = frozenset({"WeightRenaming", "PrefixChange", "GroupWeightRename", "Inkling2IndexOffsetWeightRename"})
_NUMBERED = re.compile(r"[0-9]+")


@dataclass
class _Bucket:
    """Input of one application of a converter: slot (which source pattern) -> tensors by name."""

    transform: Transform
    name: str
    members: dict[int, Tensors] = field(default_factory=dict)


def to_memory(recipe: Recipe | None, tensors: Tensors, shapes: Shapes) -> Tensors:
    """Rename and convert as loading does.

    Args:
        shapes: of the parameters; an operation that splits into unequal parts needs them. A key that is a parameter's
            name already keeps it, where a renaming would lead away from all parameters.

    Raises:
        BadInput: two tensors come to the same name, or an operation is no rearrangement that is known.
    """
    if recipe is None:
        return tensors
    renamed: Tensors = {}
    recipe = recipe.for_keys(tensors)
    for key, tensor in tensors.items():
        add(renamed, _renamed(recipe, key, shapes), tensor)
    return _converted(renamed, [t for t in recipe.transforms if t.converts], shapes)


def memory_name(recipe: Recipe | None, key: str, shapes: Shapes) -> str:
    """Return the name that a key comes to: after all renamings, and after its converter if one takes it."""
    if recipe is None:
        return key
    name = _renamed(recipe, key, shapes)
    place = _place(name, [transform for transform in recipe.transforms if transform.converts])
    return place[2] if place else name


def _renamed(recipe: Recipe, key: str, shapes: Shapes) -> str:
    """Return a key after all renamings, before any conversion."""
    name = key
    for transform, changed in recipe.renamings(key):
        if transform.kind not in _PLAIN:
            raise BadInput(f"{key} goes through the recipe's {transform.kind}, which does more than rename")
        name = changed
    return key if key in shapes and name not in shapes else name


def to_hub(recipe: Recipe | None, tensors: Tensors, shapes: Shapes) -> Tensors:
    """Convert back and rename back: what loading would turn into `tensors`.

    Raises:
        BadInput: an operation has no inverse, or a name cannot be traced back.
    """
    if recipe is None:
        return tensors
    inverses = [_inverse(t) for t in reversed(recipe.transforms) if t.kind != "PrefixChange"]
    weights = {name: tensor for name, tensor in tensors.items() if not name.endswith(SCALE)}
    # a pattern may end at the weight's name, so scales take the way of the weight beside them
    scales = {name.removesuffix(SCALE): tensor for name, tensor in tensors.items() if name.endswith(SCALE)}
    converters = [t for t in inverses if t.converts]
    _refuse_mixed_blocks(scales, converters)
    found = _converted(weights, converters, {})
    for name, tensor in _converted(scales, converters, {}).items():
        add(found, f"{name}{SCALE}", tensor)
    result: Tensors = {}
    renamings = [t for t in inverses if not t.converts]
    for name, tensor in found.items():
        add(result, _hub_name(recipe, renamings, name, shapes), tensor)
    return result


def _refuse_mixed_blocks(scales: Tensors, converters: Sequence[Transform]) -> None:
    """One scale covers a block of neighbouring rows: where rows alternate, blocks would mix."""
    for name in scales:
        place = _place(name, converters)
        if place and any("nterleave" in operation.name for operation in converters[place[0]].operations):
            raise BadInput(
                f"{name}{SCALE} cannot be reordered: one block's scale would cover interleaved gate and up rows"
            )


def _hub_name(recipe: Recipe, inverses: Sequence[Transform], name: str, shapes: Shapes) -> str:
    key = name
    for transform in inverses:
        key = transform.rename(key) or key
    for candidate in (key, name):
        found = _renamed(recipe, candidate, shapes)
        if name in {found, found.partition(".")[2]}:  # a base model's own keys go without its prefix
            return candidate
    raise BadInput(f"{name} cannot be renamed to hub names: the recipe maps {key} elsewhere")


def _converted(tensors: Tensors, converters: Sequence[Transform], shapes: Shapes) -> Tensors:
    buckets: dict[tuple[str, int], _Bucket] = {}
    result: Tensors = {}
    for name, tensor in tensors.items():
        place = _place(name, converters)
        if place is None:
            add(result, name, tensor)
            continue
        number, slot, target = place
        bucket = buckets.setdefault((target, number), _Bucket(converters[number], name))
        bucket.members.setdefault(slot, {})[name] = tensor
    for (target, _), bucket in buckets.items():
        for name, tensor in _apply(bucket, target, shapes):
            add(result, name, tensor)
    return result


def _place(name: str, converters: Sequence[Transform]) -> tuple[int, int, str] | None:
    """Return the converter of a tensor, the source that it matches, and the name of the first target."""
    for number, transform in enumerate(converters):
        for slot, one in enumerate(transform.by_source):
            target = one.rename(name)
            if target is not None:
                return number, slot, target
    return None


def _apply(bucket: _Bucket, target: str, shapes: Shapes) -> list[tuple[str, Expression]]:
    transform = bucket.transform
    lost = [source for slot, source in enumerate(transform.sources) if slot not in bucket.members]
    if lost:
        raise BadInput(f"{target} needs {lost[0]}, which is missing")
    slots = [_ordered(bucket.members[slot]) for slot in range(len(transform.sources))]
    first = transform.sources[next(iter(bucket.members))]
    names = [_target(transform, first, bucket.name, goal) for goal in transform.targets]
    for operation in transform.operations:
        try:
            slots = run_operation(operation, slots, [shapes.get(name) for name in names])
        except (ValueError, IndexError) as error:
            raise BadInput(f"{target}: {operation} does not fit: {error}") from error
    if len(slots) != len(names):
        raise BadInput(
            f"{target}: {transform.operations[-1]} gives {counted(slots, 'tensor')} for {counted(names, 'name')}"
        )
    found: list[tuple[str, Expression]] = []
    for name, parts in zip(names, slots, strict=True):
        numbered = "*" in name
        found += [(name.replace("*", str(i)) if numbered else name, part) for i, part in enumerate(parts)]
    return found


def _target(transform: Transform, source: str, name: str, goal: str) -> str:
    renamed = replace(transform, sources=(source,), targets=(goal,)).rename(name)
    return renamed if renamed is not None else name


def _ordered(members: Tensors) -> list[Expression]:
    """Return tensors in the order of the numbers in their names."""
    return [members[name] for name in sorted(members, key=_numbers)]


def _numbers(name: str) -> list[tuple[int, str]]:
    """Return the numbers of a name, comparable as numbers however long they are."""
    found = (digits.lstrip("0") for digits in _NUMBERED.findall(name))
    return [(len(digits), digits) for digits in found]


def add(tensors: Tensors, name: str, tensor: Expression) -> None:
    """Add a tensor under a name that must be free.

    Raises:
        BadInput: it is not.
    """
    if name in tensors:
        raise BadInput(f"two tensors of the checkpoint would both become {name}")
    tensors[name] = tensor


def _inverse(transform: Transform) -> Transform:
    """Return the transform that undoes this one; anchors and capture groups move over as upstream moves them."""
    groups = [match.group(0) for s in transform.sources if (match := _GROUP.search(_LOOKAROUND.sub("", s)))]
    sources = [goal.replace(r"\1", groups[0], 1) if groups else goal for goal in transform.targets]
    if len(sources) == len(transform.sources):
        sources = [anchored(goal, source) for goal, source in zip(sources, transform.sources, strict=True)]
    operations = tuple(inverse_operation(operation) for operation in reversed(transform.operations))
    return replace(
        transform, sources=tuple(sources), targets=transform.sources, operations=operations, offset=-transform.offset
    )
