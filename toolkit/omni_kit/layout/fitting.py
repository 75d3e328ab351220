"""Check whether the tensors that feed a parameter give it its shape: the recipe's operations, run on shapes alone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from omni_kit.errors import BadInput
from omni_kit.upstream.skeleton import Parameter
from omni_kit.upstream.transformers.recipes.expression import Expression
from omni_kit.upstream.transformers.recipes.operations import Slots, run_operation
from omni_kit.upstream.transformers.recipes.transform import Transform

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Misfit:
    """One parameter that loading would not fill as the model has it.

    Attributes:
        code: "half-fed", "shape-mismatch" or "fed-twice".
        message: what is wrong, without the parameter's name.
    """

    parameter: Parameter
    code: str
    message: str


@dataclass
class _Bucket:
    """Input of one application of a converter: by source, the shapes of its tensors; None if unknown."""

    names: tuple[str | None, ...]
    slots: dict[int, list[Shape | None]] = field(default_factory=dict)


class Feeds:
    """The tensors that feed each parameter.

    Args:
        parameters: of the model, by name.
    """

    def __init__(self, parameters: Mapping[str, Parameter]) -> None:
        self._parameters = parameters
        self._plain: dict[str, list[Shape | None]] = {}
        self._buckets: dict[Transform, dict[tuple[str | None, ...], _Bucket]] = {}

    def plain(self, name: str, shape: Shape | None) -> None:
        """A tensor comes to a parameter as it is."""
        self._plain.setdefault(name, []).append(shape)

    def converted(
        self, names: tuple[str | None, ...], transform: Transform, source: int, shapes: Sequence[Shape | None]
    ) -> None:
        """Tensors come through one source of a converter, to parameters in the order of its targets.

        Args:
            names: None for a target that is not a parameter of the model.
        """
        bucket = self._buckets.setdefault(transform, {}).setdefault(names, _Bucket(names))
        bucket.slots.setdefault(source, []).extend(shapes)

    def misfits(self) -> Iterator[Misfit]:
        """Yield every parameter that gets another shape, a part of itself, or more than one value."""
        fed = dict.fromkeys(self._plain, 0)
        for name, shapes in self._plain.items():
            fed[name] = len(shapes)
            yield from self._compare(name, shapes[0])
        for transform, buckets in self._buckets.items():
            for bucket in buckets.values():
                for name in filter(None, bucket.names):
                    fed[name] = fed.get(name, 0) + 1
                yield from self._of_bucket(transform, bucket)
        for name, count in fed.items():
            if count > 1:
                yield Misfit(self._parameters[name], "fed-twice", f"is fed {count} times: the last one wins")

    def _compare(self, name: str, found: Shape | None) -> Iterator[Misfit]:
        parameter = self._parameters[name]
        if found is not None and not _fits(found, parameter.shape):
            message = f"gets {list(found)}, the model has {_shown(parameter.shape)}"
            yield Misfit(parameter, "shape-mismatch", message)

    def _of_bucket(self, transform: Transform, bucket: _Bucket) -> Iterator[Misfit]:
        lost = [source for number, source in enumerate(transform.sources) if number not in bucket.slots]
        faults = list(self._run(transform, bucket))
        if not lost:
            yield from faults
        elif faults or any(None in shapes for shapes in bucket.slots.values()):
            there = next(transform.sources[number] for number in bucket.slots)
            for name in filter(None, bucket.names):
                yield Misfit(self._parameters[name], "half-fed", f"is made of {there} alone: {lost[0]} is missing")

    def _run(self, transform: Transform, bucket: _Bucket) -> Iterator[Misfit]:
        slots: Slots = []
        for _, shapes in sorted(bucket.slots.items()):
            known = [Expression(shape, ()) for shape in shapes if shape is not None]
            if len(known) != len(shapes):
                return
            slots.append(known)
        goals = [self._parameters[name].shape if name else None for name in bucket.names]
        try:
            for operation in transform.operations:
                slots = run_operation(operation, slots, goals)
        except BadInput:  # it does more than rearrange: what it makes of shapes is not known
            return
        except (ValueError, IndexError) as error:
            for name in filter(None, bucket.names):
                yield Misfit(self._parameters[name], "shape-mismatch", f"cannot be made: {error}")
            return
        for target, parts in zip(bucket.names, slots, strict=False):
            if target and len(parts) == 1:
                yield from self._compare(target, parts[0].shape)


def _fits(found: Shape, wanted: tuple[int | None, ...] | None) -> bool:
    if wanted is None:
        return True
    return len(found) == len(wanted) and all(b is None or a == b for a, b in zip(found, wanted, strict=True))


def _shown(shape: tuple[int | None, ...] | None) -> str:
    return f"[{', '.join('?' if size is None else str(size) for size in shape or ())}]"
